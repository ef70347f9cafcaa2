//! Quotas and reservations of every kind stop what they should, and nothing else.
//!
//! Each test fills up to a limit, sees who is stopped and who is not, frees, and sees that it goes
//! on; then zdb, poolaudit and our own judge look at the pool.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::process::Command;

use acceptance::{SHAPES, Session, engine, judge};
use format::dsl_dir::Used;
use format::zap::Value;
use fs::{Filesystem, FsError, NewObject, Refusal, Who, make_filesystem, mode};
use pool::props::space::Owner;
use pool::{Change, Counted, PoolError, Stored};
use testkit::{Ran, fresh_images, noise, temp_dir};

const MIB: u64 = 1 << 20;
/// What one change may go beyond a quota, and metadata add.
const BEYOND: u64 = MIB + MIB / 2;

fn stored(props: &[(&str, u64)]) -> BTreeMap<String, Stored> {
    let none = [("mountpoint".to_string(), Stored::Text(b"none".to_vec()))];
    let given = props.iter().map(|(name, n)| ((*name).to_string(), Stored::Number(*n)));
    given.chain(none).collect()
}

fn make(session: &Session, name: &str, props: &[(&str, u64)]) -> Filesystem {
    session.pool().create_filesystem(name, stored(props), make_filesystem).unwrap();
    Filesystem::open(session.pool(), name).unwrap()
}

fn file(who: (u64, u64)) -> NewObject<'static> {
    NewObject::of(mode::FILE | 0o644, Who { uid: who.0, gid: who.1 })
}

/// Makes files of 256 KiB until it is stopped; how many there are, and what stopped it.
fn fill(fs: &Filesystem, prefix: &str, who: (u64, u64), most: usize) -> (usize, String) {
    for i in 0..most {
        let name = format!("{prefix}{i}");
        let data = noise(i as u64, MIB as usize / 4);
        if let Err(e) = fs.create_with(fs.root(), name.as_bytes(), &file(who), &data) {
            // what was begun counts, too
            drop(fs.unlink(fs.root(), name.as_bytes()));
            return (i, e.to_string());
        }
    }
    (most, String::new())
}

fn clear(fs: &Filesystem, prefix: &str, count: usize) {
    (0..count).for_each(|i| fs.unlink(fs.root(), format!("{prefix}{i}").as_bytes()).unwrap());
}

/// What one uses of a file system: bytes and objects.
fn used(session: &Session, name: &str, owner: Owner, id: u64) -> (u64, u64) {
    session.pool().sync().unwrap();
    let found = pool::dsl::lookup::find(session.pool().mos(), name).unwrap();
    let accounts = fs::Accounts::of(session.pool(), &found).unwrap().unwrap();
    (accounts.used(owner, false, id).unwrap(), accounts.used(owner, true, id).unwrap())
}

/// As OpenZFS counts: what was wrong before stays as wrong as it was, whatever the number wraps to.
#[test]
fn counters_of_a_user_that_are_off_are_counted_on() {
    let (_images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let fs = make(&session, "tank/a", &[]);
    let (root, who) = (fs.root(), (1000, 100));
    let one = fs.create_with(root, b"one", &file(who), &noise(1, MIB as usize)).unwrap();
    let (true_bytes, objects) = used(&session, "tank/a", Owner::User, who.0);
    assert!(true_bytes > MIB && objects == 1);
    let objset = session.pool().dataset("tank/a").unwrap().objset.clone();
    let zap = dmu::Zap::open(&objset, format::objset::USERUSED_OBJECT).unwrap();
    objset.put_at_sync(&zap, b"3e8".to_vec(), Value::u64(100));
    objset.put_at_sync(&zap, b"obj-3e8".to_vec(), Value::u64(0));
    fs.change_attrs(one, |attrs| attrs.set_mode(0o600)).unwrap();
    assert_eq!(used(&session, "tank/a", Owner::User, who.0), (100, 0));
    fs.truncate(one, 0).unwrap();
    let (bytes, objects) = used(&session, "tank/a", Owner::User, who.0);
    assert!(bytes > u64::MAX - 2 * MIB && objects == 0, "{bytes:#x} {objects}");
    fs.unlink(root, b"one").unwrap();
    let gone = used(&session, "tank/a", Owner::User, who.0);
    assert_eq!(gone, (100u64.wrapping_sub(true_bytes), u64::MAX));
    // what comes to nothing is no entry
    fs.create_with(root, b"two", &file(who), &noise(1, MIB as usize)).unwrap();
    assert_eq!(used(&session, "tank/a", Owner::User, who.0), (100, 0));
    assert_eq!(zap.get(b"obj-3e8").unwrap(), None);
    drop((fs, zap, objset));
    session.close().unwrap();
}

#[test]
fn users_and_groups_are_stopped_at_their_quotas() {
    let (images, mut session) = Session::create(&SHAPES[3], 128 << 10);
    let fs = make(&session, "tank/a", &[]);
    for (owner, id) in [(Owner::User, 7), (Owner::Group, 80)] {
        fs.set_quota(owner, false, id, 4 * MIB).unwrap();
    }
    // the user, whatever his group
    let (count, why) = fill(&fs, "u", (7, 1), 100);
    assert_eq!(why, "tank/a: Disk quota exceeded");
    let (bytes, objects) = used(&session, "tank/a", Owner::User, 7);
    assert!((4 * MIB..4 * MIB + BEYOND).contains(&bytes), "{bytes}");
    assert_eq!(objects, count as u64);
    // another user of the same group, and another file system, are not
    assert_eq!(fill(&fs, "v", (9, 1), 20).0, 20);
    let other = make(&session, "tank/b", &[]);
    assert_eq!(fill(&other, "u", (7, 80), 24).0, 24);
    // the group, whoever the user is
    let (count_of_group, why) = fill(&fs, "g", (11, 80), 100);
    assert_eq!(why, "tank/a: Disk quota exceeded");
    let (bytes, _) = used(&session, "tank/a", Owner::Group, 80);
    assert!((4 * MIB..4 * MIB + BEYOND).contains(&bytes), "{bytes}");
    // an old file does not grow; a name, a mode and a cut cost nothing
    let (root, old) = (fs.root(), fs.lookup(fs.root(), b"u0").unwrap().unwrap().object);
    let error = fs.write(old, MIB / 4, &noise(1, 4096)).unwrap_err().to_string();
    assert_eq!(error, "tank/a: Disk quota exceeded");
    fs.link(root, b"another name", old).unwrap();
    fs.rename(root, b"another name", root, b"renamed").unwrap();
    fs.change_attrs(old, |attrs| attrs.set_mode(0o600)).unwrap();
    // what belongs to nobody who is full can be written, and not be given to who is
    let free = fs.lookup(root, b"v0").unwrap().unwrap().object;
    fs.write(free, 0, &noise(2, MIB as usize)).unwrap();
    let error = fs.change_attrs(free, |attrs| attrs.uid = 7).unwrap_err().to_string();
    assert_eq!(error, "tank/a: Disk quota exceeded");
    fs.change_attrs(free, |attrs| attrs.uid = 12).unwrap();
    // freed is free at once
    fs.truncate(old, 0).unwrap();
    clear(&fs, "u", 1);
    fs.unlink(root, b"renamed").unwrap();
    assert!(fill(&fs, "w", (7, 1), 100).0 >= 1);
    clear(&fs, "g", count_of_group);
    assert_eq!(used(&session, "tank/a", Owner::Group, 80), (0, 0));
    assert!(fill(&fs, "x", (11, 80), 100).0 >= count_of_group - 1);
    // no quota, no limit; and it is kept over a close
    fs.set_quota(Owner::User, false, 7, 0).unwrap();
    assert_eq!(fill(&fs, "y", (7, 1), 20).0, 20);
    assert!(count > 10);
    drop((fs, other));
    session.close().unwrap();
    drop(session);
    let session = Session::open(images.path(), engine::POOL, "tank/a").unwrap();
    let found = pool::dsl::lookup::find(session.pool().mos(), "tank/a").unwrap();
    let accounts = fs::Accounts::of(session.pool(), &found).unwrap().unwrap();
    let quotas: Vec<_> = accounts.all(Owner::User).unwrap().iter().map(|a| a.quota).collect();
    assert_eq!(quotas, [None; 5], "0 7 9 11 12");
    assert_eq!(accounts.quota(Owner::Group, false, 80).unwrap(), 4 * MIB);
    let error = fill(session.filesystem(), "z", (1, 80), 100).1;
    assert_eq!(error, "tank/a: Disk quota exceeded");
    drop(session);
    judge(&images, engine::POOL, 0, 1);
}

/// Whoever is refused again and again costs the others no sync for each time.
#[test]
fn who_has_no_quota_left_does_not_keep_the_pool_syncing() {
    let (_images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let fs = make(&session, "tank/a", &[]);
    fs.set_quota(Owner::User, true, 7, 3).unwrap();
    assert_eq!(fill(&fs, "u", (7, 1), 100).0, 3);
    let other = fs.create(fs.root(), b"other", &file((9, 1))).unwrap();
    let (before, start) = (session.pool().txg(), rt::time::now());
    for turn in 0..200 {
        fs.write(other, turn, b"x").unwrap();
        let refused = fs.create(fs.root(), b"one more", &file((7, 1))).unwrap_err();
        assert_eq!(refused.to_string(), "tank/a: Disk quota exceeded");
    }
    let syncs = session.pool().txg() - before;
    assert!(syncs <= 10 + 2 * start.elapsed().as_secs(), "{syncs}");
    // By the next count there is room again.
    clear(&fs, "u", 1);
    session.pool().sync().unwrap();
    fs.create(fs.root(), b"one more", &file((7, 1))).unwrap();
    session.close().unwrap();
}

/// Extended attributes that have an object of their own are charged as files are.
#[test]
fn attributes_count_for_the_quota() {
    let (images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let fs = make(&session, "tank/a", &[]);
    let root = fs.root();
    let give = |to: u64, i: u64| {
        let value = noise(i, 64 << 10);
        fs.set_xattr(to, format!("user.{i}").as_bytes(), Some(&value))
    };
    // bytes
    let mine = fs.create(root, b"mine", &file((7, 1))).unwrap();
    fs.set_quota(Owner::User, false, 7, 2 * MIB).unwrap();
    let refused = (0..100).find_map(|i| give(mine, i).err()).unwrap();
    assert_eq!(refused.to_string(), "tank/a: Disk quota exceeded");
    let (bytes, _) = used(&session, "tank/a", Owner::User, 7);
    assert!((2 * MIB..2 * MIB + BEYOND).contains(&bytes), "{bytes}");
    // what stands with the file itself is part of it; and what goes, goes
    fs.set_xattr(mine, b"user.small", Some(b"x")).unwrap();
    for i in 0..8 {
        fs.set_xattr(mine, format!("user.{i}").as_bytes(), None).unwrap();
    }
    session.pool().sync().unwrap();
    give(mine, 0).unwrap();
    // objects: the file, its hidden directory, and one for each
    let theirs = fs.create(root, b"theirs", &file((8, 1))).unwrap();
    session.pool().sync().unwrap();
    fs.set_quota(Owner::User, true, 8, 4).unwrap();
    assert!((0..4).map(|i| give(theirs, i).is_ok()).eq([true, true, false, false]));
    assert_eq!(used(&session, "tank/a", Owner::User, 8).1, 4);
    give(theirs, 1).unwrap();
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
}

#[test]
fn objects_and_projects_are_counted_too() {
    let (images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let fs = make(&session, "tank/a", &[]);
    let root = fs.root();
    fs.set_quota(Owner::User, true, 7, 10).unwrap();
    let made =
        (0..30).map_while(|i| fs.create(root, format!("o{i}").as_bytes(), &file((7, 1))).ok());
    assert_eq!(made.count(), 10);
    // contents are no objects
    let old = fs.lookup(root, b"o3").unwrap().unwrap().object;
    fs.write(old, 0, &noise(3, MIB as usize)).unwrap();
    fs.unlink(root, b"o4").unwrap();
    fs.create(root, b"o4", &file((7, 1))).unwrap();
    assert_eq!(used(&session, "tank/a", Owner::User, 7).1, 10);
    // a directory that hands its project down
    let dir = NewObject::of(mode::DIR | 0o755, Who { uid: 0, gid: 0 });
    let dir = fs.create(root, b"project", &dir).unwrap();
    fs.change_attrs(dir, |attrs| {
        attrs.project = Some(42);
        attrs.flags |= format::znode::Pflags::PROJINHERIT;
    })
    .unwrap();
    fs.set_quota(Owner::Project, false, 42, 2 * MIB).unwrap();
    let mut stopped = None;
    for i in 0..40 {
        let data = noise(i, MIB as usize / 4);
        if let Err(e) = fs.create_with(dir, format!("p{i}").as_bytes(), &file((5, 5)), &data) {
            stopped = Some(e.to_string());
            break;
        }
    }
    assert_eq!(stopped.as_deref(), Some("tank/a: Disk quota exceeded"));
    let (bytes, _) = used(&session, "tank/a", Owner::Project, 42);
    assert!((2 * MIB..2 * MIB + BEYOND).contains(&bytes), "{bytes}");
    // the same user outside of it is not stopped, and what is outside does not move in
    assert_eq!(fill(&fs, "q", (5, 5), 12).0, 12);
    let error = fs.rename(root, b"q0", dir, b"q0").unwrap_err();
    assert!(matches!(error, FsError::Refused { why: Refusal::CrossProject, .. }), "{error}");
    assert!(fs.link(dir, b"q0", fs.lookup(root, b"q0").unwrap().unwrap().object).is_err());
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
}

#[test]
fn quotas_and_reservations_of_file_systems() {
    let (images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    // with what is below, and without
    let quota = make(&session, "tank/quota", &[("quota", 12 * MIB)]);
    let below = make(&session, "tank/quota/below", &[]);
    let (count, why) = fill(&below, "f", (0, 0), 200);
    assert!(why.contains("Disk quota exceeded") && (30..48).contains(&count), "{count} {why}");
    assert!(fill(&quota, "f", (0, 0), 200).1.contains("Disk quota exceeded"));
    clear(&below, "f", count);
    session.pool().sync().unwrap();
    assert!(fill(&quota, "g", (0, 0), 200).0 >= 20);
    let refquota = make(&session, "tank/ref", &[("refquota", 8 * MIB)]);
    let inside = make(&session, "tank/ref/inside", &[]);
    assert_eq!(fill(&inside, "f", (0, 0), 60).0, 60);
    let (count, why) = fill(&refquota, "f", (0, 0), 200);
    assert!(why.contains("Disk quota exceeded") && (20..32).contains(&count), "{count} {why}");
    // what is reserved is there when all else is full
    let reserved = make(&session, "tank/res", &[("reservation", 16 * MIB)]);
    let own = make(&session, "tank/refres", &[("refreservation", 16 * MIB)]);
    let greedy = make(&session, "tank/greedy", &[]);
    let (_, why) = fill(&greedy, "f", (0, 0), 100_000);
    assert!(why.contains("No space left"), "{why}");
    assert!(fill(&greedy, "h", (0, 0), 100).1.contains("No space left"));
    assert!(fill(&reserved, "f", (0, 0), 50).0 >= 50, "12.5 MiB of 16 are there");
    assert!(fill(&own, "f", (0, 0), 50).0 >= 50, "12.5 MiB of 16 are there");
    // and no more than that
    assert!(fill(&reserved, "g", (0, 0), 100).1.contains("No space left"));
    // promises that cannot be kept are not made
    let pool = session.pool();
    for (property, bytes) in
        [("reservation", 1 << 40), ("refreservation", 1 << 40), ("quota", MIB), ("refquota", MIB)]
    {
        let refused = pool.set_property("tank/greedy", property, Some(Stored::Number(bytes)));
        assert!(matches!(refused, Err(PoolError::Invalid(_))), "{property}: {refused:?}");
    }
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
}

/// Limits that came with a stream, and were set otherwise since, count again where somebody goes back to them.
///
/// Seen red: they were told, and not kept; and the first write below a refreservation suspended the pool, whose accounts
/// did not have it.
#[test]
fn what_was_received_is_kept_again_when_it_is_reverted_to() {
    let (images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let received = [("quota", 12), ("refreservation", 8), ("reservation", 10)];
    let fs = make(&session, "tank/a", &[]);
    let pool = session.pool().clone();
    let set = |name: &str, mib: u64| {
        pool.set_property("tank/a", name, Some(Stored::Number(mib * MIB))).unwrap();
    };
    let dir = || pool::dsl::lookup::find(pool.mos(), "tank/a").unwrap().dir;
    for (name, mib) in received {
        // What a stream would have left.
        set(&format!("{name}$recvd"), mib);
        set(name, mib / 2);
        pool.change_property("tank/a", name, Change::Revert).unwrap();
    }
    let now = dir();
    let (count, why) = fill(&fs, "f", (0, 0), 200);
    assert!(why.contains("Disk quota exceeded") && (30..48).contains(&count), "{count} {why}");
    assert_eq!((now.quota_bytes.get(), now.reserved_bytes.get()), (12 * MIB, 10 * MIB));
    let held = now.used(Used::RefReserved);
    assert!((7 * MIB..=8 * MIB).contains(&held), "{held}");
    // What does not fit is not gone back to.
    pool.set_property("tank/a", "quota", Some(Stored::Number(40 * MIB))).unwrap();
    pool.sync().unwrap();
    let below = make(&session, "tank/a/below", &[]);
    assert_eq!(fill(&below, "f", (0, 0), 30).0, 30);
    pool.sync().unwrap();
    let back = pool.change_property("tank/a", "quota", Change::Revert);
    assert!(matches!(back, Err(PoolError::Invalid(_))), "{back:?}");
    assert_eq!(dir().quota_bytes.get(), 40 * MIB);
    // Who takes it away has none.
    pool.change_property("tank/a", "refreservation", Change::Inherit).unwrap();
    assert_eq!(dir().used(Used::RefReserved), 0);
    drop((fs, below, pool));
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
}

#[test]
fn numbers_of_file_systems_are_limited_for_who_cannot_change_the_limit() {
    let (images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let pool = session.pool().clone();
    drop(make(&session, "tank/a", &[("filesystem_limit", 2)]));
    let dir = |name: &str| pool::dsl::lookup::find_dir(pool.mos(), name).unwrap().unwrap();
    let may = |name: &str, which, more| pool.check_count(dir(name), which, more);
    may("tank/a", Counted::Filesystems, 2).unwrap();
    let refused = may("tank/a", Counted::Filesystems, 3).unwrap_err();
    assert!(matches!(&refused, PoolError::QuotaExceeded { name } if name == "tank/a"), "{refused}");
    drop(make(&session, "tank/a/b", &[("snapshot_limit", 1)]));
    drop(make(&session, "tank/a/b/c", &[]));
    assert!(may("tank/a/b/c", Counted::Filesystems, 1).is_err());
    assert!(may("tank/a/b", Counted::Filesystems, 1).is_err());
    // beside it there is no limit
    may("tank", Counted::Filesystems, 1000).unwrap();
    may("tank/a/b", Counted::Snapshots, 1).unwrap();
    assert!(may("tank/a/b/c", Counted::Snapshots, 2).is_err());
    may("tank/a", Counted::Snapshots, 2).unwrap();
    pool.destroy_dataset("tank/a/b/c").unwrap();
    may("tank/a/b", Counted::Filesystems, 1).unwrap();
    // One that came with a stream is one. Seen red: it was told, and not kept.
    pool.set_property("tank/a/b", "snapshot_limit", None).unwrap();
    may("tank/a/b", Counted::Snapshots, 2).unwrap();
    pool.set_property("tank/a/b", "snapshot_limit$recvd", Some(Stored::Number(1))).unwrap();
    assert!(may("tank/a/b", Counted::Snapshots, 2).is_err());
    session.close().unwrap();
    judge(&images, engine::POOL, 0, 1);
}

#[test]
fn root_makes_more_file_systems_than_others_may() {
    let images = fresh_images(1, 128 << 20);
    let aside = temp_dir();
    let open_to_all = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    open_to_all(images.path());
    open_to_all(aside.path());
    open_to_all(&images.disks()[0]);
    // where anybody may run it
    let program = aside.path().join("thumper");
    std::fs::copy(acceptance::thumper_path(), &program).unwrap();
    let run = |nobody: bool, words: &str| {
        let mut command = match nobody {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
                command
            }
            false => Command::new(&program),
        };
        command.env("THUMPER_STATE", aside.path().join("pools")).args(words.split(' '));
        Ran::of(&mut command)
    };
    let disk = images.disks()[0].display().to_string();
    drop(run(false, &format!("zpool create -f -O mountpoint=none tank {disk}")).expect_ok());
    for entry in std::fs::read_dir(aside.path()).unwrap() {
        open_to_all(&entry.unwrap().path());
    }
    drop(run(false, "zfs create -o filesystem_limit=1 tank/a").expect_ok());
    drop(run(true, "zfs create tank/a/one").expect_ok());
    let ran = run(true, "zfs create tank/a/two");
    assert_eq!(
        (ran.status, ran.err.as_str()),
        (1, "cannot create 'tank/a/two': out of space\n"),
        "{ran}"
    );
    let ran = run(true, "zfs create -p tank/a/one/x/y");
    assert_eq!(ran.status, 1, "{ran}");
    drop(run(true, "zfs create tank/b").expect_ok());
    drop(run(false, "zfs create tank/a/two").expect_ok());
    let ran = run(false, "zfs get -Hp -o value filesystem_count tank/a").expect_ok();
    assert_eq!(ran.out, "2\n");
}
