//! The socket's door: who comes gets a place, a thread, and what he asked for, or is told why not.
//!
//! The one idea: what is given before it is known what is wanted is little and counted, apart for those who may
//! command, for those who may move files, and for strangers, who are heard only to be told so in their own language.

use std::collections::BTreeMap;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rt::mem::{Class, Holder};
use rt::sync::atomic::{AtomicUsize, Ordering};
use rt::sync::{Arc, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::Local;
use watch::Clients;

use crate::command::{self, Came};
use crate::data::{self, Sessions, Shares, Shop};
use crate::log::Form;
use crate::peer::Peer;
use crate::serve::Run;

/// Commands that run at once and are waited for, at most; and connections of those who may command, and have not said what
/// they want.
const COMMANDS_MAX: usize = 64;
/// Commands that run at once, at most, with those whose program has gone: they wait for a pool that is suspended, mostly.
const THREADS_MAX: usize = 1024;
/// Connections of those who may move files, before their greeting, at most.
const MOVERS_MAX: usize = 64;
/// Connections of others, at most.
const STRANGERS_MAX: usize = 8;
/// Connections of clients, at most.
const LANES_MAX: usize = 1024;
/// Memory that is kept for what clients read, in bytes; of a small account it is a part.
const BUFFERS_IDLE_BYTES: u64 = 32 << 20;
/// How long nobody is taken after one could not be.
const BREATH: Duration = Duration::from_millis(100);

/// What all connections share.
pub(crate) struct Doors {
    engine: Local,
    run: Arc<Run>,
    log: Form,
    sessions: Sessions,
    buffers: rt::BufPool,
    /// What pools of disks leave there for each other.
    _warm: rt::BufPool,
    /// The account, for what clients take of it.
    memory: rt::Account,
    shares: Shares,
    /// None where the system gives no memory that others can read.
    shop: Option<Shop>,
    running: Running,
    comers: Arc<AtomicUsize>,
    movers: Arc<AtomicUsize>,
    strangers: Arc<AtomicUsize>,
    lanes: Arc<AtomicUsize>,
}

/// One of so many, free again when it is dropped.
pub(crate) struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(count: &Arc<AtomicUsize>, max: usize) -> Option<Place> {
        let more = |count: usize| (count < max).then_some(count + 1);
        let taken = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.is_ok().then(|| Place(count.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why one who comes gets no place.
fn busy(max: usize, of: &str) -> String {
    format!("the server is busy with {max} {of}; try again later")
}

/// Commands that run, by number, each with the connection that its program keeps as long as it is there.
#[derive(Default)]
struct Running(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    last: u64,
    commands: BTreeMap<u64, UnixStream>,
}

/// One of them, as long as this is there.
struct Runs<'a>(&'a Running, u64);

impl Running {
    fn count(&self) -> usize {
        self.0.lock().commands.len()
    }

    /// One more, or why not. One whose program has gone, while it waits for a pool, takes nobody's place.
    fn begin(&self, stream: &UnixStream) -> std::io::Result<Result<Runs<'_>, String>> {
        let stream = stream.try_clone()?;
        let mut all = self.0.lock();
        let count = all.commands.len();
        let is_full =
            || all.commands.values().filter(|stream| !has_gone(stream)).count() >= COMMANDS_MAX;
        if count >= THREADS_MAX || count >= COMMANDS_MAX && is_full() {
            return Ok(Err(busy(count.min(THREADS_MAX), "commands")));
        }
        all.last += 1;
        let number = all.last;
        all.commands.insert(number, stream);
        Ok(Ok(Runs(self, number)))
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.0.lock().commands.remove(&self.1);
    }
}

/// Is nobody at the other end?
fn has_gone(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let hung_up = PollFlags::HUP | PollFlags::ERR;
    poll(&mut fds, Some(&now)).is_ok_and(|_| fds[0].revents().intersects(hung_up))
}

/// Takes connections for ever, each to a thread of its own.
pub(crate) fn accept(listener: &UnixListener, doors: &Arc<Doors>) {
    loop {
        let taken = listener.accept().and_then(|(stream, _)| doors.take_in(stream));
        if let Err(error) = taken {
            doors.log.say(format!("a connection was not taken: {error}"));
            rt::time::sleep(BREATH);
        }
    }
}

impl Doors {
    pub(crate) fn new(engine: Local, run: Arc<Run>, log: Form, sessions: Sessions) -> Doors {
        let memory = engine.memory().of(Holder::Clients);
        let buffers = rt::BufPool::apart(&memory, BUFFERS_IDLE_BYTES.min(memory.cap() / 16));
        let warm = rt::BufPool::of(&memory);
        let shares = Shares::of(memory.max(Class::Normal));
        let shop = Shop::of(engine.memory());
        if let Err(error) = &shop {
            log.say(format!("what is often read cannot be sent without a copy: {error}"));
        }
        let (running, comers, movers) = (Running::default(), Arc::default(), Arc::default());
        let (strangers, lanes) = (Arc::default(), Arc::default());
        Doors {
            engine,
            run,
            log,
            sessions,
            buffers,
            _warm: warm,
            memory,
            shares,
            shop: shop.ok(),
            running,
            comers,
            movers,
            strangers,
            lanes,
        }
    }

    pub(crate) fn engine(&self) -> &Local {
        &self.engine
    }

    /// How many commands run.
    pub(crate) fn commands(&self) -> usize {
        self.running.count()
    }

    /// Who is there, and what was moved.
    pub(crate) fn clients(&self) -> Clients {
        let moved = self.sessions.moved();
        Clients {
            sessions: self.sessions.count(),
            connections: self.lanes.load(Ordering::Acquire) as u64,
            commands: self.commands() as u64,
            read_bytes: moved.read.load(Ordering::Relaxed),
            written_bytes: moved.written.load(Ordering::Relaxed),
            requests: moved.requests.load(Ordering::Relaxed),
        }
    }

    /// A place for one who has come, as who he is; why there is none.
    fn place(&self, peer: Peer) -> Result<Place, String> {
        let (count, max, of) = match () {
            () if peer.commands() => (&self.comers, COMMANDS_MAX, "commands"),
            () if self.sessions.admit(peer) => (&self.movers, MOVERS_MAX, "greetings"),
            () => (&self.strangers, STRANGERS_MAX, "strangers"),
        };
        Place::take(count, max).ok_or_else(|| busy(max, of))
    }

    /// Gives a connection a thread of its own, if it has a place.
    fn take_in(self: &Arc<Self>, stream: UnixStream) -> std::io::Result<()> {
        let peer = Peer::of(&stream)?;
        let place = match self.place(peer) {
            Ok(place) => place,
            Err(why) => {
                drop(command::refuse(&stream, &why));
                return Ok(());
            }
        };
        let doors = self.clone();
        // Without a thread it ends with what it has, which is this one connection.
        let body = move || {
            if let Err(error) = doors.answer(&stream, peer, place) {
                doors.log.say(format!("a connection broke off: {error}"));
            }
        };
        rt::thread::try_spawn("connection", body).map(drop)
    }

    /// The same in this thread.
    #[cfg(fuzzing)]
    pub(crate) fn take_and_answer(&self, stream: &UnixStream, peer: Peer) -> std::io::Result<()> {
        match self.place(peer) {
            Ok(place) => self.answer(stream, peer, place),
            Err(why) => command::refuse(stream, &why),
        }
    }

    /// Does what comes over a connection, which has a place until it is known for what.
    pub(crate) fn answer(
        &self,
        stream: &UnixStream,
        peer: Peer,
        place: Place,
    ) -> std::io::Result<()> {
        // Who went away does not want to know why he is refused.
        match command::receive(stream) {
            Err(why) => drop(command::refuse(stream, &why)),
            Ok(Came::Command(begun)) if peer.commands() => match begun.receive(stream) {
                Err(why) => drop(command::refuse(stream, &why)),
                Ok(asked) => match self.running.begin(stream)? {
                    Err(why) => drop(command::refuse(stream, &why)),
                    Ok(_runs) => {
                        drop(place);
                        let mut engine = self.engine.clone();
                        asked.run(stream, |words, zone, out, err| {
                            (self.run)(words, zone, &mut engine, out, err)
                        })?;
                    }
                },
            },
            Ok(Came::Command(_)) => {
                let Peer { pid, uid, .. } = peer;
                let why = format!("the server takes no commands of user {uid} (process {pid})");
                drop(command::refuse(stream, &why));
            }
            Ok(Came::Client(length)) => {
                // A stranger stays one.
                let _stranger = (!self.sessions.admit(peer)).then_some(place);
                let Some(_lane) = Place::take(&self.lanes, LANES_MAX) else {
                    // It sees that the server has gone, and tries again.
                    return Ok(());
                };
                let Doors { buffers, memory, shares, .. } = self;
                let supply = data::Supply { buffers, memory, shares, shop: self.shop.as_ref() };
                data::serve(stream, peer, &self.sessions, supply, length)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Seen red: as many commands as may run were killed while their pool was suspended, and nobody could clear it.
    #[test]
    fn commands_that_were_killed_take_nobodys_place() {
        let running = Running::default();
        let begin = || {
            let (server, program) = UnixStream::pair().unwrap();
            (running.begin(&server).unwrap(), program)
        };
        let (mut run, mut programs): (Vec<_>, Vec<_>) = (0..COMMANDS_MAX).map(|_| begin()).unzip();
        assert!(run.iter().all(Result::is_ok));
        let why = "the server is busy with 64 commands; try again later";
        assert_eq!(begin().0.err().as_deref(), Some(why));
        programs.truncate(COMMANDS_MAX - 2);
        let (third, program) = begin();
        let (fourth, another) = begin();
        assert!(third.is_ok() && fourth.is_ok() && begin().0.is_err());
        assert_eq!(running.count(), COMMANDS_MAX + 2);
        drop((third, fourth, program, another));
        run.clear();
        assert_eq!(running.count(), 0);
    }
    /// Seen red: a line in the log each time, from whoever can reach the socket.
    #[test]
    fn strangers_who_go_away_are_no_news() {
        let held = Arc::new(verbs::Held::default());
        let engine = Local::from_environment().holding(held.clone());
        let run: Arc<Run> = Arc::new(|_, _, _, _, _| 0);
        let doors = Doors::new(engine, run, Form::default(), Sessions::new(held, Vec::new()));
        let peer = Peer { pid: 1, uid: 65534, gid: 65534 };
        let (stream, mut comes) = UnixStream::pair().unwrap();
        comes.write_all(&[&wire::MAGIC[..], &0u32.to_le_bytes()].concat()).unwrap();
        drop(comes);
        let place = doors.place(peer).unwrap();
        doors.answer(&stream, peer, place).unwrap();
    }
}
