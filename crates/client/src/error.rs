//! What can go wrong: a number of errno(3), and words.

use wire::Failure;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// A number of errno(3).
    pub errno: i32,
    /// For people.
    pub text: String,
}

/// What calls return.
pub type Result<T> = std::result::Result<T, Error>;

/// Numbers that this side gives; the same on all Linux systems.
pub(crate) mod code {
    pub(crate) const EIO: i32 = 5;
    pub(crate) const E2BIG: i32 = 7;
    pub(crate) const EBADF: i32 = 9;
    pub(crate) const EINVAL: i32 = 22;
    pub(crate) const ERANGE: i32 = 34;
    pub(crate) const EPROTO: i32 = 71;
    pub(crate) const ENOTCONN: i32 = 107;
    pub(crate) const ESTALE: i32 = 116;
}

impl Error {
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Error {
        Error { errno, text: text.into() }
    }

    /// The server answered something else than what was asked for.
    pub(crate) fn protocol() -> Error {
        Error::new(code::EPROTO, "the server answered what was not asked")
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        Error { errno: failure.errno, text: failure.text }
    }
}
