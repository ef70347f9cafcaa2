//! What a file system knows of an object besides its contents: typed, and as stored.
//!
//! The one idea: an object's attributes are read into [`Attrs`] as a whole and written back as a
//! whole; which of them the object has, and in which order, stays what it was on disk.

use format::ObjectType;
use format::acl;
use format::sa::{Attr, Layouts, Registry, SaBuilder, SaView};

/// A time: seconds since 1970 (before it: negative), and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds, rounded down.
    pub secs: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanos: u32,
}

impl Time {
    /// Now, by the clock on the wall.
    pub fn now() -> Time {
        let now = rt::time::wall_clock();
        Time { secs: now.as_secs() as i64, nanos: now.subsec_nanos() }
    }

    fn parse(bytes: &[u8]) -> Time {
        let word = |at: usize| {
            bytes.get(at..).and_then(|b| b.first_chunk::<8>()).map_or(0, |b| u64::from_le_bytes(*b))
        };
        Time { secs: word(0) as i64, nanos: word(8) as u32 }
    }

    fn bytes(self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.secs.to_le_bytes());
        out[8..].copy_from_slice(&u64::from(self.nanos).to_le_bytes());
        out
    }
}

/// File types in `mode`.
pub mod mode {
    #![allow(missing_docs)]
    pub const TYPE: u32 = 0o170_000;
    pub const SOCKET: u32 = 0o140_000;
    pub const SYMLINK: u32 = 0o120_000;
    pub const FILE: u32 = 0o100_000;
    pub const BLOCK: u32 = 0o060_000;
    pub const DIR: u32 = 0o040_000;
    pub const CHAR: u32 = 0o020_000;
    pub const FIFO: u32 = 0o010_000;
}

/// Bits of [`Attrs::flags`].
pub mod pflags {
    #![allow(missing_docs)]
    pub const XATTR: u64 = 0x1;
    pub const ACL_TRIVIAL: u64 = 0x4;
    pub const ACL_AUTO_INHERIT: u64 = 0x40;
    pub const NO_EXECS_DENIED: u64 = 0x100;
    pub const ARCHIVE: u64 = 1 << 35;
    pub const IMMUTABLE: u64 = 1 << 36;
    pub const APPENDONLY: u64 = 1 << 38;
    pub const AV_MODIFIED: u64 = 1 << 42;
    pub const PROJID: u64 = 1 << 47;
}

/// The attributes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attrs {
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// Owner, as stored (a FUID; plain ids are themselves).
    pub uid: u64,
    /// Group, as stored.
    pub gid: u64,
    /// Bytes of a file or target, 2 + entries of a directory.
    pub size: u64,
    /// Names of a file; 2 + subdirectories of a directory.
    pub links: u64,
    /// Txg of creation.
    pub generation: u64,
    /// Object of the directory that it was last linked into.
    pub parent: u64,
    /// [`pflags`].
    pub flags: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of attributes.
    pub ctime: Time,
    /// Creation.
    pub crtime: Time,
    /// Project, if it has one.
    pub project: Option<u64>,
    /// Device number of a device node.
    pub rdev: Option<u64>,
    /// Object of the hidden directory with extended attributes.
    pub xattr_dir: Option<u64>,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Extended attributes as a packed nvlist.
    pub xattrs: Option<Vec<u8>>,
    /// Number of access control entries.
    pub ace_count: u64,
    /// Access control entries as stored; `None`: an object of an old file system.
    pub aces: Option<Vec<u8>>,
}

impl Attrs {
    /// File type bits of the mode.
    pub fn kind(&self) -> u32 {
        self.mode & mode::TYPE
    }

    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.kind() == mode::DIR
    }

    /// Attributes of a new object; times are `now`, the ACL is the trivial one of its mode.
    pub fn new(mode: u32, uid: u64, gid: u64, parent: u64, generation: u64, now: Time) -> Attrs {
        let dir = mode & mode::TYPE == mode::DIR;
        let mut attrs = Attrs {
            mode,
            uid,
            gid,
            size: if dir { 2 } else { 0 },
            links: if dir { 2 } else { 1 },
            generation,
            parent,
            flags: pflags::ARCHIVE | pflags::AV_MODIFIED,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            project: None,
            rdev: None,
            xattr_dir: None,
            target: None,
            xattrs: None,
            ace_count: 0,
            aces: None,
        };
        if dir {
            attrs.flags |= pflags::ACL_AUTO_INHERIT;
        }
        attrs.set_mode(mode);
        attrs.set_aces(&acl::trivial_new(mode.into()));
        attrs
    }

    /// Sets the permissions and, with them, the trivial ACL.
    pub fn set_mode(&mut self, mode: u32) {
        self.mode = (self.mode & mode::TYPE) | (mode & 0o7777);
        self.flags |= pflags::ACL_TRIVIAL;
        // Set only if nobody is denied to execute.
        if self.mode & 0o111 == 0o111 {
            self.flags |= pflags::NO_EXECS_DENIED;
        } else {
            self.flags &= !pflags::NO_EXECS_DENIED;
        }
        self.set_aces(&acl::trivial_changed(self.mode.into()));
    }

    fn set_aces(&mut self, aces: &[acl::Ace]) {
        self.ace_count = aces.len() as u64;
        self.aces = acl::encode(aces).ok();
    }

    /// Reads the attributes from a view.
    pub fn parse(view: &SaView<'_>) -> format::Result<Attrs> {
        let word = |attr| view.get_u64(attr).map(|v| v.unwrap_or(0));
        let bytes = |attr| view.get(attr).map(|v| v.map(<[u8]>::to_vec));
        let time = |attr| view.get(attr).map(|v| Time::parse(v.unwrap_or_default()));
        Ok(Attrs {
            mode: word(Attr::Mode)? as u32,
            uid: word(Attr::Uid)?,
            gid: word(Attr::Gid)?,
            size: word(Attr::Size)?,
            links: word(Attr::Links)?,
            generation: word(Attr::Gen)?,
            parent: word(Attr::Parent)?,
            flags: word(Attr::Flags)?,
            atime: time(Attr::Atime)?,
            mtime: time(Attr::Mtime)?,
            ctime: time(Attr::Ctime)?,
            crtime: time(Attr::Crtime)?,
            project: view.get_u64(Attr::Projid)?,
            rdev: view.get_u64(Attr::Rdev)?,
            xattr_dir: view.get_u64(Attr::Xattr)?.filter(|object| *object != 0),
            target: bytes(Attr::Symlink)?,
            xattrs: bytes(Attr::Dxattr)?,
            ace_count: word(Attr::DaclCount)?,
            aces: bytes(Attr::DaclAces)?,
        })
    }

    /// Puts the attributes into a builder, in the order of a new object where they are new.
    fn fill(&self, builder: &mut SaBuilder) {
        let mut word = |attr, value: u64| {
            builder.set_standard(attr, &value.to_le_bytes());
        };
        word(Attr::Mode, self.mode.into());
        word(Attr::Size, self.size);
        word(Attr::Gen, self.generation);
        word(Attr::Uid, self.uid);
        word(Attr::Gid, self.gid);
        word(Attr::Parent, self.parent);
        word(Attr::Flags, self.flags);
        for (attr, time) in [
            (Attr::Atime, self.atime),
            (Attr::Mtime, self.mtime),
            (Attr::Ctime, self.ctime),
            (Attr::Crtime, self.crtime),
        ] {
            builder.set_standard(attr, &time.bytes());
        }
        let mut word = |attr, value: u64| {
            builder.set_standard(attr, &value.to_le_bytes());
        };
        word(Attr::Links, self.links);
        for (attr, value) in [(Attr::Projid, self.project), (Attr::Rdev, self.rdev)] {
            if let Some(value) = value {
                word(attr, value);
            }
        }
        if let Some(aces) = &self.aces {
            let count = self.ace_count;
            builder.set_standard(Attr::DaclCount, &count.to_le_bytes());
            builder.set_standard(Attr::DaclAces, aces);
        }
        if let Some(target) = &self.target {
            builder.set_standard(Attr::Symlink, target);
        }
        match &self.xattrs {
            Some(xattrs) => drop(builder.set_standard(Attr::Dxattr, xattrs)),
            None => drop(builder.remove(Attr::Dxattr.number())),
        }
        if let Some(dir) = self.xattr_dir {
            builder.set_standard(Attr::Xattr, &dir.to_le_bytes());
        }
    }

    /// Bonus and spill block with these attributes, starting from `old` (`None`: a new object).
    pub fn build(
        &self,
        old: Option<&SaView<'_>>,
        registry: &Registry,
        layouts: &mut Layouts,
        bonus_max: usize,
    ) -> format::Result<format::sa::Image> {
        let mut builder = match old {
            Some(view) => SaBuilder::from_view(view)?,
            None => SaBuilder::new(),
        };
        self.fill(&mut builder);
        builder.build(registry, layouts, bonus_max)
    }
}

/// Type of the object that holds an entry of this mode.
pub(crate) fn object_kind(mode: u32) -> ObjectType {
    match mode & mode::TYPE {
        mode::DIR => ObjectType::DIRECTORY_CONTENTS,
        _ => ObjectType::PLAIN_FILE_CONTENTS,
    }
}
