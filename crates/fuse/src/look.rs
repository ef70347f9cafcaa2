//! Looking for the kernel's next request, before sleeping until it comes.
//!
//! Place: after the last answer of [`crate::turns`], by the thread that gave it.
//! The one idea: who asks for one thing after the other asks again as soon as he has his answer, and to be woken takes as long
//! as what he asks, most of all on a core that sleeps. So while nobody else asks, and the next request is likely to come soon
//! ([`Soon`]), a thread looks for it and lets others run meanwhile. But it takes nothing that another one takes: each request
//! wakes one of those that wait, and as long as no core sleeps, which who looks sees to, the system has it run on the core of
//! who asks, who sleeps by then; so neither of them waits for a core to wake. Only what nobody else has begun after some
//! microseconds is taken by who looks; where that is so each time he takes it at once ([`Giving`]).

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rt::soon::Soon;
use rt::sync::atomic::{AtomicU64, Ordering};
use rt::time::{Instant, now};

/// How long it is looked for, at most: about as long as a program thinks between two calls, and is woken for.
pub(crate) const LOOK: Duration = Duration::from_micros(300);
/// How many times the processor pauses between two looks, each of which is a call of the system.
const PAUSES: usize = 32;
/// Looks between two yields.
const GLANCES: usize = 4;
/// How long a request that is there is left to others. Who is woken on a core that does not sleep has it by then.
const GIVE: Duration = Duration::from_micros(10);
/// So many in a row are left to others before it is believed that they are not in time: the system may have put them where who
/// looks is, and puts them elsewhere soon.
const TRIES: u32 = 8;
/// So many at most are taken at once then.
const PATIENCE_MAX: u32 = 512;

/// What is known of the next request.
#[derive(Debug, Default)]
pub(crate) struct Next {
    soon: Soon,
    /// When the last answer was given, if nothing was asked since.
    since: Option<Instant>,
    is_looked_for: bool,
    giving: Giving,
}

impl Next {
    /// A request has come while nobody was at work.
    pub(crate) fn came(&mut self) {
        if let Some(since) = self.since.take() {
            self.soon.learn(since.elapsed() < LOOK);
        }
    }

    /// All who have asked have their answers: is the next request to be looked for, and how? [`Next::looked`] ends that.
    pub(crate) fn is_due(&mut self) -> Option<Giving> {
        self.since = Some(now());
        let is_due = !self.is_looked_for && self.soon.is_likely();
        self.is_looked_for |= is_due;
        is_due.then_some(self.giving)
    }

    pub(crate) fn looked(&mut self, giving: Giving) {
        (self.is_looked_for, self.giving) = (false, giving);
    }
}

/// Whether who looks leaves what comes to others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Giving {
    /// So many were left in vain, one after the other.
    in_vain: u32,
    /// So many more requests are taken at once.
    takes: u32,
    /// So many were to be, the last time.
    patience: u32,
}

impl Giving {
    /// Leaves what is there to others, if it is time to try that; has one of them taken it?
    fn leave(&mut self, begun: &AtomicU64, seen: u64) -> bool {
        let is_due = self.is_due();
        let was_taken = is_due && is_taken(begun, seen);
        if is_due {
            self.learn(was_taken);
        }
        was_taken
    }

    fn is_due(&mut self) -> bool {
        let takes = self.takes.checked_sub(1);
        self.takes = takes.unwrap_or(0);
        takes.is_none()
    }

    fn learn(&mut self, was_taken: bool) {
        if was_taken {
            *self = Giving::default();
            return;
        }
        self.in_vain += 1;
        if self.in_vain == TRIES {
            self.patience = (2 * self.patience).clamp(TRIES, PATIENCE_MAX);
            (self.in_vain, self.takes) = (0, self.patience);
        }
    }
}

/// Returns when something can be read from `device` that no other thread takes, or when nothing has come for a while. `begun`
/// counts the requests that were taken.
pub(crate) fn look(device: impl AsFd, begun: &AtomicU64, giving: &mut Giving) {
    let mut fds = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
    // Also where it cannot be looked: the read that follows says why.
    let mut is_there = || poll(&mut fds, PollTimeout::ZERO) != Ok(0);
    let (mut since, mut seen, mut are_taken) = (now(), begun.load(Ordering::Relaxed), false);
    while since.elapsed() < LOOK {
        for glance in 0..GLANCES {
            (0..PAUSES).for_each(|_| rt::sync::hint::spin_loop());
            // What others take need not be looked for as often.
            if (glance == 0 || !are_taken) && is_there() {
                are_taken = giving.leave(begun, seen);
                if !are_taken {
                    return;
                }
            }
            let count = begun.load(Ordering::Relaxed);
            if count != seen {
                (since, seen) = (now(), count);
            }
        }
        rt::thread::yield_now();
    }
}

/// Does somebody take one more request soon?
fn is_taken(begun: &AtomicU64, seen: u64) -> bool {
    let since = now();
    while begun.load(Ordering::Relaxed) == seen {
        if since.elapsed() > GIVE {
            return false;
        }
        rt::sync::hint::spin_loop();
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};

    use rt::sync::Arc;
    use rt::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn one_looks_while_the_next_request_is_likely_to_come_soon() {
        let mut next = Next::default();
        assert!(next.is_due().is_some());
        assert!(next.is_due().is_none(), "somebody does");
        next.looked(Giving::default());
        for _ in 0..20 {
            next.since = Some(now());
            rt::time::sleep(LOOK);
            next.came();
            next.looked(Giving::default());
        }
        assert!(next.is_due().is_none(), "it was always late");
        for _ in 0..20 {
            next.since = Some(now() + LOOK);
            next.came();
        }
        assert!(next.is_due().is_some(), "it is soon again");
    }

    #[test]
    fn who_looks_sees_what_is_there_and_does_not_look_for_ever() {
        let (reader, mut writer) = pipe().unwrap();
        let (begun, mut giving) = (AtomicU64::new(0), Giving::default());
        let start = now();
        look(&reader, &begun, &mut giving);
        assert!(start.elapsed() >= LOOK);
        writer.write_all(b"x").unwrap();
        // This thread may be kept from its core, but not each time.
        let mut at_once = |_| {
            let start = now();
            look(&reader, &begun, &mut giving);
            start.elapsed() < LOOK
        };
        assert!((0..100).any(&mut at_once));
    }

    #[test]
    fn what_others_take_is_left_to_them_and_looked_for_on_and_on() {
        let (reader, mut writer) = pipe().unwrap();
        writer.write_all(b"x").unwrap();
        let (begun, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (theirs, over) = (begun.clone(), is_over.clone());
        // Whatever is there they have it at once, and pause now and then.
        let others = rt::thread::spawn("others", move || {
            while !over.load(Ordering::Relaxed) {
                let start = now();
                while start.elapsed() < 8 * LOOK {
                    theirs.fetch_add(1, Ordering::Relaxed);
                    rt::thread::yield_now();
                }
                rt::time::sleep(4 * LOOK);
            }
        });
        // Both may be kept from their cores, but not each time.
        let goes_on = |_| {
            rt::time::sleep(4 * LOOK);
            let start = now();
            look(&reader, &begun, &mut Giving::default());
            start.elapsed() >= 3 * LOOK
        };
        assert!((0..10_000).any(goes_on));
        is_over.store(true, Ordering::Relaxed);
        others.join();
        // Now nobody takes anything.
        let mut giving = Giving::default();
        look(&reader, &begun, &mut giving);
        assert_eq!(giving.in_vain, 1);
    }

    #[test]
    fn what_nobody_else_takes_is_left_to_others_ever_more_seldom() {
        let mut giving = Giving::default();
        let tries = |giving: &mut Giving, requests: u32| {
            let is_left = |_: &u32| giving.is_due().then(|| giving.learn(false)).is_some();
            (0..requests).filter(is_left).count() as u32
        };
        assert_eq!(tries(&mut giving, TRIES + TRIES), TRIES);
        assert_eq!(tries(&mut giving, TRIES + 2 * TRIES), TRIES);
        let later = tries(&mut giving, 10 * PATIENCE_MAX) / TRIES;
        assert_eq!(later, 13, "after 32, 64 .. 512 and 512");
        giving.takes = 0;
        giving.learn(true);
        assert_eq!(tries(&mut giving, TRIES), TRIES);
    }
}
