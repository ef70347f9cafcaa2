//! Which task goes on next.
//!
//! The one idea: any task that can go on, each as likely; who sleeps goes on when all others wait,
//! or, rarely, before that.

use super::{clock, trace};
use crate::Rng;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::time::Duration;

/// One draw in this many wakes a sleeper although others could go on: they were slow.
const EARLY: u64 = 64;
/// The same for a sleeper whose time is far off: all others stood still for as long.
const VERY_EARLY: u64 = 4096;
/// What is far off.
const FAR: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct SeededScheduler {
    seed: u64,
    rng: Rng,
    begun: bool,
}

impl SeededScheduler {
    pub(super) fn new(seed: u64) -> SeededScheduler {
        SeededScheduler { seed, rng: Rng::new(seed), begun: false }
    }

    fn is_early(&mut self, deadline: Duration) -> bool {
        let far = deadline.saturating_sub(clock::since_start()) > FAR;
        self.rng.chance(1, if far { VERY_EARLY } else { EARLY })
    }
}

impl Scheduler for SeededScheduler {
    fn new_execution(&mut self) -> Option<Schedule> {
        // One seed is one execution.
        (!std::mem::replace(&mut self.begun, true)).then(|| Schedule::new(self.seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        clock::tick();
        let sleeper = runnable
            .iter()
            .filter_map(|task| Some((clock::deadline_of(task.id())?, task.id())))
            .min();
        let awake = |task: &&&Task| clock::deadline_of(task.id()).is_none();
        // Who spins lets another go on, if there is one.
        let others = |task: &&&Task| awake(task) && !(is_yielding && current == Some(task.id()));
        let mut count = runnable.iter().filter(others).count();
        let spinning = count == 0;
        if spinning {
            count = runnable.iter().filter(awake).count();
        }
        let chosen = match sleeper {
            Some((deadline, task)) if count == 0 || self.is_early(deadline) => {
                clock::jump_to(deadline);
                task
            }
            _ => {
                let index = self.rng.index(count);
                let mut candidates =
                    runnable.iter().filter(|t| awake(t) && (spinning || others(t)));
                candidates.nth(index).expect("somebody is awake, or a sleeper was taken").id()
            }
        };
        trace::step(usize::from(chosen));
        Some(chosen)
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }
}
