//! Threads that read while others write.

use std::collections::BTreeMap;

use fs::Filesystem;
use testkit::data::Data;
use testkit::random::Rng;
use testkit::workload::Op;

use crate::told::Told;
use crate::writer::dawdle;
use crate::{SHARED, WHOLE};

/// When a name came and went, as far as is known.
#[derive(Default, Clone)]
struct Life {
    came: (u64, Option<u64>),
    went: Option<(u64, Option<u64>)>,
    /// What was written into a file of whole writes, in order, with when.
    versions: Vec<(Data, u64, Option<u64>)>,
}

/// All names there ever were.
fn lives(told: &Told) -> BTreeMap<Vec<u8>, Life> {
    let mut all: BTreeMap<Vec<u8>, Life> = BTreeMap::new();
    for done in told.logs.lock().iter().flatten() {
        let when = (done.began, done.ended);
        match &done.op {
            Op::Create { path, .. } | Op::Link { path, .. } | Op::Mkdir { path, .. } => {
                all.insert(path.clone(), Life { came: when, ..Life::default() });
            }
            Op::Remove { path } | Op::Rmdir { path } => {
                all.get_mut(path).unwrap().went = Some(when);
            }
            Op::Rename { from, to } => {
                let old = all.get_mut(from).unwrap();
                old.went = Some(when);
                let versions = old.versions.clone();
                all.insert(to.clone(), Life { came: when, went: None, versions });
            }
            Op::Write { path, data, .. } if path != SHARED => {
                all.get_mut(path).unwrap().versions.push((*data, when.0, when.1));
            }
            _ => {}
        }
    }
    all
}

/// Reads while others write: what is found must have been there at some time meanwhile.
pub(crate) fn read(fs: &Filesystem, told: &Told, rng: &mut Rng) {
    dawdle(rng);
    let before = told.now();
    if rng.one_in(3) {
        let dir = format!("d{}", rng.below(2));
        let names = fs.read_dir(fs.resolve(dir.as_bytes()).unwrap()).unwrap();
        let after = told.now();
        let lives = lives(told);
        let mut seen = std::collections::BTreeSet::new();
        for entry in names {
            let path = [dir.as_bytes(), b"/", &entry.name].concat();
            let name = path.escape_ascii().to_string();
            let life = lives.get(&path).unwrap_or_else(|| panic!("{name}: nobody made it"));
            assert!(life.came.0 < after, "{name}: not yet made");
            let gone = life.went.is_some_and(|(_, ended)| ended.is_some_and(|at| at < before));
            assert!(!gone, "{name}: gone before");
            assert!(seen.insert(path), "{name}: twice");
        }
        for (path, life) in &lives {
            let there = life.came.1.is_some_and(|at| at < before)
                && life.went.is_none_or(|(began, _)| began > after);
            let here = path.starts_with(format!("{dir}/").as_bytes())
                && path.iter().filter(|b| **b == b'/').count() == 1;
            let name = path.escape_ascii();
            assert!(!(there && here) || seen.contains(path), "{name}: not listed");
        }
        return;
    }
    let known: Vec<_> = lives(told).into_keys().filter(|path| path.contains(&b'a')).collect();
    let Some(path) = known.get(rng.index(known.len().max(1))) else { return };
    let before = told.now();
    let found = match fs.resolve(path) {
        Ok(object) => object,
        Err(_) => {
            let life = &lives(told)[path];
            let there = life.came.1.is_some_and(|at| at < before) && life.went.is_none();
            return assert!(!there, "{}: not found", path.escape_ascii());
        }
    };
    let mut bytes = vec![0; 2 * WHOLE as usize];
    let read = fs.read(found, 0, &mut bytes);
    // A name comes only once: who has it now had it all the while.
    if fs.resolve(path).ok() != Some(found) {
        return;
    }
    let after = told.now();
    bytes.truncate(read.unwrap());
    let versions = &lives(told)[path].versions;
    let last = versions.iter().rposition(|(_, _, ended)| ended.is_some_and(|at| at < before));
    let may = versions[last.unwrap_or(0)..].iter().filter(|(_, began, _)| *began < after);
    let empty = bytes.is_empty() && last.is_none();
    let known = empty || may.clone().any(|(data, _, _)| data.bytes() == bytes);
    assert!(known, "{}: {} bytes that were not in it then", path.escape_ascii(), bytes.len());
}
