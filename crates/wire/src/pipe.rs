//! Bulk bytes beside the frames: pages that one side lends and the other reads.
//!
//! The one idea: what goes through a socket is copied into the system's memory and out of it again. A pipe can hold the
//! pages in which the bytes are instead, so that what the reader copies is the only copy. Until he has read them they
//! must stay as they are: which message says that he has is for those who use this.
//!
//! It uses `unsafe`, since the system's call takes slices for both directions.
#![allow(unsafe_code)]

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::ioctl_fionread;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, vmsplice};

/// Bytes of which a pipe holds the pages: what XRootD asks for at once (256 KiB) and more, wherever in its pages that
/// begins.
const BYTES: usize = 512 << 10;

/// The end of a pipe through which bytes are lent.
#[derive(Debug)]
pub struct Lender(OwnedFd);

/// The end of a pipe from which they are read.
#[derive(Debug)]
pub struct Reader(OwnedFd);

/// A pipe. Neither end waits.
///
/// # Errors
/// There are no more files to be had.
pub fn pipe() -> Result<(Lender, Reader)> {
    let (reader, lender) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // Where the system has less to give, more turns are taken.
    let _ = fcntl_setpipe_size(&lender, BYTES);
    Ok((Lender(lender), Reader(reader)))
}

impl Lender {
    /// Lends the beginning of these pieces, one behind the other; how many bytes.
    ///
    /// # Errors
    /// `WouldBlock` when the pipe is full. Nobody can read any more: that also comes as a signal (SIGPIPE), where it
    /// is not ignored.
    pub fn lend(&self, pieces: &[&[u8]]) -> Result<usize> {
        let slices: Vec<_> = pieces.iter().map(|piece| IoSliceRaw::from_slice(piece)).collect();
        // SAFETY: this is the end of a pipe that is written to, so the system reads from the slices and never writes. It
        // keeps the pages, not the addresses: they outlive whatever becomes of the memory here.
        Ok(unsafe { vmsplice(&self.0, &slices, SpliceFlags::NONBLOCK) }?)
    }

    /// How many bytes were lent and not read yet.
    ///
    /// # Errors
    /// What the system says.
    pub fn lent(&self) -> Result<u64> {
        Ok(ioctl_fionread(&self.0)?)
    }
}

impl Reader {
    /// The same end once more, for somebody else: whether he waits with it is no matter of who has this one.
    ///
    /// # Errors
    /// There are no more files to be had, or no /proc.
    pub fn again(&self) -> Result<Reader> {
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(Reader(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Reads what has been lent; how many bytes, 0 when there will be no more.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing yet.
    pub fn read(&self, out: &mut [u8]) -> Result<usize> {
        Ok(rustix::io::read(&self.0, out)?)
    }
}

/// Is it no more than that something has to be waited for?
///
/// # Errors
/// It is: this.
pub fn passes(error: Error) -> Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

macro_rules! end {
    ($end:ty) => {
        impl AsFd for $end {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl From<$end> for OwnedFd {
            fn from(end: $end) -> OwnedFd {
                end.0
            }
        }

        impl From<OwnedFd> for $end {
            fn from(fd: OwnedFd) -> Self {
                Self(fd)
            }
        }
    };
}

end!(Lender);
end!(Reader);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_read_and_what_does_not_fit_waits() {
        let (lender, reader) = pipe().unwrap();
        let bytes: Vec<u8> = (0..3_000_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let (mut lent, mut read) = (0, Vec::<u8>::new());
        while read.len() < bytes.len() {
            let rest = &bytes[lent..];
            let middle = rest.len() / 3;
            match lender.lend(&[&rest[..middle], &rest[middle..]]) {
                Ok(count) => lent += count,
                Err(error) => assert!(rest.is_empty() || error.kind() == ErrorKind::WouldBlock),
            }
            assert_eq!(lender.lent().unwrap(), (lent - read.len()) as u64);
            let mut part = vec![0; 100_000];
            let count = reader.read(&mut part).unwrap();
            read.extend(&part[..count]);
        }
        assert!(read == bytes);
        assert_eq!(reader.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(lender);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn who_has_the_same_end_does_not_make_another_wait() {
        let (lender, reader) = pipe().unwrap();
        let again = reader.again().unwrap();
        rustix::fs::fcntl_setfl(&again, OFlags::empty()).unwrap();
        assert_eq!(reader.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        lender.lend(&[b"ab"]).unwrap();
        assert_eq!(again.read(&mut [0]).unwrap() + reader.read(&mut [0]).unwrap(), 2);
    }

    #[test]
    fn nothing_is_copied_before_it_is_read() {
        let (lender, reader) = pipe().unwrap();
        let mut bytes = vec![1; 64 << 10];
        assert_eq!(lender.lend(&[&bytes]).unwrap(), bytes.len());
        bytes.fill(2);
        let mut read = vec![0; bytes.len()];
        assert_eq!(reader.read(&mut read).unwrap(), bytes.len());
        assert!(read == bytes, "it was a copy");
        drop(reader);
        assert_eq!(lender.lend(&[&bytes]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
