//! The messages.

use serde::{Deserialize, Serialize};

/// A session: whoever knows its number, and has the same user, may use its open files.
pub type Session = [u8; 16];

/// The first thing that a client says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The tree that it wants: `POOL[/FS]`. File systems below it are directories in it.
    pub tree: String,
    /// The session that it joins; `None`: a new one.
    pub session: Option<Session>,
    /// Whether it can do with pipes beside the connection.
    pub beside: bool,
}

/// For whom something is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// His number; 0 may do everything.
    pub uid: u32,
    /// His group: that of what he makes.
    pub gid: u32,
    /// His other groups.
    pub groups: Vec<u32>,
}

impl Subject {
    /// Who may do everything.
    pub const ROOT: Subject = Subject { uid: 0, gid: 0, groups: Vec::new() };
}

/// A file by its path or by an open handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Its path in the tree.
    Path(Vec<u8>),
    /// A handle.
    Handle(u64),
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// To be read.
    pub read: bool,
    /// To be written.
    pub write: bool,
    /// Made if it is not there.
    pub create: bool,
    /// An error if it is there.
    pub new: bool,
    /// Emptied.
    pub truncate: bool,
    /// Directories on the way are made, too.
    pub parents: bool,
    /// To be written: the file's digests are made meanwhile, and kept with it.
    pub digests: bool,
    /// To be written: an error if some of it may be lost with a server that died, and it is not emptied.
    pub unbroken: bool,
    /// It was opened as `unbroken` before the server was another one, and is open since: nothing is looked at once more, and
    /// who comes after him is told, as then.
    pub was_unbroken: bool,
    /// An error if something of its pool may be lost since [`Reply::Opened`] said this; 0 if that is nothing to it.
    pub kept_since_ms: u64,
    /// To be read, and at once: if it is small, all of it comes with the answer.
    pub soon: bool,
}

impl Open {
    /// To be read.
    pub const READ: Open = Open {
        read: true,
        write: false,
        create: false,
        new: false,
        truncate: false,
        parents: false,
        digests: false,
        unbroken: false,
        was_unbroken: false,
        kept_since_ms: 0,
        soon: false,
    };
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Opens a file, and makes it if `how` says so, with permissions `mode`. Answer: [`Reply::Opened`].
    Open {
        /// For whom.
        who: Subject,
        /// The path.
        path: Vec<u8>,
        /// How.
        how: Open,
        /// Permissions of a new file.
        mode: u32,
    },
    /// Lets go of a handle; with `stable` what was written through it is on stable storage then.
    Close {
        /// The handle.
        handle: u64,
        /// Synced first.
        stable: bool,
    },
    /// Reads; fewer bytes come at the end of the file only. Answer: [`Reply::Bytes`].
    Read {
        /// The handle.
        handle: u64,
        /// Offset in bytes.
        offset: u64,
        /// Bytes, at most [`crate::BULK_MAX`].
        length: u32,
    },
    /// Reads several pieces, `(offset, length)`, all of each, one behind the other. Answer: [`Reply::Bytes`].
    ReadAll {
        /// The handle.
        handle: u64,
        /// The pieces, at most [`crate::PIECES_MAX`], and [`crate::BULK_MAX`] bytes together.
        pieces: Vec<(u64, u32)>,
    },
    /// Writes the bulk bytes.
    Write {
        /// The handle.
        handle: u64,
        /// Offset in bytes.
        offset: u64,
        /// And puts all that was written on stable storage.
        stable: bool,
        /// And lets go of the handle, if nothing failed.
        close: bool,
    },
    /// Writes the bulk bytes as all there is in a file, which is made if it is not there, and emptied if it is.
    Put {
        /// For whom.
        who: Subject,
        /// The path.
        path: Vec<u8>,
        /// How: what it says of reading, and of what is there already, is not looked at, but for `new`.
        how: Open,
        /// Permissions of a new file.
        mode: u32,
        /// And puts them on stable storage.
        stable: bool,
    },
    /// Reads the beginning of a file. Answer: [`Reply::Got`].
    Get {
        /// For whom.
        who: Subject,
        /// The path.
        path: Vec<u8>,
        /// Bytes, at most [`crate::BULK_MAX`].
        length: u32,
    },
    /// Puts what was written on stable storage.
    Sync {
        /// The handle.
        handle: u64,
    },
    /// Sets the size of a file.
    Truncate {
        /// For whom.
        who: Subject,
        /// Which.
        of: Target,
        /// The size in bytes.
        size: u64,
    },
    /// Attributes of an open file. Answer: [`Reply::Stat`].
    StatOpen {
        /// The handle.
        handle: u64,
    },
    /// Attributes of a file. Answer: [`Reply::Stat`].
    Stat {
        /// For whom.
        who: Subject,
        /// The path.
        path: Vec<u8>,
        /// Of a symbolic link, what it leads to.
        follow: bool,
    },
    /// Entries of a directory from a place on (0: the first). Answer: [`Reply::Entries`].
    List {
        /// For whom.
        who: Subject,
        /// The path.
        path: Vec<u8>,
        /// The place, as the last answer gave it.
        from: u64,
    },
    /// Makes a directory, with `parents` those on the way too; one that is there is an error without.
    Mkdir {
        /// For whom.
        who: Subject,
        /// The path.
        path: Vec<u8>,
        /// Permissions.
        mode: u32,
        /// Those on the way, too.
        parents: bool,
    },
    /// Removes a file or symbolic link.
    Unlink {
        /// For whom.
        who: Subject,
        /// The path.
        path: Vec<u8>,
    },
    /// Removes an empty directory.
    Rmdir {
        /// For whom.
        who: Subject,
        /// The path.
        path: Vec<u8>,
    },
    /// Renames; what is there is replaced.
    Rename {
        /// For whom.
        who: Subject,
        /// The old path.
        from: Vec<u8>,
        /// The new one.
        to: Vec<u8>,
    },
    /// Sets permissions.
    Chmod {
        /// For whom.
        who: Subject,
        /// Which.
        of: Target,
        /// The permissions.
        mode: u32,
    },
    /// Sets times: of access and of change, in seconds and nanoseconds; `None`: stays.
    SetTimes {
        /// For whom.
        who: Subject,
        /// Which.
        of: Target,
        /// Of the last access.
        atime: Option<(i64, u32)>,
        /// Of the last change.
        mtime: Option<(i64, u32)>,
    },
    /// An extended attribute. Answer: [`Reply::Value`].
    GetXattr {
        /// For whom.
        who: Subject,
        /// Of which file.
        of: Target,
        /// Its name, `user.` and all.
        name: Vec<u8>,
    },
    /// Sets an extended attribute, or removes it (`None`).
    SetXattr {
        /// For whom.
        who: Subject,
        /// Of which file.
        of: Target,
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Option<Vec<u8>>,
    },
    /// Names of the extended attributes. Answer: [`Reply::Names`].
    ListXattrs {
        /// For whom.
        who: Subject,
        /// Of which file.
        of: Target,
    },
    /// Space of the file system that a path is in. Answer: [`Reply::Space`].
    Space {
        /// The path.
        path: Vec<u8>,
    },
    /// Has the places of bytes on the shelf, from where the client sends them itself. Answer: [`Reply::Leased`], or
    /// [`Reply::Done`] where not all of them are to be had there, or not in so few pieces: they are to be read.
    Lease {
        /// The handle.
        handle: u64,
        /// Offset in bytes.
        offset: u64,
        /// Bytes, at most [`crate::BULK_MAX`].
        length: u32,
        /// Pieces, at most.
        pieces_max: u32,
        /// Leases that have ended.
        ended: Vec<u64>,
    },
    /// Tells of leases that have ended.
    EndLeases {
        /// Their numbers.
        leases: Vec<u64>,
    },
}

impl Request {
    /// Does it let go of a handle, at its end and only if the rest was done?
    #[must_use]
    pub fn closes(&self) -> bool {
        matches!(self, Request::Close { .. } | Request::Write { close: true, .. })
    }
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// A number for the file system.
    pub device: u64,
    /// Object number.
    pub object: u64,
    /// Of the txg and the time at which it was made: with the number it names one file for ever.
    pub generation: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Names that it has.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space on disk in bytes.
    pub allocated: u64,
    /// Times of access, change of contents, change: seconds and nanoseconds.
    pub atime: (i64, u32),
    /// Of the last change of contents.
    pub mtime: (i64, u32),
    /// Of the last change.
    pub ctime: (i64, u32),
}

/// What tells whether the contents of a file are still what they were, without a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Where in the shelf's file it is: four bytes, the lowest first.
    pub place: u64,
    /// What they were before the contents were read.
    pub count: u32,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is.
    pub stat: Stat,
}

/// Space of a file system, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// All that there is for it, used or not.
    pub total: u64,
    /// What it could still write.
    pub free: u64,
    /// What it uses.
    pub used: u64,
    /// Its quota; 0: none.
    pub quota: u64,
}

/// What the server answers if it went well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// To [`Hello`]: the session.
    Welcome(Session),
    /// A file is open.
    Opened {
        /// What requests call it.
        handle: u64,
        /// What it is like.
        stat: Stat,
        /// Since when nothing of its pool can have been lost with a server, in milliseconds since 1970. As long as
        /// this stays the same, nothing is.
        kept_since_ms: u64,
        /// The bulk bytes are all of the file, as long as this mark is as it was.
        whole: Option<Mark>,
    },
    /// The bulk bytes.
    Bytes,
    /// The bulk bytes, and the attributes of their file.
    Got(Stat),
    /// Attributes.
    Stat(Stat),
    /// Entries, and the place of the next; `None`: these were the last.
    Entries(Vec<Entry>, Option<u64>),
    /// A value.
    Value(Vec<u8>),
    /// Names.
    Names(Vec<Vec<u8>>),
    /// Space.
    Space(Space),
    /// The bytes lie still until the lease ends.
    Leased {
        /// Its number: no other one has had it.
        lease: u64,
        /// The pieces, one behind the other, each with its offset in the shelf's file and its length.
        places: Vec<(u64, u32)>,
    },
}

/// The number in a [`Failure`] of a server that is about to end and has not done what it was asked: the next one will.
pub const ENDING: i32 = 107;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// A number of errno(3).
    pub errno: i32,
    /// For people.
    pub text: String,
}

/// What the server answers.
pub type Answer = Result<Reply, Failure>;
