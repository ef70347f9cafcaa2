//! What is done to a file system in a test: operations as data, made from a seed.
//!
//! The same list is done by the engine, by the model ([`crate::model::Tree`]), by the host
//! ([`crate::host`]) and by the OpenZFS kernel ([`crate::kernel`]), and then they are compared. A list is valid:
//! done in order on an empty file system, no operation is refused.

use crate::data::{Data, LOOKS, Look, root_files};
use crate::model::{Form, Tree};
use crate::random::Rng;
use crate::truth::Time;

/// A path below the root, `b"a/b"`; names are bytes.
pub type Path = Vec<u8>;

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields say what they are")]
pub enum Op {
    /// Makes a directory.
    Mkdir { path: Path, mode: u32 },
    /// Makes an empty file.
    Create { path: Path, mode: u32 },
    /// Makes a named pipe.
    Fifo { path: Path, mode: u32 },
    /// Makes a symbolic link.
    Symlink { path: Path, target: Vec<u8> },
    /// Writes into a file, past its end too.
    Write { path: Path, offset: u64, data: Data },
    /// Makes a file shorter or longer.
    Truncate { path: Path, size: u64 },
    /// Gives a file one more name.
    Link { existing: Path, path: Path },
    /// Renames, over a file or an empty directory too.
    Rename { from: Path, to: Path },
    /// Removes a name of something that is no directory.
    Remove { path: Path },
    /// Removes an empty directory.
    Rmdir { path: Path },
    /// Sets the permission bits.
    SetMode { path: Path, mode: u32 },
    /// Sets owner and group.
    SetOwner { path: Path, uid: u32, gid: u32 },
    /// Sets the time of the last change.
    SetTime { path: Path, mtime: Time },
    /// Sets an extended attribute (its name with the namespace).
    SetXattr { path: Path, name: Vec<u8>, value: Vec<u8> },
    /// Removes one.
    RemoveXattr { path: Path, name: Vec<u8> },
    /// What was done so far must be on disk from here on.
    Sync,
    /// The pool is closed and opened again.
    Reopen,
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let p = |path: &[u8]| path.escape_ascii().to_string();
        match self {
            Op::Mkdir { path, mode } => write!(f, "mkdir {} {mode:o}", p(path)),
            Op::Create { path, mode } => write!(f, "create {} {mode:o}", p(path)),
            Op::Fifo { path, mode } => write!(f, "fifo {} {mode:o}", p(path)),
            Op::Symlink { path, target } => write!(f, "symlink {} to {}", p(path), p(target)),
            Op::Write { path, offset, data } => {
                let Data { look, seed, size } = data;
                write!(f, "write {} at {offset}: {size} bytes, {look:?} {seed}", p(path))
            }
            Op::Truncate { path, size } => write!(f, "truncate {} to {size}", p(path)),
            Op::Link { existing, path } => write!(f, "link {} to {}", p(path), p(existing)),
            Op::Rename { from, to } => write!(f, "rename {} to {}", p(from), p(to)),
            Op::Remove { path } => write!(f, "remove {}", p(path)),
            Op::Rmdir { path } => write!(f, "rmdir {}", p(path)),
            Op::SetMode { path, mode } => write!(f, "mode of {}: {mode:o}", p(path)),
            Op::SetOwner { path, uid, gid } => write!(f, "owner of {}: {uid}:{gid}", p(path)),
            Op::SetTime { path, mtime } => {
                write!(f, "mtime of {}: {}.{:09}", p(path), mtime.0, mtime.1)
            }
            Op::SetXattr { path, name, value } => {
                write!(f, "xattr {} of {}: {} bytes", p(name), p(path), value.len())
            }
            Op::RemoveXattr { path, name } => write!(f, "no xattr {} of {}", p(name), p(path)),
            Op::Sync => write!(f, "sync"),
            Op::Reopen => write!(f, "reopen"),
        }
    }
}

/// A list of operations that grows, with the model beside it that keeps it valid.
#[derive(Debug)]
pub struct Workload {
    /// The operations so far.
    pub ops: Vec<Op>,
    /// What they make.
    pub tree: Tree,
    rng: Rng,
    /// Numbers used up in names and seeds.
    count: u64,
}

impl Workload {
    /// None yet.
    #[must_use]
    pub fn new(seed: u64) -> Workload {
        Workload { ops: Vec::new(), tree: Tree::new(), rng: Rng::of(seed, 77), count: 0 }
    }

    /// Adds an operation.
    ///
    /// # Panics
    /// If it is not valid after those before it.
    pub fn push(&mut self, op: Op) {
        self.tree.apply(&op).unwrap_or_else(|e| panic!("{op}: {}", e.0));
        self.ops.push(op);
    }

    fn fresh(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Adds a directory.
    pub fn mkdir(&mut self, path: &[u8]) {
        self.push(Op::Mkdir { path: path.to_vec(), mode: 0o755 });
    }

    /// Adds a file with `size` bytes that look like `look`.
    pub fn file(&mut self, path: &[u8], look: Look, size: u64) {
        self.push(Op::Create { path: path.to_vec(), mode: 0o644 });
        if size > 0 {
            let seed = self.fresh();
            self.write(path, 0, Data { look, seed, size });
        }
    }

    /// Adds a write.
    pub fn write(&mut self, path: &[u8], offset: u64, data: Data) {
        self.push(Op::Write { path: path.to_vec(), offset, data });
    }

    /// Adds one random operation: most are writes, and every kind comes.
    pub fn step(&mut self) {
        let op = loop {
            if let Some(op) = self.choose() {
                let mut tried = self.tree.clone();
                if tried.apply(&op).is_ok() {
                    self.tree = tried;
                    break op;
                }
            }
        };
        self.ops.push(op);
    }

    /// A random operation that may turn out to be refused; none if nothing fits.
    fn choose(&mut self) -> Option<Op> {
        let dir = self.any(|form| matches!(form, Form::Dir(_)))?;
        let new = self.name_in(&dir);
        let mode = 0o400 | u32::try_from(self.rng.below(0o1000)).ok()?;
        let kind = self.rng.below(100);
        let file = |load: &mut Workload| load.any(|form| matches!(form, Form::File(_)));
        let node = |load: &mut Workload| load.any(|_| true).filter(|path| !path.is_empty());
        Some(match kind {
            0..12 => Op::Create { path: new, mode },
            12..17 => Op::Mkdir { path: new, mode: mode | 0o700 },
            17..20 => Op::Symlink { path: new, target: self.target() },
            20 => Op::Fifo { path: new, mode },
            21..51 => {
                let path = file(self)?;
                let (offset, data) = self.random_write(&path);
                Op::Write { path, offset, data }
            }
            51..58 => {
                let path = file(self)?;
                let size = self.size_of(&path);
                let size = if self.rng.one_in(4) { 0 } else { self.rng.below(size * 5 / 4 + 4096) };
                Op::Truncate { path, size }
            }
            58..62 => Op::Link { existing: file(self)?, path: new },
            62..70 => {
                let over = self.rng.one_in(4);
                let to = if over { node(self)? } else { new };
                Op::Rename { from: node(self)?, to }
            }
            70..78 => Op::Remove { path: node(self)? },
            78..80 => Op::Rmdir { path: self.any(|form| matches!(form, Form::Dir(_)))? },
            80..84 => Op::SetMode { path: node(self)?, mode },
            84..88 => {
                let id = |rng: &mut Rng| u32::try_from(rng.between(1, 5) * 500).unwrap_or(0);
                let (uid, gid) = (id(&mut self.rng), id(&mut self.rng));
                Op::SetOwner { path: node(self)?, uid, gid }
            }
            88..93 => {
                let mtime = (self.rng.below(1 << 31) as i64, self.rng.below(1_000_000_000) as u32);
                Op::SetTime { path: node(self)?, mtime }
            }
            93..98 => self.xattr()?,
            _ => {
                let path = node(self)?;
                let names: Vec<_> = self.tree.get(&path)?.xattrs.keys().cloned().collect();
                let name = names.get(self.rng.index(names.len().max(1)))?.clone();
                Op::RemoveXattr { path, name }
            }
        })
    }

    /// Any path with a form that fits.
    fn any(&mut self, fits: impl Fn(&Form) -> bool) -> Option<Path> {
        let paths = self.tree.paths();
        let fit: Vec<_> = paths.iter().filter(|(_, node)| fits(&node.form)).collect();
        let index = if fit.is_empty() { return None } else { self.rng.index(fit.len()) };
        Some(fit[index].0.clone())
    }

    /// A new name in `dir`: mostly plain, sometimes of all bytes or as long as may be.
    fn name_in(&mut self, dir: &[u8]) -> Path {
        let number = self.fresh();
        let mut name = format!("n{number}").into_bytes();
        match self.rng.below(12) {
            0 => name.extend((1..=255u8).filter(|b| *b != b'/').skip(self.rng.index(100)).take(90)),
            1 => name.resize(255, b'x'),
            2 => name.extend("\u{e9}\u{4e2d}.root".bytes()),
            _ => name.extend(b".root"),
        }
        let sep: &[u8] = if dir.is_empty() { b"" } else { b"/" };
        [dir, sep, &name].concat()
    }

    fn target(&mut self) -> Vec<u8> {
        let len = *self.rng.pick(&[1, 20, 67, 150, 1000]);
        (0..len).map(|i| b'a' + u8::try_from(i % 26).unwrap_or(0)).collect()
    }

    fn size_of(&self, path: &[u8]) -> u64 {
        match self.tree.get(path).map(|node| &node.form) {
            Some(Form::File(content)) => content.size(),
            _ => 0,
        }
    }

    /// Where and what: appended, inside, across record borders, or far past the end.
    fn random_write(&mut self, path: &[u8]) -> (u64, Data) {
        let end = self.size_of(path);
        let offset = match self.rng.below(8) {
            0..3 => end,
            3..5 => self.rng.below(end + 1),
            5 => self.rng.below(end + 1) & !0x1ff,
            6 => self.rng.below(end + 1) & !0x1_ffff,
            _ => end + self.rng.below(4 << 20),
        };
        let size = match self.rng.below(8) {
            0 => self.rng.between(1, 600),
            1..4 => self.rng.between(1, 20_000),
            4..6 => 1 << self.rng.between(9, 18),
            _ => self.rng.between(100_000, 400_000),
        };
        let (look, seed) = (*self.rng.pick(&LOOKS), self.fresh());
        (offset, Data { look, seed, size })
    }

    fn xattr(&mut self) -> Option<Op> {
        let fits = |form: &Form| matches!(form, Form::File(_) | Form::Dir(_));
        let path = self.any(fits)?;
        let name = format!("user.k{}", self.rng.below(5)).into_bytes();
        let size = *self.rng.pick(&[0, 1, 30, 300, 3000]);
        let mut value = vec![0; size];
        self.rng.fill(&mut value);
        Some(Op::SetXattr { path, name, value })
    }
}

/// The workload that pools of ours must carry before zdb, poolaudit and the kernel look at them:
/// real ROOT files and larger ones like them, 2,000 small ones in a directory, a sparse one, overwrites in part,
/// truncations, deletions, renames, links, attributes; in several txgs, with the pool opened anew in between.
#[must_use]
pub fn acceptance(seed: u64) -> Workload {
    let mut load = Workload::new(seed);
    load.mkdir(b"store");
    for (i, size) in [1 << 20, 3_000_001, 777_777, 131_072, 131_073, 512, 1].into_iter().enumerate()
    {
        load.file(format!("store/run{i}.root").as_bytes(), Look::Root, size);
    }
    for (i, file) in root_files().iter().enumerate() {
        let size = file.metadata().map_or(0, |meta| meta.len());
        load.push(Op::Create { path: format!("store/real{i}.root").into(), mode: 0o640 });
        let data = Data { look: Look::RealRoot, seed: i as u64, size };
        load.write(format!("store/real{i}.root").as_bytes(), 0, data);
    }
    for (i, look) in LOOKS.into_iter().enumerate() {
        load.file(format!("store/look{i}").as_bytes(), look, 400_000);
    }
    load.push(Op::Sync);
    load.mkdir(b"small");
    for i in 0..2000u64 {
        let look = LOOKS[usize::try_from(i % 5).unwrap_or(0)];
        let size = Rng::of(seed, i).below(9000);
        load.file(format!("small/file-{i:05}").as_bytes(), look, size);
        if i % 500 == 499 {
            load.push(Op::Sync);
        }
    }
    sparse(&mut load);
    load.push(Op::Reopen);
    overwrites(&mut load);
    load.push(Op::Sync);
    for i in (0..2000).filter(|i| i % 3 == 0) {
        load.push(Op::Remove { path: format!("small/file-{i:05}").into_bytes() });
    }
    load.push(Op::Sync);
    for i in (0..2000).filter(|i| i % 3 == 1).step_by(4) {
        let from = format!("small/file-{i:05}").into_bytes();
        load.push(Op::Rename { from, to: format!("store/moved-{i}").into_bytes() });
    }
    load.push(Op::Reopen);
    for i in 0..300 {
        load.step();
        if i % 60 == 59 {
            load.push(Op::Sync);
        }
    }
    load.push(Op::Sync);
    load
}

fn sparse(load: &mut Workload) {
    load.file(b"store/sparse", Look::Noise, 0);
    for (i, offset) in [0u64, 5 << 20, (200 << 20) + 12_345, 40 << 30].into_iter().enumerate() {
        let data = Data { look: Look::Noise, seed: 9000 + i as u64, size: 70_000 };
        load.write(b"store/sparse", offset, data);
    }
    // a hole up to the end
    load.push(Op::Truncate { path: b"store/sparse".to_vec(), size: 41 << 30 });
    load.push(Op::Truncate { path: b"store/sparse".to_vec(), size: (200 << 20) + 20_000 });
}

fn overwrites(load: &mut Workload) {
    let places =
        [(0u64, 4096u64), (131_072, 131_072), (200_000, 1000), (131_000, 300), (999_999, 2)];
    for (i, (offset, size)) in places.into_iter().enumerate() {
        let data = Data { look: Look::Words, seed: 9100 + i as u64, size };
        load.write(b"store/run1.root", offset, data);
    }
    load.push(Op::Truncate { path: b"store/run0.root".to_vec(), size: 500_000 });
    load.push(Op::Truncate { path: b"store/run2.root".to_vec(), size: 0 });
    load.push(Op::Truncate { path: b"store/run3.root".to_vec(), size: 131_071 });
    load.push(Op::Truncate { path: b"store/run5.root".to_vec(), size: 300_000 });
}

/// Random operations on an empty file system: `ops` of them in `txgs` parts of about equal length, each
/// closed by a sync.
#[must_use]
pub fn random(seed: u64, ops: usize, txgs: usize) -> Workload {
    let mut load = Workload::new(seed);
    for txg in 0..txgs {
        for _ in 0..ops * (txg + 1) / txgs - ops * txg / txgs {
            load.step();
        }
        load.push(Op::Sync);
    }
    load
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_list() {
        assert_eq!(random(5, 200, 4).ops, random(5, 200, 4).ops);
        assert_ne!(random(5, 200, 4).ops, random(6, 200, 4).ops);
    }

    #[test]
    fn every_kind_comes() {
        let ops = random(1, 1500, 8).ops;
        let kind = |op: &Op| format!("{op:?}").split([' ', '{']).next().map(str::to_string);
        let mut kinds: Vec<_> = ops.iter().filter_map(kind).collect();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), 16, "all but Reopen: {kinds:?}");
    }

    #[test]
    fn the_acceptance_workload_is_large_enough() {
        let load = acceptance(1);
        let small = load.tree.paths().iter().filter(|(p, _)| p.starts_with(b"small/")).count();
        assert!(small > 1000, "{small}");
        assert!(load.ops.iter().filter(|op| matches!(op, Op::Sync | Op::Reopen)).count() >= 8);
    }
}
