//! Space maps do not only grow: one that is much longer than what it holds asks for is written anew, with log
//! space maps and without, and whoever opens the pool then finds the same space.
//!
//! Seen red: with maps never condensed, with a new map that lacks its last range, with one that has its first range
//! twice, and with new maps that say nothing of what rests.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use acceptance::judges::assert_verified;
use acceptance::{Session, Shape, engine, judge};
use dmu::SpaceMap;
use format::ObjectType;
use fs::Filesystem;
use pool::mos::key;
use pool::{Joined, Pool};
use testkit::data::{Data, Look};
use testkit::random::Rng;
use testkit::workload::{Op, Workload};
use testkit::{Compare, Images, Vm, assert_same, rounds, tool, vm};

const ONE: Shape = Shape {
    name: "one disk",
    disks: 1,
    tops: 1,
    disk_bytes: 128 << 20,
    joined: Joined::Single,
    ashift: 12,
    spare_copies: 0,
};
const RECORD: u64 = 4096;
const RECORDS: u64 = 10_000;
/// Most bytes of a map: what 2,048 single sectors of 4,096 ask for, twice, and one turn of changes.
const LENGTH_MAX: u64 = 48 << 10;

/// Lengths of the metaslabs' own maps by object, in bytes.
fn lengths(pool: &Pool) -> BTreeMap<u64, u64> {
    let (mos, mut out, mut from) = (pool.mos(), BTreeMap::new(), 1);
    while let Some((number, dnode)) = mos.objset.next_object(from).unwrap() {
        from = number + 1;
        if dnode.kind() == ObjectType::SPACE_MAP {
            let map = SpaceMap::open(&mos.objset, number).unwrap();
            out.insert(number, map.phys().unwrap().0.length.get());
        }
    }
    if let Some(zap) = mos.find(key::LOG_SPACEMAP_ZAP).unwrap() {
        for entry in mos.zap(zap).unwrap().entries().unwrap() {
            out.remove(&entry.value.as_u64().unwrap());
        }
    }
    out
}

/// Txgs that each write single records of a large file anew, here and there. Returns how often a map was
/// written anew, and how much was appended to all of them, in bytes.
fn churn(session: &mut Session, load: &mut Workload, rng: &mut Rng, txgs: usize) -> (usize, u64) {
    let (mut condensed, mut appended) = (0, 0);
    let mut before = lengths(session.pool());
    for _ in 0..txgs {
        let from = load.ops.len();
        for _ in 0..700 {
            let data = Data { look: Look::Noise, seed: rng.below(u64::MAX), size: RECORD };
            load.write(b"file", rng.below(RECORDS) * RECORD, data);
        }
        load.push(Op::Sync);
        load.ops[from..].iter().for_each(|op| session.apply(op).unwrap());
        let now = lengths(session.pool());
        for (map, length) in &now {
            assert!(*length <= LENGTH_MAX, "map {map}: {length} bytes");
            let old = before.get(map).copied().unwrap_or(0);
            condensed += usize::from(*length < old);
            appended += length.saturating_sub(old);
        }
        before = now;
    }
    (condensed, appended)
}

/// The pool as of an older uberblock still has all its blocks (INV-1).
fn assert_is_whole_at(dir: &Path, txg: u64) {
    let pool = engine::open_as_of(dir, engine::POOL, txg);
    let fs = Filesystem::open(&pool, engine::POOL).unwrap();
    let file = fs.resolve(b"file").unwrap();
    let mut record = vec![0; RECORD as usize];
    for number in 0..RECORDS {
        fs.read(file, number * RECORD, &mut record)
            .unwrap_or_else(|e| panic!("record {number} as of txg {txg}: {e}"));
    }
}

fn maps_stay_short(log: bool) {
    let (images, mut session) = Session::create_with(&ONE, RECORD, log);
    let (mut load, mut rng) = (Workload::new(5), Rng::new(5));
    load.file(b"file", Look::Noise, RECORDS * RECORD);
    load.ops.iter().for_each(|op| session.apply(op).unwrap());
    let mut seen = (0, 0);
    for _ in 0..rounds(6, 12) {
        let (condensed, appended) = churn(&mut session, &mut load, &mut rng, 10);
        seen = (seen.0 + condensed, seen.1 + appended);
        let (txg, before) = (session.pool().txg(), session.pool().space().unwrap());
        session.apply(&Op::Reopen).unwrap();
        assert_eq!(session.pool().txg(), txg);
        assert_eq!(session.pool().space().unwrap().allocated, before.allocated);
        // What the last txgs freed is not written to yet, whoever opens the pool.
        churn(&mut session, &mut load, &mut rng, 1);
        assert_is_whole_at(images.path(), txg - 2);
    }
    let lengths = lengths(session.pool());
    let sum: u64 = lengths.values().sum();
    say(&format!("{} maps of {sum} bytes, {seen:?} times condensed and bytes", lengths.len()));
    assert!(seen.0 >= lengths.len() && seen.1 > 2 * sum, "{seen:?}, now {sum}");
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
    assert_verified(images.path(), engine::POOL);
    let path = images.path().to_str().unwrap();
    drop(tool::zdb(["-e", "-p", path, "-mm", engine::POOL]).expect_ok());
    let session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    let found = engine::list(session.filesystem()).unwrap();
    assert_same(&load.tree.entries(), &found, Compare::MODEL);
    drop(session);
    the_kernel_goes_on(&images);
}

#[test]
fn with_logs_maps_stay_as_short_as_what_they_hold() {
    maps_stay_short(true);
}

#[test]
fn without_logs_they_do_too() {
    maps_stay_short(false);
}

/// It imports the pool, frees much of what we wrote (in a pool that is nearly full it has each write wait for a txg),
/// writes where it finds room, frees again and scrubs.
fn the_kernel_goes_on(images: &Images) {
    if !vm::wanted("that the OpenZFS kernel takes our condensed space maps") {
        return;
    }
    let script = "set -euo pipefail\n\
         zpool import -f -N -d /d -o cachefile=none tank\n\
         zfs set mountpoint=/tank tank; zfs mount tank || true\n\
         cd /tank; truncate -s 8M file; zpool sync tank; zpool sync tank\n\
         for i in $(seq 20); do head -c $((i * 30000)) /dev/urandom > k$i; done\n\
         zpool sync tank; rm k*[13579]; zpool sync tank; cd /\n\
         zpool scrub -w tank; zpool status -v tank\n\
         zpool export tank\n";
    let ran = Vm::new(images.path()).run(script).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("No known data errors"), "{ran}");
    tool::zdb_content(images.path(), engine::POOL);
}

fn say(line: &str) {
    use std::io::Write as _;
    drop(writeln!(std::io::stderr(), "condense: {line}"));
}

/// What an uberblock let go rests until two more have come, however many txgs that had nothing to write lie between, and
/// whoever opens the pool (INV-1).
///
/// Seen red: as if those txgs had had uberblocks.
#[test]
fn what_was_let_go_rests_on_over_txgs_with_nothing_to_write() {
    // With logs the frees of some metaslabs are told anew by each txg: which ones depends on the txg.
    for (log, more) in [(false, 0), (true, 0), (true, 1), (true, 2)] {
        let (images, mut session) = Session::create_with(&ONE, RECORD, log);
        let mut load = Workload::new(6);
        load.file(b"file", Look::Noise, RECORDS * RECORD);
        load.push(Op::Sync);
        load.ops.iter().for_each(|op| session.apply(op).unwrap());
        // Each writes what lies side by side, and so lets go as much.
        let rewrite = |session: &mut Session, seed| {
            let data = Data { look: Look::Noise, seed, size: 4 << 20 };
            session.apply(&Op::Write { path: b"file".to_vec(), offset: 0, data }).unwrap();
            session.apply(&Op::Sync).unwrap();
        };
        for seed in 0..more {
            let data = Data { look: Look::Noise, seed, size: RECORD };
            let (path, offset) = (b"file".to_vec(), 20 << 20);
            session.apply(&Op::Write { path, offset, data }).unwrap();
            session.apply(&Op::Sync).unwrap();
        }
        let third = session.pool().uberblock_txg();
        rewrite(&mut session, 10);
        for _ in 0..5 {
            session.pool().sync().unwrap();
        }
        rewrite(&mut session, 11);
        session.apply(&Op::Reopen).unwrap();
        rewrite(&mut session, 12);
        assert_is_whole_at(images.path(), third);
        session.close().unwrap();
    }
}
