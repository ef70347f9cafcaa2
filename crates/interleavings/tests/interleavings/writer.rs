//! Threads that change files, each its own and some that all fight for; the last of them takes snapshots.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use acceptance::engine::{self, POOL};
use fs::{Filesystem, FsError, NewObject, Who, mode};
use pool::Pool;
use rt::sync::Arc;
use testkit::data::{Data, Look};
use testkit::model::{Form, Tree};
use testkit::random::Rng;
use testkit::workload::Op;

use crate::told::{Done, Taken, Told, is_of};
use crate::{FOUGHT, OPS, RECORD, SHARED, WHOLE};

/// One thread that changes names of its own in directories of all.
pub(crate) struct Writer {
    pub(crate) number: usize,
    pub(crate) rng: Rng,
    pub(crate) count: u64,
    pub(crate) tree: Tree,
}

impl Writer {
    fn fresh(&mut self, kind: char) -> Vec<u8> {
        self.count += 1;
        format!("d{}/w{}-{kind}{}", self.rng.below(2), self.number, self.count).into_bytes()
    }

    fn any(&mut self, fits: impl Fn(&[u8], &Form) -> bool) -> Option<Vec<u8>> {
        let paths = self.tree.paths();
        let mine = paths.iter().filter(|(path, _)| is_of(path, self.number));
        let fit: Vec<_> = mine.filter(|(path, node)| fits(path, &node.form)).collect();
        (!fit.is_empty()).then(|| fit[self.rng.index(fit.len())].0.clone())
    }

    fn data(&mut self, size: u64) -> Data {
        self.count += 1;
        let look = *self.rng.pick(&[Look::Noise, Look::Words, Look::Patches]);
        Data { look, seed: self.count * 8 + self.number as u64, size }
    }

    /// A random operation; none if it does not fit.
    fn choose(&mut self) -> Option<Op> {
        let file = |kind: char| {
            move |path: &[u8], form: &Form| {
                matches!(form, Form::File(_)) && path.contains(&(kind as u8))
            }
        };
        Some(match self.rng.below(16) {
            0..2 => Op::Create { path: self.fresh('a'), mode: 0o640 },
            2 => Op::Create { path: self.fresh('b'), mode: 0o600 },
            3..6 => {
                let path = self.any(file('a'))?;
                Op::Write { path, offset: 0, data: self.data(WHOLE) }
            }
            6..8 => {
                let (path, offset) = (self.any(file('b'))?, self.rng.below(5 * RECORD));
                let size = self.rng.between(1, 2 * RECORD);
                Op::Write { path, offset, data: self.data(size) }
            }
            8 => Op::Truncate { path: self.any(file('b'))?, size: self.rng.below(6 * RECORD) },
            9 => {
                let from = self.any(|_, form| matches!(form, Form::File(_)))?;
                let kind =
                    if file('a')(&from, &Form::File(Default::default())) { 'a' } else { 'b' };
                Op::Rename { from, to: self.fresh(kind) }
            }
            10 => Op::Link { existing: self.any(file('b'))?, path: self.fresh('b') },
            11 => Op::Remove { path: self.any(|_, form| matches!(form, Form::File(_)))? },
            12 => {
                let path = self.any(|_, _| true)?;
                // lists of all lengths: layouts of their own, spill blocks
                let value = vec![self.count as u8; *self.rng.pick(&[0, 9, 200, 900])];
                let name = format!("user.x{}", self.rng.below(3)).into_bytes();
                Op::SetXattr { path, name, value }
            }
            13 => {
                let path = self.any(|_, _| true)?;
                Op::SetOwner { path, uid: 1 + self.rng.below(3) as u32, gid: 5 }
            }
            14 => match self.any(|_, form| matches!(form, Form::Dir(_))) {
                Some(path) if self.rng.one_in(2) => Op::Rmdir { path },
                _ => Op::Mkdir { path: self.fresh('m'), mode: 0o755 },
            },
            _ => {
                let offset = self.number as u64 * RECORD;
                Op::Write { path: SHARED.into(), offset, data: self.data(RECORD) }
            }
        })
    }

    pub(crate) fn work(mut self, fs: &Filesystem, told: &Told) {
        let fought = fs.resolve(FOUGHT).unwrap();
        for _ in 0..OPS {
            dawdle(&mut self.rng);
            self.step(fs, told);
            self.fight(fs, fought, told);
        }
    }

    /// Makes, renames or removes a name that others want, too: only one of them may have done it.
    fn fight(&mut self, fs: &Filesystem, dir: u64, told: &Told) {
        let name = |rng: &mut Rng| format!("{}", rng.below(2)).into_bytes();
        let (one, other) = (name(&mut self.rng), name(&mut self.rng));
        let change = match self.rng.below(3) {
            0 => {
                let new = NewObject::of(mode::FILE | 0o600, Who { uid: 3, gid: 3 });
                fs.create_with(dir, &one, &new, &[1; 700]).map(|_| 1)
            }
            1 => fs.unlink(dir, &one).map(|()| -1),
            _ => fs.link(dir, &other, fs.resolve(SHARED).unwrap()).map(|()| 1),
        };
        match change {
            Ok(change) => told.won(change),
            Err(FsError::Exists { .. } | FsError::NotFound { .. }) => {}
            Err(e) => panic!("writer {}: {e}", self.number),
        }
    }

    pub(crate) fn step(&mut self, fs: &Filesystem, told: &Told) {
        let op = loop {
            let Some(op) = self.choose() else { continue };
            let mut tried = self.tree.clone();
            if tried.apply(&op).is_ok() {
                self.tree = tried;
                break op;
            }
        };
        let place = {
            let began = told.now();
            let mut logs = told.logs.lock();
            logs[self.number].push(Done { op: op.clone(), began, ended: None });
            logs[self.number].len() - 1
        };
        engine::change(fs, &op).unwrap_or_else(|e| panic!("writer {}: {op}: {e}", self.number));
        let ended = told.now();
        told.logs.lock()[self.number][place].ended = Some(ended);
    }
}

/// Takes snapshots of what it has just done, clones them, and destroys both.
pub(crate) fn branch(pool: &Arc<Pool>, fs: &Filesystem, told: &Told, mut writer: Writer) {
    for turn in 0..4 {
        (0..2).for_each(|_| writer.step(fs, told));
        let rng = &mut writer.rng;
        let name = format!("{POOL}@s{turn}");
        let began = told.now();
        let taken = Taken { name: name.clone(), made: (began, None), gone: None };
        told.snapshots.lock().push(taken);
        pool.snapshot(std::slice::from_ref(&name), &[]).unwrap();
        let ended = told.now();
        told.snapshots.lock()[turn].made.1 = Some(ended);
        told.synced.fetch_max(began, Ordering::SeqCst);
        let there = Filesystem::open(pool, &name).unwrap();
        told.check(&there, began, ended).unwrap_or_else(|e| panic!("{name}: {e}"));
        drop(there);
        if rng.one_in(2) {
            let clone = format!("{POOL}/c{turn}");
            pool.clone_snapshot(&name, &clone, BTreeMap::new()).unwrap();
            let fs = Filesystem::open(pool, &clone).unwrap();
            told.check(&fs, began, ended).unwrap_or_else(|e| panic!("{clone}: {e}"));
            let new = NewObject::of(mode::FILE | 0o600, Who { uid: 1, gid: 1 });
            fs.create_with(fs.root(), b"more", &new, &[7; 9000]).unwrap();
            drop(fs);
            pool.destroy_dataset(&clone).unwrap();
        }
        if rng.one_in(2) {
            let began = told.now();
            told.snapshots.lock()[turn].gone = Some((began, None));
            pool.destroy_snapshots(&[name], false).unwrap();
            let ended = told.now();
            told.snapshots.lock()[turn].gone = Some((began, Some(ended)));
        }
    }
}

/// Waits, now and then, for as long as the others need for something large: a sync, a snapshot.
pub(crate) fn dawdle(rng: &mut Rng) {
    if rng.one_in(2) {
        // The scheduler lets who sleeps for long go on after some thousand steps of the others.
        let most = if cfg!(feature = "sim") { 3_000_000 } else { 500 };
        rt::time::sleep(Duration::from_micros(rng.between(most / 20, most)));
    }
}
