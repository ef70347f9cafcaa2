//! What is read wrong is healed: afterwards other disks may be lost, and every byte is still there.
//!
//! Seen red: with one leaf left out where a block is written back; with reads of roots of object sets that told nobody;
//! with a heal that takes no hold (`race`).
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use acceptance::engine::list;
use acceptance::{SHAPES, Session, Shape, choose};
use format::label::DATA_AT;
use format::scan::Bookmark;
use pool::Pool;
use store::Trouble;
use testkit::data::Look;
use testkit::random::Rng;
use testkit::workload::{Op, Workload};
use testkit::{Images, Ran, Vm, vm};

mod race;
#[allow(dead_code)]
#[path = "../crash/rig.rs"]
mod rig;

const POOL: &str = "tank";
const PATIENCE: Duration = Duration::from_secs(60);

fn load(seed: u64) -> Vec<Op> {
    let mut load = Workload::new(seed);
    for i in 0..24 {
        let look = if i % 3 == 0 { Look::Words } else { Look::Noise };
        load.file(format!("f{i}").as_bytes(), look, 1 + 37_000 * (i % 7) * (i % 5));
        if i % 8 == 7 {
            load.push(Op::Sync);
        }
    }
    load.ops
}

/// Noise instead of all that disk `index` holds between its labels.
fn garble(images: &Images, index: usize, seed: u64) {
    let mut rng = Rng::of(seed, index as u64);
    let path = images.disk(index);
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let end = file.metadata().unwrap().len() - (512 << 10);
    let mut piece = vec![0; 64 << 10];
    let mut at = DATA_AT;
    while at < end {
        let size = piece.len().min((end - at) as usize);
        file.read_exact_at(&mut piece[..size], at).unwrap();
        if piece[..size].iter().any(|byte| *byte != 0) {
            rng.fill(&mut piece[..size]);
            file.write_all_at(&piece[..size], at).unwrap();
        }
        at += size as u64;
    }
}

/// Checksum errors by leaf.
fn wrong(session: &Session) -> Vec<u64> {
    let tree = session.pool().store().tree();
    tree.leaves().iter().map(|leaf| leaf.errors.get().checksum).collect()
}

/// All files with the digests of their bytes.
fn everything(session: &Session) -> Vec<String> {
    list(session.filesystem()).unwrap().iter().map(|entry| format!("{entry:?}")).collect()
}

/// A reader asks one disk of a mirror, and no parity: of the rest he cannot know. So all places are told.
fn tell_of_all(pool: &Pool) {
    let tell = |at| {
        while !pool.store().troubles().tell(at, Trouble::default()) {
            assert!(pool.finish_healing(PATIENCE));
        }
    };
    for number in [0, pool.dataset(POOL).unwrap().object] {
        let objset = pool.objset_at(number).unwrap().unwrap();
        tell(Bookmark { objset: number, object: 0, level: -1, block: 0 });
        let mut next = 0;
        loop {
            let dnode = objset.object(next).unwrap().synced().unwrap();
            for level in 0..dnode.core().levels {
                let last = dnode.max_block() >> (u32::from(level) * dnode.pointers_shift());
                for block in 0..=last {
                    tell(Bookmark { objset: number, object: next, level: level.into(), block });
                }
            }
            match objset.next_object(next + 1).unwrap() {
                Some((found, _)) => next = found,
                None => break,
            }
        }
    }
    assert!(pool.finish_healing(PATIENCE));
}

/// The kernel's scrub finds nothing left to repair.
#[test]
fn the_kernel_finds_nothing_left_to_repair() {
    if !vm::wanted("that the kernel has nothing to repair in what we have healed") {
        return;
    }
    let shape = SHAPES.iter().find(|shape| shape.name.starts_with("raidz2")).unwrap();
    let (images, mut session) = Session::create(shape, 32 << 10);
    session.pool().force_gangs(4 << 10, 5).unwrap();
    session.run(&load(9));
    session.close().unwrap();
    drop(session);
    shape.hidden(9).iter().for_each(|disk| garble(&images, *disk, 9));
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    tell_of_all(session.pool());
    assert!(session.pool().healed() > 0);
    session.close().unwrap();
    drop(session);
    let script = "set -euo pipefail\n\
         zpool import -d /d -o cachefile=none tank\n\
         zpool scrub -w tank; zpool status -v tank; zpool export tank\n";
    let ran = Vm::new(images.path()).run(script).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("with 0 errors"), "{ran}");
    assert!(ran.out.contains("No known data errors"), "{ran}");
}

#[test]
fn what_redundancy_can_give_is_written_back() {
    for (seed, shape) in SHAPES.iter().filter(|shape| shape.spare_copies > 0).enumerate() {
        heals(shape, seed as u64);
    }
}

fn heals(shape: &Shape, seed: u64) {
    let (images, mut session) = Session::create(shape, 32 << 10);
    session.pool().force_gangs(4 << 10, 5).unwrap();
    session.run(&load(seed));
    let before = everything(&session);
    session.close().unwrap();
    drop(session);

    let damaged = shape.hidden(seed);
    damaged.iter().for_each(|disk| garble(&images, *disk, seed));
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    assert_eq!(session.pool().read_only_reason(), None, "{}", shape.name);
    assert!(everything(&session) == before, "{}: other bytes", shape.name);
    assert!(session.pool().finish_healing(PATIENCE));
    let counts = wrong(&session);
    for (disk, count) in counts.iter().enumerate() {
        assert_eq!(damaged.contains(&disk), *count > 0, "{}: {counts:?}", shape.name);
    }
    assert!(session.pool().healed() > 0 && session.pool().lost_blocks().unwrap().is_empty());
    session.close().unwrap();
    drop(session);

    // Nothing of it is wrong any more.
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    assert!(everything(&session) == before);
    assert!(session.pool().finish_healing(PATIENCE));
    assert_eq!(wrong(&session).iter().sum::<u64>(), 0, "{}", shape.name);
    tell_of_all(session.pool());
    assert!(session.pool().lost_blocks().unwrap().is_empty());
    session.close().unwrap();
    drop(session);

    // Those that were whole all the time are not needed for it.
    let others: Vec<usize> = (0..shape.tops)
        .flat_map(|top| {
            let each = shape.disks / shape.tops;
            let whole = (top * each..(top + 1) * each).filter(|disk| !damaged.contains(disk));
            let whole: Vec<usize> = whole.collect();
            let chosen = choose(whole.len(), shape.spare_copies.min(whole.len()), seed);
            chosen.into_iter().map(move |index| whole[index]).collect::<Vec<_>>()
        })
        .collect();
    let rest = images.without(&others);
    let mut session = Session::open(rest.path(), POOL, POOL).unwrap();
    assert!(everything(&session) == before, "{}: not all was written back", shape.name);
    session.close().unwrap();
}

/// Puts noise over block `block` of the object at `path` on a pool of one disk; tells its place.
fn lose(images: &Images, session: &Session, path: &str, block: u64) -> (Bookmark, u64) {
    let object = session.filesystem().resolve(path.as_bytes()).unwrap();
    let objset = session.pool().dataset(POOL).unwrap().object;
    let at = Bookmark { objset, object, level: 0, block };
    let bp = session.pool().pointer_at(at).unwrap().unwrap();
    for dva in bp.dvas() {
        let file = std::fs::File::options().write(true).open(images.disk(0)).unwrap();
        file.write_all_at(&[0x5a; 512], DATA_AT + dva.offset).unwrap();
    }
    (at, object)
}

/// Beyond what redundancy can give exactly the damaged file is named, by us and by the kernel, which reads what we
/// wrote down, and finds the same by itself.
#[test]
fn what_is_lost_is_named() {
    let single = &SHAPES[0];
    let (images, mut session) = Session::create(single, 32 << 10);
    session.run(&load(3));
    let victims = [("f4", 1), ("f4", 2), ("f13", 0)];
    let lost: BTreeSet<Bookmark> =
        victims.iter().map(|(path, block)| lose(&images, &session, path, *block).0).collect();
    session.close().unwrap();
    drop(session);

    // A pool that is only read tells it, too, and keeps nothing.
    let before = std::fs::read(images.disk(0)).unwrap();
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    for i in 0..24 {
        let path = format!("f{i}");
        let fs = session.filesystem();
        let object = fs.resolve(path.as_bytes()).unwrap();
        let mut bytes = vec![0; fs.attrs(object).unwrap().size as usize];
        let read = (0..bytes.len()).step_by(32 << 10).map(|at| {
            let end = (at + (32 << 10)).min(bytes.len());
            fs.read(object, at as u64, &mut bytes[at..end]).is_err()
        });
        let failed = read.filter(|failed| *failed).count();
        assert_eq!(failed, victims.iter().filter(|(victim, _)| *victim == path).count(), "{path}");
    }
    assert!(session.pool().finish_healing(PATIENCE));
    assert_eq!(session.pool().lost_blocks().unwrap(), lost);
    session.close().unwrap();
    drop(session);
    assert!(std::fs::read(images.disk(0)).unwrap() != before, "nothing was noted");

    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    assert_eq!(session.pool().lost_blocks().unwrap(), lost, "it was forgotten");
    session.close().unwrap();
    drop(session);
    let state = testkit::temp_dir();
    let status = |words: &str| {
        let mut command = acceptance::thumper(&state.path().join("pools"));
        Ran::of(command.arg("-d").arg(images.path()).args(words.split(' '))).expect_ok().out
    };
    let told = status("zpool status -v tank");
    let files = "in the following files:\n\n        tank:/f4\n                bytes 32768-98303\n        \
                 tank:/f13\n                bytes 0-32767\n";
    assert!(told.ends_with(files) && told.contains("Restore the file"), "{told}");
    let told = status("zpool status tank");
    assert!(told.ends_with("errors: 2 data errors, use '-v' for a list\n"), "{told}");
    if !vm::wanted("that the kernel names the files that we know to be lost") {
        return;
    }
    let script = "set -euo pipefail\n\
         zpool import -d /d -o cachefile=none tank\n\
         zpool status -v tank | sed -n '/errors:/,$p'\n\
         zpool scrub -w tank; echo SCRUBBED\n\
         zpool status -v tank | sed -n '/errors:/,$p'\n\
         zpool export tank\n";
    let ran = Vm::new(images.path()).run(script).expect_ok();
    let named = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains("/tank/")).map(|line| line.trim().into()).collect()
    };
    let (before, after) = ran.out.split_once("SCRUBBED").unwrap();
    assert_eq!(named(before), ["/tank/f4", "/tank/f13"], "{ran}");
    assert_eq!(named(after), named(before), "{ran}");
    // What its scrub has written down is ours to read.
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    assert_eq!(session.pool().lost_blocks().unwrap(), lost);
    session.close().unwrap();
}

/// A lost block is told of under every name of its file, and of every snapshot and clone that has it, with its bytes.
#[test]
fn what_is_lost_is_named_wherever_it_is() {
    let (images, mut session) = Session::create(&SHAPES[0], 32 << 10);
    session.run(&load(3));
    session.pool().snapshot(&["tank@before".into()], &[]).unwrap();
    session.pool().clone_snapshot("tank@before", "tank/clone", BTreeMap::new()).unwrap();
    let fs = session.filesystem();
    let f4 = fs.resolve(b"f4").unwrap();
    fs.link(fs.root(), b"again", f4).unwrap();
    fs.write(f4, 3 * (32 << 10), &[7; 32 << 10]).unwrap();
    session.pool().sync().unwrap();
    session.pool().snapshot(&["tank@after".into()], &[]).unwrap();
    // One block that all have, and the one that the head has written anew, as the first snapshot has it.
    let (all, _) = lose(&images, &session, "f4", 1);
    let objset = session.pool().dataset("tank@before").unwrap().object;
    let old = Bookmark { objset, block: 3, ..all };
    let bp = session.pool().pointer_at(old).unwrap().unwrap();
    let file = std::fs::File::options().write(true).open(images.disk(0)).unwrap();
    file.write_all_at(&[0x5a; 512], DATA_AT + bp.dva(0).offset).unwrap();
    [all, old].into_iter().for_each(|at| session.pool().lost(at));
    session.close().unwrap();
    drop(session);

    let state = testkit::temp_dir();
    let mut command = acceptance::thumper(&state.path().join("pools"));
    let status = command.arg("-d").arg(images.path()).args(["zpool", "status", "-j", "tank"]);
    let told: serde_json::Value = serde_json::from_str(&Ran::of(status).expect_ok().out).unwrap();
    let both = vec![(32 << 10, 32 << 10), (96 << 10, 32 << 10)];
    let one = vec![(32 << 10, 32 << 10)];
    let due = BTreeMap::from([
        ("tank:/again", one.clone()),
        ("tank:/f4", one.clone()),
        ("tank@after:/again", one.clone()),
        ("tank@after:/f4", one),
        ("tank@before:/f4", both.clone()),
        ("tank/clone:/f4", both),
    ]);
    let due: BTreeMap<String, Vec<(u64, u64)>> =
        due.into_iter().map(|(name, ranges)| (name.to_string(), ranges)).collect();
    let damaged = told["pools"]["tank"]["damaged"].as_array().unwrap();
    let told = damaged.iter().map(|damaged| {
        let ranges = serde_json::from_value(damaged["ranges"].clone()).unwrap();
        (damaged["name"].as_str().unwrap().to_string(), ranges)
    });
    assert_eq!(told.collect::<BTreeMap<_, _>>(), due);
}
