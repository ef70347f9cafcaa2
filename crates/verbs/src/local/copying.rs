//! What `get` and `put` share: how much is read at a time, and how one entry fails.

use fs::FsError;

/// Bytes of one read.
pub(super) const CHUNK: usize = 1 << 20;

/// Why one entry of a tree was not copied.
pub(super) enum Failed {
    /// What the host said.
    Host(std::io::Error),
    /// What the file system in the pool said.
    Fs(FsError),
    /// It is a directory, and only files were asked for.
    Directory,
}

impl From<std::io::Error> for Failed {
    fn from(e: std::io::Error) -> Self {
        Failed::Host(e)
    }
}

impl From<rustix::io::Errno> for Failed {
    fn from(e: rustix::io::Errno) -> Self {
        Failed::Host(e.into())
    }
}

impl From<FsError> for Failed {
    fn from(e: FsError) -> Self {
        Failed::Fs(e)
    }
}

/// The words of the system, without the number after them.
pub(super) fn without_code(e: &std::io::Error) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}
