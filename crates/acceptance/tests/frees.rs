//! Large files go in portions, by way of the delete queue; large truncates too. Whatever is cut off in
//! between is a pool that the referees find right.
//!
//! Seen red: an object that is entered nowhere, an entry that outlives its object, extended attributes
//! that stay behind.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use acceptance::{SHAPES, Session, Shape, engine, judge};
use format::label::DATA_AT;
use format::scan::Bookmark;
use format::zap::Value;
use fs::{Accounts, Filesystem, FsError, NewObject, Who, mode};
use pool::props::space::Owner;
use rt::mem::Holder;
use testkit::{Images, noise, rounds};

const WHO: Who = Who { uid: 1000, gid: 100 };
const RECORD: u64 = 512;

/// Our own judge is content, too.
fn assert_verified(images: &Images) {
    let scan = vdev::import::scan(&[images.path().to_path_buf()]).unwrap();
    let found = scan.choose(engine::POOL).unwrap();
    let report = verify::verify_pool(found, &verify::Options::default(), &mut |_| true).unwrap();
    let clean = report.verdict == verify::Verdict::Clean;
    assert!(clean, "{:?} {:?}", report.findings, report.devices);
}

fn put(fs: &Filesystem, name: &str, blocks: u64) -> u64 {
    let file = NewObject::of(mode::FILE | 0o644, WHO);
    let data = noise(blocks, (blocks * RECORD) as usize);
    fs.create_with(fs.root(), name.as_bytes(), &file, &data).unwrap()
}

fn used_by_user(fs: &Filesystem) -> u64 {
    let found = pool::dsl::lookup::find(fs.pool().mos(), engine::POOL).unwrap();
    let accounts = Accounts::of(fs.pool(), &found).unwrap().unwrap();
    accounts.used(Owner::User, false, WHO.uid).unwrap()
}

/// Closes the pool, has all judges look at it, and opens it to free `blocks` in a txg.
fn judged(images: &Images, session: &mut Session, blocks: u64) {
    session.close().unwrap();
    judge(images, engine::POOL, 0, 0);
    assert_verified(images);
    *session =
        Session::open_freeing(images.path(), engine::POOL, engine::POOL, Some(blocks)).unwrap();
}

#[test]
fn a_large_file_goes_in_portions_and_survives_every_cut() {
    const PORTION: u64 = 300;
    let (images, mut session) = Session::create(&SHAPES[0], RECORD);
    session.pool().set_freeing(PORTION, false).unwrap();
    let fs = session.filesystem();
    let large = put(fs, "large", 1500);
    put(fs, "other", 700);
    put(fs, "small", 40);
    fs.link(fs.root(), b"second", large).unwrap();
    session.pool().sync().unwrap();
    let all = used_by_user(fs);

    // With the first of two names nothing goes.
    fs.unlink(fs.root(), b"large").unwrap();
    session.pool().sync().unwrap();
    assert_eq!((used_by_user(fs), fs.delete_queue().unwrap()), (all, vec![]));
    fs.unlink(fs.root(), b"second").unwrap();
    fs.unlink(fs.root(), b"small").unwrap();
    assert!(matches!(fs.attrs(large), Err(FsError::Dmu(dmu::DmuError::NoObject { .. }))));
    session.pool().sync().unwrap();
    assert_eq!(fs.delete_queue().unwrap(), vec![large]);
    let mut seen = vec![used_by_user(fs)];
    for cut in 0..20 {
        if session.filesystem().delete_queue().unwrap().is_empty() {
            break;
        }
        judged(&images, &mut session, PORTION);
        if cut == 1 {
            // Two at once share what a txg frees.
            let fs = session.filesystem();
            fs.unlink(fs.root(), b"other").unwrap();
        }
        session.pool().sync().unwrap();
        seen.push(used_by_user(session.filesystem()));
    }
    // 1,500 blocks and 700 of 4 KiB each, at most 300 (and a few) in a txg; closing is a txg, too.
    let steps: Vec<u64> = seen.windows(2).map(|pair| pair[0] - pair[1]).collect();
    assert!((4..9).contains(&steps.len()), "{steps:?}");
    assert!(steps.iter().all(|step| *step <= 2 * (PORTION + 10) * 4096), "{steps:?}");
    assert_eq!(used_by_user(session.filesystem()), 0);
    judged(&images, &mut session, PORTION);
    assert!(session.filesystem().read_dir(session.filesystem().root()).unwrap().is_empty());
    // The numbers can be had again.
    let again = put(session.filesystem(), "again", 3);
    assert!(again <= large, "{again} beyond {large}");
    session.close().unwrap();
}

/// In a txg of its own each, until all is gone, without anybody asking.
#[test]
fn what_is_left_is_worked_off_by_itself() {
    let (images, mut session) = Session::create(&SHAPES[1], RECORD);
    session.pool().set_freeing(200, false).unwrap();
    let (one, two) = (put(session.filesystem(), "a", 3000), put(session.filesystem(), "b", 2000));
    session.pool().sync().unwrap();
    let fs = session.filesystem();
    fs.unlink(fs.root(), b"a").unwrap();
    fs.unlink(fs.root(), b"b").unwrap();
    session.pool().sync().unwrap();
    assert_eq!(fs.delete_queue().unwrap().len(), 2, "{one} {two}");
    session.close().unwrap();
    // A reader leaves it as it is.
    let pool = engine::open_to_look(images.path(), engine::POOL);
    let fs = Filesystem::open(&pool, engine::POOL).unwrap();
    assert_eq!(fs.delete_queue().unwrap().len(), 2);
    drop((fs, pool));
    let mut session =
        Session::open_freeing(images.path(), engine::POOL, engine::POOL, Some(200)).unwrap();
    let first = session.pool().txg();
    session.pool().set_freeing(200, true).unwrap();
    session.pool().sync().unwrap();
    session.pool().finish_freeing(|_| true).unwrap();
    let txgs = session.pool().txg() - first;
    assert!((15..40).contains(&txgs), "{txgs} txgs for 5,000 blocks, 200 in each");
    assert_eq!(session.filesystem().delete_queue().unwrap(), [0; 0]);
    session.close().unwrap();
    judge(&images, engine::POOL, 2, 0);
    assert_verified(&images);
}

/// Whoever knows what another file has taken the place of, be it a kernel that is about to open it, still meets it; it goes when
/// he forgets it. In the delete queue it stands only if a txg comes in between.
#[test]
fn what_is_replaced_stays_until_it_is_forgotten() {
    let (images, mut session) = Session::create(&SHAPES[1], RECORD);
    let fs = session.filesystem();
    let replaced = |name: &str, old: &str| {
        let (old, _new) = (put(fs, old, 3), put(fs, name, 2));
        fs.know(old);
        old
    };
    let (soon, later) = (replaced("a", "b"), replaced("c", "d"));
    let unknown = put(fs, "f", 3);
    put(fs, "e", 2);
    for (from, to) in [(b"a", b"b"), (b"c", b"d"), (b"e", b"f")] {
        fs.rename(fs.root(), from, fs.root(), to).unwrap();
    }
    assert!(fs.attrs(unknown).is_err(), "nobody knows it");
    for number in [soon, later] {
        assert_eq!(fs.attrs(number).unwrap().links, 0);
        fs.hold(number).unwrap();
        let mut bytes = vec![0; 4 * RECORD as usize];
        assert_eq!(fs.read(number, 0, &mut bytes).unwrap() as u64, 3 * RECORD);
        fs.let_go(number).unwrap();
    }
    fs.forget(soon, 1);
    assert!(fs.attrs(soon).is_err());
    session.pool().sync().unwrap();
    let fs = session.filesystem();
    assert_eq!(fs.delete_queue().unwrap(), [later]);
    fs.forget(later, 1);
    assert!(fs.attrs(later).is_err());
    session.pool().sync().unwrap();
    assert_eq!(session.filesystem().delete_queue().unwrap(), [0; 0]);
    session.close().unwrap();
    judge(&images, engine::POOL, 2, 0);
    assert_verified(&images);
}

/// Truncates and holes of many blocks take several txgs, each of which leaves a file that is as long as
/// it says.
#[test]
fn large_truncates_and_holes_take_several_txgs() {
    const PORTION: u64 = 250;
    let (images, mut session) = Session::create(&SHAPES[2], RECORD);
    session.pool().set_freeing(PORTION, true).unwrap();
    let fs = session.filesystem();
    let cut = put(fs, "cut", 3000);
    let hole = put(fs, "hole", 3000);
    session.pool().sync().unwrap();
    let txg = session.pool().txg();
    fs.truncate(cut, 100_000).unwrap();
    session.pool().sync().unwrap();
    let txgs = session.pool().txg() - txg;
    assert!((9..20).contains(&txgs), "{txgs} txgs for 2,800 blocks, 250 in each");
    let txg = session.pool().txg();
    fs.punch_hole(hole, 10_000, 1_400_000).unwrap();
    session.pool().sync().unwrap();
    let txgs = session.pool().txg() - txg;
    assert!((9..20).contains(&txgs), "{txgs} txgs for 2,700 blocks, 250 in each");
    for (number, size, zeros) in [(cut, 100_000, 0..0), (hole, 3000 * 512, 10_000..1_410_000)] {
        let mut want = noise(3000, 3000 * 512);
        want.truncate(size);
        want[zeros].fill(0);
        let mut have = vec![0; size + 1];
        assert_eq!(fs.read(number, 0, &mut have).unwrap(), size);
        assert!(have[..size] == want, "object {number}");
    }
    session.close().unwrap();
    judge(&images, engine::POOL, 1, 0);
    assert_verified(&images);
}

/// Snapshots, clones, rollbacks, promotions and destroys while a file is half freed.
#[test]
fn branches_of_a_half_freed_file() {
    const PORTION: u64 = 60;
    let (images, mut session) = Session::create(&SHAPES[0], RECORD);
    session.pool().set_freeing(PORTION, false).unwrap();
    session.pool().create_filesystem("tank/a", BTreeMap::new(), fs::make_filesystem).unwrap();
    let fs = Filesystem::open(session.pool(), "tank/a").unwrap();
    let large = put(&fs, "large", 600);
    drop(fs);
    // With extended attributes in a hidden directory: they go with it.
    session.pool().set_property("tank/a", "xattr", Some(pool::Stored::Number(1))).unwrap();
    let fs = Filesystem::open(session.pool(), "tank/a").unwrap();
    fs.set_xattr(large, b"user.one", Some(&noise(5, 3000))).unwrap();
    fs.set_xattr(large, b"user.two", Some(b"2")).unwrap();
    session.pool().snapshot(&["tank/a@whole".into()], &[]).unwrap();
    fs.unlink(fs.root(), b"large").unwrap();
    session.pool().sync().unwrap();
    session.pool().sync().unwrap();
    session.pool().snapshot(&["tank/a@half".into()], &[]).unwrap();
    assert_eq!(fs.delete_queue().unwrap(), [large]);
    drop(fs);

    // A clone has the queue of its snapshot.
    session.pool().clone_snapshot("tank/a@half", "tank/c", BTreeMap::new()).unwrap();
    let clone = Filesystem::open(session.pool(), "tank/c").unwrap();
    assert_eq!(clone.delete_queue().unwrap(), [large]);
    drop(clone);
    session.pool().sync().unwrap();
    judged(&images, &mut session, PORTION);
    session.pool().promote("tank/c").unwrap();
    let (a, c) = (
        Filesystem::open(session.pool(), "tank/a").unwrap(),
        Filesystem::open(session.pool(), "tank/c").unwrap(),
    );
    session.pool().sync().unwrap();
    drop((a, c));
    judged(&images, &mut session, PORTION);
    let a = Filesystem::open(session.pool(), "tank/a").unwrap();
    let c = Filesystem::open(session.pool(), "tank/c").unwrap();
    session.pool().set_freeing(100_000, false).unwrap();
    session.pool().sync().unwrap();
    assert_eq!((a.delete_queue().unwrap(), c.delete_queue().unwrap()), (vec![], vec![]));
    drop((a, c));

    // Back to where it was half freed, and to where it was whole.
    session.pool().rollback("tank/c@half").unwrap();
    let c = Filesystem::open(session.pool(), "tank/c").unwrap();
    assert_eq!(c.delete_queue().unwrap(), [large]);
    session.pool().sync().unwrap();
    drop(c);
    judged(&images, &mut session, PORTION);
    session.pool().destroy_dataset("tank/a").unwrap();
    session.pool().destroy_snapshots(&["tank/c@half".into()], false).unwrap();
    session.pool().rollback("tank/c@whole").unwrap();
    let c = Filesystem::open(session.pool(), "tank/c").unwrap();
    assert_eq!(c.delete_queue().unwrap(), [0; 0]);
    let names: Vec<_> = c.xattrs(large).unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [b"user.one".to_vec(), b"user.two".to_vec()]);
    c.unlink(c.root(), b"large").unwrap();
    session.pool().sync().unwrap();
    drop(c);
    // Destroyed with its queue.
    session.pool().destroy_snapshots(&["tank/c@whole".into()], false).unwrap();
    session.pool().destroy_dataset("tank/c").unwrap();
    judged(&images, &mut session, PORTION);
    session.pool().finish_freeing(|_| true).unwrap();
    assert_eq!(session.pool().freeing().unwrap(), 0);
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 0);
    assert_verified(&images);
}

/// What each txg of the freeing takes: milliseconds, and bytes that it frees.
fn portions(session: &Session) -> Vec<(f64, u64)> {
    let allocated = || session.pool().space().unwrap().allocated;
    let mut portions = Vec::new();
    while session.pool().is_freeing().unwrap() {
        let (before, start) = (allocated(), rt::time::now());
        session.pool().sync().unwrap();
        let time = start.elapsed().as_secs_f64() * 1e3;
        portions.push((time, before.saturating_sub(allocated())));
    }
    portions
}

fn told(what: &str, blocks: u64, first: f64, portions: &[(f64, u64)]) {
    let mut times: Vec<f64> = portions.iter().map(|(time, _)| *time).collect();
    let mut bytes: Vec<u64> = portions.iter().map(|(_, bytes)| *bytes).collect();
    times.sort_by(f64::total_cmp);
    bytes.sort_unstable();
    let (count, last) = (times.len(), times.len() - 1);
    let (median, most) = (times[count / 2], times[last]);
    let line = format!(
        "{what} of {blocks} blocks: gone after {first:.0} ms, then {count} txgs, median {median:.0} ms, \
         at most {most:.0} ms\n"
    );
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    assert!(bytes[last] <= 2 * bytes[count / 2], "{what}: {portions:.0?}");
    // A txg takes some 30 ms: on a busy machine others take a part of it.
    assert!(most <= 2.0 * median + 100.0, "{what}: {portions:.0?}");
}

/// A file system and a file of very many blocks are gone at once, and no txg of their freeing takes
/// over twice the median.
#[test]
fn no_txg_of_freeing_very_much_takes_long() {
    let blocks = rounds(120_000, 1_000_000);
    let shape = Shape { disk_bytes: 3 << 30, ashift: 9, ..SHAPES[0] };
    let (images, mut session) = Session::create(&shape, RECORD);
    session.pool().create_filesystem("tank/a", BTreeMap::new(), fs::make_filesystem).unwrap();
    let a = Filesystem::open(session.pool(), "tank/a").unwrap();
    let (file, part) = (put(&a, "file", 0), noise(9, 50_000 * RECORD as usize));
    for at in (0..blocks).step_by(50_000) {
        let count = (blocks - at).min(50_000) * RECORD;
        a.write(file, at * RECORD, &part[..count as usize]).unwrap();
    }
    drop(a);
    let own = put(session.filesystem(), "file", 0);
    for at in (0..blocks).step_by(50_000) {
        let count = (blocks - at).min(50_000) * RECORD;
        session.filesystem().write(own, at * RECORD, &part[..count as usize]).unwrap();
    }
    session.close().unwrap();
    // As a new process has it: nothing is in memory.
    let open = || Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    session = open();
    let full = session.pool().space().unwrap().allocated;
    let per_txg = session.pool().blocks_per_txg().unwrap();
    session.pool().set_freeing(per_txg, false).unwrap();
    let start = rt::time::now();
    session.pool().destroy_dataset("tank/a").unwrap();
    let first = start.elapsed().as_secs_f64() * 1e3;
    told("a file system", blocks, first, &portions(&session));
    session.close().unwrap();
    session = open();
    session.pool().set_freeing(per_txg, false).unwrap();
    let start = rt::time::now();
    session.filesystem().unlink(session.filesystem().root(), b"file").unwrap();
    session.pool().sync().unwrap();
    let first = start.elapsed().as_secs_f64() * 1e3;
    told("a file", blocks, first, &portions(&session));
    let left = session.pool().space().unwrap().allocated;
    assert!(left < full / 20, "{left} of {full} bytes are left");
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 0);
    assert_verified(&images);
}

/// A tree of which something could not be read for a while is freed to its end afterwards.
#[test]
fn a_tree_that_could_not_be_read_is_freed_later() {
    // Its root, what leads to blocks of dnodes, the first of those, and what leads to blocks of a file.
    for (what, level) in [(0, -1), (0, 1), (0, 0), (1, 1)] {
        let (images, mut session) = Session::create(&SHAPES[0], RECORD);
        let pool = session.pool().clone();
        let name = format!("{}/gone", engine::POOL);
        pool.create_filesystem(&name, BTreeMap::new(), fs::make_filesystem).unwrap();
        let fs = Filesystem::open(&pool, &name).unwrap();
        let files = [put(&fs, "a", 700), put(&fs, "b", 700)];
        pool.sync().unwrap();
        let (objset, object) = (pool.dataset(&name).unwrap().object, [0, files[1]][what]);
        let bp = pool.pointer_at(Bookmark { objset, object, level, block: 0 }).unwrap().unwrap();
        drop(fs);
        pool.set_freeing(1, false).unwrap();
        pool.destroy_dataset(&name).unwrap();
        drop(pool);
        session.close().unwrap();
        drop(session);
        let file = std::fs::File::options().read(true).write(true).open(images.disk(0)).unwrap();
        let places: Vec<u64> = bp.dvas().map(|dva| DATA_AT + dva.offset).collect();
        let mut whole = [0; 512];
        file.read_exact_at(&mut whole, places[0]).unwrap();
        places.iter().for_each(|at| file.write_all_at(&[0x5a; 512], *at).unwrap());
        let open = || Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
        let mut session = open();
        session.pool().finish_freeing(|_| true).unwrap();
        assert!(session.pool().freeing().unwrap() > 0, "{what} {level}");
        session.close().unwrap();
        places.iter().for_each(|at| file.write_all_at(&whole, *at).unwrap());
        let mut session = open();
        session.pool().finish_freeing(|_| true).unwrap();
        assert_eq!(session.pool().freeing().unwrap(), 0, "{what} {level}");
        session.close().unwrap();
        drop(session);
        assert_verified(&images);
    }
}

/// What a file had in memory is of no use when it is gone: it makes room for others, and nothing needs to.
#[test]
fn what_is_freed_leaves_the_cache() {
    let (images, mut session) = Session::create(&SHAPES[0], 16 << 10);
    let fs = session.filesystem();
    let blocks = (4 << 20) / RECORD;
    let number = put(fs, "file", blocks);
    session.pool().sync().unwrap();
    let cached = || fs.pool().store().account().of(Holder::Cache).held();
    let before = cached();
    for at in (0..4u64 << 20).step_by(16 << 10) {
        fs.read(number, at + 1, &mut [0; 100]).unwrap();
    }
    let full = cached();
    assert!(full >= before + (4 << 20), "{before} {full}");
    fs.unlink(fs.root(), b"file").unwrap();
    for _ in 0..4 {
        session.pool().sync().unwrap();
    }
    let after = cached();
    // Some of what is new since is there, too.
    assert!(after + (3 << 20) <= full, "{before} {full} {after}");
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 0);
}

/// Who looks for data passes over what was cut out at once, and not block by block: for half a minute.
#[test]
fn what_is_cut_out_is_passed_over_at_once() {
    let (_images, mut session) = Session::create(&SHAPES[0], RECORD);
    let (fs, end) = (session.filesystem(), 1 << 40);
    let file = put(fs, "file", 2);
    fs.write(file, end - 100, &[1; 100]).unwrap();
    session.pool().sync().unwrap();
    fs.punch_hole(file, 0, end).unwrap();
    fs.write(file, end / 2, &[2; 100]).unwrap();
    let start = rt::time::now();
    assert_eq!(fs.seek(file, 0, true).unwrap(), Some(end / 2));
    assert_eq!(fs.seek(file, end / 2 + RECORD, true).unwrap(), None);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    session.close().unwrap();
}

/// What was removed while somebody had it gets no name any more, and nothing gets a name in it: with him it is gone.
#[test]
fn nothing_gets_a_name_where_it_would_be_lost() {
    let (images, mut session) = Session::create(&SHAPES[0], RECORD);
    let fs = session.filesystem();
    let root = fs.root();
    let dir = fs.create(root, b"dir", &NewObject::of(mode::DIR | 0o755, WHO)).unwrap();
    let removed = put(fs, "removed", 3);
    put(fs, "kept", 3);
    fs.know(dir);
    fs.hold(removed).unwrap();
    fs.rmdir(root, b"dir").unwrap();
    fs.unlink(root, b"removed").unwrap();
    let gone = |result: Result<(), FsError>| matches!(result, Err(FsError::NotFound { .. }));
    let file = NewObject::of(mode::FILE | 0o644, WHO);
    assert!(gone(fs.create(dir, b"new", &file).map(drop)));
    assert!(gone(fs.link(dir, b"linked", fs.lookup(root, b"kept").unwrap().unwrap().object)));
    assert!(gone(fs.rename(root, b"kept", dir, b"moved")));
    assert!(gone(fs.link(root, b"back", removed)));
    fs.forget(dir, 1);
    fs.let_go(removed).unwrap();
    assert_eq!(fs.read_dir(root).unwrap().len(), 1);
    session.pool().sync().unwrap();
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 0);
    assert_verified(&images);
}

/// A delete queue of which blocks are lost: what they lead to stays, and so does the pool.
///
/// Seen red: the first sync failed, each time that the pool was opened.
#[test]
fn a_damaged_delete_queue_costs_what_stands_in_it_and_nothing_else() {
    const FILES: u64 = 12;
    let (images, mut session) = Session::create(&SHAPES[0], RECORD);
    let pool = session.pool().clone();
    pool.set_freeing(100, false).unwrap();
    let dataset = pool.dataset(engine::POOL).unwrap();
    let objset = &dataset.objset;
    let queue = dmu::Zap::open(objset, 1).unwrap().get_u64(b"DELETE_QUEUE").unwrap().unwrap();
    let zap = dmu::Zap::open(objset, queue).unwrap();
    // So many that it has several leaves; of objects that are not there.
    for number in 1 << 20..(1 << 20) + 3000 {
        objset.put_at_sync(&zap, format!("{number:x}").into_bytes(), Value::u64(number));
    }
    for file in 0..FILES {
        put(session.filesystem(), &format!("f{file}"), 300);
    }
    pool.sync().unwrap();
    let all = used_by_user(session.filesystem());
    // Of the leaves every second one.
    let pointer = |block| Bookmark { objset: dataset.object, object: queue, level: 0, block };
    let leaves = (1..).step_by(2).map_while(|block| pool.pointer_at(pointer(block)).unwrap());
    let lost: Vec<_> = leaves.flat_map(|bp| bp.dvas().collect::<Vec<_>>()).collect();
    assert!(lost.len() >= 6, "{lost:?}");
    drop((zap, dataset, pool));
    session.close().unwrap();
    drop(session);
    let file = std::fs::File::options().write(true).open(images.disk(0)).unwrap();
    lost.iter().for_each(|dva| file.write_all_at(&[0x5a; 512], DATA_AT + dva.offset).unwrap());

    let mut session =
        Session::open_freeing(images.path(), engine::POOL, engine::POOL, Some(100)).unwrap();
    let fs = session.filesystem();
    put(fs, "new", 1);
    session.pool().sync().unwrap();
    // Some of them find their place in the queue, others do not; all are freed, those that are in use when they are not.
    for file in 0..FILES {
        let name = format!("f{file}").into_bytes();
        let object = fs.lookup(fs.root(), &name).unwrap().unwrap().object;
        fs.hold(object).unwrap();
        if file % 2 == 0 {
            fs.let_go(object).unwrap();
        }
        fs.unlink(fs.root(), &name).unwrap();
        session.pool().sync().unwrap();
        if file % 2 == 1 {
            fs.let_go(object).unwrap();
        }
    }
    let first = session.pool().txg();
    for more in 0..60 {
        put(fs, &format!("more{more}"), 1);
        session.pool().sync().unwrap();
    }
    let left = used_by_user(fs);
    assert!(left < all / 20, "{left} of {all} are left after txg {first}");
    session.close().unwrap();
}

/// What of a half-freed tree is free may be somebody else's by now, on one disk before it is on the others: no piece of it is
/// wrong.
///
/// Seen red: the pool was called damaged, and nothing was named.
#[test]
fn what_is_free_of_a_half_freed_tree_is_not_judged() {
    let (images, mut session) = Session::create(&SHAPES[1], RECORD);
    let pool = session.pool().clone();
    pool.create_filesystem("tank/a", BTreeMap::new(), fs::make_filesystem).unwrap();
    let fs = Filesystem::open(&pool, "tank/a").unwrap();
    let number = put(&fs, "file", 200);
    pool.sync().unwrap();
    let first = fs.dataset().objset.pointer(number, 0, 0).unwrap().dva(0);
    drop(fs);
    pool.set_freeing(20, false).unwrap();
    pool.destroy_dataset("tank/a").unwrap();
    assert!(pool.freeing().unwrap() > 0, "half of it is left");
    drop(pool);
    session.close().unwrap();
    let disk = std::fs::OpenOptions::new().write(true).open(&images.disks()[0]).unwrap();
    disk.write_all_at(&noise(5, RECORD as usize), DATA_AT + first.offset).unwrap();
    drop(disk);
    assert_verified(&images);
}
