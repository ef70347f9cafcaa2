//! Looking for what comes, before sleeping until it does.
//!
//! The one idea: to sleep and to be woken takes as long as a small request. So where few ask, each side looks for the
//! other's word for some microseconds first, and lets others run meanwhile. But who looks in vain has a core that others
//! would have been woken on: so only what is likely to come soon is looked for, as a processor does with its branches. What came
//! soon, or late, after the same few times before is what is expected.
//!
//! Where many ask nobody should look: there is always somebody who has something to do.

use std::os::fd::AsFd;
use std::time::Duration;

use rt::time::{Instant, now};

use crate::inbox::Inbox;
use crate::trays::Trays;

/// How long it is looked for, at most: about as long as a client thinks between two requests.
const LOOK: Duration = Duration::from_micros(150);
/// Who sleeps is woken so much later, at most.
const WAKING: Duration = Duration::from_micros(50);

/// Looks at a tray for each time that others may run, which takes the system, and, where two threads share a core, from who
/// works on what is looked for.
const GLANCES: usize = 64;
/// What has not come after so long is not that near: from then on it is looked for less often, so many pauses of the
/// processor a glance.
const NEAR: Duration = Duration::from_micros(10);
const PAUSES: usize = 16;
/// And these for each look at the socket, which does, too.
const TURNS: usize = 4;

/// What is waited for, time after time.
#[derive(Debug)]
pub struct Look {
    expected: Expected,
    /// When it was waited for this time, and for how long it would be soon.
    since: Instant,
    soon: Duration,
}

impl Default for Look {
    fn default() -> Look {
        Look { expected: Expected::default(), since: now(), soon: LOOK }
    }
}

impl Look {
    /// Is what comes next likely to come soon?
    #[must_use]
    pub fn is_likely(&self) -> bool {
        self.expected.is_soon()
    }

    /// If it is likely, looks for a while whether something has come, on a socket or on the tray, which is left then; how many
    /// bytes have, 0 at the end. `None`: nothing has, and who gets it later says so ([`Look::came`]).
    pub fn over(
        &mut self,
        socket: impl AsFd + Copy,
        trays: Option<&Trays>,
        inbox: &mut Inbox,
    ) -> Option<usize> {
        let Some(trays) = trays else { return self.at(|_| inbox.fill_now(socket)) };
        trays.look();
        let mut turn = 0;
        let found = self.at(|for_long| {
            let (glances, pauses) = if for_long { (GLANCES / 8, PAUSES) } else { (GLANCES, 1) };
            let glance = |_| {
                (0..pauses).for_each(|_| rt::sync::hint::spin_loop());
                trays.take(inbox)
            };
            turn += 1;
            let at_socket = turn % TURNS == 1;
            (0..glances).find_map(glance).or_else(|| at_socket.then(|| inbox.fill_now(socket))?)
        });
        // Also where it came over the socket: who does not look must not seem to.
        let left = trays.leave(inbox);
        if left.is_some() && found.is_none() {
            self.came();
        }
        left.or(found)
    }

    /// The same, by `come`, which does not wait, and hears whether it has been looked for long.
    fn at<T>(&mut self, mut come: impl FnMut(bool) -> Option<T>) -> Option<T> {
        self.since = now();
        if !self.is_likely() {
            self.soon = LOOK + WAKING;
            return None;
        }
        self.soon = LOOK;
        let mut passed = Duration::ZERO;
        while passed < LOOK {
            let found = come(passed > NEAR);
            if found.is_some() {
                self.came();
                return found;
            }
            rt::thread::yield_now();
            passed = self.since.elapsed();
        }
        None
    }

    /// What was waited for has come.
    pub fn came(&mut self) {
        self.expected.learn(self.since.elapsed() < self.soon);
    }
}

/// Whether what comes next comes soon, by how it was before.
#[derive(Debug)]
struct Expected {
    /// The last times, the newest in the lowest bit: whether it was soon.
    history: usize,
    /// After each history, how sure it is: soon from [`SOON`] on.
    after: [u8; 1 << TIMES],
}

/// So many times before matter: those of a large file that is sent in some pieces, and a pause behind the last.
const TIMES: u32 = 6;
/// From here on it is expected soon.
const SOON: u8 = 2;
/// As sure as it gets: it takes two times in a row to change that.
const SURE: u8 = 3;

impl Default for Expected {
    fn default() -> Expected {
        Expected { history: 0, after: [SOON; 1 << TIMES] }
    }
}

impl Expected {
    fn is_soon(&self) -> bool {
        self.after[self.history] >= SOON
    }

    fn learn(&mut self, was_soon: bool) {
        let after = &mut self.after[self.history];
        *after = if was_soon { (*after + 1).min(SURE) } else { after.saturating_sub(1) };
        self.history = (self.history << 1 | usize::from(was_soon)) % self.after.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it was expected soon and was not, and the other way round, of the last half of `times`.
    fn wrong(expected: &mut Expected, times: &[bool]) -> (usize, usize) {
        let (mut vain, mut missed) = (0, 0);
        for (at, &was_soon) in times.iter().enumerate() {
            if at >= times.len() / 2 {
                vain += usize::from(expected.is_soon() && !was_soon);
                missed += usize::from(!expected.is_soon() && was_soon);
            }
            expected.learn(was_soon);
        }
        (vain, missed)
    }

    #[test]
    fn what_comes_in_turns_is_foreseen() {
        for pattern in [
            &[true][..],
            &[false],
            &[true, false],
            &[true, true, true, false],
            &[true, false, false, false, false],
        ] {
            let mut expected = Expected::default();
            assert_eq!(wrong(&mut expected, &pattern.repeat(100)), (0, 0), "{pattern:?}");
            // Nor does it take long to see that it has become otherwise.
            let other: Vec<_> = pattern.iter().map(|soon| !soon).collect();
            assert_eq!(wrong(&mut expected, &other.repeat(40)), (0, 0), "not {pattern:?}");
        }
        // One that is late now and then is no reason not to look.
        let mut times = vec![true; 1000];
        (0..1000).step_by(97).for_each(|at| times[at] = false);
        let (vain, missed) = wrong(&mut Expected::default(), &times);
        assert!(vain <= 6 && missed == 0, "{vain} in vain, {missed} missed");
    }

    #[test]
    fn only_what_is_likely_is_looked_for() {
        let mut look = Look::default();
        assert_eq!(look.at(|_| Some(1)), Some(1));
        (0..20).for_each(|_| {
            assert_eq!(look.at(|_| None::<u8>), None);
            look.soon = Duration::ZERO;
            look.came();
        });
        assert_eq!(look.at(|_| Some(1)), None, "it was always late");
        (0..20).for_each(|_| {
            let _ = look.at(|_| Some(1));
            look.soon = Duration::MAX;
            look.came();
        });
        assert_eq!(look.at(|_| Some(2)), Some(2), "it is soon again");
    }
}
