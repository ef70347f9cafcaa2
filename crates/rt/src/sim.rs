//! The simulated form: one seed, one history.
//!
//! The one idea: inside [`run`] every thread is a task on one system thread, and which task goes
//! on at each lock, atomic, channel or sleep is drawn from the seed. Time is virtual: it moves a
//! little at each step, and jumps to the next deadline when everybody waits for time. So a run of
//! minutes of timeouts takes milliseconds, and repeats exactly.
//!
//! Outside [`run`] the same types are the ones of production, so that what needs no schedule (a
//! parser's test, the setting up of a run) needs no change.
//!
//! Built only with the feature `sim`: `cargo test -p rt -p device --features sim`.

pub(crate) mod clock;
mod gate;
mod scheduler;
mod trace;

pub(crate) use gate::{Gate, Pass, point};
pub use trace::Trace;
pub(crate) use trace::note;

use scheduler::SeededScheduler;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Steps after which a run counts as caught in a loop.
const STEPS_MAX: usize = 20_000_000;

/// Bytes of stack of each simulated thread.
const STACK: usize = 1 << 20;

/// Runs `body` and all threads that it starts under the schedule of `seed`, until all have ended.
///
/// # Panics
/// When `body` or one of its threads panics, when all of them wait for each other, or when the run
/// does not end within twenty million steps.
pub fn run(seed: u64, body: impl Fn() + Send + Sync + 'static) -> Trace {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.max_steps = shuttle::MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    trace::begin(seed);
    clock::begin();
    shuttle::Runner::new(SeededScheduler::new(seed), config).run(body);
    trace::end()
}

/// [`run`]s `body` once for each seed. A failure names its seed.
pub fn check(seeds: Range<u64>, body: impl Fn() + Send + Sync + Clone + 'static) {
    for seed in seeds {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, body.clone())));
        if let Err(payload) = outcome {
            #[allow(clippy::print_stderr)] // the one word that makes the failure repeatable
            {
                eprintln!("the run with seed {seed} failed");
            }
            resume_unwind(payload);
        }
    }
}

/// True inside [`run`].
pub fn is_running() -> bool {
    shuttle::current::try_get_current_task().is_some()
}

/// 64 bits drawn from the run's seed; outside a run, always the same sequence.
pub(crate) fn draw() -> u64 {
    trace::draw()
}

#[cfg(test)]
mod tests;
