//! Wall clock and CPU time of this process.

use rt::time::Instant;

/// A running clock.
pub(crate) struct Clock {
    start: Instant,
    user: f64,
    sys: f64,
}

/// What a clock has measured, in seconds.
pub(crate) struct Timed {
    pub(crate) seconds: f64,
    pub(crate) user: f64,
    pub(crate) sys: f64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        let (user, sys) = cpu();
        Clock { start: rt::time::now(), user, sys }
    }

    pub(crate) fn stop(self) -> Timed {
        let seconds = self.start.elapsed().as_secs_f64();
        let (user, sys) = cpu();
        Timed { seconds, user: user - self.user, sys: sys - self.sys }
    }
}

/// CPU seconds of this process so far: user and system. The kernel tells the split in ticks of
/// 10 ms, and the sum exactly.
fn cpu() -> (f64, f64) {
    let sum = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let sum = sum.tv_sec as f64 + sum.tv_nsec as f64 / 1e9;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let mut fields = after.split_whitespace().skip(11).map(|f| f.parse().unwrap_or(0.0));
    let (user, sys): (f64, f64) = (fields.next().unwrap_or(0.0), fields.next().unwrap_or(0.0));
    let part = if user + sys > 0.0 { user / (user + sys) } else { 1.0 };
    (sum * part, sum * (1.0 - part))
}

/// Resident memory of this process, in MB.
pub(crate) fn rss_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1000
}
