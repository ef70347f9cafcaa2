//! The end of whoever holds pools: all of them are closed, or let go of.
//!
//! The one idea: no pool waits for one that waits. Each is closed by a thread of its own, the next one begun when that has
//! ended or takes long; one that waits for its devices, there or in the hands of a command, is told of, and waited for until
//! they are back or somebody lets go of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pool::{Pool, PoolError};
use rt::sync::mpsc::{Receiver, RecvError, bounded};
use rt::sync::{Arc, Weak};
use rt::thread::JoinHandle;
use rt::time::Instant;

use super::{Held, LOOK, One};
use crate::local::errand;
use crate::local::places::Places;
use crate::state::{Closed, StateFile};

/// How long one pool, or whoever opens or exports one, is waited for before the next is closed beside it.
const ALONE_MAX: Duration = Duration::from_secs(2);

/// What becomes of a pool at the end of whoever holds it.
#[derive(Clone, Copy, Debug)]
pub enum Ending<'a> {
    /// It waits for its devices, for this reason, until they are back or it is let go of ([`Held::let_go`]).
    Waits(&'a str),
    /// All that was changed is on disk.
    Closed,
    /// It was let go of: what was not on disk is lost.
    LetGo(&'a PoolError),
}

impl Held {
    /// A command has a pool that is not, or no longer, in the list: whoever lets go of all finds it.
    pub(in crate::local) fn passes(&self, pool: &Arc<Pool>) {
        let mut passing = self.passing.lock();
        passing.retain(|pool| pool.strong_count() > 0);
        passing.push(Arc::downgrade(pool));
    }

    /// Closes all of them; what went wrong, by name. They stay remembered, in `state`, as closed in order.
    pub fn close(&self, state: &StateFile) -> Vec<(String, PoolError)> {
        self.close_telling(state, |_, _| {})
    }

    /// The same; `told` hears of each what becomes of it.
    pub fn close_telling(
        &self,
        state: &StateFile,
        told: impl FnMut(&str, Ending<'_>),
    ) -> Vec<(String, PoolError)> {
        self.places.iter().for_each(Places::end);
        let (waiting, ended, failed) = Default::default();
        let mut end = End { held: self, state, told, waiting, ended, failed };
        let (start, mut turn, mut are_taken) = (rt::time::now(), None, false);
        let (mut left, mut open) = (VecDeque::new(), Vec::new());
        loop {
            if turn.is_none() {
                // Whoever opens a pool may wait for a device that does not answer, and has nothing to lose.
                turn = self.turns.try_all(start.elapsed() >= ALONE_MAX);
                // Whoever has a turn may wait for devices himself. What he brings is closed when he is done.
                if turn.is_some() || !are_taken && start.elapsed() >= ALONE_MAX {
                    are_taken = true;
                    left.extend(self.take_all());
                }
            }
            if open.iter().all(|closing| end.is_passed(closing))
                && let Some((name, one)) = left.pop_front()
            {
                open.extend(end.begin(name, one));
            }
            if turn.is_some() && left.is_empty() && open.is_empty() {
                break;
            }
            match open.last() {
                Some(Closing { ended, .. }) => drop(ended.recv_timeout(LOOK)),
                None if left.is_empty() => rt::time::sleep(LOOK),
                None => {}
            }
            open = open.into_iter().filter_map(|closing| end.look_at(closing)).collect();
            end.look_for_waiting();
        }
        end.let_go_elsewhere();
        end.failed
    }

    fn take_all(&self) -> BTreeMap<String, One> {
        let mut pools = self.pools.lock();
        // In this order, so that whoever does not want to wait finds them in one of both.
        pools.values().for_each(|one| self.passes(&one.pool));
        std::mem::take(&mut *pools)
    }

    /// From here on none of them waits for its devices: what is not on disk by now is let go of.
    pub fn let_go(&self) {
        let mut pools: Vec<_> = self.pools.lock().values().map(|one| one.pool.clone()).collect();
        pools.extend(self.passing.lock().iter().filter_map(Weak::upgrade));
        for pool in pools {
            // Of one that can only be read nobody waits for more than a read.
            let _ = pool.set_patient(false);
        }
    }
}

/// How a pool was closed, and what is noted of it.
type Outcome = (Result<(), PoolError>, Closed);

/// A pool that is being closed.
struct Closing {
    name: String,
    guid: u64,
    since: Instant,
    /// Says when the thread has ended, however that came.
    ended: Receiver<()>,
    thread: JoinHandle<Outcome>,
}

impl One {
    /// What is noted of it when it is closed in order.
    fn closed(&self) -> Closed {
        Closed { txg: self.pool.uberblock_txg(), kept_since_ms: self.kept_since_ms }
    }

    fn close(self) -> Outcome {
        // What was let go of before it was closed is as lost.
        let lost = |reason| PoolError::Suspended { name: self.pool.name().to_owned(), reason };
        let whole = |()| self.pool.suspended().map_or(Ok(()), |reason| Err(lost(reason)));
        (self.pool.close().and_then(whole), self.closed())
    }
}

struct End<'a, T> {
    held: &'a Held,
    state: &'a StateFile,
    told: T,
    /// Those that were told of as waiting, by guid, until it is told what has become of them.
    waiting: BTreeMap<u64, Arc<Pool>>,
    /// Those of which that was told.
    ended: BTreeSet<u64>,
    failed: Vec<(String, PoolError)>,
}

impl<T: FnMut(&str, Ending<'_>)> End<'_, T> {
    /// Begins to close a pool; without a thread it is closed at once.
    fn begin(&mut self, name: String, one: One) -> Option<Closing> {
        let ((ends, ended), taken) = (bounded(1), one.clone());
        let (guid, since) = (one.pool.guid(), rt::time::now());
        let close = move || {
            let _ends = ends;
            taken.close()
        };
        match errand::start("close", close) {
            Ok(thread) => Some(Closing { name, guid, since, ended, thread }),
            Err(_) => {
                self.tell(&name, guid, one.close());
                None
            }
        }
    }

    /// Does the next pool not wait for this one?
    fn is_passed(&self, closing: &Closing) -> bool {
        self.waiting.contains_key(&closing.guid) || closing.since.elapsed() >= ALONE_MAX
    }

    /// Tells what has become of a pool, if its thread has ended.
    fn look_at(&mut self, closing: Closing) -> Option<Closing> {
        if closing.ended.try_recv() == Err(RecvError::Timeout) {
            return Some(closing);
        }
        let outcome = closing.thread.join();
        self.tell(&closing.name, closing.guid, outcome);
        None
    }

    fn tell(&mut self, name: &str, guid: u64, (done, closed): Outcome) {
        let waited = self.waiting.remove(&guid).is_some();
        self.ended.insert(guid);
        match done {
            Ok(()) => {
                (self.told)(name, Ending::Closed);
                if !waited {
                    // Without the note the next one to hold it believes less than it could.
                    drop(self.state.change(|state| state.note_closed(guid, closed)));
                }
            }
            Err(error) => {
                (self.told)(name, Ending::LetGo(&error));
                self.failed.push((name.to_owned(), error));
            }
        }
    }

    /// Tells of those that wait for their devices, whoever has them.
    fn look_for_waiting(&mut self) {
        let passing: Vec<_> = self.held.passing.lock().iter().filter_map(Weak::upgrade).collect();
        for pool in passing {
            let guid = pool.guid();
            let is_told = self.waiting.contains_key(&guid) || self.ended.contains(&guid);
            if let Some(reason) = pool.gate().and_then(|gate| gate.reason()).filter(|_| !is_told) {
                (self.told)(pool.name(), Ending::Waits(&reason));
                self.waiting.insert(guid, pool);
            }
        }
    }

    /// Tells of those that a command was to close, and that were let go of.
    fn let_go_elsewhere(&mut self) {
        for (_, pool) in std::mem::take(&mut self.waiting) {
            if let Some(reason) = pool.suspended() {
                let name = pool.name().to_owned();
                let error = PoolError::Suspended { name: name.clone(), reason };
                (self.told)(&name, Ending::LetGo(&error));
                self.failed.push((name, error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::sim::{Fault, Kind, On, SimSet};
    use fs::{Filesystem, NewObject, Who, mode};
    use pool::{Joined, NewLeaf, NewPool, NewTop, OpenOptions};
    use rt::sync::Mutex;
    use testkit::{TempDir, temp_dir};

    use super::*;
    use crate::Doing;
    use crate::local::sighting::Sighting;
    use crate::local::systems::Systems;

    /// So long something may take that takes milliseconds.
    const SOON: Duration = Duration::from_secs(30);

    /// A server of two pools: the disk of `dead` fails from now on, that of `well` does not.
    struct Server {
        held: Arc<Held>,
        /// Not the pool itself: whoever exports it finds nobody else with it.
        dead: Weak<Pool>,
        told: Arc<Mutex<Vec<String>>>,
        _dir: TempDir,
        state: StateFile,
    }

    fn create(name: &str, set: &SimSet) -> Arc<Pool> {
        let device = Arc::new(set.disk(0));
        let leaf = NewLeaf { path: format!("/sim/{name}").into_bytes(), is_disk: true, device };
        let top = NewTop { joined: Joined::Single, leaves: vec![leaf], is_log: false };
        let pool = Pool::create(NewPool {
            name: name.into(),
            tops: vec![top],
            spares: vec![],
            ashift: 12,
            features: pool::Feature::ALL.to_vec(),
            pool_props: BTreeMap::new(),
            props: BTreeMap::new(),
            make: fs::make_filesystem,
            command: String::new(),
            options: OpenOptions {
                workers: 1,
                host_id: 1,
                host_name: "a".into(),
                new_name: None,
                memory: None,
            },
        });
        let pool = pool.expect("a pool");
        pool.set_patient(true).expect("it can be written");
        pool
    }

    impl Server {
        fn new() -> Server {
            let (held, dir) = (Arc::new(Held::default()), temp_dir());
            let sets = [(); 2].map(|()| SimSet::new(1, 64 << 20));
            let [dead, well] = [("dead", &sets[0]), ("well", &sets[1])].map(|(n, s)| create(n, s));
            // Something that is not on disk yet.
            let files = Filesystem::open(&dead, "dead").expect("a file system");
            let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
            files.create(files.root(), b"file", &new).expect("a file");
            drop(files);
            for pool in [&dead, &well] {
                let one = One {
                    pool: pool.clone(),
                    sighting: Sighting::of_nothing(),
                    known: None,
                    systems: Systems::default(),
                    since: rt::time::now(),
                    kept_since_ms: 0,
                    before: Duration::ZERO,
                };
                held.pools.lock().insert(pool.name().into(), one);
            }
            let _ = sets[0].disk(0).inject(Fault::new(Kind::Error(rustix::io::Errno::IO), On::All));
            let state = StateFile::new(dir.path().join("pools"));
            Server { held, dead: Arc::downgrade(&dead), told: Arc::default(), _dir: dir, state }
        }

        /// Closes all; gives up on `dead` once `well` is closed and somebody waits for the other.
        fn closes(self) {
            let (held, told, state) = (self.held.clone(), self.told.clone(), self.state.clone());
            let close = rt::thread::spawn("closes", move || {
                let tell = |name: &str, ending: Ending<'_>| {
                    let what = match ending {
                        Ending::Waits(_) => "waits",
                        Ending::Closed => "closed",
                        Ending::LetGo(_) => "let go",
                    };
                    told.lock().push(format!("{name} {what}"));
                };
                held.close_telling(&state, tell).into_iter().map(|(name, _)| name).collect()
            });
            let start = rt::time::now();
            while self.told.lock().len() < 2 && start.elapsed() < SOON {
                rt::time::sleep(Duration::from_millis(1));
            }
            let mut told = self.told.lock().clone();
            told.sort();
            assert_eq!(told, ["dead waits", "well closed"]);
            self.held.let_go();
            let failed: Vec<String> = close.join();
            assert_eq!(failed, ["dead"]);
            assert_eq!(self.told.lock()[2..], ["dead let go"]);
        }

        /// Has a command do `what` to `dead` in its turn, and waits until that waits.
        fn commands(&self, what: impl FnOnce(&Held, &Pool) + Send + 'static) {
            let (held, dead) = (self.held.clone(), self.dead.upgrade().expect("it is held"));
            drop(rt::thread::spawn("command", move || {
                let _turn = held.turns.of(dead.name());
                what(&held, &dead);
            }));
            let waits = || self.dead.upgrade().is_some_and(|pool| pool.suspended().is_some());
            let start = rt::time::now();
            while !waits() && start.elapsed() < SOON {
                rt::time::sleep(Duration::from_millis(1));
            }
            assert!(waits(), "nothing waits");
        }
    }

    /// Seen red: it was not known that its disks had died, and all behind it in the alphabet stayed open.
    #[test]
    fn a_pool_whose_disks_have_died_unseen_keeps_none_from_being_closed() {
        Server::new().closes();
    }

    /// Seen red: the end waited for the turn, and closed nothing.
    #[test]
    fn a_command_that_waits_in_its_turn_keeps_no_pool_from_being_closed() {
        let server = Server::new();
        server.commands(|_, dead| drop(dead.note(Default::default())));
        server.closes();
    }

    /// Seen red: no list had it, so nobody could let go of it.
    #[test]
    fn a_pool_that_is_being_exported_is_let_go_of_too() {
        let server = Server::new();
        server.commands(|held, dead| {
            held.give_up(dead.name(), &Doing::Export("dead".into())).expect("nobody has it");
            drop(dead.set_state(format::config::PoolState::Exported));
        });
        server.closes();
    }
}
