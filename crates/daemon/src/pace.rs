//! A message may take its time, but not for ever.
//!
//! The one idea: what has begun must come to its end by a deadline, however many bytes come meanwhile, so who sends
//! byte by byte keeps what he was given no longer than who says nothing. What the server does for a request, and
//! what it waits for, is not on this clock.

use std::io::{ErrorKind, IoSlice, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rt::time::Instant;

use crate::data::Supply;

/// How long a message that has begun may take to arrive, or an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same while others wait for memory, which it may have. Whole messages are a matter of milliseconds; this is what
/// is left to a client that the machine does not let run.
const IN_NEED: Duration = Duration::from_secs(10);
/// How long a call on the socket waits before the clock is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Readies a socket: no call on it waits for long.
pub(crate) fn ready(stream: &UnixStream) -> Result<()> {
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))
}

/// The clock of one message.
#[derive(Clone, Copy)]
pub(crate) struct Clock<'a> {
    begun: Instant,
    patience: Duration,
    /// While others wait for the memory that it has, there is so much.
    in_need: Option<(Supply<'a>, Duration)>,
}

impl<'a> Clock<'a> {
    /// For a message that has memory of a client's.
    pub(crate) fn of(supply: Supply<'a>) -> Clock<'a> {
        Clock { in_need: Some((supply, IN_NEED)), ..Clock::within(PATIENCE) }
    }

    /// For one that must come to its end within `patience`.
    pub(crate) fn within(patience: Duration) -> Clock<'static> {
        Clock { begun: rt::time::now(), patience, in_need: None }
    }

    /// Is there time left?
    pub(crate) fn check(&self) -> Result<()> {
        let taken = self.begun.elapsed();
        let needed = |(supply, least): (Supply<'_>, _)| taken >= least && supply.is_wanted();
        match taken >= self.patience || self.in_need.is_some_and(needed) {
            true => Err(std::io::Error::new(
                ErrorKind::TimedOut,
                format!("a message was not at its end after {} s", taken.as_secs()),
            )),
            false => Ok(()),
        }
    }

    /// What comes over `stream`, as long as the clock allows.
    pub(crate) fn over(self, stream: &'a UnixStream) -> Incoming<'a> {
        Incoming { clock: self, stream }
    }

    /// Writes these pieces, one behind the other.
    pub(crate) fn write(&self, mut stream: &UnixStream, pieces: &[&[u8]]) -> Result<()> {
        let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut rest = &mut slices[..];
        while left > 0 {
            self.check()?;
            match stream.write_vectored(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    left -= count;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// What comes of a message by its clock.
pub(crate) struct Incoming<'a> {
    clock: Clock<'a>,
    stream: &'a UnixStream,
}

impl Read for Incoming<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        loop {
            self.clock.check()?;
            match (&mut &*self.stream).read(buf) {
                Err(error) if passes(&error) => {}
                done => return done,
            }
        }
    }
}

/// Nothing has come yet, which is no error.
fn passes(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use rt::mem::Class;

    use super::*;
    use crate::data::Shares;

    fn trickle(clock: Clock<'_>) -> (Duration, ErrorKind) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ready(&ours).unwrap();
        // For longer than any clock here, but not for ever.
        let sender = rt::thread::spawn("trickle", move || {
            for _ in (0..500).take_while(|_| theirs.write_all(&[0]).is_ok()) {
                rt::time::sleep(Duration::from_millis(20));
            }
        });
        let start = rt::time::now();
        let error = clock.over(&ours).read_exact(&mut [0; 1 << 20]).unwrap_err();
        drop(ours);
        sender.join();
        (start.elapsed(), error.kind())
    }

    #[test]
    fn bytes_one_by_one_do_not_stop_the_clock() {
        let (taken, kind) = trickle(Clock::within(Duration::from_millis(300)));
        assert!(kind == ErrorKind::TimedOut && taken < Duration::from_secs(3), "{taken:?}");
        // Neither does who takes nothing.
        let (ours, _theirs) = UnixStream::pair().unwrap();
        ready(&ours).unwrap();
        let clock = Clock::within(Duration::from_millis(300));
        let error = clock.write(&ours, &[b"head", &[0; 4 << 20]]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn who_has_memory_that_others_wait_for_has_less_time() {
        let memory = rt::Account::new(100, 0);
        let (buffers, shares) = (rt::BufPool::of(&memory), Shares::of(100));
        let supply = Supply { buffers: &buffers, memory: &memory, shares: &shares, shop: None };
        let clock =
            Clock { in_need: Some((supply, Duration::from_millis(100))), ..Clock::of(supply) };
        let (all, share) = (memory.grant(Class::Normal, 100).unwrap(), shares.take(1, 50));
        rt::time::sleep(Duration::from_millis(150));
        assert!(clock.check().is_ok(), "nobody waits");
        let waited_for = |wait: &(dyn Fn() + Sync), give: &mut dyn FnMut()| {
            let [begun_before, just_begun] = std::thread::scope(|scope| {
                scope.spawn(wait);
                while !supply.is_wanted() {
                    rt::time::sleep(Duration::from_millis(1));
                }
                let checked = [clock.check(), Clock::of(supply).check()];
                // Whatever came of it, nobody waits for ever.
                give();
                checked
            });
            assert_eq!(begun_before.unwrap_err().kind(), ErrorKind::TimedOut);
            assert!(just_begun.is_ok());
            assert!(clock.check().is_ok());
        };
        let mut all = Some(all);
        waited_for(&|| drop(memory.grant(Class::Normal, 50)), &mut || drop(all.take()));
        let mut share = Some(share);
        waited_for(&|| drop(shares.take(1, 10)), &mut || drop(share.take()));
    }
}
