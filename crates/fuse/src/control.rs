//! `.zfs` and `.zfs/snapshot`: directories that are on no disk.

use fs::mode;
use fuser::{Errno, FileAttr, FileType, INodeNo};

use crate::attr::host_time;
use crate::door::{Answer, Door, errno};
use crate::nodes::{CONTROL_DIR, Place, SNAPSHOT_DIR};

/// The directory of them.
pub(crate) const SNAPSHOT_NAME: &[u8] = b"snapshot";

/// An entry of a directory of these.
pub(crate) struct ControlEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) number: u64,
    /// The place after it, which is the same whatever else comes and goes.
    pub(crate) next: u64,
    pub(crate) is_snapshot: bool,
}

impl Door {
    /// What the kernel is told of one of them: they are as old as the file system.
    pub(crate) fn control_attr(&self, number: u64) -> Answer<FileAttr> {
        if number != CONTROL_DIR && number != SNAPSHOT_DIR {
            return Err(Errno::ESTALE);
        }
        let live = &self.spaces.live;
        let root = live.attrs(live.root()).map_err(|e| errno(&e))?;
        let time = host_time(root.crtime);
        Ok(FileAttr {
            ino: INodeNo(number),
            size: 2,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: FileType::Directory,
            perm: 0o555,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 512,
            flags: 0,
        })
    }

    /// What a name in `.zfs/snapshot` stands for.
    pub(crate) fn snapshot_root(&self, name: &[u8]) -> Answer<Option<Place>> {
        let Ok(name) = str::from_utf8(name) else { return Ok(None) };
        match self.spaces.snapshot(name) {
            // It was destroyed just now.
            Err(_) if !self.spaces.has_snapshot(name)? => Ok(None),
            found => found,
        }
    }

    /// The entries of `.zfs` or `.zfs/snapshot`, `.` and `..` among them. A snapshot that was not entered has no
    /// number yet; that of the directory stands in for it.
    pub(crate) fn control_entries(&self, number: u64) -> Answer<Vec<ControlEntry>> {
        let entry = |name: &[u8], number, next| {
            let name = name.to_vec();
            ControlEntry { name, number, next, is_snapshot: false }
        };
        if !self.control().0 {
            return Err(Errno::ENOENT);
        }
        if number == CONTROL_DIR {
            let root = self.spaces.root().number();
            return Ok(vec![
                entry(b".", CONTROL_DIR, 1),
                entry(b"..", root, 2),
                entry(SNAPSHOT_NAME, SNAPSHOT_DIR, 3),
            ]);
        }
        let names = self.spaces.live.snapshots().map_err(|e| errno(&e))?;
        let mut entries = vec![entry(b".", SNAPSHOT_DIR, 1), entry(b"..", CONTROL_DIR, 2)];
        entries.extend(names.into_iter().map(|(name, txg)| ControlEntry {
            name: name.into_bytes(),
            number: SNAPSHOT_DIR,
            next: txg.saturating_add(2),
            is_snapshot: true,
        }));
        Ok(entries)
    }
}

/// The type bits of all that is in them.
pub(crate) const KIND: u32 = mode::DIR;
