//! Attributes in the words of FUSE, and back.

use std::time::{Duration, SystemTime};

use format::znode::{device_number, device_parts};
use fs::{Attrs, Time, mode};
use fuser::{FileAttr, FileType, INodeNo};

/// Who is shown where an owner has no number here: an id of Windows' domains.
const NOBODY: u32 = 65534;
/// Bytes of what the kernel calls a block.
const BLOCK: u64 = 512;

/// A time of the pool as one of the host.
pub(crate) fn host_time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.secs.unsigned_abs());
    let at = match time.secs < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(whole),
        false => SystemTime::UNIX_EPOCH.checked_add(whole),
    };
    let at = at.and_then(|at| at.checked_add(Duration::from_nanos(time.nanos.into())));
    at.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A time that the kernel has asked for, as one of the pool. Before 1970 it is not what it seems: of seconds that are
/// negative `fuser` takes the nanoseconds away that it should add.
pub(crate) fn asked_time(time: SystemTime) -> Time {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Time { secs: -(before.as_secs() as i64), nanos: before.subsec_nanos() }
        }
    }
}

/// The kind of an entry by the type bits of its mode.
pub(crate) fn file_type(kind: u32) -> FileType {
    match kind & mode::TYPE {
        mode::DIR => FileType::Directory,
        mode::SYMLINK => FileType::Symlink,
        mode::FIFO => FileType::NamedPipe,
        mode::SOCKET => FileType::Socket,
        mode::CHAR => FileType::CharDevice,
        mode::BLOCK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// A device number as FUSE packs it: 12 bits of major in 20 bits of minor.
fn packed(rdev: u64) -> u32 {
    let (major, minor) = device_parts(rdev);
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// A device number that FUSE has packed.
pub(crate) fn unpacked(rdev: u32) -> u64 {
    device_number(rdev >> 8 & 0xfff, (rdev & 0xff) | (rdev >> 12 & !0xff))
}

fn id(id: u64) -> u32 {
    u32::try_from(id).unwrap_or(NOBODY)
}

/// What the kernel is told of an object with this number, of `used` bytes on disk.
pub(crate) fn file_attr(number: u64, attrs: &Attrs, used: u64, record: u32) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: attrs.size,
        blocks: used.div_ceil(BLOCK),
        atime: host_time(attrs.atime),
        mtime: host_time(attrs.mtime),
        ctime: host_time(attrs.ctime),
        crtime: host_time(attrs.crtime),
        kind: file_type(attrs.kind()),
        perm: attrs.permissions() as u16,
        nlink: u32::try_from(attrs.links).unwrap_or(u32::MAX),
        uid: id(attrs.uid),
        gid: id(attrs.gid),
        rdev: attrs.rdev.map_or(0, packed),
        blksize: record,
        flags: 0,
    }
}

/// What the kernel is told of an object of which nothing is known but its kind.
pub(crate) fn unknown(number: u64, kind: u32) -> FileAttr {
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: file_type(kind),
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK as u32,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_devices_come_back() {
        for time in [
            Time { secs: 0, nanos: 0 },
            Time { secs: 1_700_000_000, nanos: 999_999_999 },
            Time { secs: -1, nanos: 1 },
            Time { secs: -86_400, nanos: 0 },
        ] {
            // As `fuser` makes it of what the kernel asks for.
            let nanos = Duration::from_nanos(time.nanos.into());
            let asked = match time.secs < 0 {
                true => host_time(Time { nanos: 0, ..time }) - nanos,
                false => host_time(time),
            };
            assert_eq!(asked_time(asked), time);
        }
        for (major, minor) in [(0, 0), (8, 1), (259, 70_000), (0xfff, 0xf_ffff)] {
            let rdev = device_number(major, minor);
            assert_eq!(device_parts(unpacked(packed(rdev))), (major, minor));
        }
    }
}
