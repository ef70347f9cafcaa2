//! One connection of a client.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rt::mem::Class;
use rt::sync::Arc;
use rt::sync::atomic::Ordering;
use rt::{Account, BufPool, Grant};
use wire::{Answer, BULK_MAX, HEADER, Head, Hello, PART_MAX, Reply, decode, encode};

use super::handles::{Moved, Session, Sessions};
use super::requests::{Bulk, answer};
use super::tree::{Result, fail};
use crate::peer::Peer;

/// How long a message that has begun may take to arrive, or an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(30);

/// Memory of a connection's thread, about, in bytes.
const THREAD_BYTES: u64 = 96 << 10;

/// Where the memory for requests and answers comes from.
#[derive(Clone, Copy)]
pub(crate) struct Supply<'a> {
    pub(crate) buffers: &'a BufPool,
    pub(crate) memory: &'a Account,
}

impl Supply<'_> {
    /// A grant for a request that takes `bytes`. Who gets none waits: it has not been read yet, or nothing was done
    /// for it. It is asked for at once and holds nothing else by then, so those who have theirs go on.
    pub(super) fn grant(self, bytes: u64) -> Option<Grant> {
        let most = self.memory.max(Class::Normal) / 4;
        self.memory.grant(Class::Normal, bytes.min(most)).ok()
    }
}

/// Serves a connection to its end. Its first bytes were read: what follows is `length` bytes of hello.
pub(crate) fn serve(
    mut stream: UnixStream,
    peer: Peer,
    sessions: &Sessions,
    supply: Supply<'_>,
    length: usize,
) -> std::io::Result<()> {
    let _thread = supply.memory.take(THREAD_BYTES);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let session = match greet(&mut stream, peer, sessions, length) {
        Ok(session) => session,
        Err(failure) => return send(&mut stream, &Err(failure), None),
    };
    send(&mut stream, &Ok(Reply::Welcome(session.number())), None)?;
    serve_session(&mut stream, &session, sessions.moved(), supply)
}

fn greet(
    stream: &mut UnixStream,
    peer: Peer,
    sessions: &Sessions,
    length: usize,
) -> Result<Arc<Session>> {
    if !sessions.admit(peer) {
        return fail(fs::code::PERM, format!("the server has no files for user {}", peer.uid));
    }
    if length > PART_MAX {
        return fail(fs::code::INVAL, format!("a greeting of {length} bytes"));
    }
    let mut hello = vec![0; length];
    if let Err(error) = stream.read_exact(&mut hello) {
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
    stream: &mut UnixStream,
    session: &Session,
    moved: &Moved,
    supply: Supply<'_>,
) -> std::io::Result<()> {
    let mut part = Vec::new();
    loop {
        let mut head = [0; HEADER];
        // Between two requests a client may take as long as it likes.
        match read_first(stream, &mut head) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return Err(error),
        }
        let invalid = |why: wire::FrameError| std::io::Error::new(ErrorKind::InvalidData, why);
        let head = Head::read(head).map_err(invalid)?;
        // Its bytes, once more as records, and what is said of them.
        let mut memory = Some(supply.grant((2 * head.bulk + head.part) as u64));
        part.resize(head.part, 0);
        stream.read_exact(&mut part)?;
        let mut bulk = (head.bulk > 0).then(|| supply.buffers.get(head.bulk));
        if let Some(bulk) = &mut bulk {
            stream.read_exact(bulk)?;
        }
        let request = decode(&part).map_err(invalid)?;
        if head.bulk == 0 {
            // What reads asks for its own, and must hold nothing while it waits.
            memory = None;
        }
        moved.requests.fetch_add(1, Ordering::Relaxed);
        let bytes = bulk.as_deref().unwrap_or(&[]);
        let (answer, bulk) = match answer(session, request, bytes, supply) {
            Ok((reply, bulk)) => (Ok(reply), bulk),
            Err(failure) => (Err(failure), None),
        };
        match &answer {
            Ok(Reply::Bytes) => {
                let read = bulk.as_ref().map_or(0, |bulk| bulk.bytes().len());
                moved.read.fetch_add(read as u64, Ordering::Relaxed);
            }
            // Bytes come with nothing but a write.
            Ok(_) => _ = moved.written.fetch_add(head.bulk as u64, Ordering::Relaxed),
            Err(_) => {}
        }
        send(stream, &answer, bulk)?;
        drop(memory);
        part.shrink_to(4096);
    }
}

/// Reads the first bytes of a message; false: there is none, the client has gone.
fn read_first(stream: &mut UnixStream, head: &mut [u8; HEADER]) -> std::io::Result<bool> {
    stream.set_read_timeout(None)?;
    let first = stream.read(&mut head[..1]);
    stream.set_read_timeout(Some(PATIENCE))?;
    if first? == 0 {
        return Ok(false);
    }
    stream.read_exact(&mut head[1..])?;
    Ok(true)
}

fn send(stream: &mut UnixStream, answer: &Answer, bulk: Option<Bulk>) -> std::io::Result<()> {
    let bulk: &[u8] = bulk.as_ref().map_or(&[], |bulk| bulk.bytes());
    debug_assert!(bulk.len() <= BULK_MAX);
    let frame = encode(answer, bulk.len()).map_err(|why| std::io::Error::other(why.to_string()))?;
    let mut slices = [IoSlice::new(&frame), IoSlice::new(bulk)];
    let (mut rest, mut left) = (&mut slices[..], frame.len() + bulk.len());
    while left > 0 {
        match stream.write_vectored(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => {
                left -= count;
                IoSlice::advance_slices(&mut rest, count);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
