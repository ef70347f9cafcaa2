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
        let mut err = Output::new(File::from(self.err), stream.try_clone()?)?;
        let out = Output::new(File::from(self.out), stream.try_clone()?)?;
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

/// What somebody takes who says that he takes something: no pipe waits for its reader in the middle of it.
const PIECE: usize = 4096;

/// An output of a command, which is a broken pipe once the command itself has gone.
struct Output {
    file: File,
    watched: UnixStream,
    /// Nobody has to take what is written to it.
    is_stored: bool,
}

impl Output {
    fn new(file: File, watched: UnixStream) -> std::io::Result<Output> {
        let is_stored = file.metadata()?.is_file();
        Ok(Output { file, watched, is_stored })
    }

    /// Waits until the output takes something, or not at all; an error, if the command has gone.
    fn wait(&self, patience: Option<&Timespec>) -> std::io::Result<()> {
        // That it has gone is told without being asked for.
        let mut fds = [
            PollFd::new(&self.watched, PollFlags::empty()),
            PollFd::new(&self.file, PollFlags::OUT),
        ];
        loop {
            match poll(&mut fds, patience) {
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(_) if fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => {
                    return Err(ErrorKind::BrokenPipe.into());
                }
                Ok(_) => return Ok(()),
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.wait(None)?;
        let most = if self.is_stored { bytes.len() } else { bytes.len().min(PIECE) };
        self.file.write(&bytes[..most])
    }

    /// For those that print nothing for a while, too.
    fn flush(&mut self) -> std::io::Result<()> {
        self.wait(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rt::sync::Arc;
    use rt::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// So long something may take that takes milliseconds.
    const SOON: Duration = Duration::from_secs(20);

    /// Seen red: it wrote for as long as somebody had the pipe, who did not read.
    #[test]
    fn a_command_that_has_gone_does_not_wait_for_who_reads() {
        let (reader, pipe) = std::io::pipe().unwrap();
        let (watched, command) = UnixStream::pair().unwrap();
        let mut out = Output::new(OwnedFd::from(pipe).into(), watched).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let ends = ended.clone();
        let writer = rt::thread::spawn("writer", move || {
            let error = out.write_all(&vec![7; 1 << 20]).unwrap_err();
            ends.store(true, Ordering::SeqCst);
            error.kind()
        });
        let has_ended = |within: Duration| {
            let start = rt::time::now();
            while !ended.load(Ordering::SeqCst) && start.elapsed() < within {
                rt::time::sleep(Duration::from_millis(1));
            }
            ended.load(Ordering::SeqCst)
        };
        assert!(!has_ended(Duration::from_millis(50)), "the pipe takes it all");
        drop(command);
        assert!(has_ended(SOON), "it waits for who reads");
        assert_eq!(writer.join(), ErrorKind::BrokenPipe);
        drop(reader);
    }

    #[test]
    fn what_is_printed_arrives_as_it_is() {
        let (mut reader, pipe) = std::io::pipe().unwrap();
        let (watched, _command) = UnixStream::pair().unwrap();
        let mut out = Output::new(OwnedFd::from(pipe).into(), watched).unwrap();
        let bytes: Vec<u8> = (0..300_000u32).map(|i| i as u8 ^ (i >> 8) as u8).collect();
        let printed = bytes.clone();
        let writer = rt::thread::spawn("writer", move || out.write_all(&printed).unwrap());
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        writer.join();
        assert!(read == bytes);
    }
}
