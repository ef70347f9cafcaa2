//! Looking for what comes, before sleeping until it does.
//!
//! The one idea: to sleep and to be woken takes as long as a small request. So where few ask, each side looks for the
//! other's word for some microseconds first. It lets others run meanwhile, and looks ever more seldom where that was in
//! vain. Where many ask nobody should look: there is always somebody who has something to do.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long it is looked for, at most: about as long as a client thinks between two requests.
const LOOK: Duration = Duration::from_micros(150);
/// After so many times in vain, one after the other, it is not waited any longer until the next.
const VAIN_MAX: u32 = 8;

/// How it went so far.
#[derive(Debug, Default)]
pub struct Look {
    /// Times that were in vain, one after the other.
    vain: u32,
    /// Times that are left out until the next.
    rest: u32,
}

impl Look {
    /// Looks for a while whether there is something to read; is there?
    pub fn at(&mut self, stream: &impl AsFd) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }
        let start = rt::time::now();
        while start.elapsed() < LOOK {
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&at_once)) != Ok(0) {
                self.vain = 0;
                return true;
            }
            rt::thread::yield_now();
        }
        self.vain = (self.vain + 1).min(VAIN_MAX);
        self.rest = (1 << self.vain) - 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn it_looks_ever_more_seldom_until_there_is_something() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut look = Look::default();
        assert!(!look.at(&ours));
        theirs.write_all(&[1]).unwrap();
        assert!(!look.at(&ours), "not so soon again");
        assert!(look.at(&ours) && look.at(&ours));
        let mut look = Look::default();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut looked = |times: u32| {
            (0..times).for_each(|_| _ = look.at(&ours));
            look.vain
        };
        assert_eq!((looked(1), looked(2), looked(4), looked(8)), (1, 2, 3, 4));
        assert_eq!(looked(10_000), VAIN_MAX);
        // The end is something, too.
        drop(theirs);
        assert!((0..1 << VAIN_MAX).any(|_| look.at(&ours)));
    }
}
