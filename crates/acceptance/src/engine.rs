//! Workloads done by the engine: `testkit`'s operations on a pool of ours.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use device::{WriteDevice, WriteFile};
use fs::{Attrs, Filesystem, FsError, NewObject, Time, Who, make_filesystem, mode};
use pool::props::{self, Target};
use pool::{Devices, Joined, NewLeaf, NewPool, NewTop, OpenOptions, Pool, Stored};
use rt::sync::Arc;
use testkit::truth::{Entry, Kind, XattrValue, hex_digest};
use testkit::workload::Op;
use testkit::{Images, fresh_images};
use vdev::import::{FoundPool, Scan};

/// What a pool is made of.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// For messages.
    pub name: &'static str,
    /// Number of disks.
    pub disks: usize,
    /// Top-level vdevs, each of as many of the disks.
    pub tops: usize,
    /// Size of each disk, in bytes.
    pub disk_bytes: u64,
    /// How the disks of a top-level vdev are joined.
    pub joined: Joined,
    /// log2 of the sector size.
    pub ashift: u32,
    /// How many disks of each top-level vdev may be lost.
    pub spare_copies: usize,
}

impl Shape {
    /// For what asks nothing of the disks.
    pub const SMALL: Shape = Shape {
        name: "one small disk",
        disks: 1,
        tops: 1,
        disk_bytes: 64 << 20,
        joined: Joined::Single,
        ashift: 12,
        spare_copies: 0,
    };

    /// As many disks as may be lost, chosen by `seed`.
    #[must_use]
    pub fn hidden(&self, seed: u64) -> Vec<usize> {
        let each = self.disks / self.tops;
        let of = |top: usize| {
            let chosen = crate::choose(each, self.spare_copies, seed + top as u64);
            chosen.into_iter().map(move |disk| top * each + disk)
        };
        (0..self.tops).flat_map(of).collect()
    }
}

/// The shapes that every workload must leave whole.
pub const SHAPES: [Shape; 6] = [
    Shape {
        name: "single",
        disks: 1,
        tops: 1,
        disk_bytes: 512 << 20,
        joined: Joined::Single,
        ashift: 12,
        spare_copies: 0,
    },
    Shape {
        name: "mirror of 3",
        disks: 3,
        tops: 1,
        disk_bytes: 512 << 20,
        joined: Joined::Mirror,
        ashift: 12,
        spare_copies: 2,
    },
    Shape {
        name: "raidz1 of 5, 512-byte sectors",
        disks: 5,
        tops: 1,
        disk_bytes: 256 << 20,
        joined: Joined::Raidz(1),
        ashift: 9,
        spare_copies: 1,
    },
    Shape {
        name: "raidz2 of 11",
        disks: 11,
        tops: 1,
        disk_bytes: 128 << 20,
        joined: Joined::Raidz(2),
        ashift: 12,
        spare_copies: 2,
    },
    Shape {
        name: "raidz3 of 9",
        disks: 9,
        tops: 1,
        disk_bytes: 192 << 20,
        joined: Joined::Raidz(3),
        ashift: 12,
        spare_copies: 3,
    },
    Shape {
        name: "two raidz2 of 6",
        disks: 12,
        tops: 2,
        disk_bytes: 128 << 20,
        joined: Joined::Raidz(2),
        ashift: 12,
        spare_copies: 2,
    },
];

/// The name of the pools made here.
pub const POOL: &str = "tank";

/// Properties by name, as words.
pub type Words<'a> = &'a [(&'a str, &'a str)];

/// How pools are made and opened here: by the host that the kernel of [`testkit::Vm`] is.
#[must_use]
pub fn options() -> OpenOptions {
    OpenOptions {
        workers: 2,
        host_id: 0x7468_756d,
        host_name: "thumper".into(),
        new_name: None,
        memory: None,
    }
}

fn scanned(dir: &Path) -> Scan {
    vdev::import::scan(&[dir.to_path_buf()]).unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
}

/// Opens the pool on the images in `dir` for writing, or, if it cannot be written, to be read:
/// [`Pool::read_only_reason`] says why. By another host than that of the kernel, which so takes back only a pool that
/// was closed.
///
/// # Panics
/// If it does not open.
#[must_use]
#[track_caller]
pub fn open(dir: &Path, name: &str) -> Arc<Pool> {
    let scan = scanned(dir);
    let found = scan.choose(name).unwrap_or_else(|e| panic!("{name}: {e}"));
    let tree = found.open_write_tree(&found.root).unwrap_or_else(|e| panic!("{name}: {e}"));
    let options = OpenOptions { host_id: 1, host_name: "other".into(), ..options() };
    let pool = Pool::open(Devices::Writable(tree), &found.uberblocks, &options);
    pool.unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// As [`open`], a pool that must be writable.
///
/// # Panics
/// If it does not open, or only to be read.
#[must_use]
#[track_caller]
pub fn open_for_writing(dir: &Path, name: &str) -> Arc<Pool> {
    let pool = open(dir, name);
    assert_eq!(pool.read_only_reason(), None, "{name}");
    pool
}

/// Opens the pool on the images in `dir` to look at it, by a type that cannot write.
///
/// # Panics
/// If it does not open.
#[must_use]
#[track_caller]
pub fn open_to_look(dir: &Path, name: &str) -> Arc<Pool> {
    let scan = scanned(dir);
    look_at(scan.choose(name).unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// As [`open_to_look`], by the uberblock of `txg` and no other.
///
/// # Panics
/// If it does not open so.
#[must_use]
#[track_caller]
pub fn open_as_of(dir: &Path, name: &str, txg: u64) -> Arc<Pool> {
    let scan = scanned(dir);
    look_by(scan.choose(name).unwrap_or_else(|e| panic!("{name}: {e}")), |at| at == txg)
}

/// As [`open_to_look`], a pool that was found.
///
/// # Panics
/// If it does not open.
#[must_use]
#[track_caller]
pub fn look_at(found: &FoundPool) -> Arc<Pool> {
    look_by(found, |_| true)
}

#[track_caller]
fn look_by(found: &FoundPool, uberblock_of: impl Fn(u64) -> bool) -> Arc<Pool> {
    let tree = found.open_tree().unwrap_or_else(|e| panic!("{}: {e}", found.name()));
    let uberblocks = found.uberblocks.iter().filter(|u| uberblock_of(u.txg.get()));
    let uberblocks: Vec<_> = uberblocks.copied().collect();
    let pool = Pool::open(Devices::ReadOnly(Arc::new(tree)), &uberblocks, &options());
    pool.unwrap_or_else(|e| panic!("{}: {e}", found.name()))
}

/// A pool of ours, open for writing, and the file system that operations go to.
pub struct Session {
    dir: PathBuf,
    dataset: String,
    open: Option<(Arc<Pool>, Filesystem)>,
}

/// A property as the pool keeps it.
fn stored((name, word): &(&str, &str)) -> (String, Stored) {
    let target = Target::new(props::Kind::Filesystem);
    let (_, value) = props::assign(name.as_bytes(), word.as_bytes(), &target)
        .unwrap_or_else(|e| panic!("{name}={word}: {e:?}"));
    let value = value.number().unwrap_or_else(|| panic!("{name}={word} is no number"));
    ((*name).to_string(), Stored::Number(value))
}

/// What the engine said instead of doing an operation.
pub type Refusal = Box<dyn std::error::Error>;

impl Session {
    /// Makes a pool of this shape with lz4 and records of `record_bytes`, on fresh images.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    #[track_caller]
    pub fn create(shape: &Shape, record_bytes: u64) -> (Images, Session) {
        Self::create_with(shape, record_bytes, true)
    }

    /// As [`Session::create`], with or without features.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    #[track_caller]
    pub fn create_with(shape: &Shape, record_bytes: u64, features: bool) -> (Images, Session) {
        let compression = if features { "lz4" } else { "lzjb" };
        let record = record_bytes.to_string();
        Self::create_of(shape, &[("compression", compression), ("recordsize", &record)], features)
    }

    /// Makes a pool of this shape whose root file system has these properties, with or without features.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    #[track_caller]
    pub fn create_of(shape: &Shape, props: Words<'_>, features: bool) -> (Images, Session) {
        let images = fresh_images(shape.disks, shape.disk_bytes);
        let leaf = |path: &PathBuf| {
            let device: Arc<dyn WriteDevice> = Arc::new(
                WriteFile::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())),
            );
            NewLeaf { path: path.as_os_str().as_encoded_bytes().to_vec(), is_disk: false, device }
        };
        let paths = images.disks();
        let top = |paths: &[PathBuf]| NewTop {
            joined: shape.joined,
            leaves: paths.iter().map(leaf).collect(),
            is_log: false,
        };
        let pool = Pool::create(NewPool {
            name: POOL.into(),
            tops: paths.chunks(shape.disks / shape.tops).map(top).collect(),
            spares: vec![],
            ashift: shape.ashift,
            features: if features { pool::Feature::ALL.to_vec() } else { Vec::new() },
            pool_props: BTreeMap::new(),
            props: [("xattr", "sa")].iter().chain(props).map(stored).collect(),
            make: make_filesystem,
            command: format!("zpool create {POOL}"),
            options: options(),
        });
        let pool = pool.unwrap_or_else(|e| panic!("{}: {e}", shape.name));
        let dir = images.path().to_path_buf();
        let fs = Filesystem::open(&pool, POOL).unwrap_or_else(|e| panic!("{}: {e}", shape.name));
        (images, Session { dir, dataset: POOL.into(), open: Some((pool, fs)) })
    }

    /// Opens the pool on the images in `dir` for writing, as a new process would.
    ///
    /// # Errors
    /// If it does not open.
    pub fn open(dir: &Path, pool: &str, dataset: &str) -> Result<Session, Refusal> {
        Self::open_freeing(dir, pool, dataset, None)
    }

    /// As [`Session::open`]; `blocks`: so many are freed in a txg, which comes when it is asked for.
    ///
    /// # Errors
    /// If it does not open.
    pub fn open_freeing(
        dir: &Path,
        pool: &str,
        dataset: &str,
        blocks: Option<u64>,
    ) -> Result<Session, Refusal> {
        let scan = vdev::import::scan(&[dir.to_path_buf()])?;
        let found = scan.choose(pool)?;
        let tree = found.open_write_tree(&found.root)?;
        // By whichever host had it: a server takes back only what no other one has.
        let options = OpenOptions { host_id: found.config.hostid, ..options() };
        let pool = Pool::open(Devices::Writable(tree), &found.uberblocks, &options)?;
        if let Some(blocks) = blocks {
            pool.set_freeing(blocks, false)?;
        }
        let _left = fs::replay_logs(&pool)?;
        let fs = Filesystem::open(&pool, dataset)?;
        Ok(Session { dir: dir.to_path_buf(), dataset: dataset.into(), open: Some((pool, fs)) })
    }

    /// The pool.
    ///
    /// # Panics
    /// If the session was closed.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.open.as_ref().expect("the session is open").0
    }

    /// The file system.
    ///
    /// # Panics
    /// If the session was closed.
    #[must_use]
    pub fn filesystem(&self) -> &Filesystem {
        &self.open.as_ref().expect("the session is open").1
    }

    /// Closes the pool: what was done is on the disks.
    ///
    /// # Errors
    /// If it cannot be synced.
    pub fn close(&mut self) -> Result<(), Refusal> {
        if let Some((pool, fs)) = self.open.take() {
            drop(fs);
            pool.close()?;
        }
        Ok(())
    }

    /// Does `op`.
    ///
    /// # Errors
    /// What the engine said.
    pub fn apply(&mut self, op: &Op) -> Result<(), Refusal> {
        match op {
            Op::Sync => {
                self.pool().sync()?;
            }
            Op::Reopen => {
                let name = self.pool().name().to_string();
                self.close()?;
                *self = Session::open(&self.dir, &name, &self.dataset)?;
            }
            op => change(self.filesystem(), op)?,
        }
        Ok(())
    }

    /// Does all of `ops`.
    ///
    /// # Panics
    /// With the first that is refused: workloads are valid.
    #[track_caller]
    pub fn run(&mut self, ops: &[Op]) {
        for (i, op) in ops.iter().enumerate() {
            self.apply(op).unwrap_or_else(|e| panic!("operation {i}, {op}: {e}"));
        }
    }
}

/// Does an operation on files.
///
/// # Errors
/// What the engine said.
pub fn change(fs: &Filesystem, op: &Op) -> Result<(), FsError> {
    const ROOT: Who = Who { uid: 0, gid: 0 };
    let create = |path: &[u8], mode: u32| {
        let (dir, name) = fs.resolve_parent(path)?;
        fs.create(dir, name, &NewObject::of(mode, ROOT)).map(drop)
    };
    match op {
        Op::Mkdir { path, mode } => create(path, mode::DIR | mode)?,
        Op::Create { path, mode } => create(path, mode::FILE | mode)?,
        Op::Fifo { path, mode } => create(path, mode::FIFO | mode)?,
        Op::Symlink { path, target } => {
            let (dir, name) = fs.resolve_parent(path)?;
            let new =
                NewObject { target: Some(target), ..NewObject::of(mode::SYMLINK | 0o777, ROOT) };
            fs.create(dir, name, &new)?;
        }
        Op::Write { path, offset, data } => fs.write(fs.resolve(path)?, *offset, &data.bytes())?,
        Op::Truncate { path, size } => fs.truncate(fs.resolve(path)?, *size)?,
        Op::Link { existing, path } => {
            let (dir, name) = fs.resolve_parent(path)?;
            fs.link(dir, name, fs.resolve(existing)?)?;
        }
        Op::Rename { from, to } => {
            let ((dir, name), (to, new)) = (fs.resolve_parent(from)?, fs.resolve_parent(to)?);
            fs.rename(dir, name, to, new)?;
        }
        Op::Remove { path } => {
            let (dir, name) = fs.resolve_parent(path)?;
            fs.unlink(dir, name)?;
        }
        Op::Rmdir { path } => {
            let (dir, name) = fs.resolve_parent(path)?;
            fs.rmdir(dir, name)?;
        }
        Op::SetMode { path, mode } => fs.change_attrs(fs.resolve(path)?, |attrs| {
            // that of a symbolic link means nothing, and nobody can set it
            if attrs.kind() != mode::SYMLINK {
                attrs.set_mode(*mode);
            }
        })?,
        Op::SetOwner { path, uid, gid } => fs.change_attrs(fs.resolve(path)?, |attrs| {
            (attrs.uid, attrs.gid) = (u64::from(*uid), u64::from(*gid));
        })?,
        Op::SetTime { path, mtime } => fs.change_attrs(fs.resolve(path)?, |attrs| {
            attrs.mtime = Time { secs: mtime.0, nanos: mtime.1 };
        })?,
        Op::SetXattr { path, name, value } => fs.set_xattr(fs.resolve(path)?, name, Some(value))?,
        Op::RemoveXattr { path, name } => fs.set_xattr(fs.resolve(path)?, name, None)?,
        Op::Sync | Op::Reopen => {}
    }
    Ok(())
}

/// Of larger files only what is no hole is read, in bytes.
const HASHED_MAX: u64 = 512 << 20;

/// Everything in a file system, its root included, as a listing.
///
/// # Errors
/// What could not be read.
pub fn list(fs: &Filesystem) -> Result<Vec<Entry>, FsError> {
    let mut out = Vec::new();
    let mut left = vec![(Vec::new(), fs.root())];
    while let Some((path, number)) = left.pop() {
        let (object, attrs) = fs.open_object(number)?;
        let mut entry = entry(&path, number, &attrs);
        // as the kernel counts for stat: what the object uses, and its dnode
        let slots = object.header()?.slots() as u64;
        entry.blocks = (object.used_bytes() + 256) / 512 + slots;
        if attrs.is_dir() {
            for child in fs.read_dir(number)? {
                let sep: &[u8] = if path.is_empty() { b"" } else { b"/" };
                left.push(([&path, sep, &child.name].concat(), child.object));
            }
        }
        if entry.kind == Kind::File && attrs.size > HASHED_MAX {
            let data = fs.data_segments(&object, attrs.size)?;
            let mut bytes = Vec::new();
            for (at, len) in &data {
                let start = bytes.len();
                bytes.resize(start + usize::try_from(*len).unwrap_or(usize::MAX), 0);
                fs.read_open(&object, attrs.size, *at, &mut bytes[start..])?;
            }
            entry.sha256_of_data = Some(hex_digest(&bytes));
            entry.data = Some(data);
        } else if entry.kind == Kind::File {
            let mut bytes = vec![0; usize::try_from(attrs.size).unwrap_or(usize::MAX)];
            let got = fs.read_open(&object, attrs.size, 0, &mut bytes)?;
            bytes.truncate(got);
            entry.sha256 = Some(hex_digest(&bytes));
            let data = fs.data_segments(&object, attrs.size)?;
            entry.data = Some(data).filter(|data| *data != [(0, attrs.size)] && attrs.size > 0);
        }
        let xattrs = fs.xattrs_of(number, &attrs)?;
        entry.xattrs = xattrs.iter().map(|(n, v)| (n.clone(), XattrValue::of(v))).collect();
        out.push(entry);
    }
    out.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(out)
}

/// What an object is, in the words of the truth.
#[must_use]
pub fn kind_of(attrs: &Attrs) -> Kind {
    match attrs.kind() {
        mode::DIR => Kind::Dir,
        mode::SYMLINK => Kind::Link,
        mode::BLOCK => Kind::Block,
        mode::CHAR => Kind::Char,
        mode::FIFO => Kind::Fifo,
        mode::SOCKET => Kind::Socket,
        _ => Kind::File,
    }
}

fn entry(path: &[u8], number: u64, attrs: &Attrs) -> Entry {
    let kind = kind_of(attrs);
    let small = |id: u64| u32::try_from(id).unwrap_or(u32::MAX);
    let time = |t: Time| (t.secs, t.nanos);
    let path = if path.is_empty() { b"." } else { path };
    let mut entry = Entry::new(path.to_vec(), kind);
    entry.object = number;
    entry.mode = attrs.permissions();
    (entry.uid, entry.gid) = (small(attrs.uid), small(attrs.gid));
    (entry.size, entry.nlink) = (attrs.size, attrs.links);
    entry.atime = time(attrs.atime);
    entry.mtime = time(attrs.mtime);
    entry.ctime = time(attrs.ctime);
    entry.target = attrs.target.clone();
    entry
}
