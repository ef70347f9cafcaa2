//! Looking for what comes, before sleeping until it does.
//!
//! The one idea: to sleep and to be woken takes as long as a small request. So where few ask, each side looks for the
//! other's word for some microseconds first. It lets others run meanwhile, and looks ever more seldom where that was in
//! vain. Where many ask nobody should look: there is always somebody who has something to do.

use std::os::fd::AsFd;
use std::time::Duration;

use crate::inbox::Inbox;
use crate::trays::Trays;

/// How long it is looked for, at most: about as long as a client thinks between two requests.
const LOOK: Duration = Duration::from_micros(150);
/// After so many times in vain, one after the other, it is not waited any longer until the next.
const VAIN_MAX: u32 = 8;

/// Looks at a tray for each at a socket, which takes the system, as letting others run does.
const GLANCES: usize = 16;

/// How it went so far.
#[derive(Debug, Default)]
pub struct Look {
    /// Times that were in vain, one after the other.
    vain: u32,
    /// Times that are left out until the next.
    rest: u32,
}

impl Look {
    /// Looks for a while whether something has come, on a socket or on the tray, which is left then; how many bytes
    /// have, 0 at the end. `None`: nothing has.
    pub fn over(
        &mut self,
        socket: impl AsFd + Copy,
        trays: Option<&Trays>,
        inbox: &mut Inbox,
    ) -> Option<usize> {
        let Some(trays) = trays else { return self.at(|| inbox.fill_now(socket)) };
        trays.look();
        let found = self.at(|| {
            let glance = |_| {
                rt::sync::hint::spin_loop();
                trays.take(inbox)
            };
            (0..GLANCES).find_map(glance).or_else(|| inbox.fill_now(socket))
        });
        // Also where it came over the socket: who does not look must not seem to.
        trays.leave(inbox).or(found)
    }

    /// Looks for a while whether something has come, by `come`, which does not wait.
    fn at<T>(&mut self, mut come: impl FnMut() -> Option<T>) -> Option<T> {
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let start = rt::time::now();
        while start.elapsed() < LOOK {
            let found = come();
            if found.is_some() {
                self.vain = 0;
                return found;
            }
            rt::thread::yield_now();
        }
        self.vain = (self.vain + 1).min(VAIN_MAX);
        self.rest = (1 << self.vain) - 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_ever_more_seldom_until_there_is_something() {
        let mut look = Look::default();
        assert_eq!(look.at(|| None::<u8>), None);
        assert_eq!(look.at(|| Some(1)), None, "not so soon again");
        assert_eq!((look.at(|| Some(1)), look.at(|| Some(2))), (Some(1), Some(2)));
        let mut look = Look::default();
        let mut looked = |times: u32| {
            (0..times).for_each(|_| _ = look.at(|| None::<u8>));
            look.vain
        };
        assert_eq!((looked(1), looked(2), looked(4), looked(8)), (1, 2, 3, 4));
        assert_eq!(looked(10_000), VAIN_MAX);
        assert!((0..1 << VAIN_MAX).any(|_| look.at(|| Some(1)).is_some()));
    }
}
