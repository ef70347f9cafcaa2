//! Numbers that name object types, checksums and compressions on disk.
//!
//! Source of the numbers: OpenZFS 2.1 `dmu.h`, `zio.h`, `zio_compress.h`.

/// Type of an object or block (`dmu_object_type_t`), as stored in dnodes and block pointers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectType(pub u8);

macro_rules! object_types {
    ($($(#[$doc:meta])* $name:ident = $value:expr, $text:expr;)*) => {
        impl ObjectType {
            $($(#[$doc])* pub const $name: ObjectType = ObjectType($value);)*
        }
        /// Name as zdb prints it, for the types that have one.
        const NAMES: &[(u8, &str)] = &[$(($value, $text)),*];
    };
}

object_types! {
    /// No object: a free dnode slot.
    NONE = 0, "unallocated";
    /// The MOS object directory.
    OBJECT_DIRECTORY = 1, "object directory";
    /// An array of object numbers (metaslab array).
    OBJECT_ARRAY = 2, "object array";
    /// A packed XDR nvlist.
    PACKED_NVLIST = 3, "packed nvlist";
    /// Bonus: size of a packed nvlist.
    PACKED_NVLIST_SIZE = 4, "packed nvlist size";
    /// A list of block pointers.
    BPOBJ = 5, "bpobj";
    /// Bonus of a bpobj.
    BPOBJ_HDR = 6, "bpobj header";
    /// Bonus of a space map.
    SPACE_MAP_HEADER = 7, "SPA space map header";
    /// A space map.
    SPACE_MAP = 8, "SPA space map";
    /// An intent log block.
    INTENT_LOG = 9, "ZIL intent log";
    /// Blocks of dnodes.
    DNODE = 10, "DMU dnode";
    /// An object set.
    OBJSET = 11, "DMU objset";
    /// A DSL directory (bonus).
    DSL_DIR = 12, "DSL directory";
    /// Children of a DSL directory.
    DSL_DIR_CHILD_MAP = 13, "DSL directory child map";
    /// Snapshot names of a data set.
    DSL_DS_SNAP_MAP = 14, "DSL dataset snap map";
    /// Properties.
    DSL_PROPS = 15, "DSL props";
    /// A DSL data set (bonus).
    DSL_DATASET = 16, "DSL dataset";
    /// Old znode (bonus).
    ZNODE = 17, "ZFS znode";
    /// Old ACL.
    OLDACL = 18, "ZFS V0 ACL";
    /// Contents of a file.
    PLAIN_FILE_CONTENTS = 19, "ZFS plain file";
    /// Entries of a directory.
    DIRECTORY_CONTENTS = 20, "ZFS directory";
    /// Master node of a file system.
    MASTER_NODE = 21, "ZFS master node";
    /// Delete queue of a file system.
    UNLINKED_SET = 22, "ZFS delete queue";
    /// Contents of a volume.
    ZVOL = 23, "zvol object";
    /// Properties of a volume.
    ZVOL_PROP = 24, "zvol prop";
    /// Other bytes.
    PLAIN_OTHER = 25, "other uint8[]";
    /// Other words.
    UINT64_OTHER = 26, "other uint64[]";
    /// Other ZAP.
    ZAP_OTHER = 27, "other ZAP";
    /// Persistent error log.
    ERROR_LOG = 28, "persistent error log";
    /// Pool history.
    SPA_HISTORY = 29, "SPA history";
    /// Bonus of the pool history.
    SPA_HISTORY_OFFSETS = 30, "SPA history offsets";
    /// Pool properties.
    POOL_PROPS = 31, "Pool properties";
    /// Delegated permissions.
    DSL_PERMS = 32, "DSL permissions";
    /// ACL.
    ACL = 33, "ZFS ACL";
    /// System ACL.
    SYSACL = 34, "ZFS SYSACL";
    /// FUID table.
    FUID = 35, "FUID table";
    /// Bonus: size of the FUID table.
    FUID_SIZE = 36, "FUID table size";
    /// Clones of a snapshot.
    NEXT_CLONES = 37, "DSL dataset next clones";
    /// Work queue of a scan.
    SCAN_QUEUE = 38, "scan work queue";
    /// Space used by users, groups, projects.
    USERGROUP_USED = 39, "ZFS user/group/project used";
    /// Quotas of users, groups, projects.
    USERGROUP_QUOTA = 40, "ZFS user/group/project quota";
    /// Holds on a snapshot.
    USERREFS = 41, "snapshot refcount tags";
    /// Dedup table.
    DDT_ZAP = 42, "DDT ZAP algorithm";
    /// Dedup statistics.
    DDT_STATS = 43, "DDT statistics";
    /// System attributes (bonus and spill).
    SA = 44, "System attributes";
    /// Master node of system attributes.
    SA_MASTER_NODE = 45, "SA master node";
    /// Registry of system attributes.
    SA_ATTR_REGISTRATION = 46, "SA attr registration";
    /// Layouts of system attributes.
    SA_ATTR_LAYOUTS = 47, "SA attr layouts";
    /// Scan translations.
    SCAN_XLATE = 48, "scan translations";
    /// Deduplicated block (never on disk).
    DEDUP = 49, "deduplicated block";
    /// Deadlist.
    DEADLIST = 50, "DSL deadlist map";
    /// Bonus of a deadlist.
    DEADLIST_HDR = 51, "DSL deadlist map hdr";
    /// Clones of a DSL directory.
    DSL_CLONES = 52, "DSL dir clones";
    /// Sub-bpobjs of a bpobj.
    BPOBJ_SUBOBJ = 53, "bpobj subobj";
    /// New-style: metadata words.
    UINT64_METADATA = 0xc3, "uint64 metadata";
    /// New-style: metadata bytes.
    UINT8_METADATA = 0xc0, "uint8 metadata";
    /// New-style: metadata ZAP.
    ZAP_METADATA = 0xc4, "zap";
}

impl ObjectType {
    const NEW_STYLE: u8 = 0x80;
    const NEW_METADATA: u8 = 0x40;
    const NEW_ENCRYPTED: u8 = 0x20;
    const SWAP_MASK: u8 = 0x1f;

    /// Is this a type that this version of the format knows?
    pub fn is_known(self) -> bool {
        self.0 & Self::NEW_STYLE != 0 || self.0 <= Self::BPOBJ_SUBOBJ.0
    }

    /// Metadata gets lz4, a strong checksum and one more copy.
    pub fn is_metadata(self) -> bool {
        if self.0 & Self::NEW_STYLE != 0 {
            return self.0 & Self::NEW_METADATA != 0;
        }
        !matches!(
            self,
            Self::PLAIN_FILE_CONTENTS
                | Self::ZVOL
                | Self::PLAIN_OTHER
                | Self::UINT64_OTHER
                | Self::DEDUP
        )
    }

    /// Are level-0 blocks of this type encrypted in encrypted data sets?
    pub fn is_encrypted(self) -> bool {
        if self.0 & Self::NEW_STYLE != 0 {
            return self.0 & Self::NEW_ENCRYPTED != 0;
        }
        matches!(
            self.0,
            9 | 10 | 18 | 19 | 20 | 22 | 23 | 25 | 26 | 33 | 34 | 35 | 39 | 40 | 44..=47 | 49
        )
    }

    /// Is the content a ZAP? (The class by which a foreign byte order is swapped tells.)
    pub fn is_zap(self) -> bool {
        self.swap() == Swap::Zap
    }

    /// How a block of this type that another byte order wrote is swapped.
    pub fn swap(self) -> Swap {
        if self.0 & Self::NEW_STYLE != 0 {
            return match self.0 & Self::SWAP_MASK {
                1 => Swap::U16,
                2 => Swap::U32,
                3 => Swap::U64,
                4 => Swap::Zap,
                5 => Swap::Dnode,
                6 => Swap::Objset,
                7 => Swap::Znode,
                8 => Swap::OldAcl,
                9 => Swap::Acl,
                _ => Swap::U8,
            };
        }
        match self.0 {
            1 | 13..=15 | 20..=22 | 24 | 27 | 28 | 31 | 32 | 37..=43 | 45..=48 | 50 | 52 => {
                Swap::Zap
            }
            2 | 4..=9 | 12 | 16 | 26 | 30 | 36 | 51 | 53 => Swap::U64,
            10 => Swap::Dnode,
            11 => Swap::Objset,
            17 => Swap::Znode,
            18 => Swap::OldAcl,
            33 => Swap::Acl,
            _ => Swap::U8,
        }
    }

    /// Name as zdb prints it.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(v, _)| *v == self.0).map_or("unknown", |(_, n)| n)
    }
}

impl std::fmt::Debug for ObjectType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// How a block is swapped when it comes from the other byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Swap {
    U8,
    U16,
    U32,
    U64,
    Zap,
    Dnode,
    Objset,
    Znode,
    OldAcl,
    Acl,
}

/// Checksum of a block (`zio_checksum`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Checksum {
    Inherit = 0,
    On = 1,
    Off = 2,
    Label = 3,
    GangHeader = 4,
    Zilog = 5,
    Fletcher2 = 6,
    Fletcher4 = 7,
    Sha256 = 8,
    Zilog2 = 9,
    Noparity = 10,
    Sha512 = 11,
    Skein = 12,
    Edonr = 13,
}

impl Checksum {
    const ALL: [Checksum; 14] = [
        Self::Inherit,
        Self::On,
        Self::Off,
        Self::Label,
        Self::GangHeader,
        Self::Zilog,
        Self::Fletcher2,
        Self::Fletcher4,
        Self::Sha256,
        Self::Zilog2,
        Self::Noparity,
        Self::Sha512,
        Self::Skein,
        Self::Edonr,
    ];

    /// The checksum with this number.
    pub fn from_id(id: u8) -> Option<Checksum> {
        Self::ALL.get(usize::from(id)).copied()
    }

    /// The number on disk.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// Is the checksum kept inside the block instead of in the pointer to it?
    pub fn is_embedded(self) -> bool {
        matches!(self, Self::Label | Self::GangHeader | Self::Zilog | Self::Zilog2)
    }

    /// Strong enough for metadata.
    pub fn is_metadata_strong(self) -> bool {
        matches!(self, Self::Fletcher4 | Self::Sha256 | Self::Sha512 | Self::Skein | Self::Edonr)
    }
}

/// Compression of a block (`zio_compress`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Compress {
    Inherit,
    On,
    Off,
    Lzjb,
    Empty,
    /// Level 1 to 9.
    Gzip(u8),
    Zle,
    Lz4,
    Zstd,
}

impl Compress {
    /// The compression with this number.
    pub fn from_id(id: u8) -> Option<Compress> {
        Some(match id {
            0 => Self::Inherit,
            1 => Self::On,
            2 => Self::Off,
            3 => Self::Lzjb,
            4 => Self::Empty,
            5..=13 => Self::Gzip(id - 4),
            14 => Self::Zle,
            15 => Self::Lz4,
            16 => Self::Zstd,
            _ => return None,
        })
    }

    /// The number on disk.
    pub fn id(self) -> u8 {
        match self {
            Self::Inherit => 0,
            Self::On => 1,
            Self::Off => 2,
            Self::Lzjb => 3,
            Self::Empty => 4,
            Self::Gzip(level) => 4 + level,
            Self::Zle => 14,
            Self::Lz4 => 15,
            Self::Zstd => 16,
        }
    }
}
