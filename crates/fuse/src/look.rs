//! Looking for the kernel's next request, before sleeping until it comes.
//!
//! Place: after the last answer of [`crate::turns`], by the thread that gave it.
//! The one idea: who asks for one thing after the other asks again as soon as he has his answer, and to be woken takes as long
//! as what he asks. So while nobody else asks, and the next request is likely to come soon ([`Soon`]), a thread looks for it
//! and lets others run meanwhile. Whoever gets it: it is there for all who wait.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rt::soon::Soon;
use rt::time::{Instant, now};

/// How long it is looked for, at most: about as long as a program thinks between two calls, and is woken for.
pub(crate) const LOOK: Duration = Duration::from_micros(300);
/// How many times the processor pauses between two looks, each of which is a call of the system.
const PAUSES: usize = 32;
/// Looks between two yields.
const GLANCES: usize = 4;

/// What is known of the next request.
#[derive(Debug, Default)]
pub(crate) struct Next {
    soon: Soon,
    /// When the last answer was given, if nothing was asked since.
    since: Option<Instant>,
    is_looked_for: bool,
}

impl Next {
    /// A request has come while nobody was at work.
    pub(crate) fn came(&mut self) {
        if let Some(since) = self.since.take() {
            self.soon.learn(since.elapsed() < LOOK);
        }
    }

    /// All who have asked have their answers: is the next request to be looked for? If so [`Next::looked`] ends that.
    pub(crate) fn is_due(&mut self) -> bool {
        self.since = Some(now());
        let is_due = !self.is_looked_for && self.soon.is_likely();
        self.is_looked_for |= is_due;
        is_due
    }

    pub(crate) fn looked(&mut self) {
        self.is_looked_for = false;
    }
}

/// Returns when something can be read from `device`, or after a while.
pub(crate) fn look(device: impl AsFd) {
    let since = now();
    let mut fds = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
    while since.elapsed() < LOOK {
        for _ in 0..GLANCES {
            // Also where it cannot be looked: the read that follows says why.
            if poll(&mut fds, PollTimeout::ZERO) != Ok(0) {
                return;
            }
            (0..PAUSES).for_each(|_| rt::sync::hint::spin_loop());
        }
        rt::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};

    use super::*;

    #[test]
    fn one_looks_while_the_next_request_is_likely_to_come_soon() {
        let mut next = Next::default();
        assert!(next.is_due());
        assert!(!next.is_due(), "somebody does");
        next.looked();
        for _ in 0..20 {
            next.since = Some(now());
            rt::time::sleep(LOOK);
            next.came();
            next.looked();
        }
        assert!(!next.is_due(), "it was always late");
        for _ in 0..20 {
            next.since = Some(now() + LOOK);
            next.came();
        }
        assert!(next.is_due(), "it is soon again");
    }

    #[test]
    fn who_looks_sees_what_is_there_and_does_not_look_for_ever() {
        let (reader, mut writer) = pipe().unwrap();
        let start = now();
        look(&reader);
        assert!(start.elapsed() >= LOOK);
        writer.write_all(b"x").unwrap();
        // This thread may be kept from its core, but not each time.
        let at_once = |_| {
            let start = now();
            look(&reader);
            start.elapsed() < LOOK
        };
        assert!((0..100).any(at_once));
    }
}
