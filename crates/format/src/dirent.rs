//! Directory entries: the value that a directory's ZAP has for a name.
//!
//! "." and ".." are not stored. FORMAT: section 11.7.

use crate::blkptr::{bits, with_bits};

/// Longest name in a directory, in bytes.
pub const NAME_MAX: usize = 255;
/// Object numbers have this many bits.
pub const OBJECT_BITS: u32 = 48;

/// Type of a file, as in the upper four bits of `st_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FileType {
    /// A named pipe.
    Fifo = 1,
    /// A character device.
    Char = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    Block = 6,
    /// A file.
    File = 8,
    /// A symbolic link.
    Link = 10,
    /// A socket.
    Socket = 12,
}

impl FileType {
    /// All types.
    pub const ALL: [FileType; 7] = [
        Self::Fifo,
        Self::Char,
        Self::Directory,
        Self::Block,
        Self::File,
        Self::Link,
        Self::Socket,
    ];

    /// From the number in directory entries.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|t| *t as u8 == id)
    }

    /// From `st_mode`.
    pub fn from_mode(mode: u64) -> Option<Self> {
        Self::from_id(bits(mode, 12, 4) as u8)
    }

    /// The bits in `st_mode`.
    pub fn mode_bits(self) -> u64 {
        (self as u64) << 12
    }
}

/// The value of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// Type of the object; `None`: not given, or not a known one.
    pub kind: Option<FileType>,
    /// Object in the same file system.
    pub object: u64,
}

impl Dirent {
    /// From the value in the ZAP.
    pub fn decode(value: u64) -> Self {
        let kind = FileType::from_id(bits(value, 60, 4) as u8);
        Dirent { kind, object: bits(value, 0, OBJECT_BITS) }
    }

    /// The value in the ZAP; bits of the object number beyond [`OBJECT_BITS`] are dropped.
    pub fn encode(&self) -> u64 {
        let value = with_bits(0, 0, OBJECT_BITS, self.object);
        with_bits(value, 60, 4, self.kind.map_or(0, |k| k as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        for kind in FileType::ALL {
            let entry = Dirent { kind: Some(kind), object: (1 << 48) - 2 };
            assert_eq!(Dirent::decode(entry.encode()), entry);
            assert_eq!(FileType::from_mode(kind.mode_bits() | 0o7777), Some(kind));
        }
        // As zdb shows it: "t = 2 (type: Regular File)".
        assert_eq!(
            Dirent { kind: Some(FileType::File), object: 2 }.encode(),
            0x8000_0000_0000_0002
        );
        assert_eq!(Dirent::decode(0xf000_0000_0000_0007), Dirent { kind: None, object: 7 });
    }
}
