//! The intent log: what was promised to be stable before its txg was.
//!
//! The one idea: each file system and volume has a chain of blocks; a block holds records and the
//! pointer to the next block, whose checksum it knows before that block is written. The chain ends
//! at the first block that is not what the pointer says. FORMAT: section 12.
//!
//! Writers never compress log blocks, and their records have padding to eight bytes. In encrypted
//! data sets the head of each record is in the clear, the rest is not.

pub mod build;
mod record;

#[cfg(test)]
mod tests;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::eck::Eck;
use crate::{BlkPtr, FormatError, Result};

pub use record::{Acl, Create, Record, Setattr, SetattrMask, Time, Write, XvAttr};

/// Bytes of the header in an object set.
pub const ZIL_HEADER_SIZE: usize = 192;
/// Bytes at the start of a log block.
pub const ZIL_CHAIN_SIZE: usize = 184;
/// Bytes of the head of a record.
pub const RECORD_HEAD_SIZE: usize = 32;

/// Bits of [`ZilHeader::flags`].
pub struct ZilFlags;

impl ZilFlags {
    /// Claimed, and has to be replayed.
    pub const REPLAY_NEEDED: u64 = 1;
    /// [`ZilHeader::claim_record_seq`] counts.
    pub const CLAIM_RECORD_SEQ_VALID: u64 = 2;
}

/// Header of a log (`zil_header_t`), in the object set.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ZilHeader {
    /// The txg in which its blocks were claimed; 0: they were not.
    pub claim_txg: U64,
    /// The last record that was replayed.
    pub replay_seq: U64,
    /// The first block; a hole if there is no log.
    pub log: BlkPtr,
    /// The last block that was claimed.
    pub claim_block_seq: U64,
    /// [`ZilFlags`].
    pub flags: U64,
    /// The last record that was claimed.
    pub claim_record_seq: U64,
    pad: [U64; 3],
}

const _: () = assert!(size_of::<ZilHeader>() == ZIL_HEADER_SIZE);

impl Default for ZilHeader {
    fn default() -> Self {
        zerocopy::transmute!([0u8; ZIL_HEADER_SIZE])
    }
}

impl ZilHeader {
    /// The header in the bytes that an object set has for it.
    pub fn parse(bytes: &[u8; ZIL_HEADER_SIZE]) -> Self {
        zerocopy::transmute!(*bytes)
    }

    /// Its bytes in an object set.
    pub fn to_bytes(&self) -> [u8; ZIL_HEADER_SIZE] {
        zerocopy::transmute!(*self)
    }
}

/// Start of a log block (`zil_chain_t`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ZilChain {
    pad: U64,
    /// The next block: where it will be, and in its checksum words what it has to be.
    pub next: BlkPtr,
    /// Bytes of the block that are used, this structure included.
    pub used: U64,
    /// The checksum of the block.
    pub eck: Eck,
}

const _: () = assert!(size_of::<ZilChain>() == ZIL_CHAIN_SIZE);
const _: () = assert!(std::mem::offset_of!(ZilChain, used) == 136);

/// A log block whose checksum has been verified.
#[derive(Clone, Copy, Debug)]
pub struct LogBlock<'a> {
    /// Its start.
    pub chain: &'a ZilChain,
    records: &'a [u8],
}

impl<'a> LogBlock<'a> {
    /// Reads a log block. A block from a host of the other byte order is refused.
    pub fn parse(block: &'a [u8]) -> Result<Self> {
        const WHAT: &str = "log block";
        let (chain, rest) = crate::view::prefix::<ZilChain>(WHAT, block)?;
        if chain.eck.is_swapped() {
            let (seen, expected) = (chain.eck.magic.get(), crate::eck::ECK_MAGIC);
            return Err(FormatError::Magic { what: WHAT, seen, expected });
        }
        let used = chain.used.get();
        let records = used.checked_sub(ZIL_CHAIN_SIZE as u64);
        let records = records.and_then(|len| usize::try_from(len).ok());
        match records.and_then(|len| rest.get(..len)) {
            Some(records) => Ok(LogBlock { chain, records }),
            None => {
                let expected = "at least its start and at most its size";
                Err(FormatError::Field { what: WHAT, field: "bytes used", seen: used, expected })
            }
        }
    }

    /// The records in order. After an error there are no more.
    pub fn records(&self) -> impl Iterator<Item = Result<RawRecord<'a>>> + use<'a> {
        let (all, mut rest) = (self.records.len(), self.records);
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let at = ZIL_CHAIN_SIZE + all - rest.len();
            let record = RawRecord::parse(rest, at);
            let taken = record.as_ref().map_or(rest.len(), |r| r.bytes.len());
            rest = rest.get(taken..).unwrap_or_default();
            Some(record)
        })
    }
}

/// What a record is about (`TX_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum RecordKind {
    Create,
    Mkdir,
    MkXattr,
    Symlink,
    Remove,
    Rmdir,
    Link,
    Rename,
    Write,
    Truncate,
    Setattr,
    AclV0,
    Acl,
    CreateAcl,
    CreateAttr,
    CreateAclAttr,
    MkdirAcl,
    MkdirAttr,
    MkdirAclAttr,
    /// A write whose data went to the pool by another way: nothing to replay.
    Write2,
    Other(u64),
}

impl RecordKind {
    const ALL: [RecordKind; 20] = [
        Self::Create,
        Self::Mkdir,
        Self::MkXattr,
        Self::Symlink,
        Self::Remove,
        Self::Rmdir,
        Self::Link,
        Self::Rename,
        Self::Write,
        Self::Truncate,
        Self::Setattr,
        Self::AclV0,
        Self::Acl,
        Self::CreateAcl,
        Self::CreateAttr,
        Self::CreateAclAttr,
        Self::MkdirAcl,
        Self::MkdirAttr,
        Self::MkdirAclAttr,
        Self::Write2,
    ];

    /// From the number on disk, without the bit for case.
    pub fn from_id(id: u64) -> Self {
        let index = usize::try_from(id.wrapping_sub(1)).ok();
        index.and_then(|i| Self::ALL.get(i)).copied().unwrap_or(Self::Other(id))
    }

    /// The number on disk.
    pub fn id(self) -> u64 {
        match self {
            Self::Other(id) => id,
            known => Self::ALL.iter().position(|k| *k == known).map_or(0, |i| i as u64 + 1),
        }
    }
}

/// A record with its head read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// What it is about.
    pub kind: RecordKind,
    /// Its names are looked up without regard to case.
    pub ignores_case: bool,
    /// The txg that would have made it stable.
    pub txg: u64,
    /// Its number in the log.
    pub seq: u64,
    /// The whole record, head and padding included.
    pub bytes: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// Reads the record at the start of `rest`; `at` is its offset in the block, for errors.
    fn parse(rest: &'a [u8], at: usize) -> Result<Self> {
        const CASE_BIT: u64 = 1 << 63;
        let error = |field| FormatError::Bounds { what: "log record", field, at: at as u64 };
        let (words, _) = crate::view::prefix::<[U64; 4]>("log record", rest)?;
        let [kind, size, txg, seq] = words.map(U64::get);
        let bytes = usize::try_from(size).ok().and_then(|size| rest.get(..size));
        let bytes = bytes.filter(|b| b.len() >= RECORD_HEAD_SIZE && b.len().is_multiple_of(8));
        Ok(RawRecord {
            kind: RecordKind::from_id(kind & !CASE_BIT),
            ignores_case: kind & CASE_BIT != 0,
            txg,
            seq,
            bytes: bytes.ok_or_else(|| error("length"))?,
        })
    }

    /// Reads the rest of the record, which must not be encrypted.
    pub fn decode(&self) -> Result<Record<'a>> {
        record::decode(self)
    }
}
