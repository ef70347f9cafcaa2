//! Logs that cannot be replayed: their data sets wait for who can, as they are, and no other waits with them.

use std::collections::BTreeMap;

use device::sim::{Cut, SimSet};
use format::zil::ZilHeader;
use fs::{Filesystem, NewObject, Who, mode};
use pool::{Pool, PoolError, Stored};
use rt::Rng;
use rt::sync::Arc;

use crate::check;
use crate::rig::{self, MIRROR};

/// The one whose log waits, and another.
const WAITS: &str = "tank/waits";
const OTHER: &str = "tank/other";
/// Files that are in the logs alone.
const FILES: u64 = 24;

fn file() -> NewObject<'static> {
    NewObject::of(mode::FILE | 0o600, Who { uid: 0, gid: 0 })
}

fn contents(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 60_000];
    Rng::new(number).fill(&mut bytes);
    bytes
}

/// Makes a file, and has it in the log.
fn make(fs: &Filesystem, number: u64) {
    let name = format!("f{number}");
    let object = fs.create_with(fs.root(), name.as_bytes(), &file(), &contents(number)).unwrap();
    fs.fsync(object).unwrap();
}

/// Do the first `count` files have what they had, and are there no others?
fn holds(pool: &Arc<Pool>, name: &str, count: u64) {
    let fs = Filesystem::open(pool, name).unwrap();
    for number in 0..=FILES {
        let found = fs.resolve(format!("f{number}").as_bytes());
        assert_eq!(found.is_ok(), number < count, "{name}: f{number}");
        if let Ok(object) = found {
            let mut bytes = vec![0; 1 << 20];
            let got = fs.read(object, 0, &mut bytes).unwrap();
            assert!(bytes[..got] == contents(number), "{name}: f{number}");
        }
    }
}

/// What a crash left of both, each with files that are in its log alone.
fn crashed() -> SimSet {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    let made = [WAITS, OTHER].map(|name| {
        pool.create_filesystem(name, BTreeMap::new(), fs::make_filesystem).unwrap();
        let fs = Filesystem::open(&pool, name).unwrap();
        // A txg, which begins the log.
        make(&fs, 0);
        fs
    });
    (1..FILES).for_each(|number| made.iter().for_each(|fs| make(fs, number)));
    SimSet::from_images(set.crash(Cut::Dropped, 1))
}

fn header(pool: &Pool, name: &str) -> ZilHeader {
    ZilHeader::parse(&pool.dataset(name).unwrap().objset.phys().zil_header)
}

/// Seen red: the pool could not be written at all.
#[test]
fn a_log_for_which_there_is_no_room_keeps_one_data_set_from_being_written() {
    let set = crashed();
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    assert_eq!(pool.logs_to_replay().len(), 2);
    pool.set_property(WAITS, "quota", Some(Stored::Number(600_000))).unwrap();
    let left = fs::replay_logs(&pool).unwrap();
    let [left] = &left[..] else { panic!("{left:?}") };
    let says = |text: String| {
        for said in [WAITS, "its intent log has not been replayed", "quota", "make room"] {
            assert!(text.contains(said), "{text}");
        }
    };
    says(left.to_string());
    assert_eq!(pool.logs_to_replay(), [WAITS]);

    holds(&pool, OTHER, FILES);
    let fs = Filesystem::open(&pool, OTHER).unwrap();
    for round in 0..8 {
        for number in FILES..FILES + 40 {
            let name = format!("f{number}");
            drop(fs.unlink(fs.root(), name.as_bytes()));
            fs.create_with(fs.root(), name.as_bytes(), &file(), &contents(round)).unwrap();
        }
        pool.sync().unwrap();
    }
    for number in FILES..FILES + 40 {
        fs.unlink(fs.root(), format!("f{number}").as_bytes()).unwrap();
    }
    let waits = Filesystem::open(&pool, WAITS).unwrap();
    says(waits.create(waits.root(), b"new", &file()).unwrap_err().to_string());
    assert!(
        pool.destroy_dataset(WAITS).is_err(),
        "a data set was destroyed with what its log holds"
    );
    drop((fs, waits));
    pool.close().unwrap();
    drop(pool);
    check::verified(&set, &rig::all(&set)).unwrap();

    // There is room again.
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    pool.set_property(WAITS, "quota", Some(Stored::Number(0))).unwrap();
    assert!(fs::replay_logs(&pool).unwrap().is_empty());
    holds(&pool, WAITS, FILES);
    make(&Filesystem::open(&pool, WAITS).unwrap(), FILES);
    pool.close().unwrap();
    drop(pool);
    check::verified(&set, &rig::all(&set)).unwrap();
}

/// Whoever replays the rest must not do again what is done. Seen red: the header said nothing of the first record.
#[test]
fn what_was_replayed_before_a_record_that_fails_is_not_done_twice() {
    let set = crashed();
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let dataset = pool.begin_replay(WAITS).unwrap();
    let enter = || pool.admit(&dataset, 0).map(drop);
    pool.replay_record(&dataset, (1, true), enter).unwrap();
    let fails = || enter().and(Err(PoolError::NoSpace { name: WAITS.into() }));
    pool.replay_record(&dataset, (2, true), fails).unwrap_err();
    let fs = Filesystem::open(&pool, WAITS).unwrap();
    // So that there is something to write.
    fs.create(fs.root(), b"dirty", &file()).unwrap();
    pool.sync().unwrap();
    assert_eq!(header(&pool, WAITS).replay_seq.get(), 1);
}

/// A txg that nobody asked for may come to the disk before it is known that a record has failed.
#[test]
fn a_record_that_failed_is_not_done_for_good_though_its_txg_is_on_disk() {
    let set = crashed();
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let dataset = pool.begin_replay(WAITS).unwrap();
    let enter = || pool.admit(&dataset, 0).map(drop);
    pool.replay_record(&dataset, (1, true), enter).unwrap();
    let fs = Filesystem::open(&pool, WAITS).unwrap();
    // So that there is something to write.
    fs.create(fs.root(), b"dirty", &file()).unwrap();
    let fails = || {
        enter()?;
        pool.sync()?;
        Err(PoolError::NoSpace { name: WAITS.into() })
    };
    pool.replay_record(&dataset, (2, true), fails).unwrap_err();
    drop((fs, dataset));
    pool.leave_log(WAITS, "it cannot be done").unwrap();
    assert_eq!(header(&pool, WAITS).replay_seq.get(), 1);
}

/// What is large and was removed is freed a portion in each txg, also while the log of its data set is worked off.
#[test]
fn a_log_is_worked_off_beside_what_is_freed() {
    let set = SimSet::new(MIRROR.disks, MIRROR.disk_bytes);
    let pool = rig::create(&set, MIRROR).unwrap();
    let small = [("recordsize".to_string(), Stored::Number(4096))].into();
    pool.create_filesystem(WAITS, small, fs::make_filesystem).unwrap();
    pool.set_freeing(1, false).unwrap();
    let fs = Filesystem::open(&pool, WAITS).unwrap();
    fs.create_with(fs.root(), b"large", &file(), &vec![7; 2 << 20]).unwrap();
    pool.sync().unwrap();
    fs.unlink(fs.root(), b"large").unwrap();
    (0..FILES).for_each(|number| make(&fs, number));
    let set = SimSet::from_images(set.crash(Cut::Dropped, 1));
    drop((fs, pool));

    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    pool.set_freeing(1, false).unwrap();
    assert!(fs::replay_logs(&pool).unwrap().is_empty());
    holds(&pool, WAITS, FILES);
    assert!(pool.is_freeing().unwrap());
    pool.finish_freeing(|_| true).unwrap();
    pool.close().unwrap();
    drop(pool);
    check::verified(&set, &rig::all(&set)).unwrap();
}
