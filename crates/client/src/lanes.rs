//! The connections of a client.

use std::io::{ErrorKind, IoSlice};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rt::sync::{Arc, Condvar, Mutex};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use wire::{
    Answer, BESIDE_LEAST, HEADER, Head, Hello, Inbox, Look, MAGIC, Reply, Request, SEND_BUFFER,
    Session, decode, encode,
};

use crate::beside::{Beside, Welcome};
use crate::error::{Error, Result, code};

/// How often a server that has gone is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// Answers that are left on one connection for later, at most: the socket holds them all.
const OWED_MAX: usize = 64;

/// How a client reaches its server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server's socket.
    pub socket: PathBuf,
    /// The tree: `POOL[/FS]`.
    pub tree: String,
    /// Connections, at most: so many calls are under way at once.
    pub lanes_max: usize,
    /// How long a call waits for a server that has gone.
    pub patience: Duration,
}

impl Options {
    /// With 16 connections, and ten seconds for a server to come back.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>, tree: impl Into<String>) -> Options {
        let patience = Duration::from_secs(10);
        Options { socket: socket.into(), tree: tree.into(), lanes_max: 16, patience }
    }
}

/// A client of one tree. Any number of threads may use it at once.
pub struct Client {
    options: Options,
    cores: usize,
    state: Mutex<State>,
    /// A connection came free.
    free: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Lane>,
    /// Connections that are there, idle or not.
    count: usize,
    session: Option<Session>,
    /// Sessions so far: open files are of one of them.
    epoch: u64,
}

/// One connection.
struct Lane {
    stream: UnixStream,
    inbox: Inbox,
    look: Look,
    /// No more are in use than there are cores.
    is_of_few: bool,
    /// Its pipes, if the server gave any.
    beside: Option<Beside>,
    /// The server gave some, and not all of them came.
    lacks_pipes: bool,
    /// Answers that nobody waits for, and that were not taken yet.
    owed: usize,
    epoch: u64,
}

/// How a call on a connection failed.
enum Broken {
    /// The server never had the request.
    Unsent(std::io::Error),
    /// It may have done it.
    Unanswered(std::io::Error),
    /// What came back makes no sense.
    Senseless(String),
}

/// How often something may be tried yet: what makes each server go away that is asked for it is not asked for ever.
/// Times at which there is no server do not count.
pub(crate) struct Trials {
    is_first: bool,
    left: Duration,
}

impl Trials {
    /// Once more, at once the first time; an error when there were enough.
    pub(crate) fn once_more(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_first) {
            return Ok(());
        }
        let Some(left) = self.left.checked_sub(LOOK) else {
            return Err(Error::new(code::EIO, "the server went away whenever it was asked this"));
        };
        self.left = left;
        rt::time::sleep(LOOK);
        Ok(())
    }
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// There is no server, it does not serve the tree, or not to us.
    pub fn connect(options: Options) -> Result<Arc<Client>> {
        let (state, free) = (Mutex::default(), Condvar::new());
        let client = Client { options, cores: rt::thread::available_cores(), state, free };
        let lane = client.take(true)?;
        client.put_back(lane);
        Ok(Arc::new(client))
    }

    /// The session that is open files' now.
    pub(crate) fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    /// Asks, and asks again if the server went away before it had heard; with `again` also if it went away before
    /// it answered. Bulk bytes of the answer go to `to`. The session that answered, and how many bulk bytes.
    pub(crate) fn call_for(
        &self,
        request: &Request,
        bulk: &[u8],
        to: &mut [u8],
        again: bool,
    ) -> Result<(u64, Reply, usize)> {
        self.converse(None, request, bulk, to, again)
    }

    /// Asks within the session of `epoch`: in another one the request makes no sense. ENOTCONN when that is over.
    pub(crate) fn call_in(
        &self,
        epoch: u64,
        request: &Request,
        bulk: &[u8],
        to: &mut [u8],
    ) -> Result<(Reply, usize)> {
        let (_, reply, count) = self.converse(Some(epoch), request, bulk, to, false)?;
        Ok((reply, count))
    }

    /// Asks within the session of `epoch` for what nobody waits for, and cannot fail in a way that matters.
    pub(crate) fn tell_in(&self, epoch: u64, request: &Request) {
        let Ok(frame) = framed(request, &[]) else { return };
        let Ok(mut lane) = self.take(false) else { return };
        match epoch == lane.epoch && lane.tell(&frame).is_err() {
            true => self.lose(lane),
            false => self.put_back(lane),
        }
    }

    fn converse(
        &self,
        epoch: Option<u64>,
        request: &Request,
        bulk: &[u8],
        to: &mut [u8],
        again: bool,
    ) -> Result<(u64, Reply, usize)> {
        let mut trials = self.trials();
        let frame = framed(request, bulk)?;
        loop {
            let mut lane = self.take(false)?;
            if epoch.is_some_and(|epoch| epoch != lane.epoch) {
                self.put_back(lane);
                return Err(gone());
            }
            match lane.call(&frame, bulk, to) {
                Ok((answer, count)) => {
                    let epoch = lane.epoch;
                    self.put_back(lane);
                    return Ok((epoch, answer?, count));
                }
                Err(broken) => {
                    self.lose(lane);
                    match broken {
                        Broken::Senseless(why) => return Err(Error::new(code::EPROTO, why)),
                        _ if epoch.is_some() => return Err(gone()),
                        Broken::Unsent(_) => trials.once_more()?,
                        Broken::Unanswered(_) if again => trials.once_more()?,
                        Broken::Unanswered(error) => {
                            let why = format!(
                                "the server went away; it may have done this or not: {error}"
                            );
                            return Err(Error::new(code::EIO, why));
                        }
                    }
                }
            }
        }
    }

    /// For a request that is asked again and again.
    pub(crate) fn trials(&self) -> Trials {
        Trials { is_first: true, left: self.options.patience }
    }

    /// A free connection, a new one, or one that comes free. `at_once`: without waiting for a server.
    fn take(&self, at_once: bool) -> Result<Lane> {
        let mut state = self.state.lock();
        loop {
            if let Some(lane) = state.idle.pop() {
                let is_of_few = state.count - state.idle.len() <= self.cores;
                return Ok(Lane { is_of_few, ..lane });
            }
            if state.count < self.options.lanes_max.max(1) {
                break;
            }
            state = self.free.wait(state);
        }
        state.count += 1;
        drop(state);
        let start = rt::time::now();
        let made = loop {
            match self.reach() {
                Err((true, _)) if !at_once && start.elapsed() < self.options.patience => {
                    rt::time::sleep(LOOK);
                }
                made => break made,
            }
        };
        made.map_err(|(_, error)| {
            self.state.lock().count -= 1;
            self.free.notify_one();
            error
        })
    }

    /// One more connection. With an error: could it be another time?
    fn reach(&self) -> std::result::Result<Lane, (bool, Error)> {
        let socket = self.options.socket.display();
        let away = |error: std::io::Error| {
            (true, Error::new(code::ENOTCONN, format!("no server at '{socket}': {error}")))
        };
        // Who may open no more files goes without pipes.
        let (lane, answer) = match self.greeted(true).map_err(away)? {
            (short, _) if short.lacks_pipes => {
                drop(short);
                self.greeted(false).map_err(away)?
            }
            greeted => greeted,
        };
        let epoch = lane.epoch;
        match answer {
            Ok(Reply::Welcome(session)) => {
                let mut state = self.state.lock();
                match state.session {
                    // Somebody else was faster: this connection would be of another session.
                    Some(other) if other != session => {
                        Err((true, Error::new(code::ENOTCONN, "the server was just restarted")))
                    }
                    Some(_) => Ok(lane),
                    None => {
                        state.session = Some(session);
                        state.epoch += 1;
                        Ok(Lane { epoch: state.epoch, ..lane })
                    }
                }
            }
            Ok(_) => Err((false, Error::protocol())),
            Err(failure) if failure.errno == code::ESTALE => {
                // Our session is not known any more: the next attempt begins a new one.
                let mut state = self.state.lock();
                if state.epoch == epoch {
                    state.session = None;
                    state.forget_idle();
                }
                Err((true, failure.into()))
            }
            Err(failure) => Err((false, failure.into())),
        }
    }

    /// A new connection, and what the server said to it.
    fn greeted(&self, beside: bool) -> std::io::Result<(Lane, Answer)> {
        let stream = UnixStream::connect(&self.options.socket)?;
        // Where the system has less to give, it goes on with that.
        let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER);
        let (session, epoch) = {
            let state = self.state.lock();
            (state.session, state.epoch)
        };
        let mut lane = Lane {
            stream,
            inbox: Inbox::default(),
            look: Look::default(),
            is_of_few: false,
            beside: None,
            lacks_pipes: false,
            owed: 0,
            epoch,
        };
        let tree = self.options.tree.clone();
        let answer = lane.greet(&Hello { tree, session, beside })?;
        Ok((lane, answer))
    }

    fn put_back(&self, lane: Lane) {
        let mut state = self.state.lock();
        if lane.epoch == state.epoch && state.session.is_some() {
            state.idle.push(lane);
        } else {
            state.count -= 1;
        }
        self.free.notify_one();
    }

    /// A connection broke: the server has gone, and the session with it.
    fn lose(&self, lane: Lane) {
        let mut state = self.state.lock();
        state.count -= 1;
        if lane.epoch == state.epoch {
            state.session = None;
            state.forget_idle();
        }
        self.free.notify_one();
    }
}

impl State {
    fn forget_idle(&mut self) {
        self.count -= self.idle.len();
        self.idle.clear();
    }
}

/// A request as it is sent. One that is too long is nobody's fault but that of who asks, and no lane's.
fn framed(request: &Request, bulk: &[u8]) -> Result<Vec<u8>> {
    encode(request, bulk.len(), false).map_err(|why| Error::new(code::E2BIG, why.to_string()))
}

/// The session of an open file is over.
fn gone() -> Error {
    Error::new(code::ENOTCONN, "the server went away")
}

impl Lane {
    fn greet(&mut self, hello: &Hello) -> std::io::Result<Answer> {
        let invalid = |why: wire::FrameError| std::io::Error::other(why.to_string());
        let frame = encode(hello, 0, false).map_err(invalid)?;
        let part = &frame[HEADER..];
        let head = [&MAGIC[..], &(part.len() as u32).to_le_bytes()].concat();
        self.send(&[&head, part])?;
        let mut welcome = Welcome::from(&self.stream);
        let answer = answer(&mut welcome, &mut self.inbox);
        (self.beside, self.lacks_pipes) = match welcome.pipes() {
            Ok(pipes) => (pipes, false),
            Err(_) => (None, true),
        };
        match answer {
            Ok((_, answer)) => Ok(answer),
            Err(Broken::Unsent(error) | Broken::Unanswered(error)) => Err(error),
            Err(Broken::Senseless(why)) => Err(std::io::Error::other(why)),
        }
    }

    /// Asks, and waits for the answer, whose bulk bytes go to `to`; how many of those there were.
    fn call(
        &mut self,
        frame: &[u8],
        bulk: &[u8],
        to: &mut [u8],
    ) -> std::result::Result<(Answer, usize), Broken> {
        // A server that has not heard the end has done nothing.
        self.ask(frame, bulk).map_err(Broken::Unsent)?;
        self.take_owed()?;
        if self.is_of_few && self.inbox.is_empty() {
            let (look, inbox, stream) = (&mut self.look, &mut self.inbox, &self.stream);
            let _ = look.at(|| inbox.fill_now(stream));
        }
        let answered = self.answer(to)?;
        match self.inbox.is_empty() {
            true => Ok(answered),
            false => Err(Broken::Senseless("the server said more than was asked".into())),
        }
    }

    fn ask(&self, frame: &[u8], bulk: &[u8]) -> std::io::Result<()> {
        let many = bulk.len() >= BESIDE_LEAST;
        let (Some(beside), Some((_, part))) =
            (self.beside.as_ref().filter(|_| many), frame.split_first_chunk::<HEADER>())
        else {
            return self.send(&[frame, bulk]);
        };
        let head = Head { bulk: bulk.len(), part: part.len(), beside: true };
        // What there is room for is there when the server comes for it.
        let done = beside.lend(bulk)?;
        self.send(&[&head.bytes(), part])?;
        beside.lend_all(&self.stream, &bulk[done..])
    }

    /// Asks, and leaves the answer to who comes next.
    fn tell(&mut self, frame: &[u8]) -> std::result::Result<(), Broken> {
        if self.owed == OWED_MAX {
            self.take_owed()?;
        }
        self.send(&[frame]).map_err(Broken::Unsent)?;
        self.owed += 1;
        Ok(())
    }

    /// Takes the answers that nobody waited for.
    fn take_owed(&mut self) -> std::result::Result<(), Broken> {
        while self.owed > 0 {
            drop(self.answer(&mut [])?);
            self.owed -= 1;
        }
        Ok(())
    }

    /// Sends pieces, one behind the other. The program that we are part of may not have said what is to become of it
    /// when nobody is there to hear it (SIGPIPE), so the system is told not to ask.
    fn send(&self, pieces: &[&[u8]]) -> std::io::Result<()> {
        let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut rest = &mut slices[..];
        while left > 0 {
            let mut beside = SendAncillaryBuffer::default();
            match sendmsg(&self.stream, rest, &mut beside, SendFlags::NOSIGNAL) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    left -= count;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn answer(&mut self, to: &mut [u8]) -> std::result::Result<(Answer, usize), Broken> {
        let (head, answer) = answer(&mut self.stream, &mut self.inbox)?;
        let to = to.get_mut(..head.bulk).ok_or_else(|| {
            let bulk = head.bulk;
            Broken::Senseless(format!("the server sent {bulk} bytes, more than were asked for"))
        })?;
        let read = match (head.beside, &self.beside) {
            (true, Some(beside)) => beside.read(&self.stream, to),
            (true, None) => Err(std::io::Error::other("bytes in a pipe that is not there")),
            (false, _) => self.inbox.take(&mut self.stream, to),
        };
        read.map_err(Broken::Unanswered)?;
        Ok((answer, head.bulk))
    }
}

/// Reads an answer, but for its bulk bytes.
fn answer(
    stream: &mut impl std::io::Read,
    inbox: &mut Inbox,
) -> std::result::Result<(Head, Answer), Broken> {
    let mut head = [0; HEADER];
    inbox.take(stream, &mut head).map_err(Broken::Unanswered)?;
    let head = Head::read(head).map_err(|why| Broken::Senseless(why.to_string()))?;
    let mut message = vec![0; head.part];
    inbox.take(stream, &mut message).map_err(Broken::Unanswered)?;
    let answer = decode(&message).map_err(|why| Broken::Senseless(why.to_string()))?;
    Ok((head, answer))
}
