//! Time: a monotonic clock, the wall clock, sleep.
//!
//! The one idea: an [`Instant`] is nanoseconds since the process (or the simulated run) began, the
//! same type in both forms, so that virtual time can be kept, printed and hashed.

use std::ops::{Add, Sub};
use std::time::Duration;

#[cfg(feature = "sim")]
use crate::sim;

mod system {
    #![allow(clippy::disallowed_methods)] // the one place where std's clocks are read
    use std::sync::OnceLock;
    use std::time::{Duration, Instant, SystemTime};

    static START: OnceLock<Instant> = OnceLock::new();

    pub(super) fn since_start() -> Duration {
        START.get_or_init(Instant::now).elapsed()
    }

    pub(super) fn wall_clock() -> Duration {
        // A clock before 1970 is not set at all: zero says so.
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    pub(super) fn sleep(duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A point in monotonic time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// Time since then.
    pub fn elapsed(self) -> Duration {
        now().saturating_since(self)
    }

    /// Time from `earlier` to this, zero if it is not earlier.
    pub fn saturating_since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Time since the first reading of the clock (in the simulation: since the run began).
    pub fn since_start(self) -> Duration {
        self.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    /// Saturates: the far future is far enough.
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration))
    }
}

impl Sub for Instant {
    type Output = Duration;
    /// Saturates at zero.
    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_since(earlier)
    }
}

/// Now, on the monotonic clock.
pub fn now() -> Instant {
    #[cfg(feature = "sim")]
    if sim::is_running() {
        return Instant(sim::clock::since_start());
    }
    Instant(system::since_start())
}

/// Now, on the wall clock: time since 1970-01-01 UTC.
pub fn wall_clock() -> Duration {
    #[cfg(feature = "sim")]
    if sim::is_running() {
        return sim::clock::wall_clock();
    }
    system::wall_clock()
}

/// Waits for `duration`.
pub fn sleep(duration: Duration) {
    #[cfg(feature = "sim")]
    if sim::is_running() {
        return sim::clock::sleep(duration);
    }
    system::sleep(duration);
}
