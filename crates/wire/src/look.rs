//! Looking for what comes, before sleeping until it does.
//!
//! The one idea: to sleep and to be woken takes as long as a small request. So where few ask, each side looks for the
//! other's word for some microseconds first, and lets others run meanwhile. But who looks in vain has a core that others
//! would have been woken on: so only what is likely to come soon is looked for ([`Soon`]).
//!
//! Where many ask nobody should look: there is always somebody who has something to do. Where both sides have one core, only one
//! can be at work: others run at once, and a client that knows of cores for both parts from it. One that knows of a core for
//! each pair, and of no more, goes to the server's.

use std::os::fd::AsFd;
use std::time::Duration;

use rt::soon::Soon;
use rt::time::{Instant, now};

use crate::inbox::Inbox;
use crate::trays::{Other, Trays};

/// How long it is looked for, at most: about as long as a client thinks between two requests, also one of an xrootd's.
const LOOK: Duration = Duration::from_micros(600);
/// Who sleeps is woken so much later, at most.
const WAKING: Duration = Duration::from_micros(50);

/// How many times the tray is polled between two yields. A yield is a system call, and on a hyperthread it takes time from the
/// thread that is awaited.
const GLANCES: usize = 64;
/// What has not come after this time is not about to come: from then on the tray is polled less often.
const NEAR: Duration = Duration::from_micros(10);
/// How many times the processor pauses before each of these later polls. What a pause takes differs from machine to machine, 10
/// to 50 ns; what comes is found so much later, in the mean half of it.
const PAUSES: usize = 4;
/// How many rounds of polls there are for each look at the socket, which is a system call as well.
const TURNS: usize = 4;

/// What is known of the machine's cores by who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// Every side of every connection in use has a core: if both sides are on one, they separate.
    Enough,
    /// There are not enough cores: this side goes to the other side's core, and they yield to each other at once.
    TooFew,
    /// It is for the other side to know.
    Unknown,
}

/// What was seen where it was looked.
enum Seen<T> {
    Came(T),
    /// Nothing yet of the other side, which is there.
    Nothing(Other),
}

/// What is waited for, time after time.
#[derive(Debug)]
pub struct Look {
    next: Soon,
    /// When it was waited for this time, and for how long it would be soon.
    since: Instant,
    soon: Duration,
    parting: Parting,
    joining: Joining,
}

impl Default for Look {
    fn default() -> Look {
        let (next, parting, joining) = Default::default();
        Look { next, since: now(), soon: LOOK, parting, joining }
    }
}

impl Look {
    /// Is what comes next likely to come soon?
    #[must_use]
    pub fn is_likely(&self) -> bool {
        self.next.is_likely()
    }

    /// If it is likely, looks for a while whether something has come, on a socket or on the tray, which is left then; how many
    /// bytes have, 0 at the end. `None`: nothing has, and who gets it later says so ([`Look::came`]).
    pub fn over(
        &mut self,
        socket: impl AsFd + Copy,
        trays: Option<&Trays>,
        inbox: &mut Inbox,
        cores: Cores,
    ) -> Option<usize> {
        let Some(trays) = trays else {
            return self.at(Cores::Unknown, |_| match inbox.fill_now(socket) {
                Some(count) => Seen::Came(count),
                None => Seen::Nothing(Other::Nowhere),
            });
        };
        trays.look();
        let mut turn = 0;
        let found = self.at(cores, |for_long| {
            let other = trays.meet();
            let (glances, pauses) = match for_long {
                // Nothing comes before others have run.
                _ if other == Other::Beside || cores == Cores::TooFew => (1, 0),
                true => (GLANCES / 2, PAUSES),
                false => (GLANCES, 1),
            };
            let glance = |_| {
                (0..pauses).for_each(|_| rt::sync::hint::spin_loop());
                trays.take(inbox)
            };
            turn += 1;
            if turn > 1 {
                trays.warm();
            }
            let at_socket = turn % TURNS == 1;
            match (0..glances)
                .find_map(glance)
                .or_else(|| at_socket.then(|| inbox.fill_now(socket))?)
            {
                Some(count) => Seen::Came(count),
                None => Seen::Nothing(other),
            }
        });
        // Also where it came over the socket: who does not look must not seem to.
        let left = trays.leave(inbox);
        if left.is_some() && found.is_none() {
            self.came();
        }
        left.or(found)
    }

    /// The same, by `come`, which does not wait, and hears whether it has been looked for long.
    fn at<T>(&mut self, cores: Cores, mut come: impl FnMut(bool) -> Seen<T>) -> Option<T> {
        self.since = now();
        if !self.is_likely() {
            self.soon = LOOK + WAKING;
            return None;
        }
        self.soon = LOOK;
        self.parting.looks();
        let mut passed = Duration::ZERO;
        while passed < LOOK {
            match come(passed > NEAR) {
                Seen::Came(found) => {
                    self.next.learn(true);
                    return Some(found);
                }
                Seen::Nothing(Other::Beside) if cores == Cores::Enough && self.parting.is_due() => {
                    return None;
                }
                Seen::Nothing(Other::On(core))
                    if cores == Cores::TooFew && self.joining.is_due(self.since) =>
                {
                    rt::thread::move_to(core);
                }
                Seen::Nothing(_) => {}
            }
            rt::thread::yield_now();
            passed = self.since.elapsed();
        }
        None
    }

    /// What was waited for has come.
    pub fn came(&mut self) {
        self.next.learn(self.since.elapsed() < self.soon);
    }
}

/// When to sleep because the other side has the same core: the system gives who is woken one that is idle, if there is any,
/// but takes many milliseconds to part two that let each other run.
#[derive(Debug)]
struct Parting {
    /// Looks since it was last tried.
    looks: u32,
    /// After so many it is due again: more, each time that it was in vain.
    patience: u32,
}

const PATIENCE: u32 = 4;
const PATIENCE_MAX: u32 = 1024;
/// So many looks more without the other side were worth it.
const WORTH: u32 = 256;

impl Default for Parting {
    fn default() -> Parting {
        Parting { looks: 0, patience: PATIENCE }
    }
}

impl Parting {
    fn looks(&mut self) {
        self.looks = self.looks.saturating_add(1);
    }

    /// Both have the same core: is it to be tried now?
    fn is_due(&mut self) -> bool {
        if self.looks < self.patience {
            return false;
        }
        let was_worth_it = self.looks > self.patience + WORTH;
        self.patience = if was_worth_it { PATIENCE } else { (2 * self.patience).min(PATIENCE_MAX) };
        self.looks = 0;
        true
    }
}

/// When to move to the other side's core: with fewer cores than sides each pair should share one, or a busy thread would keep
/// half of another pair off its core. The client moves, because others may have woken it, and the system may then have moved
/// it to their core; the server is woken by its client alone.
#[derive(Debug, Default)]
struct Joining(Option<Instant>);

/// At most once in so long: both cores wait for it.
const JOIN: Duration = Duration::from_millis(1);

impl Joining {
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|last| now.saturating_since(last) >= JOIN);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rt::thread::{core, move_to};

    use super::*;

    #[test]
    fn who_has_a_core_with_the_other_side_parts_now_and_then() {
        let tries = |parting: &mut Parting, looks: usize, beside: bool| {
            let due = |_: &usize| {
                parting.looks();
                beside && parting.is_due()
            };
            (0..looks).filter(due).count()
        };
        let mut parting = Parting::default();
        assert_eq!(tries(&mut parting, 4, true), 1);
        // Where it is in vain it is tried ever more seldom.
        assert_eq!(tries(&mut parting, 100, true), 3, "after 8, 16 and 32");
        assert_eq!(tries(&mut parting, 10_000, true), 12);
        // Where it was worth it, it is at hand.
        for (looks, tried) in [(3000, 1), (4, 1), (4, 0)] {
            assert_eq!(tries(&mut parting, looks, false), 0);
            assert_eq!(tries(&mut parting, 1, true), tried, "after {looks}");
        }
    }

    #[test]
    fn who_has_enough_cores_does_not_look_beside_the_other_side() {
        let mut look = Look::default();
        let mut sees = |cores: Cores| {
            let mut turns = 0;
            let beside = |_| {
                turns += 1;
                if turns > 1 { Seen::Came(()) } else { Seen::Nothing(Other::Beside) }
            };
            look.at(cores, beside).is_some()
        };
        // Others may run for longer than it looks, but not each time.
        for cores in [Cores::Unknown, Cores::TooFew] {
            assert!((0..1000).any(|_| sees(cores)));
        }
        (0..4).for_each(|_| _ = sees(Cores::Unknown));
        assert!(!sees(Cores::Enough));
    }

    #[test]
    fn who_has_too_few_cores_goes_to_the_other_side() {
        let (socket, _other) = UnixStream::pair().unwrap();
        let (server, memory) = Trays::new().unwrap();
        let client = Trays::of(&memory).unwrap();
        // This thread may be moved on in between, but not each time.
        let moves_to = |to: usize| (0..100).any(|_| (move_to(to), core()).1 == to);
        let cores: Vec<usize> = (0..1024).filter(|core| moves_to(*core)).take(2).collect();
        // With one core there is nowhere to go.
        let [here, there] = cores[..] else { return };
        let looks = |trays: &Trays, from, cores| {
            move_to(from);
            let found = Look::default().over(&socket, Some(trays), &mut Inbox::default(), cores);
            assert_eq!(found, None);
            core()
        };
        let meet = |cores, at| {
            (0..100).any(|_| {
                looks(&server, there, Cores::Unknown) == there && looks(&client, here, cores) == at
            })
        };
        assert!(meet(Cores::TooFew, there));
        assert!(meet(Cores::Enough, here) && meet(Cores::Unknown, here));
    }

    #[test]
    fn who_goes_does_so_at_once_but_not_often() {
        let (mut joining, start) = (Joining::default(), now());
        let due = |at: &u64| joining.is_due(start + Duration::from_micros(*at));
        assert_eq!(
            [0, 1, 999, 1000, 1001, 5000].into_iter().filter(due).collect::<Vec<_>>(),
            [0, 1000, 5000]
        );
    }

    #[test]
    fn only_what_is_likely_is_looked_for() {
        let mut look = Look::default();
        assert_eq!(look.at(Cores::Unknown, |_| Seen::Came(1)), Some(1));
        (0..20).for_each(|_| {
            assert_eq!(look.at(Cores::Unknown, |_| Seen::<u8>::Nothing(Other::Nowhere)), None);
            look.soon = Duration::ZERO;
            look.came();
        });
        assert_eq!(look.at(Cores::Unknown, |_| Seen::Came(1)), None, "it was always late");
        (0..20).for_each(|_| {
            let _ = look.at(Cores::Unknown, |_| Seen::Came(1));
            look.soon = Duration::MAX;
            look.came();
        });
        assert_eq!(look.at(Cores::Unknown, |_| Seen::Came(2)), Some(2), "it is soon again");
    }
}
