//! User accounting: whose an object is, and the keys under which its space is counted.
//!
//! Three ZAPs (objects -1 users, -2 groups, -3 projects) count bytes and objects per id; further
//! ones, named in the master node, hold quotas under the same keys. Counted is every object whose
//! bonus is a znode, old or new. FORMAT: section 11.8.

use crate::sa::SaHeader;
use crate::znode::Pflags;
use crate::{FormatError, ObjectType, Result};

/// Bytes that each object counts besides what its dnode uses, whatever the size of the dnode.
pub const BYTES_PER_OBJECT: u64 = 512;
/// What keys that count objects start with.
pub const OBJECT_PREFIX: &str = "obj-";
/// The project of objects without one.
pub const DEFAULT_PROJECT: u64 = 0;

/// Key under which the bytes of an id are counted, and its quotas kept.
pub fn bytes_key(id: u64) -> String {
    format!("{id:x}")
}

/// Key under which the objects of an id are counted.
pub fn objects_key(id: u64) -> String {
    format!("{OBJECT_PREFIX}{id:x}")
}

/// What a key of an accounting ZAP counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Bytes of this id.
    Bytes(u64),
    /// Objects of this id.
    Objects(u64),
}

impl Counted {
    /// From a key; `None` if it is not one.
    pub fn parse(key: &[u8]) -> Option<Self> {
        let hex = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok()?;
            let id = u64::from_str_radix(digits, 16).ok()?;
            // One id has one key: no sign, no zeros before it, no capitals.
            (bytes_key(id) == digits).then_some(id)
        };
        match key.strip_prefix(OBJECT_PREFIX.as_bytes()) {
            Some(digits) => hex(digits).map(Self::Objects),
            None => hex(key).map(Self::Bytes),
        }
    }
}

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Project; [`DEFAULT_PROJECT`] if the object has none.
    pub project: u64,
}

/// Offsets behind the SA header; accounting finds them there without looking at the layout.
const UID_AT: usize = 24;
const GID_AT: usize = 32;
const FLAGS_AT: usize = 48;
const PROJECT_AT: usize = 128;
/// The same in old znodes.
const OLD_UID_AT: usize = 128;
const OLD_GID_AT: usize = 136;

impl Owner {
    /// The owner of an object by its bonus; `None`: objects with such a bonus are not counted.
    ///
    /// As OpenZFS does, this relies on owner, flags and project standing at fixed places, which all
    /// writers keep.
    pub fn of(bonus_kind: ObjectType, bonus: &[u8]) -> Result<Option<Owner>> {
        let word = |at: usize| {
            let word = bonus.get(at..).and_then(|b| b.first_chunk());
            let (needed, have) = (at as u64 + 8, bonus.len() as u64);
            let short = FormatError::Short { what: "owner in a bonus", needed, have };
            word.map(|w| u64::from_le_bytes(*w)).ok_or(short)
        };
        match bonus_kind {
            ObjectType::SA => {
                let at = SaHeader::parse(bonus)?.size;
                let has_project = word(at + FLAGS_AT)? & Pflags::PROJID != 0;
                let project = if has_project { word(at + PROJECT_AT)? } else { DEFAULT_PROJECT };
                Ok(Some(Owner { uid: word(at + UID_AT)?, gid: word(at + GID_AT)?, project }))
            }
            ObjectType::ZNODE => {
                let (uid, gid) = (word(OLD_UID_AT)?, word(OLD_GID_AT)?);
                Ok(Some(Owner { uid, gid, project: DEFAULT_PROJECT }))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_and_others_are_refused() {
        for id in [0, 1, 1001, u64::MAX] {
            assert_eq!(Counted::parse(bytes_key(id).as_bytes()), Some(Counted::Bytes(id)));
            assert_eq!(Counted::parse(objects_key(id).as_bytes()), Some(Counted::Objects(id)));
        }
        assert_eq!(objects_key(0x3e9), "obj-3e9");
        for bad in ["", "obj-", "obj", "03", "+3", "3E9", "11112222333344445", "g"] {
            assert_eq!(Counted::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn other_bonuses_are_not_counted_and_short_ones_are_errors() {
        assert_eq!(Owner::of(ObjectType::NONE, &[]), Ok(None));
        assert!(Owner::of(ObjectType::SA, &[0; 168]).is_err());
        assert!(Owner::of(ObjectType::ZNODE, &[0; 143]).is_err());
        let mut bonus = vec![0; 264];
        (bonus[128], bonus[136]) = (5, 6);
        let owner = Owner { uid: 5, gid: 6, project: 0 };
        assert_eq!(Owner::of(ObjectType::ZNODE, &bonus), Ok(Some(owner)));
    }
}
