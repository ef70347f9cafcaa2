//! Log space maps of ours: bounded, flushed over time and at export, replayed by all who open the pool; and those
//! that the kernel left gone on with (`kernel_leftovers`).
//!
//! Seen red: with a flush that leaves its metaslab's unflushed txg as it was, with one that puts this txg's
//! changes into the map, too, with logs dropped one too early, with logs that are never dropped; and without the
//! feature, with passes that each go on to the next vdev.

#![allow(clippy::unwrap_used)]

use acceptance::judges::assert_verified;
use acceptance::{SHAPES, Session, Shape, engine, judge};
use format::ObjectType;
use format::config::PoolState;
use pool::mos::key;
use pool::{Joined, Pool};
use testkit::data::Look;
use testkit::random::Rng;
use testkit::truth::Entry;
use testkit::workload::{Op, Workload};
use testkit::{Compare, Images, Vm, assert_same, poolaudit_kernels, rounds, tool, vm};

/// Eight disks side by side, 56 metaslabs.
const WIDE: Shape = Shape {
    name: "eight disks",
    disks: 8,
    tops: 8,
    disk_bytes: 128 << 20,
    joined: Joined::Single,
    ashift: 12,
    spare_copies: 0,
};

/// Number of logs.
fn logs(pool: &Pool) -> usize {
    let mos = pool.mos();
    let zap = mos.find(key::LOG_SPACEMAP_ZAP).unwrap();
    zap.map_or(0, |zap| mos.zap(zap).unwrap().entries().unwrap().len())
}

/// Space maps of which a block was written in the last txg, logs included, and all of them.
fn maps_written(pool: &Pool) -> (usize, usize) {
    let (mut written, mut all, mut from) = (0, 0, 1);
    while let Some((number, dnode)) = pool.mos().objset.next_object(from).unwrap() {
        from = number + 1;
        if dnode.kind() == ObjectType::SPACE_MAP {
            all += 1;
            written += usize::from(dnode.blkptrs().iter().any(|bp| bp.birth() == pool.txg()));
        }
    }
    (written, all)
}

/// A txg of files that come, and of some from everywhere that go.
fn txg(session: &mut Session, load: &mut Workload, rng: &mut Rng, there: &mut Vec<Vec<u8>>) {
    for i in 0..12 {
        let path = format!("f{}-{i}", load.ops.len()).into_bytes();
        let start = load.ops.len();
        load.file(&path, Look::Noise, 1 + rng.below(1_500_000));
        load.ops[start..].iter().for_each(|op| session.apply(op).unwrap());
        there.push(path);
    }
    for _ in 0..5 {
        let path = there.swap_remove(rng.index(there.len()));
        load.push(Op::Remove { path: path.clone() });
        session.apply(&Op::Remove { path }).unwrap();
    }
    session.apply(&Op::Sync).unwrap();
}

#[test]
fn they_are_bounded_and_gone_when_the_pool_is_exported() {
    let (images, mut session) = Session::create(&WIDE, 128 << 10);
    let (mut load, mut rng, mut there) = (Workload::new(1), Rng::new(1), Vec::new());
    let (mut most, mut sum) = (0, 0);
    for round in 0..60 {
        txg(&mut session, &mut load, &mut rng, &mut there);
        let count = logs(session.pool());
        assert!((1..=33).contains(&count), "round {round}: {count} logs");
        most = most.max(count);
        sum += maps_written(session.pool()).0;
        if round % 20 == 19 {
            session.apply(&Op::Reopen).unwrap();
            assert_eq!(logs(session.pool()), count, "they are gone on with");
        }
    }
    let (_, all) = maps_written(session.pool());
    // Which metaslabs are used depends on which thread allocates first: 49 to 52 maps were seen.
    assert!(most > 10 && all > 40, "at most {most} logs, {all} maps");
    say(&format!("{} of {all} maps written in a txg, on average", sum / 60));
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
    assert_verified(images.path(), engine::POOL);
    let path = images.path().to_str().unwrap();
    for letters in ["-m", "-mm"] {
        let ran = tool::zdb(["-e", "-p", path, letters, engine::POOL]).expect_ok();
        assert!(ran.out.contains("Log Space Map"), "{ran}");
    }

    let session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    let found = engine::list(session.filesystem()).unwrap();
    assert_same(&load.tree.entries(), &found, Compare::MODEL);
    session.pool().set_state(PoolState::Exported).unwrap();
    assert!(logs(session.pool()) <= 1, "{} logs", logs(session.pool()));
    session.pool().close().unwrap();
    drop(session);
    judge(&images, engine::POOL, 0, 1);
    assert_verified(images.path(), engine::POOL);
}

/// Without the feature each metaslab's changes go into its own map, and the passes of a txg end, too.
#[test]
fn without_the_feature_there_are_none() {
    let (images, mut session) = Session::create_with(&WIDE, 128 << 10, false);
    let (mut load, mut rng, mut there) = (Workload::new(3), Rng::new(3), Vec::new());
    (0..10).for_each(|_| txg(&mut session, &mut load, &mut rng, &mut there));
    assert_eq!(logs(session.pool()), 0);
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
    assert_verified(images.path(), engine::POOL);
}

fn say(line: &str) {
    use std::io::Write as _;
    drop(writeln!(std::io::stderr(), "logs: {line}"));
}

/// As after a crash: the pool is not exported, and much of what its maps should say is in logs.
#[test]
fn the_kernel_replays_them() {
    if !vm::wanted("that the OpenZFS kernel takes our log space maps") {
        return;
    }
    for shape in &[&WIDE, &SHAPES[2]][..usize::try_from(rounds(1, 2)).unwrap()] {
        let (images, mut session) = Session::create(shape, 128 << 10);
        let (mut load, mut rng, mut there) = (Workload::new(2), Rng::new(2), Vec::new());
        (0..25).for_each(|_| txg(&mut session, &mut load, &mut rng, &mut there));
        assert!(logs(session.pool()) > 2, "{} logs", logs(session.pool()));
        session.close().unwrap();
        kernel_goes_on(&images);
        // It has logs of its own now, and its own way to flush.
        let mut session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
        let found = engine::list(session.filesystem()).unwrap();
        let ours = |entries: Vec<Entry>| -> Vec<Entry> {
            entries.into_iter().filter(|entry| entry.path.starts_with(b"f")).collect()
        };
        assert_same(&ours(load.tree.entries()), &ours(found), Compare::MODEL);
        (0..25).for_each(|_| txg(&mut session, &mut load, &mut rng, &mut there));
        session.close().unwrap();
        tool::zdb_content(images.path(), engine::POOL);
        drop(poolaudit_kernels(images.path(), engine::POOL).expect_ok());
        assert_verified(images.path(), engine::POOL);
        kernel_goes_on(&images);
    }
}

/// It imports a pool that was not exported, writes, frees and scrubs.
fn kernel_goes_on(images: &Images) {
    let script = "set -euo pipefail\n\
         zpool import -f -N -d /d -o cachefile=none tank\n\
         zfs set mountpoint=/tank tank; zfs mount tank || true\n\
         cd /tank\n\
         for i in $(seq 20); do head -c $((i * 50000)) /dev/urandom > k$i; done\n\
         zpool sync tank; rm k*[13579]; zpool sync tank\n\
         cd /\n\
         zpool scrub -w tank; zpool status -v tank\n\
         zpool export tank\n";
    let ran = Vm::new(images.path()).run(script).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("with 0 errors"), "{ran}");
    assert!(ran.out.contains("No known data errors"), "{ran}");
    tool::zdb_content(images.path(), engine::POOL);
}
