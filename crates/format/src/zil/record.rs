//! What log records say, by kind. FORMAT: section 12.3.
//!
//! Names and data are slices of the block. Owners are as the kernel writes them: a number, or in
//! the upper half the index of a domain whose name is in the record.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::{RECORD_HEAD_SIZE, RawRecord, RecordKind};
use crate::blkptr::bits;
use crate::reader::Reader;
use crate::{BlkPtr, Result};

const WHAT: &str = "log record";

/// A point in time: seconds since 1970 and nanoseconds.
pub type Time = [u64; 2];

/// An object was made (file, directory, attribute directory, symbolic link, device).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// The directory.
    pub directory: u64,
    /// The new object.
    pub object: u64,
    /// Slots of its dnode.
    pub slots: u16,
    /// Type and permissions.
    pub mode: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Generation: the txg in which it was made.
    pub generation: u64,
    /// When it was made.
    pub crtime: Time,
    /// Number of the device that it stands for.
    pub rdev: u64,
    /// Its name in the directory.
    pub name: &'a [u8],
    /// Where a symbolic link leads.
    pub target: Option<&'a [u8]>,
    /// Further attributes.
    pub xvattr: Option<XvAttr>,
    /// Its access control list.
    pub acl: Option<Acl<'a>>,
}

/// Further attributes of an object (`lr_attr_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XvAttr {
    /// Which attributes were asked for, as bits.
    pub asked: Vec<u32>,
    /// Values of the attributes that are flags, as bits.
    pub flags: u64,
    /// When the object was made.
    pub crtime: Time,
    /// A project id in the first eight bytes, or a stamp of a virus scanner.
    pub stamp: [u8; 32],
}

/// An access control list as the log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acl<'a> {
    /// Number of its entries.
    pub entries: u64,
    /// Flags of the list.
    pub flags: u64,
    /// The entries.
    pub bytes: &'a [u8],
    /// Numbers of owners with domains, and the names of these.
    pub domains: &'a [u8],
}

/// A part of a file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The file.
    pub object: u64,
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Offset in the block that [`Write::pointer`] leads to, in bytes.
    pub block_offset: u64,
    /// The block with the data, if they are not here.
    pub pointer: BlkPtr,
    /// The data; `None`: they are where [`Write::pointer`] leads.
    pub data: Option<&'a [u8]>,
}

/// Bits of [`Setattr::mask`], as Linux numbers them.
pub struct SetattrMask;

#[allow(missing_docs)]
impl SetattrMask {
    pub const MODE: u64 = 1;
    pub const UID: u64 = 2;
    pub const GID: u64 = 4;
    pub const SIZE: u64 = 8;
    pub const ATIME: u64 = 0x10;
    pub const MTIME: u64 = 0x20;
    pub const CTIME: u64 = 0x40;
    /// [`Setattr::xvattr`] is there.
    pub const XVATTR: u64 = 1 << 31;
}

/// Attributes of an object were set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setattr {
    /// The object.
    pub object: u64,
    /// Which of the following were set, [`SetattrMask`].
    pub mask: u64,
    /// Type and permissions.
    pub mode: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Size in bytes.
    pub size: u64,
    /// Last access.
    pub atime: Time,
    /// Last modification.
    pub mtime: Time,
    /// Further attributes.
    pub xvattr: Option<XvAttr>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Record<'a> {
    /// Create, Mkdir, MkXattr, Symlink and their kin with attributes and access control lists.
    Create(Box<Create<'a>>),
    /// Remove and Rmdir.
    Remove {
        directory: u64,
        name: &'a [u8],
    },
    Link {
        directory: u64,
        object: u64,
        name: &'a [u8],
    },
    Rename {
        from: u64,
        to: u64,
        name: &'a [u8],
        new_name: &'a [u8],
    },
    Write(Write<'a>),
    /// A length of 0 is up to the end of the file.
    Truncate {
        object: u64,
        offset: u64,
        length: u64,
    },
    Setattr(Box<Setattr>),
    Acl {
        object: u64,
        acl: Acl<'a>,
    },
    /// Of an old file system version, or of a kind that is not known: the bytes after the head.
    Other(&'a [u8]),
}

/// Reads what follows the head of `raw`.
pub(super) fn decode<'a>(raw: &RawRecord<'a>) -> Result<Record<'a>> {
    use RecordKind as K;
    let body = raw.bytes.get(RECORD_HEAD_SIZE..).unwrap_or_default();
    let mut r = Reader::new(WHAT, body);
    Ok(match raw.kind {
        K::Create | K::Mkdir | K::MkXattr | K::Symlink => create(&mut r, raw.kind, false, false)?,
        K::CreateAttr | K::MkdirAttr => create(&mut r, raw.kind, true, false)?,
        K::CreateAcl | K::MkdirAcl => create(&mut r, raw.kind, false, true)?,
        K::CreateAclAttr | K::MkdirAclAttr => create(&mut r, raw.kind, true, true)?,
        K::Remove | K::Rmdir => {
            Record::Remove { directory: word(&mut r)?, name: string(&mut r, "name")? }
        }
        K::Link => Record::Link {
            directory: word(&mut r)?,
            object: word(&mut r)?,
            name: string(&mut r, "name")?,
        },
        K::Rename => Record::Rename {
            from: word(&mut r)?,
            to: word(&mut r)?,
            name: string(&mut r, "name")?,
            new_name: string(&mut r, "new name")?,
        },
        K::Write | K::Write2 => Record::Write(write(&mut r)?),
        K::Truncate => {
            let [object, offset, length] = words(&mut r)?;
            Record::Truncate { object, offset, length }
        }
        K::Setattr => Record::Setattr(Box::new(setattr(&mut r)?)),
        K::Acl => acl(&mut r)?,
        K::AclV0 | K::Other(_) => Record::Other(body),
    })
}

fn word(r: &mut Reader<'_>) -> Result<u64> {
    r.array("word").map(u64::from_le_bytes)
}

fn words<const N: usize>(r: &mut Reader<'_>) -> Result<[u64; N]> {
    let mut words = [0; N];
    for to in &mut words {
        *to = word(r)?;
    }
    Ok(words)
}

/// The bytes up to the next NUL.
fn string<'a>(r: &mut Reader<'a>, field: &'static str) -> Result<&'a [u8]> {
    let mut rest = r.clone();
    let bytes = rest.take(rest.left(), field)?;
    let len = bytes.iter().position(|b| *b == 0).ok_or_else(|| r.bounds(field))?;
    let string = r.take(len, field)?;
    r.take(1, field)?;
    Ok(string)
}

/// `len` bytes, which may be a number from a disk.
fn bytes<'a>(r: &mut Reader<'a>, len: u64, field: &'static str) -> Result<&'a [u8]> {
    let len = usize::try_from(len).map_err(|_| r.bounds(field))?;
    r.take(len, field)
}

fn create<'a>(
    r: &mut Reader<'a>,
    kind: RecordKind,
    has_xvattr: bool,
    has_acl: bool,
) -> Result<Record<'a>> {
    let [directory, object, mode, uid, gid, generation, seconds, nanoseconds, rdev] = words(r)?;
    let sizes = if has_acl { Some(AclSizes::read(r)?) } else { None };
    let xvattr = if has_xvattr { Some(xvattr(r)?) } else { None };
    let acl = match sizes {
        Some(sizes) => Some(sizes.entries(r)?),
        None => {
            // Names of the domains of owner and group, if they have such.
            let (of_uid, of_gid) = (uid >> 32, gid >> 32);
            let both = of_uid != 0 && of_gid != 0 && of_uid != of_gid;
            for _ in 0..u8::from(of_uid != 0 || of_gid != 0) + u8::from(both) {
                string(r, "domain")?;
            }
            None
        }
    };
    let name = string(r, "name")?;
    let is_link = kind == RecordKind::Symlink;
    let target = if is_link { Some(string(r, "target")?) } else { None };
    Ok(Record::Create(Box::new(Create {
        directory,
        object: bits(object, 0, 48),
        slots: bits(object, 56, 8) as u16 + 1,
        mode,
        uid,
        gid,
        generation,
        crtime: [seconds, nanoseconds],
        rdev,
        name,
        target,
        xvattr,
        acl,
    })))
}

fn xvattr(r: &mut Reader<'_>) -> Result<XvAttr> {
    let count = r.array("attributes").map(u32::from_le_bytes)? as usize;
    if count > r.left() / 4 {
        return Err(r.bounds("attributes"));
    }
    let asked = (0..count).map(|_| r.array("attributes").map(u32::from_le_bytes));
    let asked = asked.collect::<Result<_>>()?;
    let [flags, seconds, nanoseconds] = words(r)?;
    Ok(XvAttr { asked, flags, crtime: [seconds, nanoseconds], stamp: r.array("stamp")? })
}

/// Sizes of the parts of an access control list, which come before these.
struct AclSizes {
    entries: u64,
    domains: u64,
    owners: u64,
    bytes: u64,
    flags: u64,
}

impl AclSizes {
    fn read(r: &mut Reader<'_>) -> Result<Self> {
        let [entries, domains, owners, bytes, flags] = words(r)?;
        Ok(AclSizes { entries, domains, owners, bytes, flags })
    }

    fn entries<'a>(self, r: &mut Reader<'a>) -> Result<Acl<'a>> {
        let entries = bytes(r, self.bytes, "access control list")?;
        let padding = self.bytes.next_multiple_of(8) - self.bytes;
        bytes(r, padding, "access control list")?;
        let mut tail = r.clone();
        let whole = tail.clone().take(tail.left(), "domains")?;
        let start = tail.left();
        let owners = self.owners.checked_mul(8).ok_or_else(|| r.bounds("owners"))?;
        bytes(&mut tail, owners, "owners")?;
        for _ in 0..self.domains {
            string(&mut tail, "domain")?;
        }
        let len = start - tail.left();
        r.take(len, "domains")?;
        let domains = whole.get(..len).unwrap_or_default();
        Ok(Acl { entries: self.entries, flags: self.flags, bytes: entries, domains })
    }
}

fn acl<'a>(r: &mut Reader<'a>) -> Result<Record<'a>> {
    let object = word(r)?;
    let acl = AclSizes::read(r)?.entries(r)?;
    Ok(Record::Acl { object, acl })
}

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WriteHead {
    words: [U64; 4],
    pointer: BlkPtr,
}

const _: () = assert!(size_of::<WriteHead>() + RECORD_HEAD_SIZE == 192);

fn write<'a>(r: &mut Reader<'a>) -> Result<Write<'a>> {
    let head = r.take(size_of::<WriteHead>(), "write")?;
    let (head, _) = crate::view::prefix::<WriteHead>(WHAT, head)?;
    let [object, offset, length, block_offset] = head.words.map(U64::get);
    let data = if r.left() == 0 { None } else { Some(bytes(r, length, "data")?) };
    Ok(Write { object, offset, length, block_offset, pointer: head.pointer, data })
}

fn setattr(r: &mut Reader<'_>) -> Result<Setattr> {
    let [object, mask, mode, uid, gid, size] = words(r)?;
    let (atime, mtime) = (words(r)?, words(r)?);
    let xvattr = if mask & SetattrMask::XVATTR != 0 { Some(xvattr(r)?) } else { None };
    Ok(Setattr { object, mask, mode, uid, gid, size, atime, mtime, xvattr })
}
