//! One connection of a client.

use std::io::{Error, ErrorKind, Read};
use std::os::unix::net::UnixStream;

use rt::mem::Class;
use rt::sync::Arc;
use rt::sync::atomic::Ordering;
use rt::{Account, BufPool, Grant};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;
use wire::{
    Answer, BULK_MAX, Failure, HEADER, Head, Hello, Inbox, Reply, Request, SEND_BUFFER, decode,
    encode,
};

use super::handles::{Moved, Session, Sessions};
use super::requests::{Bulk, answer};
use super::shares::Shares;
use super::tree::{Result, fail};
use crate::pace::Clock;
use crate::peer::Peer;

/// Bytes of a greeting, at most: it names a tree and a session.
const HELLO_MAX: usize = 4096;
/// Bytes that a typed part takes when it is decoded, for each that it has, at most: of pieces to be read each takes two.
const DECODED: usize = 8;

/// Bytes of the typed part of a write, at most: two numbers.
const WRITE_MAX: usize = 64;

/// Memory of a connection's thread, about, in bytes.
const THREAD_BYTES: u64 = 96 << 10;

/// Where the memory for requests and answers comes from.
#[derive(Clone, Copy)]
pub(crate) struct Supply<'a> {
    pub(crate) buffers: &'a BufPool,
    pub(crate) memory: &'a Account,
    pub(crate) shares: &'a Shares,
}

impl Supply<'_> {
    /// Does anybody wait for memory?
    pub(crate) fn is_wanted(self) -> bool {
        self.memory.wanted() > 0 || self.shares.are_wanted()
    }

    /// A grant for a request that takes `bytes`. Who gets none waits: it has not been read yet, or nothing was done
    /// for it. It is asked for at once and holds nothing else by then, so those who have theirs go on.
    pub(super) fn grant(self, bytes: u64) -> Option<Grant> {
        let most = self.memory.max(Class::Normal) / 4;
        self.memory.grant(Class::Normal, bytes.min(most)).ok()
    }

    /// The same, if it can be had without waiting.
    pub(super) fn grant_now(self, bytes: u64) -> Option<Grant> {
        let most = self.memory.max(Class::Normal) / 4;
        self.memory.try_grant(Class::Normal, bytes.min(most))
    }
}

/// Serves a connection to its end. Its first bytes were read: what follows is `length` bytes of hello.
pub(crate) fn serve(
    stream: &UnixStream,
    peer: Peer,
    sessions: &Sessions,
    supply: Supply<'_>,
    length: usize,
) -> std::io::Result<()> {
    let _thread = supply.memory.take(THREAD_BYTES);
    // Where the system has less to give, it goes on with that.
    let _ = set_socket_send_buffer_size(stream, SEND_BUFFER);
    let session = match greet(stream, peer, sessions, supply, length) {
        Ok(session) => session,
        Err(failure) => return send(stream, &Err(failure), None, supply),
    };
    send(stream, &Ok(Reply::Welcome(session.number())), None, supply)?;
    serve_session(stream, &session, sessions.moved(), supply)
}

fn greet(
    stream: &UnixStream,
    peer: Peer,
    sessions: &Sessions,
    supply: Supply<'_>,
    length: usize,
) -> Result<Arc<Session>> {
    if !sessions.admit(peer) {
        return fail(fs::code::PERM, format!("the server has no files for user {}", peer.uid));
    }
    if length > HELLO_MAX {
        return fail(fs::code::INVAL, format!("a greeting of {length} bytes"));
    }
    let mut hello = vec![0; length];
    if let Err(error) = Clock::of(supply).over(stream).read_exact(&mut hello) {
        return fail(fs::code::IO, format!("the greeting was not received: {error}"));
    }
    let hello: Hello = match decode(&hello) {
        Ok(hello) => hello,
        Err(why) => return fail(fs::code::INVAL, why.to_string()),
    };
    match &hello.session {
        Some(number) => sessions.join(peer, number),
        None => sessions.begin(peer, &hello.tree),
    }
}

fn serve_session(
    stream: &UnixStream,
    session: &Session,
    moved: &Moved,
    supply: Supply<'_>,
) -> std::io::Result<()> {
    let mut inbox = Inbox::default();
    loop {
        if inbox.is_empty() {
            // Between two requests a client may take as long as it likes.
            let mut fds = [PollFd::new(stream, PollFlags::IN)];
            while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
            if inbox.fill(&mut Clock::of(supply).over(stream))? == 0 {
                // It has gone.
                return Ok(());
            }
        }
        let (head, request, part_memory) = receive(stream, &mut inbox, supply)?;
        let (bulk, memory) = match (&request, head.bulk) {
            (_, 0) => (None, None),
            (Request::Write { handle, .. }, _) => match session.handle(*handle) {
                Ok(handle) => {
                    // Its bytes, and once more as records.
                    let wanted = 2 * head.bulk as u64;
                    let share = supply.shares.take(handle.place.pool(), wanted);
                    let memory = supply.grant(wanted);
                    let mut bulk = supply.buffers.get(head.bulk);
                    inbox.take(&mut Clock::of(supply).over(stream), &mut bulk)?;
                    (Some(bulk), Some((share, memory)))
                }
                Err(failure) => {
                    pass_over(stream, &mut inbox, head.bulk, supply)?;
                    send(stream, &Err(failure), None, supply)?;
                    continue;
                }
            },
            _ => {
                let why = "bytes that nobody asked for".to_string();
                return Err(invalid(wire::FrameError::Malformed(why)));
            }
        };
        // What reads asks for its own, and must hold nothing while it waits.
        drop(part_memory);
        moved.requests.fetch_add(1, Ordering::Relaxed);
        let bytes = bulk.as_deref().unwrap_or(&[]);
        let (answer, read) = match answer(session, request, bytes, supply) {
            Ok((reply, read)) => (Ok(reply), read),
            Err(failure) => (Err(failure), None),
        };
        drop((bulk, memory));
        let refused = answer.as_ref().is_err_and(|failure| failure.errno == fs::code::IO);
        if refused && session.tree.is_ending() {
            // The next server does it.
            return Ok(());
        }
        match &answer {
            Ok(Reply::Bytes) => {
                let count = read.as_ref().map_or(0, |bulk| bulk.bytes().len());
                moved.read.fetch_add(count as u64, Ordering::Relaxed);
            }
            // Bytes come with nothing but a write.
            Ok(_) => _ = moved.written.fetch_add(head.bulk as u64, Ordering::Relaxed),
            Err(_) => {}
        }
        send(stream, &answer, read, supply)?;
    }
}

/// Receives a head and the typed part that it announces, with the memory for it: little beside bulk bytes, which wait.
fn receive(
    stream: &UnixStream,
    inbox: &mut Inbox,
    supply: Supply<'_>,
) -> std::io::Result<(Head, Request, Option<Grant>)> {
    let mut head = [0; HEADER];
    inbox.take(&mut Clock::of(supply).over(stream), &mut head)?;
    let head = Head::read(head).map_err(invalid)?;
    if head.bulk > 0 && head.part > WRITE_MAX {
        return Err(invalid(wire::FrameError::Part(head.part)));
    }
    let memory = (head.bulk == 0).then(|| supply.grant((DECODED * head.part) as u64)).flatten();
    let mut part = vec![0; head.part];
    inbox.take(&mut Clock::of(supply).over(stream), &mut part)?;
    Ok((head, decode(&part).map_err(invalid)?, memory))
}

/// Reads bytes that nobody wants.
fn pass_over(
    stream: &UnixStream,
    inbox: &mut Inbox,
    mut bytes: usize,
    supply: Supply<'_>,
) -> std::io::Result<()> {
    let (mut incoming, mut part) = (Clock::of(supply).over(stream), [0; 16 << 10]);
    while bytes > 0 {
        let now = bytes.min(part.len());
        inbox.take(&mut incoming, &mut part[..now])?;
        bytes -= now;
    }
    Ok(())
}

fn invalid(why: wire::FrameError) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

fn send(
    stream: &UnixStream,
    answer: &Answer,
    bulk: Option<Bulk>,
    supply: Supply<'_>,
) -> std::io::Result<()> {
    let bulk: &[u8] = bulk.as_ref().map_or(&[], |bulk| bulk.bytes());
    debug_assert!(bulk.len() <= BULK_MAX);
    let frame = match encode(answer, bulk.len()) {
        Ok(frame) => frame,
        // A value, or a list of names, that is longer than an answer may be: that is its answer.
        Err(why) => {
            let failure = Failure { errno: fs::code::TOOBIG, text: format!("the answer: {why}") };
            encode(&Answer::Err(failure), 0).map_err(Error::other)?
        }
    };
    Clock::of(supply).write(stream, &frame, bulk)
}
