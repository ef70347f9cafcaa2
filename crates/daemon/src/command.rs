//! The server's side of a forwarded command.
//!
//! The one idea: the command's thread lives where the command was typed: its directory is the command's, and it
//! prints to the command's own outputs, so nothing of what is printed passes through the server.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::pace::{self, Clock};
use crate::words::{Command, FILES, HEADER, RAN, REFUSED};

/// How long whoever has connected may take to say what he wants, and as long again to come to its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came over a connection.
pub(crate) enum Came {
    /// A command, which begins.
    Command(Begun),
    /// A client that wants files: its greeting follows, of so many bytes.
    Client(usize),
}

/// The beginning of a command: how long it is, and the files that came with it.
pub(crate) struct Begun {
    length: usize,
    files: [OwnedFd; FILES],
}

/// A command that came, with its files.
pub(crate) struct Asked {
    pub(crate) words: Vec<OsString>,
    pub(crate) zone: OsString,
    directory: OwnedFd,
    out: OwnedFd,
    err: OwnedFd,
}

fn said(error: &dyn std::fmt::Display) -> String {
    format!("the command was not received: {error}")
}

/// Receives the beginning of a command, or of something else: few bytes, whoever sends them.
pub(crate) fn receive(stream: &UnixStream) -> Result<Came, String> {
    // It is for the whole of it.
    let timeout = stream.set_read_timeout(Some(PATIENCE));
    timeout.map_err(|error| said(&error))?;
    let mut header = [0; HEADER];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut header)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let got = recvmsg(stream, &mut parts, &mut beside, flags).map_err(|error| said(&error))?;
    pace::ready(stream).map_err(|error| said(&error))?;
    if got.bytes != HEADER {
        return Err(said(&"it ends before it begins"));
    }
    if let Some((_, [a, b, c, d])) = header.split_first_chunk().filter(|(m, _)| **m == wire::MAGIC)
    {
        return Ok(Came::Client(u32::from_le_bytes([*a, *b, *c, *d]) as usize));
    }
    let length = Command::length(&header)?;
    let files = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files.collect::<Vec<_>>()),
        _ => None,
    });
    let files: [OwnedFd; FILES] = files
        .unwrap_or_default()
        .try_into()
        .map_err(|files: Vec<_>| format!("{} files came with it, not {FILES}", files.len()))?;
    Ok(Came::Command(Begun { length, files }))
}

impl Begun {
    /// Receives the rest.
    pub(crate) fn receive(self, stream: &UnixStream) -> Result<Asked, String> {
        let mut body = vec![0; self.length];
        let got = Clock::within(PATIENCE).over(stream).read_exact(&mut body);
        got.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => said(&"it ends too early"),
            _ => said(&error),
        })?;
        let Command { zone, words } = Command::from_body(&body)?;
        let [directory, _input, out, err] = self.files;
        Ok(Asked { words, zone, directory, out, err })
    }
}

impl Asked {
    /// Runs it with `run`, in its own directory, and tells `stream` its exit status.
    pub(crate) fn run(
        self,
        stream: &UnixStream,
        run: impl FnOnce(&[OsString], &OsString, &mut dyn Write, &mut dyn Write) -> u8,
    ) -> std::io::Result<()> {
        own_directory::enter(&self.directory)?;
        let watched = stream.try_clone()?;
        let mut err = Output { file: File::from(self.err), watched: watched.try_clone()? };
        let out = Output { file: File::from(self.out), watched };
        let mut out = BufWriter::with_capacity(1 << 16, out);
        let status = run(&self.words, &self.zone, &mut out, &mut err);
        drop(out.flush());
        // Threads that it has begun, those of a pool or a mount, share it, and would keep what is mounted there busy.
        own_directory::leave()?;
        match (&mut &*stream).write_all(&[RAN, status]) {
            // Interrupted, as one ends a command that prints for ever.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }
}

/// Tells why there is nothing to run.
pub(crate) fn refuse(mut stream: &UnixStream, why: &str) -> std::io::Result<()> {
    stream.write_all(&[&[REFUSED], why.as_bytes()].concat())
}

/// An output of a command, which is a broken pipe once the command itself has gone.
struct Output {
    file: File,
    watched: UnixStream,
}

impl Output {
    fn is_abandoned(&self) -> bool {
        let mut fds = [PollFd::new(&self.watched, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let hung_up = PollFlags::HUP | PollFlags::ERR;
        poll(&mut fds, Some(&now)).is_ok_and(|_| fds[0].revents().intersects(hung_up))
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.is_abandoned() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.file.write(bytes)
    }

    /// For those that print nothing for a while, too.
    fn flush(&mut self) -> std::io::Result<()> {
        if self.is_abandoned() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.file.flush()
    }
}

/// A current directory for one thread.
mod own_directory {
    use std::os::fd::AsFd;

    use rustix::thread::{UnshareFlags, unshare_unsafe};

    /// Makes `directory` the current one of this thread alone, for the rest of its life.
    #[expect(unsafe_code, reason = "the call could unshare the table of files, too")]
    pub(super) fn enter(directory: impl AsFd) -> std::io::Result<()> {
        // SAFETY: with `FS` alone the thread gets its own current directory, root and umask. What the call is
        // unsafe for, a table of files of its own, is not asked for; every descriptor means the same as before.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        rustix::process::fchdir(directory)?;
        Ok(())
    }

    /// Makes the root the current directory of this thread, and of those that were started by it.
    pub(super) fn leave() -> std::io::Result<()> {
        Ok(rustix::process::chdir("/")?)
    }
}
