//! What a file system knows of an object besides its contents: its znode and what varies in length.
//!
//! The one idea: an object's attributes are read into [`Attrs`] as a whole and written back as a
//! whole; which of them the object has, and in which order, stays what it was on disk. What only
//! changes sizes, times and counts goes the short way, over the znode's bytes in place.

use std::ops::{Deref, DerefMut};

use format::dirent::FileType;
use format::sa::{Attr, Registry, SaBuilder, SaView};
use format::znode::{Pflags, Time, Znode, link_target};
use format::{ObjectType, acl};

/// Now, by the clock on the wall.
pub(crate) fn now() -> Time {
    let now = rt::time::wall_clock();
    Time { secs: now.as_secs() as i64, nanos: now.subsec_nanos() }
}

/// The contents have changed just now.
pub(crate) fn modified(znode: &mut Znode) {
    znode.mtime = now();
    znode.ctime = znode.mtime;
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

/// The attributes of an object: those of its [`Znode`], which it stands for, and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attrs {
    /// The attributes of fixed size.
    pub znode: Znode,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Extended attributes as a packed nvlist.
    pub xattrs: Option<Vec<u8>>,
    /// Access control entries as stored; `None`: an object of an old file system.
    pub aces: Option<Vec<u8>>,
}

impl Deref for Attrs {
    type Target = Znode;

    fn deref(&self) -> &Znode {
        &self.znode
    }
}

impl DerefMut for Attrs {
    fn deref_mut(&mut self) -> &mut Znode {
        &mut self.znode
    }
}

impl Attrs {
    /// File type bits of the mode.
    pub fn kind(&self) -> u32 {
        self.mode as u32 & mode::TYPE
    }

    /// Attributes of a new object; times are `now`, the ACL is the trivial one of its mode.
    ///
    /// `with_project`: the file system accounts projects.
    pub fn new(mode: u32, with_project: bool, now: Time) -> Attrs {
        // The doors make no other types than those of `mode`.
        let kind = FileType::from_mode(mode.into()).unwrap_or(FileType::File);
        let znode = Znode {
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            ..Znode::new(kind, mode.into(), with_project)
        };
        let aces = acl::encode(&acl::trivial_new(znode.mode)).ok();
        Attrs { znode, target: None, xattrs: None, aces }
    }

    /// Sets the permissions and, with them, the trivial ACL.
    pub fn set_mode(&mut self, mode: u32) {
        self.mode = u64::from(self.kind() | (mode & 0o7777));
        self.flags |= Pflags::ACL_TRIVIAL;
        // Set only if nobody is denied to execute.
        if self.mode & 0o111 == 0o111 {
            self.flags |= Pflags::NO_EXECS_DENIED;
        } else {
            self.flags &= !Pflags::NO_EXECS_DENIED;
        }
        if self.aces.is_some() {
            let aces = acl::trivial_changed(self.mode);
            self.acl_count = Some(aces.len() as u64);
            self.aces = acl::encode(&aces).ok();
        }
    }

    /// Reads the attributes from a view of an object with this bonus.
    pub fn parse(view: &SaView<'_>, bonus: &[u8]) -> format::Result<Attrs> {
        let bytes = |attr| view.get(attr).map(|v| v.map(<[u8]>::to_vec));
        let mut znode = Znode::read(view)?;
        znode.xattr_object = znode.xattr_object.filter(|object| *object != 0);
        let is_link = znode.mode as u32 & mode::TYPE == mode::SYMLINK;
        let target = if is_link { link_target(view, bonus, znode.size)? } else { None };
        Ok(Attrs {
            znode,
            target: target.map(<[u8]>::to_vec),
            xattrs: bytes(Attr::Dxattr)?,
            aces: bytes(Attr::DaclAces)?,
        })
    }

    /// The list of these attributes, starting from that of `old` (`None`: a new object).
    pub fn builder(
        &self,
        old: Option<&SaView<'_>>,
        registry: &Registry,
    ) -> format::Result<SaBuilder> {
        if let Some(view) = old {
            return self.changed(view, registry);
        }
        let aces = self.aces.as_deref().unwrap_or_default();
        let mut builder = self.znode.builder(registry, aces, self.target.as_deref())?;
        if let (Some(number), Some(list)) = (registry.number(Attr::Dxattr), &self.xattrs) {
            builder.set(number, list);
        }
        Ok(builder)
    }

    /// The list of attributes that an object has, with these values.
    fn changed(&self, old: &SaView<'_>, registry: &Registry) -> format::Result<SaBuilder> {
        let mut builder = SaBuilder::from_view(old)?;
        self.znode.update(registry, &mut builder)?;
        for (attr, value) in [
            (Attr::DaclAces, &self.aces),
            (Attr::Symlink, &self.target),
            (Attr::Dxattr, &self.xattrs),
        ] {
            match (registry.number(attr), value) {
                (Some(number), Some(bytes)) => drop(builder.set(number, bytes)),
                (Some(number), None) => drop(builder.remove(number)),
                (None, Some(_)) => {
                    return Err(format::FormatError::Field {
                        what: "SA registry",
                        field: attr.name(),
                        seen: 0,
                        expected: "registered",
                    });
                }
                (None, None) => {}
            }
        }
        Ok(builder)
    }
}

/// Type of the object that holds an entry of this mode.
pub(crate) fn object_kind(mode: u32) -> ObjectType {
    match mode & mode::TYPE {
        mode::DIR => ObjectType::DIRECTORY_CONTENTS,
        _ => ObjectType::PLAIN_FILE_CONTENTS,
    }
}
