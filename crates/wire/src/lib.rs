//! What clients and the server say to each other about files.
//!
//! Place: below both, and it knows neither: no sockets, no engine. The one idea: a message is a frame of known
//! length with a small typed part, and, behind it or beside it, bulk bytes as they are, so bulk bytes are never
//! taken apart and whoever reads a frame knows beforehand how much memory it needs.
//!
//! ```text
//! hello:   "THUMDAT" version:u8 length:u32le  Hello
//! frame:   length:u32le bulk:u32le  Request or Answer (postcard)  bulk bytes
//! ```
//!
//! A connection carries one request at a time. Connections of one session share its open files.
//!
//! With its welcome the server gives two trays and the ends of two pipes ([`FILES`]) to who asks for them. A small message may
//! be laid on the other side's tray instead of being sent, if nothing that was sent is still under way ([`trays`]). Bulk bytes
//! that do not come behind their frame ([`Way`], in the two highest bits of `bulk`) lie in the bay beside the trays until the
//! other side says something, or are lent by whoever sends it ([`pipe`]): those of a request stay as they are until it is
//! answered, those of an answer until the next request comes, or the pipe is empty, or the connection is shut down. So who has
//! read lent bytes of an answer looks whether the connection is still there, before he believes them.
//!
//! With them may come the shelf, a file in which the server has records that are often read. Who sends them on need not have
//! them copied: he asks where they are ([`Request::Lease`]), and they stay there until he says that he has sent them, or his
//! process ends. And in front of them lie numbers that tell whether the contents of a file have changed: a small one that came as
//! it was opened ([`Open::soon`]) is read without a message as long as they have not.

mod frame;
mod inbox;
mod look;
mod message;
pub mod pipe;
pub mod trays;

pub use frame::{
    FrameError, HEADER, Head, MAGIC, PART_BESIDE_BULK_MAX, PART_MAX, Way, decode, encode, greeting,
};
pub use inbox::Inbox;
pub use look::{Cores, Look};
pub use message::{
    Answer, ENDING, Entry, Failure, Hello, Mark, Open, Reply, Request, Session, Space, Stat,
    Subject, Target,
};

/// What each side asks the system to hold of what it has sent, in bytes: with less a piece as XRootD asks for it (256 KiB)
/// would go over in several turns of both sides.
pub const SEND_BUFFER: usize = 256 << 10;
/// Bulk bytes go through a pipe from so many on: it takes two calls of the system more.
pub const PIPE_LEAST: usize = 64 << 10;
/// Fewer, from so many on, lie in the bay, where few ask: less fits on a tray.
pub const BAY_LEAST: usize = (4 << 10) + 1;
/// Of a file that is opened to be read soon ([`Open::soon`]) all comes at once if it has fewer bytes than this.
pub const WHOLE_BELOW: usize = PIPE_LEAST;
/// Files that come with a welcome: both ends of the pipe for requests, that to read from first, the end of that for
/// answers to read from, and the memory of the trays. (A client holds both ends of the first, so that it is never told by a
/// signal that nobody reads.)
pub const FILES: usize = 4;
/// Files that may come with it, at most: behind those the shelf, to be read ([`Request::Lease`]).
pub const FILES_MAX: usize = FILES + 1;
/// Bulk bytes of one frame, at most.
pub const BULK_MAX: usize = 1 << 20;
/// Pieces of one [`Request::ReadAll`], at most.
pub const PIECES_MAX: usize = 1024;
