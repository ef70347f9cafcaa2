//! What has arrived of the messages to come: small parts are read together, bulk bytes go where they belong.

use std::io::{ErrorKind, Read, Result};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// Bytes that are read at once at the beginning of a message: all of a small one.
pub(crate) const BYTES: usize = 5 << 10;

/// Bytes that have arrived and were not taken.
pub struct Inbox {
    bytes: Box<[u8; BYTES]>,
    from: usize,
    to: usize,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox { bytes: Box::new([0; BYTES]), from: 0, to: 0 }
    }
}

impl Inbox {
    /// Has nothing arrived that was not taken?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// How many bytes have arrived that were not taken.
    #[cfg(test)]
    pub(crate) fn length(&self) -> usize {
        self.to - self.from
    }

    /// Reads once, if there is room; how many bytes came, 0 at the end.
    ///
    /// # Errors
    /// What reading says.
    pub fn fill(&mut self, stream: &mut impl Read) -> Result<usize> {
        let count = stream.read(self.room())?;
        self.came(count);
        Ok(count)
    }

    /// Reads what has arrived on a socket already; how many bytes, 0 at its end, or if it broke. `None`: nothing has.
    pub fn fill_now(&mut self, stream: impl AsFd) -> Option<usize> {
        match recv(stream, self.room(), RecvFlags::DONTWAIT) {
            Ok((count, _)) => {
                self.came(count);
                Some(count)
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => Some(0),
        }
    }

    /// So many bytes are where [`Inbox::room`] said.
    pub(crate) fn came(&mut self, count: usize) {
        self.to += count;
        debug_assert!(self.to <= BYTES);
    }

    /// Where the next bytes go.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.is_empty() {
            (self.from, self.to) = (0, 0);
        } else if self.to == BYTES {
            self.bytes.copy_within(self.from.., 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        &mut self.bytes[self.to..]
    }

    /// Takes as many bytes as `out` has, if so many have arrived; false: none is taken.
    #[must_use]
    pub fn take_now(&mut self, out: &mut [u8]) -> bool {
        let to = self.from + out.len();
        if to > self.to {
            return false;
        }
        out.copy_from_slice(&self.bytes[self.from..to]);
        self.from = to;
        true
    }

    /// Takes as many bytes as `out` has; waits for them.
    ///
    /// # Errors
    /// The end, and what reading says.
    pub fn take(&mut self, stream: &mut impl Read, out: &mut [u8]) -> Result<()> {
        if out.len() < BYTES {
            while self.to - self.from < out.len() {
                match self.fill(stream) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let count = out.len().min(self.to - self.from);
        let (here, rest) = out.split_at_mut(count);
        here.copy_from_slice(&self.bytes[self.from..self.from + count]);
        self.from += count;
        stream.read_exact(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives at most so many bytes at once.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> Result<usize> {
            let count = out.len().min(self.1).min(self.0.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn bytes_come_in_order_whatever_is_asked_for() {
        let all: Vec<u8> = (0..100_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        for step in [1, 7, 4095, 4096, 50_000] {
            let (mut slow, mut inbox, mut at) = (Slow(&all, step), Inbox::default(), 0);
            for length in [8, 0, 300, 4095, 4096, 1, 20_000, 4000, 4000, 60_000].repeat(2) {
                let mut out = vec![0; length];
                match inbox.take(&mut slow, &mut out) {
                    Ok(()) => assert_eq!(out, all[at..at + length]),
                    Err(error) => {
                        assert!(at + length > all.len(), "{error} at {at}");
                        break;
                    }
                }
                at += length;
            }
            assert!(at > 90_000);
        }
    }
}
