//! Bulk bytes that go beside a connection, through its pipes.
//!
//! The one idea: what is lent stays as it is until the client has read it. It has when it asks for more, or when the pipe
//! is empty; and if it takes too long, its connection is shut down first, so that it does not believe what it reads then.

use std::io::{Error, ErrorKind, Result};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use wire::PIPES;
use wire::pipe::{Lender, Reader, pipe};

use super::requests::Bulk;
use crate::pace::Clock;

/// How long it may take, at first, until a client that asks for nothing more is looked at again, for whether it has read
/// what was lent.
const LOOK: Duration = Duration::from_millis(1);
/// The same at last.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The pipes of a connection, and what is lent through one of them.
pub(super) struct Beside<'a> {
    stream: &'a UnixStream,
    requests: Reader,
    answers: Lender,
    lent: Option<(Bulk, Clock<'a>)>,
}

impl<'a> Beside<'a> {
    /// New pipes, and what of them is the client's.
    pub(super) fn new(stream: &'a UnixStream) -> Result<(Beside<'a>, [OwnedFd; PIPES])> {
        let ((to_us, requests), (answers, from_us)) = (pipe()?, pipe()?);
        let theirs = [requests.again()?.into(), to_us.into(), from_us.into()];
        Ok((Beside { stream, requests, answers, lent: None }, theirs))
    }

    /// Reads all bytes of a request.
    pub(super) fn take(&self, clock: Clock<'_>, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            match self.requests.read(out) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => out = &mut out[count..],
                Err(error) => {
                    passes(error)?;
                    clock.check()?;
                    let client = PollFd::new(self.stream, PollFlags::RDHUP);
                    let mut fds = [PollFd::new(&self.requests, PollFlags::IN), client];
                    wait(&mut fds, LOOK_MAX);
                    if !fds[1].revents().is_empty() {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
        Ok(())
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

    /// Waits for the client's next request, or its end; what it was lent and has read is given back meanwhile.
    pub(super) fn wait(&mut self) -> Result<()> {
        let mut look = LOOK;
        while let Some((_, clock)) = &self.lent {
            if wait(&mut [PollFd::new(self.stream, PollFlags::IN)], look) {
                return Ok(());
            }
            clock.check()?;
            look = (2 * look).min(LOOK_MAX);
            if self.answers.lent()? == 0 {
                self.lent = None;
            }
        }
        Ok(())
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

/// Is it no more than that something has to be waited for?
fn passes(error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

/// Waits for one of these; has it come?
fn wait(fds: &mut [PollFd<'_>], at_most: Duration) -> bool {
    let at_most =
        Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
    poll(fds, Some(&at_most)).is_ok_and(|ready| ready > 0)
}
