//! One connection of a client.

use std::io::{Error, ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rt::buf::PooledBuf;
use rt::mem::Class;
use rt::sync::Arc;
use rt::sync::atomic::Ordering;
use rt::{Account, BufPool, Grant};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use wire::trays::{BAYS_BYTES, TRAYS_BYTES};
use wire::{
    Answer, BAY_LEAST, BULK_MAX, Cores, ENDING, FILES_MAX, Failure, HEADER, Head, Hello, Inbox,
    Look, PART_BESIDE_BULK_MAX, PIPE_LEAST, Reply, Request, SEND_BUFFER, Way, decode, encode,
};

use super::beside::Beside;
use super::handles::{Moved, Session, Sessions};
use super::leases::Shop;
use super::reads::{Bulk, Next};
use super::requests::{Goal, answer, goal};
use super::shares::Shares;
use super::tree::{Result, fail};
use super::turns::Turns;
use crate::pace::Clock;
use crate::peer::Peer;

/// Bytes of a greeting, at most: it names a tree and a session.
const HELLO_MAX: usize = 4096;
/// Bytes that a typed part takes when it is decoded, for each that it has, at most: of pieces to be read each takes two.
const DECODED: usize = 8;

/// Memory of a connection's thread and trays, about, in bytes.
const THREAD_BYTES: u64 = (96 << 10) + TRAYS_BYTES as u64;

/// Where the memory for requests and answers comes from.
#[derive(Clone, Copy)]
pub(crate) struct Supply<'a> {
    pub(crate) buffers: &'a BufPool,
    pub(crate) memory: &'a Account,
    pub(crate) shares: &'a Shares,
    /// Where clients have bytes that they send themselves.
    pub(crate) shop: Option<&'a Shop>,
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

    /// One of all of `bytes`, if it can be had without waiting.
    pub(super) fn grant_now(self, bytes: u64) -> Option<Grant> {
        self.memory.try_grant(Class::Normal, bytes)
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
    // Who has begun something has others to answer, before he comes for what came of it.
    rt::thread::be_lenient();
    let (inbox, look) = (Inbox::default(), Look::default());
    let turns = Turns::on(sessions.cores());
    let mut lane = Lane { stream, inbox, look, turns, beside: None, bays: None, supply };
    match greet(stream, peer, sessions, supply, length) {
        Ok((session, beside)) => {
            lane.welcome(&session, beside)?;
            lane.serve(&session, sessions.moved())
        }
        Err(failure) => {
            let why = if sessions.are_ending() { ending() } else { failure };
            // Who went away does not want to know why he is refused, nor does the log: anybody may come.
            drop(lane.send(&Err(why), None));
            Ok(())
        }
    }
}

/// What is asked of a server that closes its pools is for the next one.
fn ending() -> Failure {
    Failure { errno: ENDING, text: "the server is about to end".into() }
}

/// The session of a client that has greeted, and whether it wants pipes and trays.
fn greet(
    stream: &UnixStream,
    peer: Peer,
    sessions: &Sessions,
    supply: Supply<'_>,
    length: usize,
) -> Result<(Arc<Session>, bool)> {
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
    let session = match &hello.session {
        Some(number) => sessions.join(peer, number),
        None => sessions.begin(peer, &hello.tree),
    };
    Ok((session?, hello.beside))
}

/// A connection whose client was welcome.
struct Lane<'a> {
    stream: &'a UnixStream,
    inbox: Inbox,
    look: Look,
    turns: Turns,
    /// Its pipes and trays. Without, all bytes go over the socket.
    beside: Option<Beside<'a>>,
    /// For the memory of its bays, once they are used.
    bays: Option<Grant>,
    supply: Supply<'a>,
}

/// A request as it came, and the memory for what of it is typed.
struct Came {
    head: Head,
    request: Request,
    memory: Option<Grant>,
}

impl<'a> Lane<'a> {
    /// Tells the client its session, and gives it its part of what goes beside, if it wants that.
    fn welcome(&mut self, session: &Session, beside: bool) -> std::io::Result<()> {
        let welcome: Answer = Ok(Reply::Welcome(session.number()));
        // Where there are no more files, it goes without.
        let pipes = beside.then(|| Beside::new(self.stream).ok()).flatten();
        let Some((beside, theirs)) = pipes else { return self.send(&welcome, None) };
        self.beside = Some(beside);
        let frame = encode(&welcome, 0, Way::Behind).map_err(invalid)?;
        let shelf = self.supply.shop.map(|shop| shop.shelf().reader());
        let theirs: Vec<BorrowedFd<'_>> = theirs.iter().map(OwnedFd::as_fd).chain(shelf).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        with.push(SendAncillaryMessage::ScmRights(&theirs));
        let sent = sendmsg(self.stream, &[IoSlice::new(&frame)], &mut with, SendFlags::NOSIGNAL)?;
        self.clock().write(self.stream, &[&frame[sent..]])
    }

    /// The clock of a message that begins now.
    fn clock(&self) -> Clock<'a> {
        Clock::of(self.supply)
    }

    fn serve(&mut self, session: &Session, moved: &Moved) -> std::io::Result<()> {
        while self.wait()? {
            // Before it waits for anything.
            if let Some(beside) = &mut self.beside {
                beside.settle()?;
            }
            let Came { head, request, memory: part_memory } = self.receive()?;
            self.turns.came(moved.requests.fetch_add(1, Ordering::Relaxed));
            let next = Next::after(&request).filter(|_| self.turns.are_of_few());
            let done = match goal(session, &request) {
                Ok(goal) => {
                    let (bulk, memory) = self.bulk(head, goal.as_ref())?;
                    // What reads asks for its own, and must hold nothing while it waits.
                    drop(part_memory);
                    let done = answer(session, request, goal, bulk, self.supply);
                    drop(memory);
                    done
                }
                Err(failure) => {
                    self.pass_over(head)?;
                    Err(failure)
                }
            };
            let (answer, read) = match done {
                Ok((reply, read)) => (Ok(reply), read),
                Err(failure) => (Err(failure), None),
            };
            if session.tree.is_ending() {
                match &answer {
                    // The pool has gone before anything was done.
                    Err(failure) if failure.errno == fs::code::NXIO => {
                        return self.send(&Err(ending()), None);
                    }
                    // In the middle of it: who sees no answer asks the next server.
                    Err(Failure { errno: fs::code::IO, .. })
                    | Ok(Reply::Opened { kept_since_ms: 0, .. }) => return Ok(()),
                    _ => {}
                }
            }
            match &answer {
                Ok(Reply::Bytes | Reply::Got(_) | Reply::Opened { whole: Some(_), .. }) => {
                    let count = read.as_ref().map_or(0, Bulk::length);
                    moved.read.fetch_add(count as u64, Ordering::Relaxed);
                }
                Ok(Reply::Leased { places, .. }) => {
                    let count = places.iter().map(|(_, length)| u64::from(*length)).sum();
                    moved.read.fetch_add(count, Ordering::Relaxed);
                }
                // Bytes come with nothing but what writes them.
                Ok(_) => _ = moved.written.fetch_add(head.bulk as u64, Ordering::Relaxed),
                Err(_) => {}
            }
            // At the end of the file there is none.
            let next = next.filter(|next| read.as_ref().is_some_and(|read| next.follows(read)));
            let sent = self.send(&answer, read);
            // Nobody knows of it.
            match (&sent, &answer) {
                (Err(_), Ok(Reply::Opened { handle, .. })) => drop(session.close(*handle)),
                (Err(_), Ok(Reply::Leased { lease, .. })) => session.leases.end(&[*lease], None),
                _ => {}
            }
            sent?;
            if let Some(next) = next {
                while self.has_time() && next.prepare(session) {}
            }
        }
        Ok(())
    }

    /// Is the client still busy with the answer? If it shares our core, it runs while we yield, and has asked again by
    /// then. What it asks later stays on the tray until the next look.
    fn has_time(&mut self) -> bool {
        let Some(trays) = self.beside.as_ref().map(|beside| &beside.trays) else { return false };
        trays.look();
        rt::thread::yield_now();
        trays.take(&mut self.inbox).is_none() && self.inbox.is_empty()
    }

    /// Waits for a request; false: the client has gone.
    fn wait(&mut self) -> std::io::Result<bool> {
        if !self.inbox.is_empty() {
            return Ok(true);
        }
        let trays = self.beside.as_ref().map(|beside| &beside.trays);
        let few_ask = self.turns.are_of_few();
        let found = match few_ask {
            true => self.look.over(self.stream, trays, &mut self.inbox, Cores::Unknown),
            false => trays.and_then(|trays| trays.leave(&mut self.inbox)),
        };
        if let Some(count) = found {
            return Ok(count > 0);
        }
        let mut has_come = false;
        if let Some(beside) = &mut self.beside {
            has_come = beside.wait()?;
        }
        // Between two requests a client may take as long as it likes.
        let mut fds = [PollFd::new(self.stream, PollFlags::IN)];
        while !has_come && poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
        let count = self.inbox.fill(&mut self.clock().over(self.stream))?;
        if few_ask {
            self.look.came();
        }
        Ok(count > 0)
    }

    /// Receives a head and the typed part that it announces, with the memory for it: little beside bulk bytes, which
    /// wait.
    fn receive(&mut self) -> std::io::Result<Came> {
        let mut head = [0; HEADER];
        self.take_in(&mut head)?;
        let head = Head::read(head).map_err(invalid)?;
        if head.bulk > 0 && head.part > PART_BESIDE_BULK_MAX {
            return Err(invalid(wire::FrameError::Part(head.part)));
        }
        let wanted = (DECODED * head.part) as u64;
        let memory = (head.bulk == 0).then(|| self.supply.grant(wanted)).flatten();
        let mut part = vec![0; head.part];
        self.take_in(&mut part)?;
        Ok(Came { head, request: decode(&part).map_err(invalid)?, memory })
    }

    /// Takes bytes of a message, by a clock of their own if it has to wait for them.
    fn take_in(&mut self, out: &mut [u8]) -> std::io::Result<()> {
        match self.inbox.take_now(out) {
            true => Ok(()),
            false => self.inbox.take(&mut self.clock().over(self.stream), out),
        }
    }

    /// Takes the bulk bytes of a request into buffers for where they go, with the memory for them and what it takes to
    /// write them.
    fn bulk(
        &mut self,
        head: Head,
        goal: Option<&Goal>,
    ) -> std::io::Result<(Vec<PooledBuf>, impl Sized + use<'a>)> {
        if head.bulk == 0 {
            return Ok((Vec::new(), None));
        }
        let Some(Goal { handle, offset }) = goal else {
            let why = "bytes that nobody asked for".to_string();
            return Err(invalid(wire::FrameError::Malformed(why)));
        };
        // Its bytes, and once more as records, unless they are whole ones.
        let wanted = 2 * head.bulk as u64;
        let share = self.supply.shares.take(handle.place.pool(), wanted);
        let memory = self.supply.grant(wanted);
        let mut bulk = handle.place.fs.buffers_for(*offset, head.bulk);
        let (mut clock, mut at) = (None, 0);
        for piece in &mut bulk {
            self.take(head, &mut clock, at, piece)?;
            at += piece.len();
        }
        Ok((bulk, Some((share, memory))))
    }

    /// Takes bulk bytes of a request, the next ones from `at` on, wherever they come, by the clock of all of them, which begins
    /// when they are waited for.
    fn take(
        &mut self,
        head: Head,
        clock: &mut Option<Clock<'a>>,
        at: usize,
        out: &mut [u8],
    ) -> std::io::Result<()> {
        let mut clock = || *clock.get_or_insert_with(|| Clock::of(self.supply));
        match (head.way, &self.beside) {
            (Way::Behind, _) if self.inbox.take_now(out) => Ok(()),
            (Way::Behind, _) => self.inbox.take(&mut clock().over(self.stream), out),
            (Way::Pipe, Some(beside)) => beside.take(clock(), out),
            (Way::Bay, Some(beside)) => {
                // They are in use already.
                self.bays.get_or_insert_with(|| self.supply.memory.take(BAYS_BYTES as u64));
                beside.trays.empty(at, out)
            }
            (_, None) => {
                let why = "bytes beside what has nothing beside it".to_string();
                Err(invalid(wire::FrameError::Malformed(why)))
            }
        }
    }

    /// Reads bytes that nobody wants.
    fn pass_over(&mut self, head: Head) -> std::io::Result<()> {
        let (mut at, mut part, mut clock) = (0, [0; 16 << 10], None);
        while at < head.bulk {
            let now = (head.bulk - at).min(part.len());
            self.take(head, &mut clock, at, &mut part[..now])?;
            at += now;
        }
        Ok(())
    }

    fn send(&mut self, answer: &Answer, bulk: Option<Bulk>) -> std::io::Result<()> {
        let length = bulk.as_ref().map_or(0, Bulk::length);
        debug_assert!(length <= BULK_MAX);
        let way = self.way_of(length);
        let frame = match encode(answer, length, way) {
            Ok(frame) => frame,
            // A value, or a list of names, that is longer than an answer may be: that is its answer.
            Err(why) => {
                let failure =
                    Failure { errno: fs::code::TOOBIG, text: format!("the answer: {why}") };
                let frame = encode(&Answer::Err(failure), 0, Way::Behind).map_err(Error::other)?;
                return self.clock().write(self.stream, &[&frame]);
            }
        };
        match (way, bulk, &mut self.beside) {
            (Way::Pipe, Some(bulk), Some(beside)) => {
                let clock = Clock::of(self.supply);
                let done = beside.lend(bulk, clock)?;
                self.say(&[&frame], Some(clock))?;
                self.beside.as_ref().map_or(Ok(()), |beside| beside.lend_rest(done))
            }
            (Way::Bay, Some(bulk), Some(beside)) => match beside.trays.fill(&bulk.pieces(0)) {
                true => self.say(&[&frame], None),
                false => Err(Error::other("an answer that is larger than its bay")),
            },
            (_, bulk, _) => {
                let mut pieces = vec![&frame[..]];
                pieces.extend(bulk.iter().flat_map(|bulk| bulk.pieces(0)));
                self.say(&pieces, None)
            }
        }
    }

    /// By which way so many bulk bytes go to the client.
    fn way_of(&mut self, length: usize) -> Way {
        match length {
            _ if self.beside.is_none() => Way::Behind,
            PIPE_LEAST.. => Way::Pipe,
            BAY_LEAST.. if self.has_bays() => Way::Bay,
            _ => Way::Behind,
        }
    }

    /// Do few ask, and is there memory for their bays?
    fn has_bays(&mut self) -> bool {
        if !self.turns.are_of_few() {
            return false;
        }
        let memory = self.supply.memory;
        self.bays = self.bays.take().or_else(|| memory.try_grant(Class::Normal, BAYS_BYTES as u64));
        self.bays.is_some()
    }

    /// Lays an answer where the client looks, or sends it, by the clock that has begun, if one has. The client may ask again at
    /// once, so we look before.
    fn say(&self, pieces: &[&[u8]], clock: Option<Clock<'a>>) -> std::io::Result<()> {
        let trays = self.beside.as_ref().map(|beside| &beside.trays);
        let looks_next = self.turns.are_of_few() && self.look.is_likely();
        trays.filter(|_| looks_next).inspect(|trays| trays.look());
        match trays.is_some_and(|trays| trays.put(pieces)) {
            true => Ok(()),
            false => clock.unwrap_or_else(|| self.clock()).write(self.stream, pieces),
        }
    }
}

fn invalid(why: wire::FrameError) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}
