//! A command's side: hands the command to the server, if there is one.

use std::ffi::OsString;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::words::{Command, FILES, RAN};

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// There is no server, or not one for us: the command is its own.
    Nobody,
    /// The server ran it; its exit status.
    Ran(u8),
    /// The server did not take it, or did not live to its end: why.
    Lost(String),
}

/// Hands a command to the server at `socket`, with this process's directory and standard files, and waits for its
/// end. `zone` is the time zone of whoever typed it (`TZ`).
#[must_use]
pub fn forward(socket: &Path, words: &[OsString], zone: OsString) -> Forwarded {
    // None there, a dead one's socket, or one that is not for us: without a server the pool itself says
    // who has it.
    let Ok(stream) = UnixStream::connect(socket) else { return Forwarded::Nobody };
    let command = Command { zone, words: words.to_vec() };
    match converse(stream, &command) {
        Ok(forwarded) => forwarded,
        Err(error) => Forwarded::Lost(format!(
            "the server at '{}' did not answer to the end: {error}",
            socket.display()
        )),
    }
}

fn converse(mut stream: UnixStream, command: &Command) -> std::io::Result<Forwarded> {
    let Some(bytes) = command.to_bytes() else {
        return Err(std::io::Error::new(ErrorKind::InvalidInput, "the command is too long"));
    };
    let directory = rustix::fs::openat(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let (input, out, err) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let files: [BorrowedFd<'_>; FILES] =
        [directory.as_fd(), input.as_fd(), out.as_fd(), err.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&files));
    // A server that does not want it may answer before it has all of it.
    let sent = sendmsg(&stream, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL);
    let sent = sent.map_err(Into::into).and_then(|sent| stream.write_all(&bytes[sent..]));
    let mut answer = Vec::new();
    // It says little: a status, or a reason.
    let received = stream.take(64 << 10).read_to_end(&mut answer);
    if answer.is_empty() {
        sent.and(received)?;
    }
    match answer.split_first() {
        Some((&RAN, [status])) => Ok(Forwarded::Ran(*status)),
        Some((_, text)) if !text.is_empty() => {
            Ok(Forwarded::Lost(String::from_utf8_lossy(text).into_owned()))
        }
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}
