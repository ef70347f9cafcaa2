//! Object sets (`objset_phys_t`): the root of a data set or of the MOS.
//!
//! Three sizes exist, by age: 1024, 2048 and 4096 bytes; we write 4096. FORMAT: section 5.1.

use crate::{BlkPtr, DnodePhys, FormatError, ObjectType, Result};

/// Size of an object set that we write, in bytes.
pub const OBJSET_SIZE: usize = 4096;
/// Offset of the intent log header.
pub const ZIL_HEADER_AT: usize = 512;
/// Size of the intent log header.
pub const ZIL_HEADER_SIZE: usize = 192;

/// Object number of the dnode that accounts users.
pub const USERUSED_OBJECT: u64 = u64::MAX;
/// Object number of the dnode that accounts groups.
pub const GROUPUSED_OBJECT: u64 = u64::MAX - 1;
/// Object number of the dnode that accounts projects.
pub const PROJECTUSED_OBJECT: u64 = u64::MAX - 2;

/// What an object set holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ObjsetType {
    None,
    Meta,
    Zfs,
    Zvol,
    Other(u64),
}

impl ObjsetType {
    /// From the number on disk.
    pub fn from_id(id: u64) -> Self {
        match id {
            0 => Self::None,
            1 => Self::Meta,
            2 => Self::Zfs,
            3 => Self::Zvol,
            other => Self::Other(other),
        }
    }

    /// The number on disk.
    pub fn id(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Meta => 1,
            Self::Zfs => 2,
            Self::Zvol => 3,
            Self::Other(id) => id,
        }
    }
}

/// Bits of [`ObjsetPhys::flags`].
pub struct ObjsetFlags;

impl ObjsetFlags {
    /// User accounting is complete.
    pub const USERACCOUNTING_COMPLETE: u64 = 1;
    /// Object accounting is complete.
    pub const USEROBJACCOUNTING_COMPLETE: u64 = 2;
    /// Project accounting is complete.
    pub const PROJECTQUOTA_COMPLETE: u64 = 4;
}

/// An object set in memory.
#[derive(Clone, Debug)]
pub struct ObjsetPhys {
    /// The dnode whose data are all other dnodes.
    pub meta: DnodePhys,
    /// Header of the intent log, raw.
    pub zil_header: [u8; ZIL_HEADER_SIZE],
    /// What it holds.
    pub kind: ObjsetType,
    /// [`ObjsetFlags`].
    pub flags: u64,
    /// Message authentication codes (portable, local) of encrypted data sets.
    pub macs: [u8; 64],
    /// Accounting dnodes: user, group, project; `None` until first used.
    pub accounting: [Option<DnodePhys>; 3],
}

/// Offsets of the accounting dnodes.
const ACCOUNTING_AT: [usize; 3] = [1024, 1536, 2048];

impl ObjsetPhys {
    /// A new object set without objects, whose meta dnode has `levels` levels.
    pub fn new(kind: ObjsetType, levels: u8) -> Self {
        let mut meta = DnodePhys::new(ObjectType::DNODE, 16 << 10, ObjectType::NONE, 0, 1);
        meta.core_mut().levels = levels;
        ObjsetPhys {
            meta,
            zil_header: [0; ZIL_HEADER_SIZE],
            kind,
            flags: 0,
            macs: [0; 64],
            accounting: [None, None, None],
        }
    }

    /// Parses an object set of 1024, 2048 or 4096 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        const WHAT: &str = "objset";
        if !matches!(bytes.len(), 1024 | 2048 | 4096) {
            let seen = bytes.len() as u64;
            let expected = "1024, 2048 or 4096";
            return Err(FormatError::Field { what: WHAT, field: "size", seen, expected });
        }
        let part = |at: usize, len: usize| bytes.get(at..at + len).unwrap_or_default();
        let word = |at: usize| part(at, 8).first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        let meta = DnodePhys::parse(part(0, 512))?;
        let meta = meta.filter(|m| m.kind() == ObjectType::DNODE && m.slots() == 1);
        let meta = meta.ok_or(FormatError::Field {
            what: WHAT,
            field: "meta dnode's type",
            seen: bytes.first().copied().unwrap_or(0).into(),
            expected: "10 in one slot",
        })?;
        let mut accounting = [None, None, None];
        for (to, at) in accounting.iter_mut().zip(ACCOUNTING_AT) {
            if at + 512 <= bytes.len() {
                *to = DnodePhys::parse(part(at, 512))?;
            }
        }
        let mut zil_header = [0; ZIL_HEADER_SIZE];
        zil_header.copy_from_slice(part(ZIL_HEADER_AT, ZIL_HEADER_SIZE));
        let mut macs = [0; 64];
        macs.copy_from_slice(part(720, 64));
        Ok(ObjsetPhys {
            meta,
            zil_header,
            kind: ObjsetType::from_id(word(704)),
            flags: word(712),
            macs,
            accounting,
        })
    }

    /// The bytes of the object set, always 4096.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; OBJSET_SIZE];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(to) = out.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
        };
        let mut slot = [0; 512];
        self.meta.store(&mut slot);
        put(0, &slot);
        put(ZIL_HEADER_AT, &self.zil_header);
        put(704, &self.kind.id().to_le_bytes());
        put(712, &self.flags.to_le_bytes());
        put(720, &self.macs);
        for (dnode, at) in self.accounting.iter().zip(ACCOUNTING_AT) {
            if let Some(dnode) = dnode {
                dnode.store(&mut slot);
                put(at, &slot);
            }
        }
        out
    }

    /// Fill of the pointer to this object set: the number of its objects.
    pub fn fill(&self) -> u64 {
        self.meta.blkptrs().iter().map(BlkPtr::fill).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_bytes_and_parse_are_inverse() {
        let mut os = ObjsetPhys::new(ObjsetType::Zfs, 6);
        os.flags = 7;
        os.accounting[1] =
            Some(DnodePhys::new(ObjectType::USERGROUP_USED, 512, ObjectType::NONE, 0, 1));
        let again = ObjsetPhys::parse(&os.to_bytes()).unwrap();
        assert_eq!(again.to_bytes(), os.to_bytes());
        assert_eq!(again.kind, ObjsetType::Zfs);
        assert!(ObjsetPhys::parse(&[0; 512]).is_err());
        assert!(ObjsetPhys::parse(&[0; 4096]).is_err());
    }
}
