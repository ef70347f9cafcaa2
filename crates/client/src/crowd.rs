//! How many connections of a client are in use beside one, and what that says of the machine's cores.
//!
//! Place: counted by `lanes` for each call, used by `lane` while it looks for the answer.
//! The one idea: a connection has two sides that work, the client's and the server's; and who reads much at once passes it on,
//! mostly, to a third.

use wire::{Cores, PIPE_LEAST};

/// The connections that are in use, and the machine's cores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crowd {
    in_use: usize,
    begun: usize,
    cores: usize,
}

impl Crowd {
    /// So many connections are in use; nobody waits yet for what was `begun` on some.
    pub(crate) fn of(in_use: usize, begun: usize, cores: usize) -> Crowd {
        Crowd { in_use, begun, cores }
    }

    /// Are those on which somebody waits no more than there are cores?
    pub(crate) fn is_few(self) -> bool {
        self.cores > 0 && self.in_use <= self.cores + self.begun
    }

    /// Is there a core for everybody who works, where up to `length` bytes are read? Each connection has two sides, and many
    /// bytes are mostly passed on to a third thread. With too few cores both sides share one: passing bytes on costs least
    /// where they lie in the core's caches.
    pub(crate) fn cores(self, length: usize) -> Cores {
        let each = if length >= PIPE_LEAST { 3 } else { 2 };
        if each * self.in_use <= self.cores { Cores::Enough } else { Cores::TooFew }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_connections_have_a_core_each_and_enough_cores_are_two_for_each_or_three() {
        use Cores::{Enough, TooFew};
        for (in_use, begun, cores, is_few, for_little, for_much) in [
            (1, 0, 1, true, TooFew, TooFew),
            (1, 0, 2, true, Enough, TooFew),
            (1, 0, 3, true, Enough, Enough),
            (2, 0, 2, true, TooFew, TooFew),
            (3, 0, 2, false, TooFew, TooFew),
            (3, 1, 2, true, TooFew, TooFew),
            (16, 0, 48, true, Enough, Enough),
            (24, 0, 48, true, Enough, TooFew),
            (49, 0, 48, false, TooFew, TooFew),
        ] {
            let crowd = Crowd::of(in_use, begun, cores);
            let seen = (crowd.is_few(), crowd.cores(PIPE_LEAST - 1), crowd.cores(PIPE_LEAST));
            assert_eq!(seen, (is_few, for_little, for_much), "{in_use} of {cores}");
        }
        assert!(!Crowd::default().is_few(), "nobody has counted them yet");
    }
}
