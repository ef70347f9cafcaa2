//! Changes of data sets that are refused before anything is done: in a full pool, with names that are too
//! long, beyond a quota, and of what is kept in a form that is not written any more.
//!
//! Seen red: with tasks that nobody asks for space (a pool that is filled so is suspended, for good), with
//! promotions and renamed snapshots that make names of 256 bytes and more.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use acceptance::judges::assert_verified;
use acceptance::{Session, Shape, engine::POOL, judge};
use dmu::Bpobj;
use format::ObjectType;
use fs::{Filesystem, FsError, NewObject, Who, make_filesystem, mode};
use pool::dsl::lookup;
use pool::{Pool, PoolError, Stored};
use testkit::{Images, noise};

fn file() -> NewObject<'static> {
    NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 })
}

fn fresh(names: &[&str]) -> (Images, Session) {
    let (images, session) = Session::create_of(&Shape::SMALL, &[("compression", "off")], true);
    names.iter().for_each(|name| make(session.pool(), name).unwrap());
    (images, session)
}

fn make(pool: &Pool, name: &str) -> Result<(), PoolError> {
    let none = ("mountpoint".to_string(), Stored::Text(b"none".to_vec()));
    pool.create_filesystem(name, BTreeMap::from([none]), make_filesystem)
}

/// Files of so many bytes until there is no space for one; how many.
fn fill(fs: &Filesystem, prefix: &str, bytes: usize) -> u64 {
    for count in 0.. {
        let name = format!("{prefix}{count}");
        match fs.create_with(fs.root(), name.as_bytes(), &file(), &noise(count, bytes)) {
            Ok(_) => {}
            Err(FsError::NoSpace { .. }) => return count,
            Err(e) => panic!("{name}: {e}"),
        }
    }
    unreachable!("a pool without end")
}

/// Does it until it is refused; how often it was done.
fn until_full(most: usize, what: &mut dyn FnMut(usize) -> Result<(), PoolError>) -> usize {
    for count in 0..most {
        if let Err(e) = what(count) {
            assert!(e.is_refusal() && e.to_string() == "out of space", "{e:?}");
            return count;
        }
    }
    panic!("done {most} times in a full pool");
}

#[test]
fn a_full_pool_takes_no_data_sets_and_no_snapshots_but_gives_them_back() {
    let (images, mut session) = fresh(&["tank/old", "tank/other"]);
    session.pool().snapshot(&["tank/old@first".into()], &[]).unwrap();
    let files = fill(session.filesystem(), "large", 1 << 20);
    assert!(files > 10, "{files} files");
    fill(session.filesystem(), "small", 64 << 10);
    let pool = session.pool().clone();
    pool.sync().unwrap();

    let snapshots = |i: usize| ["", "/old", "/other"].map(|path| format!("tank{path}@s{i}"));
    let made = until_full(24, &mut |i| make(&pool, &format!("tank/new{i}")));
    until_full(8, &mut |i| pool.snapshot(&snapshots(i), &[]));
    until_full(8, &mut |i| {
        pool.clone_snapshot("tank/old@first", &format!("tank/clone{i}"), BTreeMap::new())
    });
    assert_eq!(pool.suspended(), None);

    // What does not grow is done, and what frees.
    pool.rename("tank/other", "tank/another").unwrap();
    pool.set_property("tank", "quota", Some(Stored::Number(1 << 30))).unwrap();
    pool.hold(&["tank/old@first".into()], "me").unwrap();
    pool.release(&["tank/old@first".into()], "me").unwrap();
    pool.destroy_snapshots(&["tank/old@first".into()], false).unwrap();
    for i in 0..made {
        pool.destroy_dataset(&format!("tank/new{i}")).unwrap();
    }
    let fs = session.filesystem();
    for i in 0..files / 2 {
        fs.unlink(fs.root(), format!("large{i}").as_bytes()).unwrap();
    }
    // There is room as soon as it does not rest any more.
    make(&pool, "tank/new").unwrap();
    pool.snapshot(&["tank/new@s".into()], &[]).unwrap();
    drop(pool);
    session.close().unwrap();
    judge(&images, POOL, 0, 1);
    assert_verified(images.path(), POOL);
}

/// Seen red: the pool was suspended, and with it went what all others had changed since the last txg.
#[test]
fn a_tag_that_no_list_of_holds_can_have_is_refused() {
    let (images, mut session) = fresh(&["tank/a"]);
    let pool = session.pool().clone();
    pool.snapshot(&["tank@s".into()], &[]).unwrap();
    let longest = "x".repeat(255);
    for tag in ["", &"x".repeat(256), "a\0b"] {
        let held = pool.hold(&["tank@s".into()], tag);
        assert!(matches!(held, Err(PoolError::Invalid(_))), "{held:?}");
        assert_eq!(pool.suspended(), None);
        let released = pool.release(&["tank@s".into()], tag);
        assert!(matches!(released, Err(PoolError::NoTag { .. })), "{released:?}");
    }
    pool.hold(&["tank@s".into()], &longest).unwrap();
    let found = lookup::find(pool.mos(), "tank@s").unwrap();
    assert_eq!(pool.holds(&found).unwrap()[0].0, longest);
    drop(pool);
    session.close().unwrap();
    judge(&images, POOL, 0, 1);
}

fn refused_as_too_long(done: Result<(), PoolError>) {
    let error = done.unwrap_err();
    assert!(error.is_refusal() && error.to_string() == "name is too long", "{error:?}");
}

#[test]
fn no_name_becomes_longer_than_a_name_may_be() {
    let clone = format!("tank/{}", "c".repeat(60));
    let (images, mut session) = fresh(&["tank/a", "tank/marked"]);
    let pool = session.pool().clone();
    let long = "s".repeat(255 - "tank/a@".len());
    pool.snapshot(&[format!("tank/a@{long}")], &[]).unwrap();
    refused_as_too_long(pool.snapshot(&[format!("tank/a@{long}s")], &[]));
    // A clone that would get the snapshot, and one that would get a bookmark of what it gets.
    pool.clone_snapshot(&format!("tank/a@{long}"), &clone, BTreeMap::new()).unwrap();
    refused_as_too_long(pool.promote(&clone));
    let mark = "m".repeat(255 - "tank/marked#".len());
    pool.snapshot(&["tank/marked@s".into()], &[]).unwrap();
    pool.bookmark(&[(format!("tank/marked#{mark}"), "tank/marked@s".into())]).unwrap();
    let longer = (format!("tank/marked#{mark}m"), "tank/marked@s".to_string());
    refused_as_too_long(pool.bookmark(&[longer]));
    pool.clone_snapshot("tank/marked@s", &format!("{clone}2"), BTreeMap::new()).unwrap();
    refused_as_too_long(pool.promote(&format!("{clone}2")));
    assert!(pool.rename("tank/marked", "tank/marked2").unwrap_err().is_refusal());
    // All of a recursive rename, or nothing.
    pool.snapshot(&["tank@s".into(), "tank/a@s".into()], &[]).unwrap();
    let both = ["tank@s", "tank/a@s"].map(|name| (name.to_string(), format!("{long}s")));
    refused_as_too_long(pool.rename_snapshots(&both));
    assert!(lookup::find(pool.mos(), "tank@s").is_ok());
    let new = format!("tank/{}", "n".repeat(251));
    refused_as_too_long(make(&pool, &new));
    drop(pool);
    session.close().unwrap();
    judge(&images, POOL, 0, 1);
}

#[test]
fn a_promotion_does_not_exceed_a_quota() {
    let (images, mut session) = fresh(&["tank/a", "tank/small"]);
    let pool = session.pool().clone();
    let fs = Filesystem::open(&pool, "tank/a").unwrap();
    fs.create_with(fs.root(), b"file", &file(), &noise(1, 4 << 20)).unwrap();
    drop(fs);
    pool.sync().unwrap();
    pool.snapshot(&["tank/a@s".into()], &[]).unwrap();
    pool.set_property("tank/small", "quota", Some(Stored::Number(2 << 20))).unwrap();
    pool.clone_snapshot("tank/a@s", "tank/small/clone", BTreeMap::new()).unwrap();
    let error = pool.promote("tank/small/clone").unwrap_err();
    assert!(error.is_refusal() && error.to_string() == "out of space", "{error:?}");
    pool.set_property("tank/small", "quota", Some(Stored::Number(8 << 20))).unwrap();
    pool.promote("tank/small/clone").unwrap();
    drop(pool);
    session.close().unwrap();
    judge(&images, POOL, 0, 1);
}

/// What `zfs allow` notes goes with its data set: a ZAP for each of whom it speaks of, to which one entry leads.
#[test]
fn permissions_go_with_their_data_set() {
    let (images, mut session) = fresh(&["tank/a"]);
    let noted = session.pool().task(|cx| {
        let (mos, tx) = (cx.making.mos, cx.tx);
        let zap = mos.create_zap(tx, ObjectType::DSL_PERMS, 0)?;
        let mut numbers = vec![zap.number()];
        for who in ["ul$1000", "gd$100"] {
            let own = mos.create_zap(tx, ObjectType::DSL_PERMS, 0)?;
            own.put_u64(tx, b"snapshot", 1)?;
            zap.put_u64(tx, who.as_bytes(), own.number())?;
            numbers.push(own.number());
        }
        // One that is gone already.
        zap.put_u64(tx, b"el$", 1 << 20)?;
        let number = lookup::find_dir(mos, "tank/a")?.unwrap();
        let mut dir = mos.dir(number)?;
        dir.deleg_zap_object.set(zap.number());
        mos.set_dir(tx, number, &dir)?;
        Ok(numbers)
    });
    let noted = noted.unwrap();
    let pool = session.pool().clone();
    pool.destroy_dataset("tank/a").unwrap();
    pool.sync().unwrap();
    let left: Vec<_> = noted.iter().filter(|n| pool.mos().objset.object(**n).is_ok()).collect();
    assert!(left.is_empty(), "{left:?} of {noted:?}");
    drop(pool);
    session.close().unwrap();
    judge(&images, POOL, 0, 1);
}

/// Before they were kept by birth, deadlists were lists of blocks: those are not written.
#[test]
fn a_deadlist_of_the_old_form_is_left_alone() {
    let (images, session) = fresh(&["tank/a", "tank/b"]);
    let pool = session.pool();
    for name in ["tank/a@s", "tank/b@1", "tank/b@2", "tank/b@3"] {
        pool.snapshot(&[name.to_string()], &[]).unwrap();
    }
    pool.clone_snapshot("tank/b@3", "tank/clone", BTreeMap::new()).unwrap();
    let old = |name: &'static str| {
        let planted = pool.task(move |cx| {
            let (mos, tx) = (cx.making.mos, cx.tx);
            let found = lookup::find(mos, name)?;
            let mut ds = mos.dataset(found.object)?;
            ds.deadlist_object.set(Bpobj::create_default(&mos.objset, tx)?.number());
            mos.set_dataset(tx, found.object, &ds)
        });
        planted.unwrap();
    };
    old("tank/a");
    old("tank/b@2");
    drop(session);
    let session = Session::open(images.path(), POOL, POOL).unwrap();
    let pool = session.pool();
    let (head, other) = (pool.dataset("tank/a").unwrap(), pool.dataset("tank/b").unwrap());
    let reason = head.read_only_because.clone().unwrap_or_default();
    assert!(reason.contains("deadlist is of an old form"), "{reason}");
    assert_eq!(other.read_only_because, None);
    let refused = |what: &str, done: Result<(), PoolError>| {
        let error = done.expect_err(what);
        assert!(error.is_refusal() && error.to_string().contains("of an old form"), "{error:?}");
    };
    let destroy = |name: &str| pool.destroy_snapshots(&[name.to_string()], false);
    refused("snapshot", pool.snapshot(&["tank/a@t".to_string()], &[]));
    refused("rollback", pool.rollback("tank/a@s"));
    refused("of the head", destroy("tank/a@s"));
    refused("of the one before", destroy("tank/b@1"));
    refused("of itself", destroy("tank/b@2"));
    refused("promote", pool.promote("tank/clone"));
    pool.destroy_dataset("tank/clone").unwrap();
    destroy("tank/b@3").unwrap();
    assert_eq!(pool.suspended(), None);
}
