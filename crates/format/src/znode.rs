//! Znodes: the attributes of a file system object as typed fields.
//!
//! What `stat` shows and a little more, the same for system attributes and for old znodes
//! (`znode_phys_t`, file systems before version 5). FORMAT: sections 11.3 and 11.4.

use crate::dirent::FileType;
use crate::sa::{Attr, Layouts, Registry, SaBuilder, SaView};
use crate::{FormatError, ObjectType, Result, acl};

/// Bytes of an old znode; a short link target may follow it in the bonus.
pub const OLD_ZNODE_SIZE: usize = 264;

/// Bits of [`Znode::flags`].
pub struct Pflags;

#[allow(missing_docs)]
impl Pflags {
    /// Is, or is in, a directory of extended attributes.
    pub const XATTR: u64 = 1;
    /// The ACL has entries to inherit.
    pub const INHERIT_ACE: u64 = 1 << 1;
    /// The ACL says no more than the mode.
    pub const ACL_TRIVIAL: u64 = 1 << 2;
    pub const ACL_OBJ_ACE: u64 = 1 << 3;
    pub const ACL_PROTECTED: u64 = 1 << 4;
    pub const ACL_DEFAULTED: u64 = 1 << 5;
    /// The ACL was made by inheriting; set on all new directories.
    pub const ACL_AUTO_INHERIT: u64 = 1 << 6;
    pub const BONUS_SCANSTAMP: u64 = 1 << 7;
    /// Nobody is denied execution, so a search needs not look at the ACL.
    pub const NO_EXECS_DENIED: u64 = 1 << 8;
    pub const READONLY: u64 = 1 << 32;
    pub const HIDDEN: u64 = 1 << 33;
    pub const SYSTEM: u64 = 1 << 34;
    /// Changed since the last backup; set on all new objects.
    pub const ARCHIVE: u64 = 1 << 35;
    pub const IMMUTABLE: u64 = 1 << 36;
    pub const NOUNLINK: u64 = 1 << 37;
    pub const APPENDONLY: u64 = 1 << 38;
    pub const NODUMP: u64 = 1 << 39;
    pub const OPAQUE: u64 = 1 << 40;
    pub const AV_QUARANTINED: u64 = 1 << 41;
    /// Changed since the last virus scan; set on all new objects.
    pub const AV_MODIFIED: u64 = 1 << 42;
    pub const REPARSE: u64 = 1 << 43;
    pub const OFFLINE: u64 = 1 << 44;
    pub const SPARSE: u64 = 1 << 45;
    /// What is made in the directory gets its project.
    pub const PROJINHERIT: u64 = 1 << 46;
    /// The object has a project.
    pub const PROJID: u64 = 1 << 47;

    /// Flags of a new object with a trivial ACL.
    ///
    /// `with_project`: the file system accounts projects. Only files and directories get one.
    pub fn new_object(kind: FileType, mode: u64, with_project: bool) -> u64 {
        let has_project = with_project && matches!(kind, FileType::File | FileType::Directory);
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        Self::ARCHIVE
            | Self::AV_MODIFIED
            | Self::ACL_TRIVIAL
            | flag(has_project, Self::PROJID)
            | flag(kind == FileType::Directory, Self::ACL_AUTO_INHERIT)
            | flag(mode & 0o111 == 0o111, Self::NO_EXECS_DENIED)
    }
}

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970; negative before.
    pub secs: i64,
    /// Nanoseconds after that second, less than a billion.
    pub nanos: u32,
}

impl Time {
    /// From an attribute of 16 bytes; more nanoseconds than a second has are cut off.
    pub fn decode(bytes: &[u8; 16]) -> Self {
        let word = u128::from_le_bytes(*bytes);
        let nanos = (word >> 64) as u64;
        Time { secs: word as u64 as i64, nanos: nanos.min(999_999_999) as u32 }
    }

    /// The attribute.
    pub fn encode(self) -> [u8; 16] {
        (u128::from(self.nanos) << 64 | u128::from(self.secs as u64)).to_le_bytes()
    }
}

/// Number of a device (`rdev`), as Linux packs it in 64 bits.
pub fn device_number(major: u32, minor: u32) -> u64 {
    u64::from(major) << 20 | u64::from(minor) & 0xf_ffff
}

/// Major and minor number of a device.
pub fn device_parts(rdev: u64) -> (u32, u32) {
    ((rdev >> 20) as u32, (rdev & 0xf_ffff) as u32)
}

/// The attributes of fixed size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Znode {
    /// Type and permissions, as `st_mode`.
    pub mode: u64,
    /// Bytes of a file or link target; of a directory: entries + 2.
    pub size: u64,
    /// The txg of creation.
    pub gen_txg: u64,
    /// Owner, a [`Fuid`](crate::fuid::Fuid).
    pub uid: u64,
    /// Owning group, a [`Fuid`](crate::fuid::Fuid).
    pub gid: u64,
    /// Directory that it was last linked into; of the root itself.
    pub parent: u64,
    /// [`Pflags`].
    pub flags: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of contents or attributes.
    pub ctime: Time,
    /// Creation.
    pub crtime: Time,
    /// Number of names; of a directory: 2 + subdirectories.
    pub links: u64,
    /// Project, if it has one.
    pub project: Option<u64>,
    /// Number of a device, see [`device_parts`].
    pub rdev: Option<u64>,
    /// Directory of extended attributes, if it has one.
    pub xattr_object: Option<u64>,
    /// Number of entries in the ACL; `None` of old znodes, see [`OldAcl`](crate::acl::OldAcl).
    pub acl_count: Option<u64>,
}

/// The value of an attribute of fixed size.
enum Fixed {
    Word(u64),
    Time(Time),
}

impl Znode {
    /// Reads the attributes; the ones that every object has must be there.
    pub fn read(view: &SaView<'_>) -> Result<Self> {
        let mut znode = Znode::default();
        let mut seen = 0u32;
        let registry = view.registry();
        for value in view.values() {
            let (number, _, bytes) = value?;
            let Some(attr) = registry.attr(number) else { continue };
            seen |= 1 << attr.number();
            if let Some(word) = bytes.first_chunk().filter(|_| attr.length() == 8) {
                znode.set_word(attr, u64::from_le_bytes(*word));
            } else if let Some(time) = bytes.first_chunk().filter(|_| attr.length() == 16) {
                znode.set_time(attr, Time::decode(time));
            }
        }
        for attr in Self::ALWAYS {
            if seen & 1 << attr.number() == 0 {
                return Err(FormatError::Field {
                    what: "znode",
                    field: attr.name(),
                    seen: 0,
                    expected: "in every object",
                });
            }
        }
        if view.is_old_znode() {
            // Old znodes have all fields always, 0 for none.
            let is_device =
                matches!(FileType::from_mode(znode.mode), Some(FileType::Block | FileType::Char));
            znode.rdev = znode.rdev.filter(|_| is_device);
            znode.xattr_object = znode.xattr_object.filter(|object| *object != 0);
        }
        Ok(znode)
    }

    /// What every object has, in the order of new objects.
    const ALWAYS: [Attr; 12] = [
        Attr::Mode,
        Attr::Size,
        Attr::Gen,
        Attr::Uid,
        Attr::Gid,
        Attr::Parent,
        Attr::Flags,
        Attr::Atime,
        Attr::Mtime,
        Attr::Ctime,
        Attr::Crtime,
        Attr::Links,
    ];

    /// A new object: what follows from its type and permissions; the caller sets the rest.
    ///
    /// `with_project`: the file system accounts projects.
    pub fn new(kind: FileType, permissions: u64, with_project: bool) -> Self {
        let mode = kind.mode_bits() | permissions & 0o7777;
        let flags = Pflags::new_object(kind, mode, with_project);
        let names = if kind == FileType::Directory { 2 } else { 1 };
        Znode {
            mode,
            flags,
            size: if kind == FileType::Directory { 2 } else { 0 },
            links: names,
            project: (flags & Pflags::PROJID != 0).then_some(0),
            acl_count: Some(acl::trivial_new(mode).len() as u64),
            ..Default::default()
        }
    }

    /// Type of the object, if it is a known one.
    pub fn kind(&self) -> Option<FileType> {
        FileType::from_mode(self.mode)
    }

    /// Is it a directory?
    pub fn is_dir(&self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    /// Permission bits of the mode.
    pub fn permissions(&self) -> u32 {
        self.mode as u32 & 0o7777
    }

    fn set_word(&mut self, attr: Attr, word: u64) {
        match attr {
            Attr::Mode => self.mode = word,
            Attr::Size => self.size = word,
            Attr::Gen => self.gen_txg = word,
            Attr::Uid => self.uid = word,
            Attr::Gid => self.gid = word,
            Attr::Parent => self.parent = word,
            Attr::Flags => self.flags = word,
            Attr::Links => self.links = word,
            Attr::Projid => self.project = Some(word),
            Attr::Rdev => self.rdev = Some(word),
            Attr::Xattr => self.xattr_object = Some(word),
            Attr::DaclCount => self.acl_count = Some(word),
            _ => {}
        }
    }

    fn set_time(&mut self, attr: Attr, time: Time) {
        match attr {
            Attr::Atime => self.atime = time,
            Attr::Mtime => self.mtime = time,
            Attr::Ctime => self.ctime = time,
            Attr::Crtime => self.crtime = time,
            _ => {}
        }
    }

    fn fixed(&self, attr: Attr) -> Option<Fixed> {
        Some(match attr {
            Attr::Mode => Fixed::Word(self.mode),
            Attr::Size => Fixed::Word(self.size),
            Attr::Gen => Fixed::Word(self.gen_txg),
            Attr::Uid => Fixed::Word(self.uid),
            Attr::Gid => Fixed::Word(self.gid),
            Attr::Parent => Fixed::Word(self.parent),
            Attr::Flags => Fixed::Word(self.flags),
            Attr::Links => Fixed::Word(self.links),
            Attr::Projid => Fixed::Word(self.project?),
            Attr::Rdev => Fixed::Word(self.rdev?),
            Attr::Xattr => Fixed::Word(self.xattr_object?),
            Attr::DaclCount => Fixed::Word(self.acl_count?),
            Attr::Atime => Fixed::Time(self.atime),
            Attr::Mtime => Fixed::Time(self.mtime),
            Attr::Ctime => Fixed::Time(self.ctime),
            Attr::Crtime => Fixed::Time(self.crtime),
            _ => return None,
        })
    }

    fn with_bytes<R>(value: &Fixed, run: impl FnOnce(&[u8]) -> R) -> R {
        match value {
            Fixed::Word(word) => run(&word.to_le_bytes()),
            Fixed::Time(time) => run(&time.encode()),
        }
    }

    /// The attributes of a new object, in the order that OpenZFS uses.
    ///
    /// `aces`: the entries of the ACL as bytes, [`Self::acl_count`] of them. `target`: of a
    /// symbolic link. Further attributes (extended ones) are appended by the caller.
    pub fn builder(
        &self,
        registry: &Registry,
        aces: &[u8],
        target: Option<&[u8]>,
    ) -> Result<SaBuilder> {
        let mut builder = SaBuilder::new();
        for attr in Layouts::new_object(self.project.is_some(), self.rdev.is_some()) {
            if let Some(value) = self.fixed(attr) {
                Self::with_bytes(&value, |b| set(&mut builder, registry, attr, b))?;
            } else if attr == Attr::DaclAces {
                set(&mut builder, registry, attr, aces)?;
            }
        }
        if let Some(target) = target {
            set(&mut builder, registry, Attr::Symlink, target)?;
        }
        if let Some(object) = self.xattr_object {
            set(&mut builder, registry, Attr::Xattr, &object.to_le_bytes())?;
        }
        Ok(builder)
    }

    /// Sets all attributes of fixed size in a list: in place, new ones at the end.
    pub fn update(&self, registry: &Registry, builder: &mut SaBuilder) -> Result<()> {
        for attr in Attr::ALL {
            if let Some(value) = self.fixed(attr) {
                Self::with_bytes(&value, |b| set(builder, registry, attr, b))?;
            }
        }
        Ok(())
    }

    /// Writes the attributes of fixed size over those in a bonus, whose layout stays.
    ///
    /// This is the short way for a change of size, times, owner and the like. `Ok(false)`: one
    /// of them is not in the bonus; it is unchanged then, and [`Self::update`] is the way.
    pub fn patch(
        &self,
        registry: &Registry,
        layouts: &Layouts,
        bonus_kind: ObjectType,
        bonus: &mut [u8],
    ) -> Result<bool> {
        let mut places = [None; Attr::ALL.len()];
        let view = SaView::new(registry, layouts, bonus_kind, bonus, None)?;
        for value in view.values() {
            let (number, place, _) = value?;
            let attr = registry.attr(number);
            if let Some(slot) = attr.and_then(|a| places.get_mut(usize::from(a.number()))) {
                *slot = Some(place.range.start);
            }
        }
        let wanted = || Attr::ALL.into_iter().filter_map(|a| Some((a, self.fixed(a)?)));
        let start = |attr: Attr| places.get(usize::from(attr.number())).copied().flatten();
        if wanted().any(|(attr, _)| start(attr).is_none()) {
            return Ok(false);
        }
        for (attr, value) in wanted() {
            let to = start(attr).and_then(|at| bonus.get_mut(at..));
            Self::with_bytes(&value, |from| {
                if let Some(to) = to.and_then(|to| to.get_mut(..from.len())) {
                    to.copy_from_slice(from);
                }
            });
        }
        Ok(true)
    }
}

fn set(builder: &mut SaBuilder, registry: &Registry, attr: Attr, bytes: &[u8]) -> Result<()> {
    let number = registry.number(attr).ok_or(FormatError::Field {
        what: "SA registry",
        field: attr.name(),
        seen: 0,
        expected: "registered",
    })?;
    builder.set(number, bytes);
    Ok(())
}

/// Target of a symbolic link, where it is in the attributes or behind an old znode.
///
/// `None`: it is in the first block of the object (old, long ones).
pub fn link_target<'a>(view: &SaView<'a>, bonus: &'a [u8], size: u64) -> Result<Option<&'a [u8]>> {
    if !view.is_old_znode() {
        return view.get(Attr::Symlink);
    }
    let behind = bonus.get(OLD_ZNODE_SIZE..).unwrap_or_default();
    Ok(usize::try_from(size).ok().and_then(|size| behind.get(..size)))
}
