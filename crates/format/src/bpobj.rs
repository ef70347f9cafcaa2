//! Lists of block pointers (`bpobj_phys_t`): deferred frees, sublists of deadlists.
//!
//! The data of the object is an array of block pointers, the bonus counts them. Further bpobjs can
//! hang below one (*sub-bpobjs*, an array of object numbers in an object of its own); the sums
//! include them. The bonus grew over time, see [`BpobjForm`]. FORMAT: section 9.1.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::dnode::BLKPTR;
use crate::{BlkPtr, FormatError, Result, view};

/// Size of the data blocks of a bpobj (and of its list of sub-bpobjs), in bytes.
pub const BPOBJ_BLOCK: u32 = 128 << 10;
/// Size of the data blocks of the pool's list of deferred frees, in bytes.
pub const SYNC_BPLIST_BLOCK: u32 = 16 << 10;

/// Which fields the bonus has; the value is its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum BpobjForm {
    /// Count and bytes (pool versions before 3).
    Counted = 16,
    /// And sizes before and after compression (pool versions before 26).
    Sized = 32,
    /// And sub-bpobjs: the ordinary form.
    Nested = 48,
    /// And a count of freed entries: made while the feature livelist was active.
    Livelist = 56,
}

impl BpobjForm {
    /// The form of a bonus of `size` bytes.
    pub fn from_size(size: usize) -> Result<Self> {
        Ok(match size {
            16 => Self::Counted,
            32 => Self::Sized,
            48 => Self::Nested,
            56 => Self::Livelist,
            _ => {
                return Err(FormatError::Field {
                    what: "bpobj",
                    field: "bonus size",
                    seen: size as u64,
                    expected: "16, 32, 48 or 56",
                });
            }
        })
    }

    /// Bytes of bonus.
    pub fn size(self) -> usize {
        self as usize
    }
}

/// Bonus of a bpobj.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct BpobjPhys {
    /// Entries in the data of this object.
    pub num_blkptrs: U64,
    /// Space with parity of all entries, those of sub-bpobjs included.
    pub bytes: U64,
    /// The same before parity, after compression.
    pub compressed_bytes: U64,
    /// The same before compression.
    pub uncompressed_bytes: U64,
    /// Object that lists the sub-bpobjs; 0: none yet.
    pub subobjs_object: U64,
    /// Entries in that list.
    pub num_subobjs: U64,
    /// Entries that are marked as freed (livelists).
    pub num_freed: U64,
}

const _: () = assert!(size_of::<BpobjPhys>() == BpobjForm::Livelist as usize);

impl Default for BpobjPhys {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl BpobjPhys {
    /// The header in a bonus (exactly the dnode's bonus, its size tells the form).
    pub fn parse(bonus: &[u8]) -> Result<(Self, BpobjForm)> {
        let form = BpobjForm::from_size(bonus.len())?;
        Ok((view::padded::<Self, 56>(bonus), form))
    }

    /// The bytes of the bonus in a form.
    pub fn bonus(&self, form: BpobjForm) -> &[u8] {
        self.as_bytes().get(..form.size()).unwrap_or_default()
    }

    /// Nothing in it, and nothing below it?
    pub fn is_empty(&self) -> bool {
        self.num_blkptrs.get() == 0 && self.num_subobjs.get() == 0
    }
}

/// The entry that stores `bp`.
///
/// An entry only has to say which space is meant, so the checksum goes (deduplicated blocks keep
/// it: it is their key), the fill goes (its lowest bit becomes the mark of livelists), and of an
/// embedded pointer only its properties and its birth stay.
pub fn encode_entry(bp: &BlkPtr, freed: bool) -> BlkPtr {
    let mut words = bp.words();
    let keep = |index: usize| {
        if bp.is_embedded() {
            matches!(index, 6 | 10)
        } else {
            index < 11 || (index > 11 && bp.is_dedup())
        }
    };
    for (index, word) in words.iter_mut().enumerate() {
        if !keep(index) {
            *word = 0;
        }
        if index == 11 {
            *word = freed.into();
        }
    }
    BlkPtr::from_words(words)
}

/// Is an entry of a livelist marked as freed? (Deadlists mark nothing.)
pub fn entry_is_freed(entry: &BlkPtr) -> bool {
    let [.., fill, _, _, _, _] = entry.words();
    fill & 1 == 1
}

/// The first `count` entries of (a piece of) the data.
pub fn entries(bytes: &[u8], count: u64) -> Result<&[BlkPtr]> {
    view::array("bpobj", bytes, count)
}

/// The first `count` object numbers of (a piece of) a list of sub-bpobjs.
pub fn subobjs(bytes: &[u8], count: u64) -> Result<&[U64]> {
    view::array("bpobj list of sub-bpobjs", bytes, count)
}

/// Offset of an entry in the data, in bytes.
pub fn entry_offset(index: u64) -> u64 {
    index.saturating_mul(BLKPTR as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compress, ObjectType};

    #[test]
    fn each_form_comes_back_and_others_are_refused() {
        let mut header = BpobjPhys::default();
        for (i, word) in [
            &mut header.num_blkptrs,
            &mut header.bytes,
            &mut header.compressed_bytes,
            &mut header.uncompressed_bytes,
            &mut header.subobjs_object,
            &mut header.num_subobjs,
            &mut header.num_freed,
        ]
        .into_iter()
        .enumerate()
        {
            word.set(i as u64 + 1);
        }
        for size in 0..64 {
            let bonus = vec![9; size];
            assert_eq!(BpobjPhys::parse(&bonus).is_ok(), matches!(size, 16 | 32 | 48 | 56));
        }
        let (again, form) = BpobjPhys::parse(header.bonus(BpobjForm::Livelist)).unwrap();
        assert_eq!((again, form), (header, BpobjForm::Livelist));
        let (old, form) = BpobjPhys::parse(header.bonus(BpobjForm::Counted)).unwrap();
        assert_eq!((form, old.bytes.get(), old.compressed_bytes.get()), (BpobjForm::Counted, 2, 0));
    }

    #[test]
    fn entries_keep_what_names_the_space() {
        let mut words: [u64; 16] = std::array::from_fn(|i| i as u64 + 1);
        words[6] = 1 << 63;
        let entry = encode_entry(&BlkPtr::from_words(words), false).words();
        assert_eq!(entry[..11], words[..11]);
        assert_eq!(entry[11..], [0; 5]);
        words[6] |= 1 << 62;
        let dedup = encode_entry(&BlkPtr::from_words(words), true);
        assert!(entry_is_freed(&dedup));
        assert_eq!(dedup.words()[11..], [1, 13, 14, 15, 16]);

        let bp = BlkPtr::embedded(512, Compress::Lz4, ObjectType::DSL_PROPS, 5, &[0xff; 112]);
        let bp = bp.unwrap();
        let entry = encode_entry(&bp, false).words();
        assert_eq!((entry[6], entry[10]), (bp.prop(), 5));
        assert_eq!(entry.iter().filter(|w| **w != 0).count(), 2);
    }

    #[test]
    fn counts_from_a_disk_are_bounded_by_the_bytes() {
        let bytes = [0; 300];
        assert_eq!(entries(&bytes, 2).unwrap().len(), 2);
        assert!(entries(&bytes, 3).is_err());
        assert!(entries(&bytes, u64::MAX).is_err());
        assert_eq!(subobjs(&bytes, 37).unwrap().len(), 37);
        assert!(subobjs(&bytes, 38).is_err());
        assert_eq!(entry_offset(3), 384);
    }
}
