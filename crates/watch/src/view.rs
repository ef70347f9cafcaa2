//! What there is to see: the pools as they are now, and what they did in the last minutes.
//!
//! The one idea: counters are read, not kept. A pool's state is asked for when somebody looks, at most twice a
//! second however many look; only what cannot be asked for later, the traffic of each second, is noted as it goes by.
//! Nobody who looks waits for a pool: of one that does not answer, since it waits for its disks, it is told what it
//! was like before.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rt::sync::{Arc, Condvar, Mutex};
use rt::time::Instant;
use verbs::memory::Report;
use verbs::meters::{Meters, mean};
use verbs::pools::{PoolReport, Status};
use verbs::{Engine, Held, Local};

/// Seconds that are remembered.
pub(crate) const SECONDS_MAX: usize = 300;
/// How old what is told of a pool may be.
const FRESH: Duration = Duration::from_millis(500);

/// How long a pool may take to answer before it is told of as it was.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who uses the server now, and what they moved so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clients {
    /// Programs that use its files.
    pub sessions: u64,
    /// Their connections.
    pub connections: u64,
    /// Commands that run.
    pub commands: u64,
    /// Bytes that were read by clients.
    pub read_bytes: u64,
    /// Bytes that were written by clients.
    pub written_bytes: u64,
    /// Requests of clients.
    pub requests: u64,
}

/// Tells of the clients.
pub type Counting = Arc<dyn Fn() -> Clients + Send + Sync>;

/// What a pool did in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Second {
    /// The number of the second, from the server's start.
    pub(crate) number: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
    /// Mean times in microseconds, 0: there was none.
    pub(crate) read_us: u64,
    pub(crate) write_us: u64,
}

/// A pool, for whoever looks.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) report: PoolReport,
    /// Why it waits for its devices, if it does.
    pub(crate) suspended: Option<String>,
}

/// All there is to see.
pub(crate) struct View {
    engine: Local,
    pub(crate) held: Arc<Held>,
    counting: Counting,
    pools: Mutex<(Option<Instant>, Vec<Pool>)>,
    /// What pools are being asked, by name: one question at a time.
    asked: Mutex<BTreeMap<String, Arc<Question>>>,
    seconds: Mutex<BTreeMap<String, Seconds>>,
}

/// A question of a pool's state, and whatever comes as its answer.
#[derive(Default)]
struct Question {
    answer: Mutex<Option<Option<PoolReport>>>,
    answered: Condvar,
}

impl Question {
    /// Asks, in a thread of its own.
    fn put(ask: impl FnOnce() -> Option<PoolReport> + Send + 'static) -> Arc<Question> {
        let question = Arc::new(Question::default());
        let asked = question.clone();
        let body = move || {
            let told = ask();
            *asked.answer.lock() = Some(told);
            asked.answered.notify_all();
        };
        if rt::thread::try_spawn("status", body).is_err() {
            *question.answer.lock() = Some(None);
        }
        question
    }

    /// Waits for its answer until then.
    fn wait(&self, until: Instant) -> Option<Option<PoolReport>> {
        let mut answer = self.answer.lock();
        loop {
            let left = until - rt::time::now();
            if answer.is_some() || left.is_zero() {
                return answer.take();
            }
            answer = self.answered.wait_timeout(answer, left).0;
        }
    }
}

#[derive(Default)]
struct Seconds {
    last: Option<(u64, Meters)>,
    kept: VecDeque<Second>,
}

impl View {
    pub(crate) fn new(engine: Local, held: Arc<Held>, counting: Counting) -> View {
        let (pools, asked, seconds) = (Mutex::default(), Mutex::default(), Mutex::default());
        View { engine, held, counting, pools, asked, seconds }
    }

    /// Who holds the server's memory.
    pub(crate) fn memory(&self) -> Report {
        Report::of(self.engine.memory())
    }

    pub(crate) fn clients(&self) -> Clients {
        (self.counting)()
    }

    /// The pools that are held. One that cannot be asked now is told of as it was last.
    pub(crate) fn pools(&self) -> Vec<Pool> {
        let mut kept = self.pools.lock();
        if kept.0.is_some_and(|then| then.elapsed() < FRESH) {
            return kept.1.clone();
        }
        let before = std::mem::take(&mut kept.1);
        let names = self.held.names();
        let mut asked = self.asked.lock();
        asked.retain(|name, _| names.contains(name));
        for name in &names {
            asked.entry(name.clone()).or_insert_with(|| {
                let mut engine = self.engine.clone();
                let query = Status { names: vec![name.clone()], ..Status::default() };
                Question::put(move || engine.pool_status(&query).ok()?.pop()?.ok())
            });
        }
        let until = rt::time::now() + PATIENCE;
        for name in names {
            let told = asked.get(&name).and_then(|question| question.wait(until));
            if told.is_some() {
                asked.remove(&name);
            }
            let Some(pool) = self.held.pool(&name) else { continue };
            let suspended = pool.suspended();
            drop(pool);
            let last = || before.iter().find(|pool| pool.report.name == name);
            let report = told.flatten().or_else(|| last().map(|pool| pool.report.clone()));
            kept.1.extend(report.map(|report| Pool { report, suspended }));
        }
        kept.0 = Some(rt::time::now());
        kept.1.clone()
    }

    /// Notes what the pools did since it was called last: once a second.
    pub(crate) fn note_second(&self) {
        let number = rt::time::now().since_start().as_secs();
        let names = self.held.names();
        let mut seconds = self.seconds.lock();
        seconds.retain(|name, _| names.contains(name));
        for name in names {
            let Some(pool) = self.held.pool(&name) else { continue };
            let mut meters = Meters::default();
            pool.meters().iter().for_each(|leaf| meters.add(&leaf.meters));
            drop(pool);
            seconds.entry(name).or_default().note(number, meters);
        }
    }

    /// What a pool did in the seconds after number `after`, oldest first.
    pub(crate) fn seconds(&self, name: &str, after: u64) -> Vec<Second> {
        let seconds = self.seconds.lock();
        let kept = seconds.get(name).into_iter().flat_map(|seconds| &seconds.kept);
        kept.filter(|second| second.number > after).copied().collect()
    }
}

impl Seconds {
    fn note(&mut self, number: u64, meters: Meters) {
        let Some((last, before)) = self.last.replace((number, meters)) else { return };
        let Some((_, meters)) = &self.last else { return };
        let took = number.saturating_sub(last).max(1);
        let since = meters.since(&before);
        let ((reads, read_bytes), (writes, write_bytes)) = (since.reads(), since.writes());
        let micros = |time: Option<Duration>| {
            time.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
        };
        if self.kept.len() >= SECONDS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(Second {
            number,
            reads: reads / took,
            writes: writes / took,
            read_bytes: read_bytes / took,
            write_bytes: write_bytes / took,
            read_us: micros(mean(&since.total_reads)),
            write_us: micros(mean(&since.total_writes)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_pool_that_does_not_answer() {
        let (answers, waits) = rt::sync::mpsc::bounded::<()>(1);
        let question = Question::put(move || {
            let _ = waits.recv();
            None
        });
        let start = rt::time::now();
        assert!(question.wait(start + Duration::from_millis(50)).is_none());
        assert!(start.elapsed() < Duration::from_secs(5));
        drop(answers);
        // Once it has answered, there is an answer.
        assert!(question.wait(start + Duration::from_secs(60)).is_some());
        // One that was not asked in time has none, and nobody waits for it.
        assert!(Question::default().wait(start).is_none());
    }

    #[test]
    fn seconds_are_differences_and_there_are_so_many() {
        let mut seconds = Seconds::default();
        let mut meters = Meters::default();
        for number in 0..SECONDS_MAX as u64 + 10 {
            meters.bytes_read += 4096;
            meters.total_reads[10] += 1;
            seconds.note(number, meters.clone());
        }
        assert_eq!(seconds.kept.len(), SECONDS_MAX);
        let last = seconds.kept.back().copied().unwrap_or_default();
        assert_eq!((last.number, last.reads + last.writes), (SECONDS_MAX as u64 + 9, 1));
        assert_eq!((last.read_bytes + last.write_bytes, last.read_us), (4096, 1));
        // Looked at late, a second is no more than a second.
        let number = SECONDS_MAX as u64 + 13;
        meters.bytes_read += 4 * 4096;
        seconds.note(number, meters);
        let last = seconds.kept.back().copied().unwrap_or_default();
        assert_eq!(last.read_bytes + last.write_bytes, 4096);
    }
}
