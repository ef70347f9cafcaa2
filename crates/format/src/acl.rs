//! Access control lists: entries (ACEs) in the style of NFSv4, and the ones that only say a mode.
//!
//! Every object has an ACL, even where POSIX permissions rule: it is *trivial* then, three to six
//! entries that follow from the mode. FORMAT: section 11.5.

use crate::dirent::FileType;
use crate::reader::Reader;
use crate::{FormatError, Result};

/// An entry that allows.
pub const ALLOW: u16 = 0;
/// An entry that denies.
pub const DENY: u16 = 1;

/// Bits of [`Ace::flags`].
pub struct AceFlags;

impl AceFlags {
    /// Only for what is made below.
    pub const INHERIT_ONLY: u16 = 0x8;
    /// The id is a group's.
    pub const IDENTIFIER_GROUP: u16 = 0x40;
    /// The owner.
    pub const OWNER: u16 = 0x1000;
    /// The owning group, together with [`Self::IDENTIFIER_GROUP`].
    pub const GROUP: u16 = 0x2000 | Self::IDENTIFIER_GROUP;
    /// Everyone.
    pub const EVERYONE: u16 = 0x4000;
    /// The bits that say whom an entry is for.
    pub const WHO: u16 = Self::OWNER | Self::GROUP | Self::EVERYONE;
}

/// Bits of [`Ace::mask`].
pub struct AceMask;

impl AceMask {
    /// Read.
    pub const READ: u32 = 0x1;
    /// Write data, append data.
    pub const WRITE: u32 = 0x2 | 0x4;
    /// Delete children of a directory.
    pub const DELETE_CHILD: u32 = 0x40;
    /// Execute or search.
    pub const EXECUTE: u32 = 0x20;
    /// What every class may: read ACL, attributes and named attributes; synchronize.
    pub const EVERYONE: u32 = 0x2_0000 | 0x80 | 0x8 | 0x10_0000;
    /// What the owner may: also write ACL, owner, attributes and named attributes.
    pub const OWNER: u32 = Self::EVERYONE | 0x4_0000 | 0x8_0000 | 0x100 | 0x10;
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ace {
    /// [`ALLOW`], [`DENY`], or a kind that Linux does not know.
    pub kind: u16,
    /// [`AceFlags`].
    pub flags: u16,
    /// [`AceMask`].
    pub mask: u32,
    /// User or group; `None` of owner, group and everyone, which need none.
    pub fuid: Option<u64>,
    /// Two object types of object entries (kinds 5 to 8), which only Windows makes.
    pub objects: Option<[u8; 32]>,
}

impl Ace {
    fn class(kind: u16, flags: u16, mask: u32) -> Self {
        Ace { kind, flags, mask, fuid: None, objects: None }
    }

    /// Is it for the owner, the owning group or everyone?
    fn is_class(kind: u16, flags: u16) -> bool {
        let who = flags & AceFlags::WHO;
        matches!(kind, ALLOW | DENY)
            && matches!(who, AceFlags::OWNER | AceFlags::GROUP | AceFlags::EVERYONE)
    }

    /// Does it have object types?
    fn has_objects(kind: u16) -> bool {
        (5..=8).contains(&kind)
    }

    /// Bytes of an entry of this kind and these flags.
    pub(crate) fn size(kind: u16, flags: u16) -> usize {
        match kind {
            _ if Self::is_class(kind, flags) => 8,
            _ if Self::has_objects(kind) => 48,
            _ => 16,
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let kind = u16::from_le_bytes(reader.array("type")?);
        let flags = u16::from_le_bytes(reader.array("flags")?);
        let mask = u32::from_le_bytes(reader.array("mask")?);
        let mut ace = Ace::class(kind, flags, mask);
        if !Self::is_class(kind, flags) {
            ace.fuid = Some(u64::from_le_bytes(reader.array("who")?));
            if Self::has_objects(kind) {
                ace.objects = Some(reader.array("object types")?);
            }
        }
        Ok(ace)
    }
}

/// Parses the value of the attribute `DACL_ACES`: `count` entries.
pub fn decode(bytes: &[u8], count: u64) -> Result<Vec<Ace>> {
    let mut reader = Reader::new("ACL", bytes);
    if count > bytes.len() as u64 / 8 {
        return Err(reader.bounds("count"));
    }
    (0..count).map(|_| Ace::decode(&mut reader)).collect()
}

/// How many entries there are in the value of the attribute `DACL_ACES`.
pub fn count(bytes: &[u8]) -> Result<u64> {
    let mut reader = Reader::new("ACL", bytes);
    let mut count = 0;
    while reader.left() > 0 {
        Ace::decode(&mut reader)?;
        count += 1;
    }
    Ok(count)
}

/// The value of the attribute `DACL_ACES`.
///
/// An entry must have an id and object types exactly if its kind and flags say so.
pub fn encode(aces: &[Ace]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(aces.len() * 16);
    for (index, ace) in aces.iter().enumerate() {
        let needs_id = !Ace::is_class(ace.kind, ace.flags);
        let needs_objects = Ace::has_objects(ace.kind);
        if ace.fuid.is_some() != needs_id || ace.objects.is_some() != needs_objects {
            let (what, field) = ("ACL", "whom an entry is for");
            return Err(FormatError::Bounds { what, field, at: index as u64 });
        }
        out.extend_from_slice(&ace.kind.to_le_bytes());
        out.extend_from_slice(&ace.flags.to_le_bytes());
        out.extend_from_slice(&ace.mask.to_le_bytes());
        out.extend(ace.fuid.into_iter().flat_map(u64::to_le_bytes));
        out.extend(ace.objects.into_iter().flatten());
    }
    Ok(out)
}

/// The entries of a new object that say just what its mode says.
pub fn trivial_new(mode: u64) -> Vec<Ace> {
    // OpenZFS lets writers of all new objects delete children, though only directories have any.
    trivial(mode, AceMask::WRITE | AceMask::DELETE_CHILD)
}

/// The entries that say just what `mode` says after it was changed.
pub fn trivial_changed(mode: u64) -> Vec<Ace> {
    let is_directory = FileType::from_mode(mode) == Some(FileType::Directory);
    trivial(mode, AceMask::WRITE | if is_directory { AceMask::DELETE_CHILD } else { 0 })
}

/// Deny entries come first, where a class lacks what a lower one has, since entries of lower
/// classes would allow it; the owner gets an allow entry before the deny entry of its group.
fn trivial(mode: u64, write: u32) -> Vec<Ace> {
    let class = |shift: u32| {
        let bit = |bit: u64, mask: u32| if mode >> shift & bit != 0 { mask } else { 0 };
        bit(4, AceMask::READ) | bit(2, write) | bit(1, AceMask::EXECUTE)
    };
    let (owner, group, other) = (class(6), class(3), class(0));
    let early = [
        Ace::class(ALLOW, AceFlags::OWNER, owner & !group & other),
        Ace::class(DENY, AceFlags::OWNER, !owner & (group | other)),
        Ace::class(DENY, AceFlags::GROUP, !group & other),
    ];
    let mut aces: Vec<Ace> = early.into_iter().filter(|ace| ace.mask != 0).collect();
    aces.extend([
        Ace::class(ALLOW, AceFlags::OWNER, AceMask::OWNER | owner),
        Ace::class(ALLOW, AceFlags::GROUP, AceMask::EVERYONE | group),
        Ace::class(ALLOW, AceFlags::EVERYONE, AceMask::EVERYONE | other),
    ]);
    aces
}

/// What an ACL means for a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The nine permission bits.
    pub permissions: u64,
    /// Nobody is denied execution: flag [`NO_EXECS_DENIED`](crate::znode::Pflags::NO_EXECS_DENIED).
    pub no_execs_denied: bool,
}

/// The permission bits that follow from entries, for an object of `uid` and `gid`.
///
/// For each class and bit the first entry that speaks of it decides.
pub fn meaning(aces: &[Ace], uid: u64, gid: u64) -> Meaning {
    let (mut seen, mut permissions, mut denied) = (0u64, 0u64, false);
    for ace in aces {
        if ace.flags & AceFlags::INHERIT_ONLY != 0 || !matches!(ace.kind, ALLOW | DENY) {
            continue;
        }
        let who = ace.flags & AceFlags::WHO;
        let is_group_id = who == AceFlags::IDENTIFIER_GROUP;
        let classes = match who {
            AceFlags::OWNER => 0o100,
            AceFlags::GROUP => 0o010,
            AceFlags::EVERYONE => 0o111,
            0 if ace.fuid == Some(uid) => 0o100,
            _ if is_group_id && ace.fuid == Some(gid) => 0o010,
            // Others do not change the mode, but may deny execution.
            _ => {
                denied |= ace.kind == DENY && ace.mask & AceMask::EXECUTE != 0;
                continue;
            }
        };
        for (bit, mask) in [(4, AceMask::READ), (2, 0x2), (1, AceMask::EXECUTE)] {
            if ace.mask & mask != 0 {
                let fresh = (classes * bit) & !seen;
                seen |= fresh;
                permissions |= if ace.kind == ALLOW { fresh } else { 0 };
            }
        }
    }
    // What nobody speaks of is denied.
    Meaning { permissions, no_execs_denied: !denied && permissions & 0o111 == 0o111 }
}

/// The ACL of an old znode (`zfs_acl_phys_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldAcl {
    /// Object that has the entries; 0: they are here.
    pub object: u64,
    /// Bytes of all entries.
    pub size: u32,
    /// Number of entries.
    pub count: u16,
    /// Form of the entries: 0 fixed entries of 12 bytes, 1 as in [`decode`].
    pub version: u16,
    /// The entries, if they are here.
    pub aces: Vec<Ace>,
}

/// Bytes of [`OldAcl`].
pub const OLD_ACL_SIZE: usize = 88;
/// Bytes of entries that fit into [`OldAcl`].
pub const OLD_ACL_ROOM: usize = 72;
/// Bytes of an entry of the first form.
pub(crate) const OLD_ACE: usize = 12;

impl OldAcl {
    /// Parses the last 88 bytes of an old znode.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new("old ACL", bytes);
        let object = u64::from_le_bytes(reader.array("object")?);
        let size = u32::from_le_bytes(reader.array("size")?);
        let version = u16::from_le_bytes(reader.array("version")?);
        let count = u16::from_le_bytes(reader.array("count")?);
        let room = reader.take(OLD_ACL_ROOM, "entries")?;
        // The first form has the count where the size is, and no size.
        let (count, size) = match version {
            0 => (size.min(u16::MAX.into()) as u16, size.saturating_mul(OLD_ACE as u32)),
            1 => (count, size),
            _ => return Err(reader.bounds("version")),
        };
        let aces = match version {
            _ if object != 0 => Vec::new(),
            0 => Self::decode_fixed(room, count)?,
            _ => {
                let bytes = room.get(..size as usize).ok_or_else(|| reader.bounds("size"))?;
                decode(bytes, count.into())?
            }
        };
        Ok(OldAcl { object, size, count, version, aces })
    }

    /// Parses `count` entries of the first form, from a znode or an object of type `OLDACL`.
    pub fn decode_fixed(bytes: &[u8], count: u16) -> Result<Vec<Ace>> {
        let mut reader = Reader::new("old ACL", bytes);
        let mut aces = Vec::new();
        for _ in 0..count {
            let fuid = u32::from_le_bytes(reader.array("who")?);
            let mask = u32::from_le_bytes(reader.array("mask")?);
            let flags = u16::from_le_bytes(reader.array("flags")?);
            let kind = u16::from_le_bytes(reader.array("type")?);
            let fuid = (!Ace::is_class(kind, flags)).then_some(fuid.into());
            aces.push(Ace { kind, flags, mask, fuid, objects: None });
        }
        Ok(aces)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ordinary_modes_have_three_entries() {
        // Bytes that OpenZFS wrote for a directory of mode 0755.
        let bytes = encode(&trivial_new(0o40755)).unwrap();
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "00000010ff011e0000004020a900120000000040a9001200");
    }

    #[test]
    fn a_class_that_lacks_what_lower_ones_have_is_denied_first() {
        let entries = |mode| {
            let aces = trivial_new(mode);
            aces.iter().map(|a| (a.kind, a.flags, a.mask & 0x67)).collect::<Vec<_>>()
        };
        assert_eq!(
            entries(0o604),
            [
                (ALLOW, AceFlags::OWNER, 1),
                (DENY, AceFlags::GROUP, 1),
                (ALLOW, AceFlags::OWNER, 0x47),
                (ALLOW, AceFlags::GROUP, 0),
                (ALLOW, AceFlags::EVERYONE, 1),
            ]
        );
        assert_eq!(entries(0o077)[0], (DENY, AceFlags::OWNER, 0x67));
        assert_eq!(trivial_changed(0o100600)[0].mask & 0x67, 0x7);
        assert_eq!(trivial_changed(0o40600)[0].mask & 0x67, 0x47);
    }

    #[test]
    fn entries_for_others_and_objects_come_back() {
        let mut user = Ace::class(ALLOW, 0, 1);
        user.fuid = Some(1000);
        let mut object = user.clone();
        object.kind = 5;
        object.objects = Some([7; 32]);
        let mut group = user.clone();
        group.flags = AceFlags::IDENTIFIER_GROUP;
        let mut audit = user.clone();
        (audit.kind, audit.flags) = (2, AceFlags::EVERYONE);
        let aces = [user.clone(), object, group, audit];
        let bytes = encode(&aces).unwrap();
        assert_eq!(bytes.len(), 16 + 48 + 16 + 16);
        assert_eq!(decode(&bytes, 4).unwrap(), aces);
        assert_eq!((count(&bytes), count(&[])), (Ok(4), Ok(0)));
        assert!(count(&bytes[..bytes.len() - 8]).is_err());
        assert!(decode(&bytes, 5).is_err());
        assert!(decode(&bytes, u64::MAX).is_err());
        user.fuid = None;
        assert!(encode(&[user]).is_err());
    }

    #[test]
    fn denials_of_others_count_for_execution_only() {
        let mut aces = trivial_new(0o755);
        let all = Meaning { permissions: 0o755, no_execs_denied: true };
        assert_eq!(meaning(&aces, 1, 2), all);
        let mut deny = Ace::class(DENY, 0, AceMask::EXECUTE);
        deny.fuid = Some(77);
        aces.insert(0, deny);
        assert_eq!(meaning(&aces, 1, 2), Meaning { no_execs_denied: false, ..all });
        assert_eq!(meaning(&aces, 77, 2).permissions, 0o655);
        aces[0].flags = AceFlags::INHERIT_ONLY;
        assert_eq!(meaning(&aces, 77, 2), all);
    }

    proptest! {
        #[test]
        fn trivial_entries_mean_their_mode(mode in 0u64..0o1000) {
            for aces in [trivial_new(mode), trivial_changed(mode)] {
                let exec = mode & 0o111 == 0o111;
                let wanted = Meaning { permissions: mode, no_execs_denied: exec };
                prop_assert_eq!(meaning(&aces, 5, 6), wanted);
                let bytes = encode(&aces).unwrap();
                prop_assert_eq!(bytes.len(), aces.len() * 8);
                prop_assert_eq!(decode(&bytes, aces.len() as u64).unwrap(), aces);
            }
        }

        #[test]
        fn noise_is_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100), count: u16) {
            if let Ok(aces) = decode(&bytes, count.into()) {
                prop_assert_eq!(encode(&aces).unwrap(), &bytes[..encode(&aces).unwrap().len()]);
            }
            let _ = OldAcl::parse(&bytes);
            let _ = OldAcl::decode_fixed(&bytes, count);
        }
    }
}
