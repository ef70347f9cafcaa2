//! DSL directories (`dsl_dir_phys_t`): a name in the tree of data sets, its quota and its space.
//!
//! 256 bytes in the bonus of an object of type [`ObjectType::DSL_DIR`](crate::ObjectType::DSL_DIR)
//! without data. The space used is the sum of five parts, see [`Used`]. FORMAT: section 8.1.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Result, view};

/// Size of the bonus in bytes.
pub const DSL_DIR_SIZE: usize = 256;

/// Bits of [`DslDirPhys::flags`].
pub struct DslDirFlags;

impl DslDirFlags {
    /// [`DslDirPhys::used_breakdown`] is kept.
    pub const USED_BREAKDOWN: u64 = 1;
}

/// Name of the directory that accounts the MOS; a child of the root directory.
pub const MOS_DIR_NAME: &str = "$MOS";
/// Name of the directory that accounts what is being freed.
pub const FREE_DIR_NAME: &str = "$FREE";
/// Name of the directory that accounts what a failed free left behind.
pub const LEAK_DIR_NAME: &str = "$LEAK";
/// Name of the directory, data set and snapshot from which all new data sets are cloned.
pub const ORIGIN_DIR_NAME: &str = "$ORIGIN";

/// Key of a directory's ZAP: the object of its wrapped encryption keys.
pub const DIR_CRYPTO_KEY_OBJECT: &str = "com.datto:crypto_key_obj";
/// Key of a directory's ZAP: file systems below it.
pub const DIR_FILESYSTEM_COUNT: &str = "com.joyent:filesystem_count";
/// Key of a directory's ZAP: snapshots below it.
pub const DIR_SNAPSHOT_COUNT: &str = "com.joyent:snapshot_count";
/// Key of a directory's ZAP: the livelist of a clone.
pub const DIR_LIVELIST: &str = "com.delphix:livelist";

/// The parts of the space that a directory uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum Used {
    /// What the head would give back if it were destroyed and had no snapshots.
    Head = 0,
    /// What only snapshots hold.
    Snap = 1,
    /// The children.
    Child = 2,
    /// What the children have reserved and do not use yet.
    ChildReserved = 3,
    /// What is reserved for the head (`refreservation`) and not used yet.
    RefReserved = 4,
}

impl Used {
    /// All parts, in the order of the disk.
    pub const ALL: [Used; 5] =
        [Self::Head, Self::Snap, Self::Child, Self::ChildReserved, Self::RefReserved];
}

/// A directory of the DSL.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DslDirPhys {
    /// When it was made, in seconds since 1970.
    pub creation_time_secs: U64,
    /// Data set that the name stands for; 0 for `$MOS` and `$FREE`.
    pub head_dataset_object: U64,
    /// Parent directory; 0 of the root.
    pub parent_object: U64,
    /// Snapshot from which the head was cloned; ordinary ones: `$ORIGIN@$ORIGIN`.
    pub origin_object: U64,
    /// ZAP of the children: name to directory object.
    pub child_dir_zap_object: U64,
    /// Space used: the sum of [`Self::used_breakdown`].
    pub used_bytes: U64,
    /// The same before parity, after compression.
    pub compressed_bytes: U64,
    /// The same before compression.
    pub uncompressed_bytes: U64,
    /// Limit of the space used; 0: none.
    pub quota_bytes: U64,
    /// Space reserved; 0: none.
    pub reserved_bytes: U64,
    /// ZAP of the properties.
    pub props_zap_object: U64,
    /// ZAP of the delegated permissions; 0: none.
    pub deleg_zap_object: U64,
    /// [`DslDirFlags`].
    pub flags: U64,
    /// Parts of [`Self::used_bytes`], indexed by [`Used`].
    pub used_breakdown: [U64; 5],
    /// ZAP of the data sets cloned from snapshots of this one; 0: none yet.
    pub clones_object: U64,
    pad: [U64; 13],
}

const _: () = assert!(size_of::<DslDirPhys>() == DSL_DIR_SIZE);
const _: () = assert!(std::mem::offset_of!(DslDirPhys, clones_object) == 18 * 8);

impl Default for DslDirPhys {
    fn default() -> Self {
        let mut dir = Self::new_zeroed();
        dir.flags.set(DslDirFlags::USED_BREAKDOWN);
        dir
    }
}

impl DslDirPhys {
    /// The directory in a bonus.
    pub fn parse(bonus: &[u8]) -> Result<&Self> {
        view::prefix("DSL directory", bonus).map(|(dir, _)| dir)
    }

    /// One part of the space used, in bytes.
    pub fn used(&self, part: Used) -> u64 {
        self.used_breakdown.get(part as usize).map_or(0, |w| w.get())
    }

    /// Replaces one part; the caller keeps [`Self::used_bytes`] the sum.
    pub fn set_used(&mut self, part: Used, bytes: u64) {
        if let Some(word) = self.used_breakdown.get_mut(part as usize) {
            word.set(bytes);
        }
    }

    /// Sum of the parts; `None` if it overflows, which no sane directory does.
    pub fn used_sum(&self) -> Option<u64> {
        self.used_breakdown.iter().try_fold(0u64, |sum, w| sum.checked_add(w.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_sum_up_and_bytes_come_back() {
        let mut dir = DslDirPhys::default();
        for (i, part) in Used::ALL.into_iter().enumerate() {
            dir.set_used(part, 1 << i);
        }
        dir.clones_object.set(99);
        assert_eq!(dir.used_sum(), Some(31));
        let again = DslDirPhys::parse(dir.as_bytes()).unwrap();
        assert_eq!(again, &dir);
        dir.set_used(Used::Snap, u64::MAX);
        assert_eq!(dir.used_sum(), None);
        assert!(DslDirPhys::parse(&[0; 255]).is_err());
    }
}
