//! What the OpenZFS kernel leaves in its pools, and we must not tread on when we write: log space
//! maps after a power cut, gang blocks, deduplicated blocks, intent logs that were not replayed.

#![allow(clippy::unwrap_used)]

use acceptance::{Session, engine};
use device::WriteFile;
use pool::Pool;
use pool::mos::key;
use testkit::workload::Op;
use testkit::{Images, Vm, poolaudit_kernels, tool, vm};

const POOL: &str = "tank";

/// Number of log space maps, and the words in them.
fn logs(pool: &Pool) -> (u64, u64) {
    let mos = pool.mos();
    let Some(zap) = mos.find(key::LOG_SPACEMAP_ZAP).unwrap() else { return (0, 0) };
    let entries = mos.zap(zap).unwrap().entries().unwrap();
    let length =
        |object| dmu::SpaceMap::open(&mos.objset, object).unwrap().phys().unwrap().0.length;
    let words = entries.iter().map(|e| length(e.value.as_u64().unwrap()).get() / 8).sum();
    (entries.len() as u64, words)
}

/// A script that makes `tank` with these options on the disks in /d, joined so, and goes on.
fn made(options: &str, joined: &str, rest: &str) -> String {
    format!(
        "set -euo pipefail\n\
         zpool create -o cachefile=none -O sync=disabled {options} tank {joined} $(ls /d/d0?)\n\
         fill() {{ head -c \"$2\" /dev/urandom > \"$1\"; }}\n\
         {rest}"
    )
}

fn checked_by_all(images: &Images, sums: &str) {
    tool::zdb_content(images.path(), POOL);
    drop(poolaudit_kernels(images.path(), POOL).expect_ok());
    let script = format!(
        "set -euo pipefail\n\
         zpool import -d /d -o cachefile=none tank\n\
         cd /tank; {sums}; cd /\n\
         fs=$(ls /tank | wc -l); echo \"$fs names\"\n\
         head -c 3000000 /dev/urandom > /tank/by-the-kernel\n\
         zpool sync tank\n\
         zpool scrub -w tank; zpool status -v tank\n\
         zpool export tank\n"
    );
    let ran = Vm::new(images.path()).run(&script).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("with 0 errors"), "{ran}");
    assert!(ran.out.contains("No known data errors"), "{ran}");
    tool::zdb_content(images.path(), POOL);
}

/// The kernel's changes of the last txgs are in logs, not in the maps of the metaslabs, when the
/// power goes. We open that pool for writing and go on with the logs.
#[test]
fn log_space_maps_left_by_a_power_cut_are_gone_on_with() {
    if !vm::wanted("that we go on from log space maps that the kernel left") {
        return;
    }
    let images = testkit::fresh_images(3, 256 << 20);
    let script = made(
        "-o ashift=12",
        "raidz1",
        "for round in 1 2 3 4 5 6; do\n\
           for i in $(seq 40); do fill /tank/r$round-$i $((i * 3000)); done\n\
           zpool sync tank\n\
           rm -f /tank/r$((round - 1))-*[0-5]\n\
           zpool sync tank\n\
         done\n\
         cd /tank; sha256sum r* > /d/sums; cd /\n\
         zpool sync tank; sync -f /d/sums\n\
         echo READY; sleep 1000\n",
    );
    drop(Vm::new(images.path()).options(["--kill-after", "1"]).run(&script).expect_ok());
    let pool = engine::open_to_look(images.path(), POOL);
    let (count, words) = logs(&pool);
    assert!(count >= 3 && words > 100, "{count} log space maps of {words} words");
    assert_eq!(pool.read_only_reason(), Some("it was opened read-only"));
    let before = pool.space().unwrap();
    drop(pool);

    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    assert_eq!(session.pool().read_only_reason(), None);
    assert_eq!(logs(session.pool()), (count, words), "an open writes nothing");
    let now = session.pool().space().unwrap();
    assert!(now.allocated.abs_diff(before.allocated) < 2 << 20, "{before:?} {now:?}");
    // As much again as there was, so that what was free by mistake would be gone.
    let fs = session.filesystem();
    let names: Vec<_> = fs.read_dir(fs.root()).unwrap();
    assert!(names.len() > 100, "{} names", names.len());
    let mut load = testkit::workload::Workload::new(77);
    for i in 0..60 {
        load.file(format!("ours{i}").as_bytes(), testkit::data::Look::Noise, 40_000 * (i % 7));
        if i % 20 == 19 {
            load.push(Op::Sync);
        }
    }
    for entry in names.iter().filter(|e| e.name.starts_with(b"r5")) {
        load_remove(&mut session, &entry.name);
    }
    let ops = load.ops.clone();
    session.run(&ops);
    session.apply(&Op::Reopen).unwrap();
    let (ours, _) = logs(session.pool());
    assert!((1..=33).contains(&ours), "{ours} logs");
    session.close().unwrap();
    checked_by_all(&images, "grep -v ' r5' /d/sums | sha256sum -c --quiet -");
}

fn load_remove(session: &mut Session, name: &[u8]) {
    session.apply(&Op::Remove { path: name.to_vec() }).unwrap();
}

/// The kernel splits blocks into gangs when it must (here: because it is told to). We read them,
/// overwrite and remove them, and every piece goes back, none that is another's.
#[test]
fn gang_blocks_are_freed_piece_by_piece() {
    if !vm::wanted("that we free the kernel's gang blocks") {
        return;
    }
    let images = testkit::fresh_images(3, 256 << 20);
    let script = made(
        "-o ashift=9",
        "raidz1",
        "echo 3000 > /sys/module/zfs/parameters/metaslab_force_ganging\n\
         zfs set copies=2 tank\n\
         for i in $(seq 30); do fill /tank/gone$i 900000; done\n\
         for i in $(seq 12); do fill /tank/kept$i 900000; done\n\
         zpool sync tank\n\
         cd /tank; sha256sum kept* > /d/sums; cd /\n\
         zpool export tank\n\
         zdb -e -p /d -bb tank | grep -i gang\n",
    );
    let ran = Vm::new(images.path()).run(&script).expect_ok();
    assert!(ran.out.contains("ganged count"), "no gang blocks were made: {ran}");
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    for i in 1..=30 {
        let path = format!("gone{i}").into_bytes();
        let op = match i % 3 {
            0 => Op::Truncate { path, size: 200_000 },
            1 => {
                let data = testkit::data::Data {
                    look: testkit::data::Look::Noise,
                    seed: i,
                    size: 400_000,
                };
                Op::Write { path, offset: 70_000, data }
            }
            _ => Op::Remove { path },
        };
        session.apply(&op).unwrap_or_else(|e| panic!("{op}: {e}"));
        if i % 10 == 0 {
            session.apply(&Op::Sync).unwrap();
        }
    }
    // What was freed by mistake would be written over by these.
    let mut load = testkit::workload::Workload::new(5);
    for i in 0..60 {
        load.file(format!("ours{i}").as_bytes(), testkit::data::Look::Noise, 1_000_000);
        load.push(Op::Sync);
    }
    let ops = load.ops.clone();
    session.run(&ops);
    session.close().unwrap();
    checked_by_all(&images, "sha256sum -c --quiet /d/sums");
}

/// A snapshot that the kernel takes of a file system in use has the header of its intent log. What we make of it
/// has a log of its own, an empty one: else we could not write there, and the kernel would replay what is not its.
#[test]
fn snapshots_of_file_systems_in_use_begin_without_their_logs() {
    if !vm::wanted("that what we make of the kernel's snapshots has no old intent log") {
        return;
    }
    let images = testkit::fresh_images(2, 128 << 20);
    let script = "set -euo pipefail\n\
                  zpool create -o cachefile=none -O sync=always tank mirror /d/d00 /d/d01\n\
                  zfs create tank/used; zpool sync tank\n\
                  for i in $(seq 5); do head -c 40000 /dev/urandom > /tank/used/f$i; done\n\
                  cd /tank/used; sha256sum * > /d/sums; cd /\n\
                  zfs snapshot tank/used@log\n\
                  head -c 300000 /dev/urandom > /tank/used/later\n\
                  zfs rollback tank/used@log; zfs set sync=disabled tank; zpool sync tank\n\
                  zpool export tank\n";
    drop(Vm::new(images.path()).run(script).expect_ok());
    let pool = engine::open_to_look(images.path(), POOL);
    let header = pool.dataset("tank/used@log").unwrap().objset.phys().zil_header;
    assert!(header.iter().any(|byte| *byte != 0), "the snapshot has no log in its header");
    drop(pool);
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    session.pool().clone_snapshot("tank/used@log", "tank/clone", Default::default()).unwrap();
    session.pool().rollback("tank/used@log").unwrap();
    for name in ["tank/clone", "tank/used"] {
        let fs = fs::Filesystem::open(session.pool(), name).unwrap();
        assert_eq!(fs.dataset().objset.phys().zil_header, [0; 192], "{name}");
        let create = Op::Create { path: b"ours".to_vec(), mode: 0o644 };
        engine::change(&fs, &create).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    session.close().unwrap();
    drop(session);
    acceptance::assert_verified(images.path(), POOL);
    checked_by_all(
        &images,
        "for at in used clone; do cd /tank/$at; sha256sum -c --quiet /d/sums; test -e ours; test ! -e later; done",
    );
}

/// Blocks with several owners would be freed while others have them: such pools are opened to be read, and say why
/// (INV-12). Intent logs whose blocks nobody has claimed are, before anything can go over them.
#[test]
fn other_peoples_blocks_are_not_written_over() {
    if !vm::wanted("that we keep our hands off deduplicated blocks, and claim intent logs") {
        return;
    }
    let images = testkit::fresh_images(2, 128 << 20);
    let script = made(
        "",
        "mirror",
        "zfs create -o dedup=on tank/twice\n\
         fill /tank/twice/a 2000000; cp /tank/twice/a /tank/twice/b\n\
         zpool export tank\n",
    );
    drop(Vm::new(images.path()).run(&script).expect_ok());
    refused(&images, "deduplicated");

    let images = testkit::fresh_images(2, 128 << 20);
    let script = made(
        "",
        "mirror",
        "zfs create -o sync=always tank/logged\n\
         fill /tank/logged/early 100000; zpool sync tank\n\
         echo 100000 > /sys/module/zfs/parameters/zfs_txg_timeout\n\
         zpool sync tank\n\
         for i in $(seq 20); do fill /tank/logged/late$i 30000; done\n\
         echo READY; sleep 1000\n",
    );
    drop(Vm::new(images.path()).options(["--kill-after", "0.5"]).run(&script).expect_ok());
    // We replay it, the kernel sees that, and nobody lacks anything.
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    assert_eq!(session.pool().read_only_reason(), None);
    session.apply(&Op::Create { path: b"ours".to_vec(), mode: 0o644 }).unwrap();
    session.close().unwrap();
    tool::zdb_content(images.path(), POOL);
    let script = "set -euo pipefail\n\
                  zpool import -f -d /d -o cachefile=none tank\n\
                  test $(ls /tank/logged | wc -l) = 21; test -e /tank/ours\n\
                  zpool export tank\n";
    drop(Vm::new(images.path()).run(script).expect_ok());
    tool::zdb_content(images.path(), POOL);
}

#[track_caller]
fn refused(images: &Images, why: &str) {
    let before: Vec<_> = images
        .disks()
        .iter()
        .map(|d| testkit::truth::hex_digest(&std::fs::read(d).unwrap()))
        .collect();
    let session = Session::open(images.path(), POOL, POOL).unwrap();
    let reason = session.pool().read_only_reason().unwrap_or("none").to_string();
    assert!(reason.contains(why), "{reason}");
    drop(session);
    for (disk, before) in images.disks().iter().zip(before) {
        drop(WriteFile::open(disk).unwrap());
        assert_eq!(testkit::truth::hex_digest(&std::fs::read(disk).unwrap()), before, "it wrote");
    }
}
