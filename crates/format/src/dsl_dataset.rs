//! DSL data sets (`dsl_dataset_phys_t`): a head or a snapshot, and the pointer to its object set.
//!
//! 320 bytes in the bonus of an object of type
//! [`ObjectType::DSL_DATASET`](crate::ObjectType::DSL_DATASET). With per-data-set features or
//! bookmarks the object is *zapified*: its type becomes a ZAP and block 0 a micro ZAP, the bonus
//! stays. FORMAT: sections 7.4 and 8.2.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{BlkPtr, Result, view};

/// Size of the bonus in bytes.
pub const DSL_DATASET_SIZE: usize = 320;
/// `fsid_guid` has this many bits.
pub const FSID_GUID_BITS: u32 = 56;

/// Key of a data set's ZAP: the ZAP of its bookmarks.
pub const DS_BOOKMARKS: &str = "com.delphix:bookmarks";
/// Key of a data set's ZAP: deadlist of blocks that device removal remapped.
pub const DS_REMAP_DEADLIST: &str = "com.delphix:remap_deadlist";
/// Key of a data set's ZAP: guid of the set of initialization vectors of an encrypted data set.
pub const DS_IVSET_GUID: &str = "com.datto:ivset_guid";
/// Prefix of the keys that an interrupted receive leaves in a data set's ZAP.
pub const DS_RESUME_PREFIX: &str = "com.delphix:resume_";

/// Bits of [`DslDatasetPhys::flags`].
pub struct DslDatasetFlags;

impl DslDatasetFlags {
    /// A receive or a destroy is not finished.
    pub const INCONSISTENT: u64 = 1;
    /// Must not be promoted.
    pub const NO_PROMOTE: u64 = 2;
    /// [`DslDatasetPhys::unique_bytes`] is exact; always set.
    pub const UNIQUE_ACCURATE: u64 = 4;
    /// Destroyed as soon as the last hold or clone is gone.
    pub const DEFER_DESTROY: u64 = 8;
    /// Names compare without case.
    pub const CI_DATASET: u64 = 1 << 16;
}

/// A data set or snapshot of the DSL.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DslDatasetPhys {
    /// Its DSL directory.
    pub dir_object: U64,
    /// The newest older snapshot (of a clone's first: its origin); 0: none.
    pub prev_snap_object: U64,
    /// Creation txg of that snapshot.
    pub prev_snap_txg: U64,
    /// Of a snapshot: the next newer snapshot or the head. Of a head: 0.
    pub next_snap_object: U64,
    /// Of a head: ZAP of its snapshots' names.
    pub snapnames_zap_object: U64,
    /// Of a snapshot: 1 + number of clones. Of a head: 0.
    pub num_children: U64,
    /// When it was made, in seconds since 1970.
    pub creation_time_secs: U64,
    /// The txg in which it was made.
    pub creation_txg: U64,
    /// Its deadlist.
    pub deadlist_object: U64,
    /// Space of all blocks that can be reached from it.
    pub referenced_bytes: U64,
    /// The same before parity, after compression.
    pub compressed_bytes: U64,
    /// The same before compression.
    pub uncompressed_bytes: U64,
    /// Space that no other data set references.
    pub unique_bytes: U64,
    /// Identity towards file system users, unique in the machine; [`FSID_GUID_BITS`] bits.
    pub fsid_guid: U64,
    /// Identity towards send and receive.
    pub guid: U64,
    /// [`DslDatasetFlags`].
    pub flags: U64,
    /// The object set.
    pub bp: BlkPtr,
    /// Of a snapshot: ZAP of the data sets cloned from it; 0: none yet.
    pub next_clones_object: U64,
    /// Of a snapshot: ZAP of its properties; 0: none.
    pub props_object: U64,
    /// Of a snapshot: ZAP of its holds; 0: none.
    pub userrefs_object: U64,
    pad: [U64; 5],
}

const _: () = assert!(size_of::<DslDatasetPhys>() == DSL_DATASET_SIZE);
const _: () = assert!(std::mem::offset_of!(DslDatasetPhys, bp) == 16 * 8);
const _: () = assert!(std::mem::offset_of!(DslDatasetPhys, next_clones_object) == 32 * 8);

impl Default for DslDatasetPhys {
    fn default() -> Self {
        let mut ds = Self::new_zeroed();
        ds.flags.set(DslDatasetFlags::UNIQUE_ACCURATE);
        ds
    }
}

impl DslDatasetPhys {
    /// The data set in a bonus.
    pub fn parse(bonus: &[u8]) -> Result<&Self> {
        view::prefix("DSL data set", bonus).map(|(ds, _)| ds)
    }

    /// Is it a snapshot? (Heads have no children.)
    pub fn is_snapshot(&self) -> bool {
        self.num_children.get() != 0
    }

    /// Is a receive or destroy not finished?
    pub fn is_inconsistent(&self) -> bool {
        self.flags.get() & DslDatasetFlags::INCONSISTENT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let mut ds = DslDatasetPhys { bp: BlkPtr::from_words([7; 16]), ..Default::default() };
        ds.userrefs_object.set(5);
        assert_eq!(DslDatasetPhys::parse(ds.as_bytes()).unwrap(), &ds);
        assert!(!ds.is_snapshot() && !ds.is_inconsistent());
        assert!(DslDatasetPhys::parse(&[0; 319]).is_err());
    }
}
