//! The connections of a client, and the session that they share.
//!
//! The one idea: a session lives as long as one of its connections. So that one of them breaks means nothing for the files
//! that are open: the next one that is made tells whether the server still knows the session.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rt::sync::{Arc, Condvar, Mutex, MutexGuard};
use rt::time::{Instant, now};
use wire::{Answer, ENDING, Hello, Reply, Request, Session, Way, encode};

use crate::crowd::Crowd;
use crate::error::{Error, Result, code};
use crate::lane::{Broken, Lane};
use crate::whole::Rooms;

/// How often a server that has gone is looked for.
const LOOK: Duration = Duration::from_millis(50);

/// How long a server is given at least to greet: it may have much to do. One that takes its pools greets nobody before.
const GREETING: Duration = Duration::from_secs(1);

/// Of so many leases at most the server does not know that they have ended.
const ENDED_MAX: usize = 8;

/// What was begun so long ago is done, as a rule.
const LONG: Duration = Duration::from_millis(10);

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
    /// Memory for small files that are read as they are opened.
    pub(crate) rooms: Rooms,
}

#[derive(Default)]
struct State {
    /// The process whose connections these are.
    process: u32,
    idle: Vec<Lane>,
    /// Connections that are there, idle or not.
    count: usize,
    /// What is under way on connections of which nobody waits yet: who needs one ends it.
    begun: Vec<Arc<Begun>>,
    /// Memory for the next that is begun.
    spare: Vec<Vec<u8>>,
    session: Option<Session>,
    /// The server's memory from which we may send, in that session.
    shelf: Option<Arc<OwnedFd>>,
    /// Leases that have ended, of this session or of those before, and of which no server was told.
    ended: Vec<u64>,
    /// Sessions so far: open files are of one of them.
    epoch: u64,
    /// A connection broke, and no other one was made since: those that are idle may be broken, too.
    is_in_doubt: bool,
}

/// What was asked, and is under way.
pub(crate) struct Begun {
    /// The process that waits for the answer: it comes once, and one that was forked has the same connection.
    process: u32,
    since: Instant,
    asked: Mutex<Asked>,
}

struct Asked {
    /// Until the answer is taken.
    lane: Option<Lane>,
    /// They may be lent.
    bytes: Vec<u8>,
    answer: Option<Result<Reply>>,
}

/// Why a call has no answer.
pub(crate) enum Missed {
    /// The session that it belongs to is over.
    Session,
    /// Another reason.
    Answer(Error),
}

impl From<Error> for Missed {
    fn from(error: Error) -> Missed {
        Missed::Answer(error)
    }
}

/// Why there is no further connection.
enum Reach {
    /// Never: it does not serve this, or not to us.
    Refused(Error),
    /// There is no server, or it takes its pools, or ends.
    Away(Error),
    /// There is one, and what we asked it for is not our session, or not any more: it is to be asked at once for what is.
    Anew,
    /// Not now: it has no place, or we have no more files.
    Full(Error),
}

/// Retries that are left: a request that makes every server crash must not be retried for ever. Times without a server do not
/// count.
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
        let (cores, state, free) =
            (rt::thread::available_cores(), Mutex::default(), Condvar::new());
        let client = Client { options, cores, state, free, rooms: Rooms::default() };
        let lane = client.take(Duration::ZERO)?;
        client.put_back(lane);
        Ok(Arc::new(client))
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
        self.converse(None, request, bulk, to, again).map_err(|missed| match missed {
            Missed::Session => Error::protocol(),
            Missed::Answer(error) => error,
        })
    }

    /// Asks within the session of `epoch`: in another one the request makes no sense. There it may be asked twice: what is
    /// done to an open file is the same the second time.
    pub(crate) fn call_in(
        &self,
        epoch: u64,
        request: &Request,
        bulk: &[u8],
        to: &mut [u8],
    ) -> std::result::Result<(Reply, usize), Missed> {
        let (_, reply, count) = self.converse(Some(epoch), request, bulk, to, true)?;
        Ok((reply, count))
    }

    /// The state, for a call that begins. After a fork the connections are the other process's: what comes on them is for that
    /// one, and what it has open is its own. So this one begins anew, without a word.
    fn state(&self) -> MutexGuard<'_, State> {
        let (mut state, process) = (self.state.lock(), std::process::id());
        if state.process != process {
            let epoch = state.epoch + 1;
            *state = State { process, epoch, ..State::default() };
        }
        state
    }

    /// Asks within the session of `epoch` for what cannot fail in a way that matters, if there is a server; with `waits` it
    /// is done then.
    pub(crate) fn tell_in(&self, epoch: u64, request: &Request, waits: bool) {
        let mut state = self.state();
        if epoch != state.epoch {
            return;
        }
        // Who closes a file may ask for nothing for long.
        let leases = state.session.map(|_| std::mem::take(&mut state.ended)).unwrap_or_default();
        drop(state);
        let ended = (!leases.is_empty()).then_some(Request::EndLeases { leases });
        let mut frames: VecDeque<_> = [Some(request), ended.as_ref()]
            .into_iter()
            .flatten()
            .flat_map(|r| framed(r, &[]))
            .collect();
        if waits && let Some(frame) = frames.pop_front() {
            self.be_heard(epoch, &frame);
        }
        if !frames.is_empty() {
            self.tell(epoch, frames);
        }
    }

    /// Asks within the session of `epoch` for what has no other answer than that it was heard.
    fn be_heard(&self, epoch: u64, frame: &[u8]) {
        // If a connection is broken, the next one is tried, until all have been: the session may still live, and nobody else
        // tells the server this.
        for _ in 0..=self.options.lanes_max {
            let Ok(mut lane) = self.take(Duration::ZERO) else { return };
            if epoch != lane.epoch || lane.call(frame, &[], &mut []).is_ok() {
                return self.put_back(lane);
            }
            self.lose(lane);
        }
    }

    /// Begins to ask within the session of `epoch`, for [`Client::end`], if few ask and a connection is free, or there is not
    /// one for each core yet. Bulk bytes are copied.
    pub(crate) fn begin_in(
        &self,
        epoch: u64,
        request: &Request,
        bulk: &[u8],
    ) -> Option<Arc<Begun>> {
        let frame = framed(request, bulk).ok()?;
        let mut state = self.state();
        if state.begun.len() >= self.cores {
            // Nobody may come for one whose answer has long been there.
            let old = state.begun.iter().position(|begun| begun.since.elapsed() > LONG)?;
            let begun = state.begun.swap_remove(old);
            drop(state);
            self.free_lane(&mut begun.asked.lock());
            state = self.state.lock();
        }
        if epoch != state.epoch || state.is_in_doubt {
            return None;
        }
        let lane = state.idle.pop().map(|lane| self.of_few(lane, &state));
        let may_connect = state.count < self.cores.min(self.options.lanes_max);
        drop(state);
        let mut lane = match lane {
            Some(lane) => lane,
            None if may_connect => self.take(Duration::ZERO).ok()?,
            None => return None,
        };
        if !lane.crowd.is_few() || lane.epoch != epoch {
            self.put_back(lane);
            return None;
        }
        let mut bytes = self.state.lock().spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(bulk);
        if lane.begin(&frame, &bytes).is_err() {
            self.lose(lane);
            return None;
        }
        let asked = Asked { lane: Some(lane), bytes, answer: None };
        let (mut state, asked) = (self.state.lock(), Mutex::new(asked));
        let begun = Arc::new(Begun { process: state.process, since: now(), asked });
        state.begun.push(begun.clone());
        drop(state);
        // Who waits for a connection may need this one.
        self.free.notify_one();
        Some(begun)
    }

    /// Waits for the answer to what was begun, which is told once. The bulk bytes, where the connection broke: it may be done
    /// or not.
    pub(crate) fn end(&self, begun: &Arc<Begun>) -> std::result::Result<Result<Reply>, Vec<u8>> {
        if begun.process != std::process::id() {
            // Nothing is read: the other one has the connection, and counts it.
            begun.asked.lock().lane = None;
            let why = "another process has begun to write this, and is told whether it is done";
            return Ok(Err(Error::new(code::EIO, why)));
        }
        self.state.lock().begun.retain(|other| !Arc::ptr_eq(other, begun));
        let mut asked = begun.asked.lock();
        self.free_lane(&mut asked);
        let bytes = std::mem::take(&mut asked.bytes);
        let answer = asked.answer.take().ok_or(bytes)?;
        Ok(answer)
    }

    /// Has the connection of what was begun free, with the answer kept for who began it.
    fn free_lane(&self, asked: &mut Asked) {
        let Some(mut lane) = asked.lane.take() else { return };
        let (answer, is_good) = match lane.end(&mut []) {
            Ok((Err(failure), _)) if failure.errno == ENDING => (None, false),
            Ok((answer, _)) => (Some(answer.map_err(Error::from)), true),
            Err(Broken::Senseless(why)) => (Some(Err(Error::new(code::EPROTO, why))), false),
            Err(_) => (None, false),
        };
        asked.answer = answer;
        if !is_good {
            return self.lose(lane);
        }
        self.put_back(lane);
        let mut state = self.state.lock();
        if state.spare.len() < self.cores {
            state.spare.push(std::mem::take(&mut asked.bytes));
        }
    }

    /// Says what nobody waits for, on the next connection where one is broken, with what that one left unheard.
    fn tell(&self, epoch: u64, mut frames: VecDeque<Vec<u8>>) {
        for _ in 0..=self.options.lanes_max {
            let Ok(mut lane) = self.take(Duration::ZERO) else { return };
            if epoch != lane.epoch {
                return self.put_back(lane);
            }
            let mut is_broken = false;
            while !is_broken && let Some(frame) = frames.pop_front() {
                is_broken = lane.tell(frame).is_err();
            }
            if !is_broken {
                return self.put_back(lane);
            }
            frames.extend(self.cut(lane));
        }
    }

    fn converse(
        &self,
        within: Option<u64>,
        request: &Request,
        bulk: &[u8],
        to: &mut [u8],
        again: bool,
    ) -> std::result::Result<(u64, Reply, usize), Missed> {
        let (mut trials, mut may_be_done) = (self.trials(), false);
        let frame = framed(request, bulk)?;
        loop {
            let mut lane = self.take(self.options.patience)?;
            let epoch = lane.epoch;
            if within.is_some_and(|within| within != epoch) {
                self.put_back(lane);
                return Err(Missed::Session);
            }
            match lane.call(&frame, bulk, to) {
                // It is about to end: it has not done it, and the next one will.
                Ok((Err(failure), _)) if failure.errno == ENDING => self.lose(lane),
                Ok((answer, count)) => {
                    self.put_back(lane);
                    return match answer {
                        // What was to be closed at the end is closed: it was done the first time.
                        Err(failure)
                            if may_be_done && failure.errno == code::EBADF && request.closes() =>
                        {
                            Ok((epoch, Reply::Done, 0))
                        }
                        answer => Ok((epoch, answer.map_err(Error::from)?, count)),
                    };
                }
                Err(broken) => {
                    self.lose(lane);
                    match broken {
                        Broken::Senseless(why) => {
                            return Err(Error::new(code::EPROTO, why).into());
                        }
                        Broken::Unsent(_) => {}
                        Broken::Unanswered(_) if again => may_be_done = true,
                        Broken::Unanswered(error) => {
                            let why = format!(
                                "the server went away; it may have done this or not: {error}"
                            );
                            return Err(Error::new(code::EIO, why).into());
                        }
                    }
                }
            }
            trials.once_more()?;
        }
    }

    /// For a request that is asked again and again.
    pub(crate) fn trials(&self) -> Trials {
        Trials { is_first: true, left: self.options.patience }
    }

    /// A free connection, a new one, or one that comes free. A server that is away, or has no place for one more, is waited
    /// for as long as `patience`.
    fn take(&self, patience: Duration) -> Result<Lane> {
        let start = now();
        let lanes_max = self.options.lanes_max.max(1);
        let mut state = self.state();
        loop {
            if !state.is_in_doubt
                && let Some(lane) = state.idle.pop()
            {
                return Ok(self.of_few(lane, &state));
            }
            if state.count == lanes_max && state.is_in_doubt && state.forget_idle() {
                state.count -= 1;
            }
            let mut why = None;
            if state.count < lanes_max {
                state.count += 1;
                drop(state);
                let reached = self.reach();
                state = self.state.lock();
                let missed = match reached {
                    Ok(lane) => return Ok(self.of_few(lane, &state)),
                    Err(missed) => missed,
                };
                state.count -= 1;
                self.free.notify_one();
                match missed {
                    Reach::Anew => continue,
                    Reach::Refused(error) => return Err(error),
                    Reach::Away(error) => why = Some(error),
                    Reach::Full(error) => {
                        // One of those that are there tells it, too.
                        if let Some(lane) = state.idle.pop() {
                            return Ok(self.of_few(lane, &state));
                        }
                        why = (state.count == 0).then_some(error);
                    }
                }
            }
            let is_late = start.elapsed() >= patience;
            if let Some(error) = why.filter(|_| is_late) {
                return Err(error);
            }
            // Somebody is connecting, and finds out whether there is one: also who would not wait for a server waits for that.
            let is_silent = start.elapsed() >= patience.max(self.options.patience);
            if is_silent && state.is_in_doubt {
                return Err(Error::new(code::ENOTCONN, "the server does not answer"));
            }
            if let Some(begun) = state.begun.pop() {
                drop(state);
                self.free_lane(&mut begun.asked.lock());
                state = self.state.lock();
                continue;
            }
            (state, _) = self.free.wait_timeout(state, LOOK);
        }
    }

    /// A connection that is in use from now on.
    fn of_few(&self, mut lane: Lane, state: &State) -> Lane {
        let in_use = state.count - state.idle.len();
        lane.crowd = Crowd::of(in_use, state.begun.len(), self.cores);
        lane
    }

    /// One more connection.
    fn reach(&self) -> std::result::Result<Lane, Reach> {
        // Who may open no more files goes without pipes.
        let (mut lane, asked, answer) = match self.greeted(true)? {
            (short, ..) if short.lacks_files => {
                drop(short);
                self.greeted(false)?
            }
            greeted => greeted,
        };
        let mut state = self.state.lock();
        match answer {
            Ok(Reply::Welcome(session)) => match state.session {
                Some(other) if other != session => Err(match asked == Some(other) {
                    true => Reach::Refused(Error::protocol()),
                    // Somebody else was faster: this connection would be of another session.
                    false => Reach::Anew,
                }),
                known => {
                    if known.is_none() {
                        state.session = Some(session);
                        state.epoch += 1;
                    }
                    let shelf = lane.shelf.take().map(Arc::new);
                    state.shelf = state.shelf.take().or(shelf);
                    state.is_in_doubt = false;
                    // Those that are idle are good.
                    self.free.notify_all();
                    lane.epoch = state.epoch;
                    Ok(lane)
                }
            },
            Ok(_) => Err(Reach::Refused(Error::protocol())),
            Err(failure) if failure.errno == code::ESTALE && asked.is_some() => {
                // Our session is not known any more: the next attempt begins a new one.
                if state.epoch == lane.epoch {
                    state.forget_session();
                }
                Err(Reach::Anew)
            }
            Err(failure) if failure.errno == ENDING => Err(Reach::Away(failure.into())),
            Err(failure) => Err(Reach::Refused(failure.into())),
        }
    }

    /// A new connection, the session that it was to be of, and what the server said to that.
    fn greeted(&self, beside: bool) -> std::result::Result<(Lane, Option<Session>, Answer), Reach> {
        let socket = &self.options.socket;
        let no_server = |error: &std::io::Error| {
            let why = format!("no server at '{}': {error}", socket.display());
            Error::new(code::ENOTCONN, why)
        };
        let (session, epoch) = {
            let state = self.state.lock();
            (state.session, state.epoch)
        };
        let mut lane = Lane::to(socket, epoch).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => Reach::Away(no_server(&error)),
            _ => Reach::Full(no_server(&error)),
        })?;
        let tree = self.options.tree.clone();
        let greeting = Hello { tree, session, beside };
        let patience = self.options.patience.max(GREETING);
        let answer = lane.greet(&greeting, patience).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => {
                let why = format!(
                    "the server at '{}' greets nobody yet: it may be taking its pools",
                    socket.display()
                );
                Reach::Away(Error::new(code::ENOTCONN, why))
            }
            _ => Reach::Full(no_server(&error)),
        })?;
        Ok((lane, session, answer))
    }

    fn put_back(&self, lane: Lane) {
        let mut state = self.state.lock();
        if lane.epoch == state.epoch && state.session.is_some() {
            // It has just been heard from.
            state.is_in_doubt = false;
            state.idle.push(lane);
        } else {
            state.count -= 1;
        }
        self.free.notify_one();
    }

    /// The shelf of the session of `epoch`, if there is one and the session is not over; of whichever it is without.
    pub(crate) fn shelf(&self, epoch: Option<u64>) -> Option<Arc<OwnedFd>> {
        let state = self.state();
        state.shelf.clone().filter(|_| epoch.is_none_or(|epoch| epoch == state.epoch))
    }

    /// Leases of which the server is to be told that they have ended.
    pub(crate) fn take_ended(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().ended)
    }

    /// The same, where it may not have been told.
    pub(crate) fn put_back_ended(&self, leases: Vec<u64>) {
        self.state().ended.extend(leases);
    }

    /// A lease has ended: the server is told with what is asked next of this kind, or where there are many. It has it still
    /// if it was of a session that is over: this process lives.
    pub(crate) fn end_lease(&self, lease: u64) {
        let mut state = self.state();
        state.ended.push(lease);
        if state.ended.len() >= ENDED_MAX && state.session.is_some() {
            let (epoch, leases) = (state.epoch, std::mem::take(&mut state.ended));
            drop(state);
            self.tell_in(epoch, &Request::EndLeases { leases }, false);
        }
    }

    /// A connection broke; what was told on it is told again.
    fn lose(&self, lane: Lane) {
        let epoch = lane.epoch;
        let untold = self.cut(lane);
        if !untold.is_empty() {
            self.tell(epoch, untold);
        }
    }

    /// A connection broke; what was told on it. Whether the server has gone, and the session with it, the next one tells.
    fn cut(&self, lane: Lane) -> VecDeque<Vec<u8>> {
        let mut state = self.state.lock();
        state.count -= 1;
        state.is_in_doubt |= lane.epoch == state.epoch;
        self.free.notify_one();
        drop(state);
        lane.into_untold()
    }
}

impl Drop for Client {
    /// What it has leased the server keeps for as long as this process lives, if it is not told before the session ends.
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let (epoch, leases) = (state.epoch, std::mem::take(&mut state.ended));
        if state.process == std::process::id() && !leases.is_empty() {
            self.tell_in(epoch, &Request::EndLeases { leases }, true);
        }
    }
}

impl State {
    /// Forgets a connection that is idle, if there is one on which nothing was told that may not have been heard.
    fn forget_idle(&mut self) -> bool {
        let heard = self.idle.iter().rposition(Lane::is_heard);
        heard.map(|lane| self.idle.swap_remove(lane)).is_some()
    }

    fn forget_session(&mut self) {
        self.count -= self.idle.len();
        self.idle.clear();
        (self.session, self.is_in_doubt) = (None, false);
        self.shelf = None;
    }
}

/// A request as it is sent. One that is too long is the caller's error and leaves the connection as it was.
fn framed(request: &Request, bulk: &[u8]) -> Result<Vec<u8>> {
    encode(request, bulk.len(), Way::Behind).map_err(|why| Error::new(code::E2BIG, why.to_string()))
}
