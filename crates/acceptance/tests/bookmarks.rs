//! Bookmarks through snapshots, clones, promotions, rollbacks and destroys: their numbers, their keys in
//! deadlists and the counts of features stay right, and the kernel goes on with them.
//!
//! Seen red: a snapshot that gets no keys for bookmarks, a destroy that takes a key which a bookmark needs.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use acceptance::{SHAPES, Session, engine, judge};
use format::bookmark::BookmarkFlags;
use fs::{Filesystem, NewObject, Who, mode};
use pool::dsl::lookup;
use testkit::{Images, Vm, noise, poolaudit_kernels, tool, vm};

fn assert_verified(images: &Images) {
    let scan = vdev::import::scan(&[images.path().to_path_buf()]).unwrap();
    let found = scan.choose(engine::POOL).unwrap();
    let report = verify::verify_pool(found, &verify::Options::default(), &mut |_| true).unwrap();
    assert!(report.verdict == verify::Verdict::Clean, "{:?}", report.findings);
}

/// Writes `part` (of 10) of the file anew.
fn write(session: &Session, name: &str, part: u64, seed: u64) {
    let fs = Filesystem::open(session.pool(), name).unwrap();
    let number = match fs.resolve(b"file") {
        Ok(number) => number,
        Err(_) => {
            let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
            fs.create_with(fs.root(), b"file", &new, &noise(1, 300_000)).unwrap()
        }
    };
    fs.write(number, part * 30_000, &noise(seed, 30_000)).unwrap();
    session.pool().sync().unwrap();
}

/// Bookmarks of `name`, oldest first: name, is the snapshot there, bytes freed before the next one.
fn marks(session: &Session, name: &str) -> Vec<(String, bool, u64)> {
    let pool = session.pool();
    let head = lookup::find(pool.mos(), name).unwrap();
    let snapshots = lookup::snapshots(pool.mos(), &head.phys).unwrap();
    let marks = pool.bookmarks(&head).unwrap().into_iter().map(|mark| {
        let phys = mark.phys;
        assert!(phys.flags & BookmarkFlags::HAS_FBN != 0);
        let there = phys.flags & BookmarkFlags::SNAPSHOT_EXISTS != 0;
        if phys.creation_txg < head.phys.prev_snap_txg.get() {
            let list = pool.mos().zap(head.phys.deadlist_object.get()).unwrap();
            let key = format::deadlist::key_name(phys.creation_txg);
            assert!(list.get(key.as_bytes()).unwrap().is_some(), "no key {key} for {mark:?}");
        }
        let snapshot = snapshots.iter().find(|(_, _, s)| s.guid.get() == phys.guid);
        if let Some((_, _, snapshot)) = snapshot {
            // What it says is what its snapshot says, and the deadlist of what follows it.
            assert!(there, "{mark:?}");
            assert_eq!(phys.referenced_bytes, snapshot.referenced_bytes.get(), "{mark:?}");
            let next = pool.mos().dataset(snapshot.next_snap_object.get()).unwrap();
            let list = pool.mos().objset.object(next.deadlist_object.get()).unwrap();
            let bonus = list.bonus().unwrap();
            let dead = format::deadlist::DeadlistPhys::parse(&bonus).unwrap();
            assert_eq!(phys.freed_referenced_bytes, dead.used_bytes.get(), "{mark:?}");
            assert_eq!(phys.freed_uncompressed_bytes, dead.uncompressed_bytes.get(), "{mark:?}");
        }
        (String::from_utf8(mark.name).unwrap(), there, phys.freed_referenced_bytes)
    });
    marks.collect()
}

fn judged(images: &Images, session: &mut Session) {
    session.close().unwrap();
    judge(images, engine::POOL, 0, 0);
    assert_verified(images);
    *session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
}

fn bookmark(session: &Session, name: &str, source: &str) -> pool::Result<()> {
    session.pool().bookmark(&[(name.into(), source.into())])
}

fn snapshot(session: &Session, name: &str) {
    session.pool().snapshot(&[name.into()], &[]).unwrap();
}

fn destroy(session: &Session, name: &str) {
    session.pool().destroy_snapshots(&[name.into()], false).unwrap();
}

/// A history in which bookmarks outlive their snapshots.
fn history(images: &Images, session: &mut Session) {
    session.pool().create_filesystem("tank/a", BTreeMap::new(), fs::make_filesystem).unwrap();
    for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
        write(session, "tank/a", number as u64, 10 + number as u64);
        snapshot(session, &format!("tank/a@{name}"));
        bookmark(session, &format!("tank/a#{name}"), &format!("tank/a@{name}")).unwrap();
    }
    write(session, "tank/a", 2, 20);
    let freed = |session: &Session| -> Vec<u64> {
        marks(session, "tank/a").into_iter().map(|(_, _, freed)| freed).collect()
    };
    assert!(freed(session).iter().all(|freed| *freed > 30_000), "{:?}", freed(session));
    judged(images, session);

    // In the middle: its own stays, and what follows the one before has changed.
    let before = freed(session);
    destroy(session, "tank/a@two");
    let now = marks(session, "tank/a");
    let there: Vec<bool> = now.iter().map(|(_, there, _)| *there).collect();
    assert_eq!(there, [true, false, true]);
    assert!(now[0].2 > before[0] && now[1].2 == before[1], "{before:?} {now:?}");
    // The last one: blocks that die from now on die for its bookmark.
    destroy(session, "tank/a@three");
    let before = freed(session);
    write(session, "tank/a", 5, 30);
    let now = freed(session);
    assert!((0..3).all(|i| now[i] >= before[i] + 30_000), "{before:?} {now:?}");
    judged(images, session);
    // Blocks that were born after it do not.
    write(session, "tank/a", 5, 31);
    assert!((0..3).all(|i| freed(session)[i] < now[i] + 30_000), "{now:?} {:?}", freed(session));
    // The keys of bookmarks without a snapshot come with the next one, and go with the bookmark.
    snapshot(session, "tank/a@four");
    write(session, "tank/a", 6, 40);
    assert_eq!(marks(session, "tank/a").len(), 3);
    judged(images, session);
}

#[test]
fn bookmarks_follow_the_history_of_their_data_set() {
    let (images, mut session) = Session::create(&SHAPES[0], 4096);
    history(&images, &mut session);
    let session = &mut session;
    session.pool().clone_snapshot("tank/a@four", "tank/c", BTreeMap::new()).unwrap();
    write(session, "tank/c", 7, 50);
    bookmark(session, "tank/c#own", "tank/a@four").unwrap();
    let error = bookmark(session, "tank/a#x", "tank/c#own").unwrap_err();
    assert!(matches!(error, pool::PoolError::NoAncestor { .. }), "{error}");
    bookmark(session, "tank/a#x", "tank/a#three").unwrap();
    let error = bookmark(session, "tank/a#x", "tank/a@one").unwrap_err();
    assert!(matches!(error, pool::PoolError::Exists { .. }), "{error}");
    session.pool().create_filesystem("tank/b", BTreeMap::new(), fs::make_filesystem).unwrap();
    let error = bookmark(session, "tank/b#x", "tank/a@one").unwrap_err();
    assert!(matches!(error, pool::PoolError::NoAncestor { .. }), "{error}");
    judged(&images, session);
    session.pool().destroy_bookmarks(&["tank/a#two".into(), "tank/a#none".into()]).unwrap();
    judged(&images, session);
    session.pool().promote("tank/c").unwrap();
    assert_eq!(marks(session, "tank/a"), []);
    let names: Vec<String> = marks(session, "tank/c").into_iter().map(|mark| mark.0).collect();
    assert_eq!(names, ["one", "three", "x", "own"]);
    judged(&images, session);
    // Back: nothing was freed since.
    snapshot(session, "tank/c@five");
    bookmark(session, "tank/c#five", "tank/c@five").unwrap();
    write(session, "tank/c", 1, 60);
    assert!(marks(session, "tank/c")[4].2 > 30_000);
    session.pool().rollback("tank/c@five").unwrap();
    assert_eq!(marks(session, "tank/c")[4].2, 0);
    judged(&images, session);
    session.pool().rename("tank/c", "tank/d").unwrap();
    destroy(session, "tank/d@five");
    destroy(session, "tank/d@one");
    let error = session.pool().rollback("tank/d@four").unwrap_err();
    assert!(error.to_string().contains("bookmarks"), "{error}");
    judged(&images, session);
    session.pool().destroy_dataset("tank/a").unwrap();
    destroy(session, "tank/d@four");
    session.pool().destroy_dataset("tank/d").unwrap();
    judged(&images, session);
    for feature in [pool::Feature::Bookmarks, pool::Feature::BookmarkV2] {
        assert_eq!(session.pool().features().count(feature).unwrap(), Some(0), "{feature:?}");
    }
    session.close().unwrap();
}

/// The kernel reads our bookmarks, goes on with them, and we with its.
#[test]
fn the_kernel_goes_on_with_bookmarks() {
    if !vm::wanted("that the kernel takes our bookmarks, and we its") {
        return;
    }
    let (images, mut session) = Session::create(&SHAPES[0], 4096);
    history(&images, &mut session);
    session.close().unwrap();
    let script = "set -euo pipefail\n\
         zpool import -f -d /d -o cachefile=none tank\n\
         zfs list -H -t bookmark -o name -r tank | wc -l\n\
         zfs send -i tank/a#two tank/a@four | wc -c\n\
         head -c 30000 /dev/urandom > /tank/a/new; sync; zpool sync tank\n\
         zfs destroy tank/a@one; zfs destroy tank/a@four\n\
         zfs bookmark tank/a#three tank/a#copy\n\
         zfs snapshot tank/a@kernel; zfs bookmark tank/a@kernel tank/a#kernel\n\
         rm /tank/a/new; zpool sync tank\n\
         zfs destroy tank/a#two\n\
         zfs snapshot tank/a@last\n\
         zpool export tank\n";
    let ran = Vm::new(images.path()).options(["-t", "200"]).run(script).expect_ok();
    assert!(ran.out.contains('3'), "{ran}");
    tool::zdb_content(images.path(), engine::POOL);
    drop(poolaudit_kernels(images.path(), engine::POOL).expect_ok());
    assert_verified(&images);
    let mut session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    assert_eq!(marks(&session, "tank/a").len(), 4);
    write(&session, "tank/a", 8, 70);
    destroy(&session, "tank/a@kernel");
    assert_eq!(marks(&session, "tank/a").iter().filter(|mark| mark.1).count(), 0);
    session.pool().destroy_bookmarks(&["tank/a#one".into(), "tank/a#copy".into()]).unwrap();
    session.close().unwrap();
    tool::zdb_content(images.path(), engine::POOL);
    drop(poolaudit_kernels(images.path(), engine::POOL).expect_ok());
    assert_verified(&images);
    let script = "set -euo pipefail\n\
         zpool import -f -d /d -o cachefile=none tank\n\
         zfs destroy tank/a@last; zfs destroy tank/a#kernel; zfs destroy tank/a#three\n\
         zfs destroy -r tank/a; zpool sync tank; zpool sync tank\n\
         zpool scrub -w tank; zpool status -v tank\n\
         zpool export tank\n";
    let ran = Vm::new(images.path()).options(["-t", "200"]).run(script).expect_ok();
    assert!(ran.out.contains("with 0 errors"), "{ran}");
    tool::zdb_content(images.path(), engine::POOL);
}
