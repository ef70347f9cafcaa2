//! Workers: a fixed pool of threads for data-parallel work on borrowed data.
//!
//! The one idea: a *run* is a number of jobs and one closure; jobs are claimed in order with one
//! atomic step each, by the caller and by whichever workers are idle. The caller always works on
//! its own run, so a run never waits for a free worker: runs may be started from many threads at
//! once, and from inside a job, without a deadlock.
//!
//! A worker spins for a moment after its last job before it parks, because batches come one after
//! the other; starting a run costs about a microsecond then. Between jobs whoever has worked for a while gives way: what is
//! done in runs is seldom what somebody waits for, and fills all cores.
//!
//! `unsafe` here: the closure borrows from the caller's stack, and the workers outlive it. The
//! proof stands at `Run`.
#![allow(unsafe_code)]

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, hint};
use crate::thread;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The closure of a run: (worker, job).
type Body<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// The closure as the workers see it: a pointer, because it outlives what it points to.
struct BodyPtr(*const Body<'static>);

// SAFETY: it points to a closure that is Sync, so any thread may call it.
unsafe impl Send for BodyPtr {}
// SAFETY: as above.
unsafe impl Sync for BodyPtr {}

/// One call of [`Workers::run`].
///
/// The lifetime of `body` is erased. It may be called only for a claimed job, that is for a value
/// below `jobs` that `next.fetch_add` gave to exactly one thread. Each claimed job is counted in
/// `done` after its call has returned (or unwound), and [`Workers::run`] does not return, nor
/// unwind, before `done` equals `jobs`. So when the borrow ends, every claim was used up, and a
/// worker that still holds the `Arc<Run>` finds `next` at or above `jobs` and never calls `body`.
struct Run {
    body: BodyPtr,
    jobs: usize,
    next: AtomicUsize,
    done: AtomicUsize,
    /// Set when a job panicked: what is claimed from then on is not called.
    broken: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// True when the caller has parked.
    parked: Mutex<bool>,
    finished: Condvar,
}

impl Run {
    /// Claims jobs and calls the body until none is left.
    fn work(&self, worker: usize) {
        let mut called = 0;
        loop {
            let job = self.next.fetch_add(1, Ordering::Relaxed);
            if job >= self.jobs {
                break;
            }
            called += 1;
            if self.broken.load(Ordering::Relaxed) {
                continue;
            }
            // SAFETY: `job` was claimed and is not yet counted as done, so the closure is alive.
            let body = unsafe { &*self.body.0 };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(worker, job))) {
                self.broken.store(true, Ordering::Relaxed);
                self.panic.lock().get_or_insert(payload);
            }
            thread::give_way();
        }
        // AcqRel: whoever sees the last count sees what all the jobs wrote.
        if called > 0 && self.done.fetch_add(called, Ordering::AcqRel) + called == self.jobs {
            let parked = self.parked.lock();
            if *parked {
                self.finished.notify_one();
            }
        }
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.jobs
    }

    fn wait(&self) {
        for _ in 0..hint::SPINS {
            if self.is_done() {
                return;
            }
            hint::spin_loop();
        }
        let mut parked = self.parked.lock();
        *parked = true;
        while !self.is_done() {
            parked = self.finished.wait(parked);
        }
    }
}

#[derive(Default)]
struct State {
    runs: Vec<Arc<Run>>,
    parked: usize,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// Counts posted runs, so that a spinning worker sees a new one without taking the lock.
    posted: AtomicUsize,
}

impl Shared {
    /// The life of worker number `worker`.
    fn serve(&self, worker: usize) {
        let mut state = self.state.lock();
        loop {
            let open = |run: &&Arc<Run>| run.next.load(Ordering::Relaxed) < run.jobs;
            if let Some(run) = state.runs.iter().find(open).cloned() {
                drop(state);
                run.work(worker);
                drop(run);
            } else if state.stop {
                return;
            } else {
                let seen = self.posted.load(Ordering::Relaxed);
                drop(state);
                if !self.spin(seen) {
                    state = self.state.lock();
                    if self.posted.load(Ordering::Relaxed) == seen && !state.stop {
                        state.parked += 1;
                        state = self.wake.wait(state);
                        state.parked -= 1;
                    }
                    continue;
                }
            }
            state = self.state.lock();
        }
    }

    /// True as soon as a run was posted after `seen`.
    fn spin(&self, seen: usize) -> bool {
        (0..hint::SPINS).any(|_| {
            hint::spin_loop();
            self.posted.load(Ordering::Relaxed) != seen
        })
    }
}

/// A fixed pool of worker threads.
pub struct Workers {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Workers {
    /// A pool in which `count` threads work on a run: the caller and `count - 1` others. With 0 or
    /// 1 everything runs in the caller.
    pub fn new(count: usize) -> Workers {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            wake: Condvar::new(),
            posted: AtomicUsize::new(0),
        });
        let start = |worker: usize| {
            let shared = shared.clone();
            thread::spawn(format!("worker-{worker}"), move || shared.serve(worker))
        };
        let threads = (1..count).map(start).collect();
        Workers { shared, threads }
    }

    /// A pool with one thread for each core that the process may use.
    pub fn per_core() -> Workers {
        Workers::new(thread::available_cores())
    }

    /// The number of threads that can work on one run, the caller included: worker indices are
    /// below it.
    pub fn count(&self) -> usize {
        self.threads.len() + 1
    }

    /// Calls `body(worker, job)` once for each job below `jobs`, in parallel, and returns when all
    /// calls have. Jobs are started in order. Within one run no two threads have the same
    /// `worker`; the caller is 0.
    ///
    /// # Panics
    /// When a job panics: jobs not yet begun are left out, the others end, and the first panic
    /// goes on in the caller.
    pub fn run(&self, jobs: usize, body: impl Fn(usize, usize) + Sync) {
        if self.threads.is_empty() || jobs <= 1 {
            for job in 0..jobs {
                body(0, job);
                thread::give_way();
            }
            return;
        }
        let body: *const Body<'_> = &body;
        // SAFETY: only the lifetime changes. `body` is not called after this function has ended:
        // see `Run`. Between here and the end of `run.wait()` nothing unwinds: `Run::work` catches
        // the jobs' panics, and the locks taken are never poisoned, as no code of others runs
        // under them.
        let body = unsafe { std::mem::transmute::<*const Body<'_>, *const Body<'static>>(body) };
        let run = Arc::new(Run {
            body: BodyPtr(body),
            jobs,
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            panic: Mutex::new(None),
            parked: Mutex::new(false),
            finished: Condvar::new(),
        });
        self.post(&run);
        run.work(0);
        self.withdraw(&run);
        run.wait();
        if let Some(payload) = run.panic.lock().take() {
            resume_unwind(payload);
        }
    }

    /// Shows the run to the workers and wakes as many as it can use.
    fn post(&self, run: &Arc<Run>) {
        let mut state = self.shared.state.lock();
        state.runs.push(run.clone());
        self.shared.posted.fetch_add(1, Ordering::Relaxed);
        let wanted = state.parked.min(run.jobs - 1);
        drop(state);
        for _ in 0..wanted {
            self.shared.wake.notify_one();
        }
    }

    fn withdraw(&self, run: &Arc<Run>) {
        let mut state = self.shared.state.lock();
        state.runs.retain(|other| !Arc::ptr_eq(other, run));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
            // A worker itself cannot panic: the jobs' panics went to their callers.
            drop(thread.try_join());
        }
    }
}

#[cfg(test)]
mod tests;
