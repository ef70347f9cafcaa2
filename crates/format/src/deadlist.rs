//! Deadlists (`dsl_deadlist_phys_t`): blocks of the previous snapshot that a data set lets go.
//!
//! A ZAP of sublists: key = a txg, value = a bpobj with the blocks born after it, up to the next
//! key. One key stands for each snapshot of the history, so that the destroy of a snapshot frees
//! whole sublists. A livelist has the same shape. The rules about keys are functions here; whoever
//! owns the objects applies them. FORMAT: section 8.4.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{FormatError, Result, view};

/// Size of the bonus in bytes.
pub const DEADLIST_SIZE: usize = 320;
/// A livelist gets a new sublist when the newest holds this many entries.
pub const LIVELIST_ENTRIES_MAX: u64 = 500_000;

/// Bonus of a deadlist or livelist: sums over all its sublists.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DeadlistPhys {
    /// Space with parity.
    pub used_bytes: U64,
    /// Space before parity, after compression.
    pub compressed_bytes: U64,
    /// Space before compression.
    pub uncompressed_bytes: U64,
    pad: [U64; 37],
}

const _: () = assert!(size_of::<DeadlistPhys>() == DEADLIST_SIZE);

impl Default for DeadlistPhys {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl DeadlistPhys {
    /// The header in a bonus.
    pub fn parse(bonus: &[u8]) -> Result<&Self> {
        view::prefix("deadlist", bonus).map(|(header, _)| header)
    }
}

/// Key of the sublist for a block born in `birth`: the largest key *below* it.
///
/// `keys` ascend. `None`: the deadlist has no key below `birth`.
pub fn key_for_birth(keys: &[u64], birth: u64) -> Option<u64> {
    let after = keys.partition_point(|key| *key < birth);
    after.checked_sub(1).and_then(|at| keys.get(at)).copied()
}

/// The keys whose sublists hold the blocks born in `(min_txg, max_txg]`.
///
/// `keys` ascend; both ends should be keys or lie beyond all keys, else a sublist reaches out of
/// the range.
pub fn keys_in_range(keys: &[u64], min_txg: u64, max_txg: u64) -> &[u64] {
    let from = keys.partition_point(|key| *key < min_txg);
    let to = keys.partition_point(|key| *key < max_txg);
    keys.get(from..to).unwrap_or_default()
}

/// Keys of the head's new deadlist after a snapshot, which takes over the old one.
///
/// `prev_snap_txg`: of the head before the snapshot.
pub fn keys_after_snapshot(keys: &[u64], prev_snap_txg: u64) -> Vec<u64> {
    let at = keys.partition_point(|key| *key < prev_snap_txg);
    let mut new = keys.to_vec();
    if keys.get(at) != Some(&prev_snap_txg) {
        new.insert(at, prev_snap_txg);
    }
    new
}

/// Keys of a clone's new deadlist: those of the origin's *head* below the origin's creation.
pub fn keys_of_clone(origin_head_keys: &[u64], origin_creation_txg: u64) -> &[u64] {
    keys_in_range(origin_head_keys, 0, origin_creation_txg)
}

/// The ZAP name of a key: lower-case hexadecimal.
pub fn key_name(key: u64) -> String {
    format!("{key:x}")
}

/// The key of a ZAP name.
pub fn parse_key_name(name: &[u8]) -> Result<u64> {
    let bad = FormatError::Bounds { what: "deadlist", field: "key", at: 0 };
    if name.is_empty() || name.len() > 16 {
        return Err(bad);
    }
    let mut key = 0;
    for byte in name {
        let digit = char::from(*byte).to_digit(16).ok_or_else(|| bad.clone())?;
        key = key << 4 | u64::from(digit);
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Heads and snapshots of this history were seen on pools of OpenZFS: snapshots at 15 and 20.
    #[test]
    fn keys_follow_the_history_of_snapshots() {
        let fresh = vec![0];
        let after_first = keys_after_snapshot(&fresh, 1);
        assert_eq!(after_first, [0, 1]);
        let after_second = keys_after_snapshot(&after_first, 15);
        assert_eq!(after_second, [0, 1, 15]);
        assert_eq!(keys_after_snapshot(&after_second, 15), [0, 1, 15]);
        assert_eq!(keys_of_clone(&after_second, 15), [0, 1]);
        assert_eq!(keys_of_clone(&after_second, 20), [0, 1, 15]);
    }

    #[test]
    fn a_block_goes_below_its_birth_strictly() {
        let keys = [0, 1, 15];
        for (birth, key) in [(1, 0), (2, 1), (15, 1), (16, 15), (u64::MAX, 15)] {
            assert_eq!(key_for_birth(&keys, birth), Some(key), "birth {birth}");
        }
        assert_eq!(key_for_birth(&keys, 0), None);
        assert_eq!(key_for_birth(&[], 9), None);
    }

    #[test]
    fn ranges_take_whole_sublists() {
        let keys = [0, 1, 15, 20];
        assert_eq!(keys_in_range(&keys, 1, 20), [1, 15]);
        assert_eq!(keys_in_range(&keys, 15, u64::MAX), [15, 20]);
        assert_eq!(keys_in_range(&keys, 20, 15), [0; 0]);
    }

    #[test]
    fn names_are_hexadecimal() {
        for key in [0, 1, 15, 0xdead_beef, u64::MAX] {
            assert_eq!(parse_key_name(key_name(key).as_bytes()), Ok(key));
        }
        assert!(parse_key_name(b"").is_err());
        assert!(parse_key_name(b"0x1").is_err());
        assert!(parse_key_name(b"11112222333344445").is_err());
    }

    #[test]
    fn header_comes_back() {
        let mut header = DeadlistPhys::default();
        header.uncompressed_bytes.set(3);
        assert_eq!(DeadlistPhys::parse(header.as_bytes()).unwrap(), &header);
        assert!(DeadlistPhys::parse(&[0; 24]).is_err());
    }
}
