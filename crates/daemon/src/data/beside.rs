//! What goes beside a connection: bulk bytes through its pipes, small messages on its trays.
//!
//! The one idea: what is lent stays as it is until the client has read it. It has when it asks for more, or when the pipe
//! is empty; and if it takes too long, its connection is shut down first, so that it does not believe what it reads then.

use std::io::{Error, ErrorKind, Result};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::FILES;
use wire::pipe::{Lender, Reader, passes, pipe};
use wire::trays::Trays;

use super::reads::Bulk;
use crate::pace::Clock;

/// How long it may take, at first, until a client that asks for nothing more is looked at again, for whether it has read
/// what was lent.
const LOOK: Duration = Duration::from_millis(1);
/// The same at last.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The pipes and trays of a connection, and what is lent through one of the pipes.
pub(super) struct Beside<'a> {
    pub(super) trays: Trays,
    stream: &'a UnixStream,
    requests: Reader,
    answers: Lender,
    lent: Option<(Bulk, Clock<'a>)>,
}

impl<'a> Beside<'a> {
    /// New ones, and what of them is the client's.
    pub(super) fn new(stream: &'a UnixStream) -> Result<(Beside<'a>, [OwnedFd; FILES])> {
        let ((to_us, requests), (answers, from_us)) = (pipe()?, pipe()?);
        let (trays, shared) = Trays::new()?;
        let theirs = [requests.again()?.into(), to_us.into(), from_us.into(), shared];
        Ok((Beside { trays, stream, requests, answers, lent: None }, theirs))
    }

    /// Reads bytes of a request. They are what the client has lent, if it is there still: it may use them for something else
    /// when it has given up.
    pub(super) fn take(&self, clock: Clock<'_>, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            match self.requests.read(out) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => out = &mut out[count..],
                Err(error) => {
                    passes(error)?;
                    clock.check()?;
                    self.wait_for(&self.requests)?;
                }
            }
        }
        self.is_there()
    }

    /// Waits until there is something to read, for a while, if the client is there.
    fn wait_for(&self, requests: &Reader) -> Result<()> {
        let client = PollFd::new(self.stream, PollFlags::RDHUP);
        wait(&mut [PollFd::new(requests, PollFlags::IN), client], LOOK_MAX);
        self.is_there()
    }

    fn is_there(&self) -> Result<()> {
        match wait(&mut [PollFd::new(self.stream, PollFlags::RDHUP)], Duration::ZERO) {
            true => Err(ErrorKind::UnexpectedEof.into()),
            false => Ok(()),
        }
    }

    /// Lends the bytes of an answer, as many of them as there is room for; those that are left are lent by
    /// [`Beside::lend_rest`], once the client knows of them.
    pub(super) fn lend(&mut self, bulk: Bulk, clock: Clock<'a>) -> Result<usize> {
        let (bulk, _) = self.lent.insert((bulk, clock));
        match self.answers.lend(&bulk.pieces(0)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            lent => lent,
        }
    }

    /// Lends what is left behind the first `done` bytes of the answer.
    pub(super) fn lend_rest(&self, mut done: usize) -> Result<()> {
        let Some((bulk, clock)) = &self.lent else { return Ok(()) };
        while done < bulk.length() {
            match self.answers.lend(&bulk.pieces(done)) {
                Ok(count) => done += count,
                Err(error) => {
                    passes(error)?;
                    clock.check()?;
                    wait(&mut [PollFd::new(&self.answers, PollFlags::OUT)], LOOK_MAX);
                }
            }
        }
        Ok(())
    }

    /// Waits while anything is lent to the client: `true` once it asks again or disconnects, `false` once it has read all
    /// that was lent, which is then given back.
    pub(super) fn wait(&mut self) -> Result<bool> {
        let mut look = LOOK;
        while let Some((_, clock)) = &self.lent {
            if wait(&mut [PollFd::new(self.stream, PollFlags::IN)], look) {
                return Ok(true);
            }
            clock.check()?;
            look = (2 * look).min(LOOK_MAX);
            if self.answers.lent()? == 0 {
                self.lent = None;
            }
        }
        Ok(false)
    }

    /// The client asks for more: it has read what it was lent.
    pub(super) fn settle(&mut self) -> Result<()> {
        if self.lent.is_some() && self.answers.lent()? > 0 {
            let why = "a request before the answer to the last one was read";
            return Err(Error::new(ErrorKind::InvalidData, why));
        }
        self.lent = None;
        Ok(())
    }
}

impl Drop for Beside<'_> {
    /// Who reads on is told before the bytes change.
    fn drop(&mut self) {
        if self.lent.is_some() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// Waits for one of these; has it come?
fn wait(fds: &mut [PollFd<'_>], at_most: Duration) -> bool {
    let at_most =
        Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
    poll(fds, Some(&at_most)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use rt::BufPool;

    use super::*;

    const LENGTH: usize = 700_000;

    /// A connection, with what is the client's of it, and an answer of which every byte is `byte`.
    fn lending(byte: u8) -> (UnixStream, UnixStream, BufPool, Bulk) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let buffers = BufPool::new(4 << 20);
        let mut buf = buffers.get(LENGTH);
        buf.fill(byte);
        (ours, theirs, buffers, Bulk::of(buf))
    }

    fn clock(millis: u64) -> Clock<'static> {
        Clock::within(Duration::from_millis(millis))
    }

    /// Reads what there is.
    fn read(reader: &Reader, mut length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        match reader.read(&mut bytes) {
            Ok(count) => length = count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                length = 0;
            }
        }
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn a_client_that_does_not_read_is_cut_off_before_the_bytes_change() {
        let (ours, theirs, buffers, bulk) = lending(1);
        let (mut beside, [.., answers, _]) = Beside::new(&ours).unwrap();
        let reader = Reader::from(answers);
        let done = beside.lend(bulk, clock(100)).unwrap();
        assert!(done > 0 && done < LENGTH);
        assert_eq!(beside.lend_rest(done).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(buffers.state().idle_bytes, 0, "it is lent");
        // It has read all but a little, and then nothing any more.
        assert_eq!(read(&reader, done - 5), vec![1; done - 5]);
        assert_eq!(beside.wait().unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(buffers.state().idle_bytes, 0, "it is lent still");
        let hung_up = || wait(&mut [PollFd::new(&theirs, PollFlags::RDHUP)], Duration::ZERO);
        assert!(!hung_up());
        drop(beside);
        assert!(hung_up());
        buffers.get(LENGTH).fill(2);
        assert_eq!(read(&reader, 5), [2; 5], "it can tell that these are others by the connection");
    }

    #[test]
    fn what_was_read_is_given_back_without_another_request() {
        let (ours, theirs, buffers, bulk) = lending(1);
        let (mut beside, [.., answers, _]) = Beside::new(&ours).unwrap();
        let reader = Reader::from(answers);
        let client = rt::thread::spawn("client", move || {
            let mut got = Vec::new();
            while got.len() < LENGTH {
                got.extend(read(&reader, LENGTH));
            }
            (got, theirs)
        });
        let done = beside.lend(bulk, clock(20_000)).unwrap();
        beside.lend_rest(done).unwrap();
        assert!(!beside.wait().unwrap(), "it has not asked for anything");
        assert!(buffers.state().idle_bytes >= LENGTH);
        let (got, theirs) = client.join();
        assert!(got == vec![1; LENGTH]);
        drop(beside);
        let hung_up = wait(&mut [PollFd::new(&theirs, PollFlags::RDHUP)], Duration::ZERO);
        assert!(!hung_up, "nothing was lent any more");
    }

    #[test]
    fn who_asks_for_more_before_he_has_read_is_refused() {
        let (ours, _theirs, _, bulk) = lending(1);
        let (mut beside, [.., answers, _]) = Beside::new(&ours).unwrap();
        assert!(beside.lend(bulk, clock(20_000)).unwrap() > 0);
        assert_eq!(beside.settle().unwrap_err().kind(), ErrorKind::InvalidData);
        let reader = Reader::from(answers);
        while !read(&reader, LENGTH).is_empty() {}
        beside.settle().unwrap();
    }

    #[test]
    fn what_is_announced_and_not_lent_is_waited_for_by_the_clock() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (beside, [_, requests, ..]) = Beside::new(&ours).unwrap();
        let lender = Lender::from(requests);
        assert_eq!(lender.lend(&[&[3; 1000]]).unwrap(), 1000);
        let mut out = [0; 1001];
        assert_eq!(beside.take(clock(50), &mut out).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(out[..1000], [3; 1000]);
        drop(theirs);
        let gone = beside.take(clock(20_000), &mut out).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::UnexpectedEof);
    }
}
