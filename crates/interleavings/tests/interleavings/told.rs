//! What the threads of a story know of each other, and what a state of the file system may be by that.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use acceptance::engine;
use fs::Filesystem;
use rt::sync::Mutex;
use testkit::Compare;
use testkit::compare::differences;
use testkit::model::{Form, Tree};
use testkit::truth::Entry;
use testkit::workload::Op;

use crate::{FOUGHT, RECORD, SHARED, WRITERS};

/// An operation of a writer, with when it began and ended.
#[derive(Clone)]
pub(crate) struct Done {
    pub(crate) op: Op,
    pub(crate) began: u64,
    pub(crate) ended: Option<u64>,
}

/// A snapshot: when it was asked for and there, when its end was asked for and there.
#[derive(Clone, Default)]
pub(crate) struct Taken {
    pub(crate) name: String,
    pub(crate) made: (u64, Option<u64>),
    pub(crate) gone: Option<(u64, Option<u64>)>,
}

/// What all threads of a story know of each other.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) clock: AtomicU64,
    pub(crate) logs: Mutex<Vec<Vec<Done>>>,
    pub(crate) snapshots: Mutex<Vec<Taken>>,
    /// What had ended when this time was is on disk.
    pub(crate) synced: AtomicU64,
    /// Files made in the directory that is fought for, less those removed from it.
    pub(crate) fought: AtomicI64,
}

impl Told {
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn won(&self, names: i64) {
        self.fought.fetch_add(names, Ordering::SeqCst);
    }

    /// How many operations of a writer a state that was there at some time in between has: at least, at most.
    fn bounds(&self, writer: usize, from: u64, until: u64) -> (usize, usize) {
        let logs = self.logs.lock();
        let ended = |done: &&Done| done.ended.is_some_and(|at| at < from);
        let least = logs[writer].iter().take_while(ended).count();
        (least, logs[writer].iter().take_while(|done| done.began < until).count())
    }

    /// What these file systems hold must be what the writers had done some time in between.
    pub(crate) fn check(&self, fs: &Filesystem, from: u64, until: u64) -> Result<(), String> {
        let found = engine::list(fs).map_err(|e| e.to_string())?;
        let mut shared = vec![0; WRITERS * RECORD as usize];
        if let Some(entry) = fs.lookup(fs.root(), SHARED).map_err(|e| e.to_string())? {
            fs.read(entry.object, 0, &mut shared).map_err(|e| e.to_string())?;
        }
        for writer in 0..WRITERS {
            let mine: Vec<Entry> =
                found.iter().filter(|e| is_of(&e.path, writer)).cloned().collect();
            let block = &shared[writer * RECORD as usize..][..RECORD as usize];
            let (least, most) = self.bounds(writer, from, until);
            let ops: Vec<Op> = self.logs.lock()[writer].iter().map(|d| d.op.clone()).collect();
            let mut tree = start();
            ops[..least].iter().for_each(|op| tree.apply(op).unwrap());
            let mut said = Vec::new();
            for count in least..=most {
                if count > least {
                    tree.apply(&ops[count - 1]).unwrap();
                }
                let mut wrong = compare(&tree, writer, &mine);
                if block_of(&tree, writer) != block {
                    wrong.push("its record of the shared file".into());
                }
                if wrong.is_empty() {
                    said.clear();
                    break;
                }
                said.push(format!("after {count} operations: {wrong:?}"));
            }
            if !said.is_empty() {
                let ops: Vec<String> = ops.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "writer {writer} between {from} and {until}: {said:#?}\n{ops:#?}"
                ));
            }
        }
        // Nothing is there that nobody made, and the directories count what they have.
        let others = found.iter().filter(|e| (0..WRITERS).all(|writer| !is_of(&e.path, writer)));
        let others: Vec<&[u8]> = others.map(|e| e.path.as_slice()).collect();
        let others: Vec<_> = others.into_iter().filter(|path| !path.starts_with(b"x/")).collect();
        if others != [&b"."[..], b"d0", b"d1", SHARED, FOUGHT] {
            return Err(format!("{others:?}"));
        }
        for dir in ["d0", "d1", "x"] {
            let below = |e: &&Entry| {
                let rest = e.path.strip_prefix(dir.as_bytes()).and_then(|p| p.strip_prefix(b"/"));
                rest.is_some_and(|rest| !rest.contains(&b'/'))
            };
            let count = found.iter().filter(below).count() as u64;
            let size = found.iter().find(|e| e.path == dir.as_bytes()).unwrap().size;
            if size != count + 2 {
                return Err(format!("{dir} has {count} names and size {size}"));
            }
        }
        Ok(())
    }
}

/// The tree that all begin with.
pub(crate) fn start() -> Tree {
    let mut tree = Tree::new();
    for dir in ["d0", "d1"] {
        tree.apply(&Op::Mkdir { path: dir.into(), mode: 0o755 }).unwrap();
    }
    tree.apply(&Op::Create { path: SHARED.into(), mode: 0o644 }).unwrap();
    tree
}

pub(crate) fn is_of(path: &[u8], writer: usize) -> bool {
    path.split(|b| *b == b'/').any(|part| part.starts_with(format!("w{writer}-").as_bytes()))
}

fn compare(tree: &Tree, writer: usize, mine: &[Entry]) -> Vec<String> {
    let entries = tree.entries();
    let entries: Vec<Entry> = entries.into_iter().filter(|e| is_of(&e.path, writer)).collect();
    differences(&entries, mine, Compare::MODEL)
}

fn block_of(tree: &Tree, writer: usize) -> Vec<u8> {
    let mut bytes = match &tree.get(SHARED).unwrap().form {
        Form::File(content) => content.bytes(),
        _ => Vec::new(),
    };
    bytes.resize(WRITERS * RECORD as usize, 0);
    bytes[writer * RECORD as usize..][..RECORD as usize].to_vec()
}
