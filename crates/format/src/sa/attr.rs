//! The standard attributes: names, lengths, and how their bytes are swapped.

/// How the bytes of an attribute that another byte order wrote are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AttrSwap {
    /// Words of 64 bits.
    U64 = 0,
    /// Words of 32 bits.
    U32 = 1,
    /// Words of 16 bits.
    U16 = 2,
    /// Bytes: nothing to swap.
    U8 = 3,
    /// Entries of an ACL.
    Acl = 4,
}

impl AttrSwap {
    /// From the number on disk.
    pub fn from_id(id: u64) -> Option<Self> {
        [Self::U64, Self::U32, Self::U16, Self::U8, Self::Acl]
            .into_iter()
            .find(|s| u64::from(*s as u8) == id)
    }
}

macro_rules! attrs {
    ($($(#[$doc:meta])* $variant:ident = $number:expr, $name:expr, $length:expr, $swap:ident;)*) => {
        /// An attribute of a file system object; the value is its number in a new file system.
        ///
        /// Other file systems may number them otherwise: see [`Registry`](super::Registry).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Attr {
            $($(#[$doc])* $variant = $number,)*
        }

        impl Attr {
            /// All of them, in the order of their numbers.
            pub const ALL: [Attr; 22] = [$(Self::$variant),*];

            /// Name in the registry.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Length in bytes, 0 if it varies.
            pub fn length(self) -> u16 {
                match self { $(Self::$variant => $length),* }
            }

            /// How its bytes are swapped.
            pub fn swap(self) -> AttrSwap {
                match self { $(Self::$variant => AttrSwap::$swap),* }
            }
        }
    };
}

attrs! {
    /// Last access.
    Atime = 0, "ZPL_ATIME", 16, U64;
    /// Last change of the contents.
    Mtime = 1, "ZPL_MTIME", 16, U64;
    /// Last change of contents or attributes.
    Ctime = 2, "ZPL_CTIME", 16, U64;
    /// Creation.
    Crtime = 3, "ZPL_CRTIME", 16, U64;
    /// The txg of creation.
    Gen = 4, "ZPL_GEN", 8, U64;
    /// Type and permissions, as in `st_mode`.
    Mode = 5, "ZPL_MODE", 8, U64;
    /// Bytes of a file or link target, entries + 2 of a directory.
    Size = 6, "ZPL_SIZE", 8, U64;
    /// Directory that the object was last linked into.
    Parent = 7, "ZPL_PARENT", 8, U64;
    /// Number of names (of a directory: 2 + subdirectories).
    Links = 8, "ZPL_LINKS", 8, U64;
    /// Directory of extended attributes.
    Xattr = 9, "ZPL_XATTR", 8, U64;
    /// Device number of a device.
    Rdev = 10, "ZPL_RDEV", 8, U64;
    /// Flags, see [`Pflags`](crate::znode::Pflags).
    Flags = 11, "ZPL_FLAGS", 8, U64;
    /// Owner.
    Uid = 12, "ZPL_UID", 8, U64;
    /// Owning group.
    Gid = 13, "ZPL_GID", 8, U64;
    /// Unused words of old znodes.
    Pad = 14, "ZPL_PAD", 32, U64;
    /// ACL of old znodes.
    ZnodeAcl = 15, "ZPL_ZNODE_ACL", 88, U8;
    /// Number of entries in [`Attr::DaclAces`].
    DaclCount = 16, "ZPL_DACL_COUNT", 8, U64;
    /// Target of a symbolic link.
    Symlink = 17, "ZPL_SYMLINK", 0, U8;
    /// Stamp of a virus scanner.
    Scanstamp = 18, "ZPL_SCANSTAMP", 32, U8;
    /// Entries of the ACL.
    DaclAces = 19, "ZPL_DACL_ACES", 0, Acl;
    /// Extended attributes as a packed nvlist.
    Dxattr = 20, "ZPL_DXATTR", 0, U8;
    /// Project.
    Projid = 21, "ZPL_PROJID", 8, U64;
}

impl Attr {
    /// Number in a new file system.
    pub fn number(self) -> u16 {
        self as u16
    }
}
