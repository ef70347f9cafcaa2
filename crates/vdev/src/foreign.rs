//! What else a device may hold: file systems, volume managers and tables that `create` must not
//! overwrite unasked.
//!
//! The one idea: a table of magic bytes at known places. It need not know every file system; it
//! must never take noise or zeros for one.

use device::{Device, Result};

/// Magic bytes of something that is not ours.
struct Signature {
    /// What it is, as people call it.
    name: &'static str,
    /// Where the bytes are.
    at: At,
    /// The bytes.
    magic: &'static [u8],
}

/// A place on a device.
#[derive(Clone, Copy)]
enum At {
    /// Bytes from the start.
    Start(u64),
    /// The superblock of md 1.0: at least 8 KiB before the end, at a multiple of 4 KiB.
    MdEnd,
    /// The superblock of md 0.90: 64 KiB to 128 KiB before the end, at a multiple of 64 KiB.
    MdOldEnd,
}

const fn start(name: &'static str, at: u64, magic: &'static [u8]) -> Signature {
    Signature { name, at: At::Start(at), magic }
}

/// The magic number of md, little-endian.
const MD: &[u8] = &0xa92b_4efc_u32.to_le_bytes();

/// Ordered so that what contains others comes after them.
static SIGNATURES: &[Signature] = &[
    start("xfs", 0, b"XFSB"),
    start("LUKS", 0, b"LUKS\xba\xbe"),
    start("squashfs", 0, b"hsqs"),
    start("btrfs", 0x1_0040, b"_BHRfS_M"),
    start("reiserfs", 0x1_0034, b"ReIsEr"),
    start("jfs", 0x8000, b"JFS1"),
    start("iso9660", 0x8001, b"CD001"),
    start("f2fs", 0x400, &0xf2f5_2010_u32.to_le_bytes()),
    start("bcachefs or bcache", 0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    start("swap", 0xff6, b"SWAPSPACE2"),
    start("swap", 0xff6, b"SWAP-SPACE"),
    start("swap", 0xfff6, b"SWAPSPACE2"),
    start("lvm", 0x000, b"LABELONE"),
    start("lvm", 0x200, b"LABELONE"),
    start("lvm", 0x400, b"LABELONE"),
    start("lvm", 0x600, b"LABELONE"),
    start("mdraid", 0, MD),
    start("mdraid", 0x1000, MD),
    Signature { name: "mdraid", at: At::MdEnd, magic: MD },
    Signature { name: "mdraid", at: At::MdOldEnd, magic: MD },
    start("ntfs", 3, b"NTFS    "),
    start("exfat", 3, b"EXFAT   "),
    start("vfat", 82, b"FAT32   "),
    start("vfat", 54, b"FAT1"),
    start("GPT partition table", 0x200, b"EFI PART"),
    start("GPT partition table", 0x1000, b"EFI PART"),
];

impl At {
    fn offset(self, size: u64) -> Option<u64> {
        match self {
            At::Start(offset) => Some(offset),
            At::MdEnd => size.checked_sub(8 << 10).map(|at| at & !4095),
            At::MdOldEnd => (size & !0xffff).checked_sub(64 << 10),
        }
    }
}

/// What the device holds that is not a pool, if it is in the table.
pub fn holds(device: &dyn Device) -> Result<Option<&'static str>> {
    // One read serves all places near the start.
    let mut head = vec![0; (128 << 10).min(device.size() as usize)];
    device.read_at(0, &mut head)?;
    for signature in SIGNATURES {
        let Some(offset) = signature.at.offset(device.size()) else { continue };
        let end = offset.saturating_add(signature.magic.len() as u64);
        if end > device.size() {
            continue;
        }
        let is_there = match head.get(offset as usize..end as usize) {
            Some(bytes) => bytes == signature.magic,
            None => {
                let mut bytes = vec![0; signature.magic.len()];
                device.read_at(offset, &mut bytes)?;
                bytes == signature.magic
            }
        };
        if is_there {
            return Ok(Some(signature.name));
        }
    }
    if is_ext(&head) {
        return Ok(Some("ext2, ext3 or ext4"));
    }
    Ok(is_mbr(&head).then_some("MBR partition table"))
}

/// The magic of the ext family is but two bytes: the sizes beside it must make sense, too.
fn is_ext(head: &[u8]) -> bool {
    let Some(superblock) = head.get(1024..2048) else { return false };
    let word = |at: usize| superblock[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
    let (inodes, blocks, block_shift) = (word(0), word(4), word(24));
    superblock[56..58] == [0x53, 0xef] && inodes > 0 && blocks > 0 && block_shift <= 6
}

/// A boot sector's end mark alone says little: a partition must be there, and sane flags.
fn is_mbr(head: &[u8]) -> bool {
    let Some(sector) = head.get(..512) else { return false };
    let entries = sector[446..510].chunks_exact(16);
    let sane = entries.clone().all(|entry| entry[0] & 0x7f == 0);
    sector[510..] == [0x55, 0xaa] && sane && entries.into_iter().any(|entry| entry[4] != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::sim::SimDisk;

    #[test]
    fn zeros_and_noise_are_nothing() {
        for size in [0, 100, 1 << 20] {
            assert_eq!(holds(&SimDisk::new(size)).unwrap(), None);
        }
        let mut rng = rt::Rng::new(7);
        let mut noise = vec![0; 200 << 10];
        for _ in 0..50 {
            rng.fill(&mut noise);
            let disk = SimDisk::new(noise.len() as u64);
            disk.overwrite(0, &noise);
            assert_eq!(holds(&disk).unwrap(), None);
        }
    }

    #[test]
    fn every_signature_is_seen() {
        let with = |pieces: &[(u64, &[u8])]| {
            let disk = SimDisk::new((1 << 20) + 777);
            pieces.iter().for_each(|(at, bytes)| disk.overwrite(*at, bytes));
            holds(&disk).unwrap()
        };
        for signature in SIGNATURES {
            let at = signature.at.offset((1 << 20) + 777).unwrap();
            assert_eq!(with(&[(at, signature.magic)]), Some(signature.name));
        }
        let ext = with(&[(1024, &[16, 0, 0, 0, 64, 0, 0, 0]), (1080, &[0x53, 0xef])]);
        assert_eq!(ext, Some("ext2, ext3 or ext4"));
        let mbr = with(&[(446 + 4, &[0x83]), (510, &[0x55, 0xaa])]);
        assert_eq!(mbr, Some("MBR partition table"));
        assert_eq!(with(&[(510, &[0x55, 0xaa])]), None, "no partition");
    }

    /// The referee: what the system's own tools write.
    #[test]
    fn file_systems_made_by_their_own_tools_are_seen() {
        let dir = testkit::temp_dir();
        let makers: &[(&str, &[&str], &str)] =
            &[("mkfs.ext4", &["-q", "-F"], "ext2, ext3 or ext4"), ("mkswap", &["-q"], "swap")];
        for (tool, args, expected) in makers {
            let path = dir.path().join(tool);
            std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
            let ran = std::process::Command::new(tool).args(*args).arg(&path).output();
            let ran = ran.unwrap_or_else(|e| panic!("{tool} (Debian: e2fsprogs, util-linux): {e}"));
            assert!(ran.status.success(), "{tool}: {}", String::from_utf8_lossy(&ran.stderr));
            let disk = device::ReadFile::open(&path).unwrap();
            assert_eq!(holds(&disk).unwrap(), Some(*expected), "{tool}");
        }
    }
}
