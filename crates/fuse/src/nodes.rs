//! Numbers by which the kernel knows files, and what they stand for.
//!
//! The one idea: a number is an object of a space. Space 0 is the file system itself, each snapshot that was entered
//! is one more, and the last has the directories that are on no disk, `.zfs` and `.zfs/snapshot`. So numbers of
//! files are those of their objects, the same at each mount; only the root is 1, as FUSE wants it.

use fs::Filesystem;
use fuser::{Errno, INodeNo};
use rt::sync::{Arc, Mutex, RwLock};

use crate::door::{Answer, errno};

/// Bits of an object number.
const OBJECT_BITS: u32 = 48;
/// The root, as FUSE calls it.
const ROOT: u64 = 1;
/// The space of what is on no disk.
const CONTROL: u64 = 0xffff;
/// `.zfs`.
pub(crate) const CONTROL_DIR: u64 = CONTROL << OBJECT_BITS | 1;
/// `.zfs/snapshot`.
pub(crate) const SNAPSHOT_DIR: u64 = CONTROL << OBJECT_BITS | 2;
/// Snapshots that one mount may enter.
const SPACES_MAX: usize = CONTROL as usize - 1;

/// What a number stands for.
pub(crate) enum Node {
    /// An object.
    Object(Place),
    /// `.zfs`.
    ControlDir,
    /// `.zfs/snapshot`.
    SnapshotDir,
}

/// An object of a file system or snapshot.
#[derive(Clone)]
pub(crate) struct Place {
    /// Where it is.
    pub(crate) fs: Arc<Filesystem>,
    space: u64,
    /// Its number there.
    pub(crate) object: u64,
}

impl Place {
    /// Another object of the same space.
    pub(crate) fn beside(&self, object: u64) -> Place {
        Place { object, ..self.clone() }
    }

    /// Are both in one space?
    pub(crate) fn is_beside(&self, other: &Place) -> bool {
        self.space == other.space
    }

    /// Is it in the file system itself, not in a snapshot of it?
    pub(crate) fn is_live(&self) -> bool {
        self.space == 0
    }

    /// The root of the mount?
    pub(crate) fn is_root(&self) -> bool {
        self.is_live() && self.object == self.fs.root()
    }

    /// The number by which the kernel knows it.
    pub(crate) fn number(&self) -> u64 {
        match self.is_root() {
            true => ROOT,
            false => self.space << OBJECT_BITS | self.object,
        }
    }

    /// The kernel is about to hear of it. Snapshots do not change: nobody need count for them.
    pub(crate) fn know(&self) {
        if self.is_live() && !self.is_root() {
            self.fs.know(self.object);
        }
    }

    /// The kernel was told of it so many times, and has forgotten that.
    pub(crate) fn forget(&self, times: u64) {
        if self.is_live() && !self.is_root() {
            self.fs.forget(self.object, times);
        }
    }
}

/// Has it not been destroyed?
fn is_there(fs: &Filesystem) -> bool {
    fs.dataset().not_revoked().is_ok()
}

/// The file system that is mounted, with the snapshots of it that were entered.
pub(crate) struct Spaces {
    pub(crate) live: Arc<Filesystem>,
    snapshots: RwLock<Vec<Arc<Filesystem>>>,
    /// One at a time looks for a snapshot that was not entered yet.
    entering: Mutex<()>,
}

impl Spaces {
    pub(crate) fn new(live: Arc<Filesystem>) -> Spaces {
        Spaces { live, snapshots: RwLock::new(Vec::new()), entering: Mutex::new(()) }
    }

    /// The root of the mount.
    pub(crate) fn root(&self) -> Place {
        Place { fs: self.live.clone(), space: 0, object: self.live.root() }
    }

    /// What a number stands for.
    pub(crate) fn node(&self, ino: INodeNo) -> Answer<Node> {
        let (space, object) = (ino.0 >> OBJECT_BITS, ino.0 & ((1 << OBJECT_BITS) - 1));
        Ok(match (space, ino.0) {
            (_, ROOT) => Node::Object(self.root()),
            (_, CONTROL_DIR) => Node::ControlDir,
            (_, SNAPSHOT_DIR) => Node::SnapshotDir,
            (0, _) => Node::Object(Place { fs: self.live.clone(), space, object }),
            _ => {
                let snapshots = self.snapshots.read();
                let fs = snapshots.get(space as usize - 1).filter(|fs| is_there(fs));
                let fs = fs.ok_or(Errno::ESTALE)?;
                Node::Object(Place { fs: fs.clone(), space, object })
            }
        })
    }

    /// The object that a number stands for, which must be one.
    pub(crate) fn place(&self, ino: INodeNo) -> Answer<Place> {
        match self.node(ino)? {
            Node::Object(place) => Ok(place),
            // What is on no disk cannot be changed.
            Node::ControlDir | Node::SnapshotDir => Err(Errno::EROFS),
        }
    }

    /// The root of the snapshot called `name`, if there is one.
    pub(crate) fn snapshot(&self, name: &str) -> Answer<Option<Place>> {
        let place = |(index, fs): (usize, &Arc<Filesystem>)| Place {
            object: fs.root(),
            fs: fs.clone(),
            space: index as u64 + 1,
        };
        let found = self.live.snapshot(name).map_err(|e| errno(&e))?;
        let Some(dataset) = found else { return Ok(None) };
        // Whatever it was called when it was entered. One that is gone may have left its number to another.
        let _entering = self.entering.lock();
        let is_it =
            |(_, fs): &(usize, &Arc<Filesystem>)| fs.dataset().object == dataset && is_there(fs);
        if let Some(known) = self.snapshots.read().iter().enumerate().find(is_it) {
            return Ok(Some(place(known)));
        }
        let full = format!("{}@{name}", self.live.name());
        let fs = Filesystem::open(self.live.pool(), &full).map_err(|e| errno(&e))?;
        let mut snapshots = self.snapshots.write();
        if snapshots.len() >= SPACES_MAX {
            return Err(Errno::ENFILE);
        }
        snapshots.push(Arc::new(fs));
        Ok(snapshots.iter().enumerate().next_back().map(place))
    }

    /// Is it the name of a snapshot?
    pub(crate) fn has_snapshot(&self, name: &str) -> Answer<bool> {
        Ok(self.live.snapshot(name).map_err(|e| errno(&e))?.is_some())
    }
}
