//! Access control lists of POSIX.1e, as Linux hands them to file systems and OpenZFS stores them: as the values
//! of two extended attributes.
//!
//! The one idea: only what a file system must know of them is here: which permissions a list means, what becomes of
//! it when the permissions change, and what a new file inherits. Who may do what is asked of the kernel.

use crate::error::{FsError, Result};
use crate::filesystem::Filesystem;
use crate::protected::Change;

/// The list that holds for an object.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that a directory hands down.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The most entries that a list may have; the kernel's limit for values allows some more.
const ENTRIES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// The entries of a stored list; `None`: it is none.
fn parse(list: &[u8]) -> Option<Vec<Entry>> {
    let (version, rest) = list.split_first_chunk::<4>()?;
    let is_whole = rest.len().is_multiple_of(8) && rest.len() / 8 <= ENTRIES_MAX;
    if u32::from_le_bytes(*version) != VERSION || !is_whole {
        return None;
    }
    let entry = |bytes: &[u8; 8]| {
        let [t0, t1, p0, p1, i0, i1, i2, i3] = *bytes;
        let (tag, perm) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([p0, p1]));
        Entry { tag, perm, id: u32::from_le_bytes([i0, i1, i2, i3]) }
    };
    let entries: Vec<Entry> = rest.as_chunks::<8>().0.iter().map(entry).collect();
    is_valid(&entries).then_some(entries)
}

/// The owner, the group and the others once each; a mask where anybody is named; in the order of tags and ids.
fn is_valid(entries: &[Entry]) -> bool {
    let count = |tag| entries.iter().filter(|e| e.tag == tag).count();
    let named = count(USER) + count(GROUP);
    let known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
    let in_order = entries.windows(2).all(|pair| {
        let [a, b] = pair else { return true };
        a.tag < b.tag || (a.tag == b.tag && matches!(a.tag, USER | GROUP))
    });
    entries.iter().all(|e| known.contains(&e.tag) && e.perm <= 7)
        && count(USER_OBJ) == 1
        && count(GROUP_OBJ) == 1
        && count(OTHER) == 1
        && count(MASK) <= 1
        && (named == 0 || count(MASK) == 1)
        && in_order
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut list = VERSION.to_le_bytes().to_vec();
    for entry in entries {
        list.extend(entry.tag.to_le_bytes());
        list.extend(entry.perm.to_le_bytes());
        list.extend(entry.id.to_le_bytes());
    }
    list
}

/// Bits by which a class of users is moved in a mode: the group's are the mask's where there is one.
fn shift(entry: &Entry, has_mask: bool) -> Option<u32> {
    match entry.tag {
        USER_OBJ => Some(6),
        MASK => Some(3),
        GROUP_OBJ if !has_mask => Some(3),
        OTHER => Some(0),
        _ => None,
    }
}

/// The nine bits of permissions that a list means.
fn bits(entries: &[Entry]) -> u32 {
    let has_mask = entries.iter().any(|e| e.tag == MASK);
    let class = |entry: &Entry| Some(u32::from(entry.perm) << shift(entry, has_mask)?);
    entries.iter().filter_map(class).fold(0, |bits, class| bits | class)
}

/// Does a list say no more than permissions do?
fn is_trivial(entries: &[Entry]) -> bool {
    entries.iter().all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER))
}

/// A list after permissions were set. What is no list stays as it is.
pub(crate) fn chmod(list: &[u8], mode: u32) -> Vec<u8> {
    let Some(mut entries) = parse(list) else { return list.to_vec() };
    let has_mask = entries.iter().any(|e| e.tag == MASK);
    for entry in &mut entries {
        if let Some(shift) = shift(entry, has_mask) {
            entry.perm = (mode >> shift & 7) as u16;
        }
    }
    encode(&entries)
}

/// What a new object gets from the list that its directory hands down, if `mode` is asked for: its mode, and the
/// list that holds for it, if it says more than the mode.
#[must_use]
pub fn inherit(list: &[u8], mode: u32) -> Option<(u32, Option<Vec<u8>>)> {
    let mut entries = parse(list)?;
    let has_mask = entries.iter().any(|e| e.tag == MASK);
    for entry in &mut entries {
        if let Some(shift) = shift(entry, has_mask) {
            entry.perm &= (mode >> shift & 7) as u16;
        }
    }
    let mode = mode & !0o777 | bits(&entries);
    Some((mode, (!is_trivial(&entries)).then(|| encode(&entries))))
}

impl Filesystem {
    /// Sets or takes away the list `name`, one of [`ACCESS`] and [`DEFAULT`]. [`ACCESS`] sets the permissions, too, and is
    /// not stored if it says no more than they do. `by` is the user and group of the caller: if the user is not root and the
    /// group is not the file's, setting permissions clears the file's set-group-id bit.
    ///
    /// # Errors
    /// A value that is no list; a list to hand down for what is no directory.
    pub fn set_acl(
        &self,
        number: u64,
        name: &[u8],
        list: Option<&[u8]>,
        by: (u32, u32),
    ) -> Result<()> {
        let invalid = |reason| FsError::Invalid { path: format!("object {number}"), reason };
        let entries = match list.map(parse) {
            Some(None) => return Err(invalid("no access control list")),
            Some(Some(entries)) => Some(entries),
            None => None,
        };
        let lock = self.lock(number);
        let attrs = self.attrs(number)?;
        self.permit(&attrs, Change::Attributes, format_args!("object {number}"))?;
        let is_there = self.xattr_of(number, &attrs, name)?.is_some();
        if name == DEFAULT {
            if !attrs.is_dir() {
                return match list {
                    Some(_) => {
                        Err(FsError::Denied { path: format!("object {number}, no directory") })
                    }
                    None => Ok(()),
                };
            }
            return match (list, is_there) {
                (None, false) => Ok(()),
                _ => self.change_xattr(lock, number, name, list, None, |_| ()),
            };
        }
        let mode = entries.as_deref().map(bits);
        let set = |attrs: &mut crate::Attrs| {
            if let Some(bits) = mode {
                let is_his = by.0 == 0 || attrs.is_dir() || u64::from(by.1) == attrs.gid;
                let rest = attrs.permissions() & if is_his { !0o777 } else { !0o2777 };
                attrs.set_mode(rest | bits);
            }
            attrs.ctime = crate::attrs::now();
        };
        let stored = list.filter(|_| entries.as_deref().is_some_and(|e| !is_trivial(e)));
        match (stored, is_there) {
            (None, false) => self.change_attrs_locked(lock, number, set),
            _ => self.change_xattr(lock, number, name, stored, None, set),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entries =
            entries.iter().map(|(tag, perm, id)| Entry { tag: *tag, perm: *perm, id: *id });
        encode(&entries.collect::<Vec<_>>())
    }

    const NONE: u32 = u32::MAX;

    fn with_user(owner: u16, user: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
        list(&[
            (USER_OBJ, owner, NONE),
            (USER, user, 1000),
            (GROUP_OBJ, group, NONE),
            (MASK, mask, NONE),
            (OTHER, other, NONE),
        ])
    }

    #[test]
    fn lists_that_cannot_be_are_none() {
        let trivial = [(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 5, NONE)];
        assert_eq!(bits(&parse(&list(&trivial)).unwrap()), 0o755);
        let named_without_mask =
            [(USER_OBJ, 7, NONE), (USER, 7, 1), (GROUP_OBJ, 5, NONE), (OTHER, 5, NONE)];
        let wrong_order = [(GROUP_OBJ, 7, NONE), (USER_OBJ, 5, NONE), (OTHER, 5, NONE)];
        let beyond = [(USER_OBJ, 8, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 5, NONE)];
        for bad in [&named_without_mask[..], &wrong_order, &beyond, &trivial[..2], &[]] {
            assert_eq!(parse(&list(bad)), None, "{bad:?}");
        }
        assert_eq!(parse(&list(&trivial)[..20]), None);
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[1, 0, 0, 0]), None);
    }

    #[test]
    fn the_mask_is_what_the_group_bits_are() {
        assert_eq!(bits(&parse(&with_user(7, 7, 5, 6, 1)).unwrap()), 0o761);
        assert_eq!(chmod(&with_user(7, 7, 5, 6, 1), 0o640), with_user(6, 7, 5, 4, 0));
        let trivial = [(USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHER, 5, NONE)];
        let after = [(USER_OBJ, 6, NONE), (GROUP_OBJ, 4, NONE), (OTHER, 0, NONE)];
        assert_eq!(chmod(&list(&trivial), 0o640), list(&after));
    }

    #[test]
    fn what_is_inherited_is_no_more_than_was_asked_for() {
        let handed = with_user(7, 7, 5, 7, 5);
        let (mode, own) = inherit(&handed, 0o100_666).unwrap();
        assert_eq!((mode, own.unwrap()), (0o100_664, with_user(6, 7, 5, 6, 4)));
        let trivial = list(&[(USER_OBJ, 7, NONE), (GROUP_OBJ, 0, NONE), (OTHER, 0, NONE)]);
        assert_eq!(inherit(&trivial, 0o777), Some((0o700, None)));
        assert_eq!(inherit(b"rubbish", 0o777), None);
    }
}
