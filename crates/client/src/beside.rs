//! What goes beside a connection: bulk bytes through its pipes, small messages on its trays.
//!
//! The one idea: bytes that the server has lent are believed when the connection is still there after they were read: it is
//! shut down before they become others.

use std::io::{Error, ErrorKind, IoSliceMut, Read, Result};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use wire::pipe::{Lender, Reader, passes};
use wire::trays::Trays;
use wire::{FILES, FILES_MAX};

/// The pipes and trays of a connection.
pub(crate) struct Beside {
    pub(crate) trays: Trays,
    requests: Lender,
    /// As long as it is open nobody is told by a signal that the server does not read any more.
    _requests: Reader,
    answers: Reader,
}

impl Beside {
    /// Lends the beginning of these bytes, as many as there is room for; how many.
    pub(crate) fn lend(&self, bytes: &[u8]) -> Result<usize> {
        match self.requests.lend(&[bytes]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            lent => lent,
        }
    }

    /// Lends all of these, as the server takes them.
    pub(crate) fn lend_all(&self, stream: &UnixStream, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.requests.lend(&[bytes]) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => {
                    passes(error)?;
                    wait(stream, PollFd::new(&self.requests, PollFlags::OUT))?;
                }
            }
        }
        Ok(())
    }

    /// Reads all of these, that the server lends.
    pub(crate) fn read(&self, stream: &UnixStream, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            match self.answers.read(out) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => out = &mut out[count..],
                Err(error) => {
                    passes(error)?;
                    wait(stream, PollFd::new(&self.answers, PollFlags::IN))?;
                }
            }
        }
        match is_there(stream) {
            true => Ok(()),
            // Nobody knows of when they are.
            false => Err(ErrorKind::ConnectionReset.into()),
        }
    }
}

/// Waits for a pipe, and for as long as the server is there.
fn wait(stream: &UnixStream, pipe: PollFd<'_>) -> Result<()> {
    let mut fds = [pipe, PollFd::new(stream, PollFlags::RDHUP)];
    match poll(&mut fds, None) {
        Ok(_) if !fds[1].revents().is_empty() => Err(ErrorKind::ConnectionReset.into()),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Has the server not shut the connection down?
fn is_there(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    loop {
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Err(Errno::INTR) => {}
            ready => return ready == Ok(0),
        }
    }
}

/// The server's welcome, as it is read, and the files that come with it.
pub(crate) struct Welcome<'a> {
    stream: &'a UnixStream,
    files: Vec<OwnedFd>,
    /// There was no room for all of them.
    is_short: bool,
}

impl<'a> Welcome<'a> {
    pub(crate) fn from(stream: &'a UnixStream) -> Welcome<'a> {
        Welcome { stream, files: Vec::new(), is_short: false }
    }

    /// The shelf, if it came.
    pub(crate) fn shelf(&mut self) -> Option<OwnedFd> {
        (self.files.len() == FILES_MAX).then(|| self.files.pop()).flatten()
    }

    /// What else came with it, if anything did.
    ///
    /// # Errors
    /// Something did, and some of it is lost: the server would count on it.
    pub(crate) fn beside(self) -> Result<Option<Beside>> {
        match <[OwnedFd; FILES]>::try_from(self.files) {
            Ok([also, requests, answers, trays]) if !self.is_short => Ok(Some(Beside {
                trays: Trays::of(trays)?,
                requests: requests.into(),
                _requests: also.into(),
                answers: answers.into(),
            })),
            Err(none) if none.is_empty() && !self.is_short => Ok(None),
            _ => Err(Error::other("too many files are open")),
        }
    }
}

impl Read for Welcome<'_> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        let mut with = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(out)];
        let got = recvmsg(self.stream, &mut parts, &mut with, RecvFlags::CMSG_CLOEXEC)?;
        for message in with.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        self.is_short |= got.flags.contains(ReturnFlags::CTRUNC);
        Ok(got.bytes)
    }
}
