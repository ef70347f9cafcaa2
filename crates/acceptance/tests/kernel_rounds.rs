//! Rounds with the OpenZFS kernel over pools of every shape: it sees what we see, goes on where we stopped (files,
//! ACLs, snapshots, clones, destroys, a scrub), and we go on where it stopped.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use acceptance::alike::{BESIDE, as_the_kernel_tells_holes, assert_told_alike};
use acceptance::engine::{self, POOL};
use acceptance::forest::Forest;
use acceptance::{SHAPES, Session, Shape, assert_verified, assert_verified_kernels};
use fs::{Filesystem, NewObject, Who, make_filesystem, mode};
use pool::Stored;
use testkit::kernel::{self, Act};
use testkit::truth::Entry;
use testkit::{Compare, assert_same, poolaudit_kernels, rounds, tool, vm};

/// A data set whose files get ACLs: they are the kernel's to make, ours to keep.
const ACLS: &str = "tank/acl";

/// The data set with ACLs, and files for them.
fn plant_acls(session: &Session) {
    let pool = session.pool();
    let posix = BTreeMap::from([("acltype".to_string(), Stored::Number(1))]);
    pool.create_filesystem(ACLS, posix, make_filesystem).unwrap();
    let fs = Filesystem::open(pool, ACLS).unwrap();
    let who = Who { uid: 1000, gid: 100 };
    for i in 0..12usize {
        let new = NewObject::of(mode::FILE | 0o640, who);
        fs.create_with(fs.root(), format!("f{i}").as_bytes(), &new, &vec![3; i * 700]).unwrap();
    }
    fs.create(fs.root(), b"dir", &NewObject::of(mode::DIR | 0o750, who)).unwrap();
}

/// What the kernel does in that data set in a round.
fn set_acls(round: u64) -> Act {
    let (a, b, c) = (round * 3, round * 3 + 1, round * 3 + 2);
    Act::Command(format!(
        "mounted {ACLS}; cd /mnt\n\
         setfacl -m u:1001:rwx,g:2001:r f{a} f{b}\n\
         setfacl -m u:1002:rw,m::r f{c}; chmod 604 f{b}; chown 1003:2003 f{a}\n\
         setfacl -d -m u:100{round}:rx,g:2002:rwx dir; setfacl -m o::x dir\n\
         echo inherits > dir/of-round-{round}; mkdir dir/sub-{round}\n\
         zfs snapshot {ACLS}@k{round}; setfacl -b f{b}\n\
         cd /; unmounted"
    ))
}

/// And what we do there.
fn keep_acls(session: &Session, round: u64) {
    let fs = Filesystem::open(session.pool(), ACLS).unwrap();
    let (a, c) = (format!("f{}", round * 3), format!("f{}", round * 3 + 2));
    fs.write(fs.resolve(a.as_bytes()).unwrap(), 100, &[9; 5000]).unwrap();
    let dir = fs.resolve(b"dir").unwrap();
    fs.rename(fs.root(), c.as_bytes(), dir, c.as_bytes()).unwrap();
    fs.set_xattr(fs.resolve(a.as_bytes()).unwrap(), b"user.more", Some(&[1; 300])).unwrap();
    fs.unlink(dir, format!("of-round-{round}").as_bytes()).unwrap();
    let of_kernel = format!("{ACLS}@k{round}");
    if round % 2 == 1 {
        session.pool().destroy_snapshots(&[of_kernel], false).unwrap();
    }
}

/// How many files have an ACL.
fn with_acl(entries: &[Entry]) -> usize {
    let has = |e: &&Entry| e.xattrs.iter().any(|(name, _)| name.starts_with(b"system.posix_acl"));
    entries.iter().filter(has).count()
}

/// The pool is closed: the kernel imports it read-only, and says of it what we say and the model knows.
fn assert_alike(dir: &Path, forest: &Forest) {
    let session = Session::open(dir, POOL, POOL).unwrap();
    let names = forest.everything().into_iter().map(|(name, _)| name).chain([ACLS.into()]);
    let list = |name: String| {
        let fs = Filesystem::open(session.pool(), &name).unwrap_or_else(|e| panic!("{name}: {e}"));
        let entries = engine::list(&fs).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, entries)
    };
    let ours: Vec<(String, Vec<Entry>)> = names.map(list).collect();
    drop(session);
    let truth = kernel::truth_of(dir, POOL, &[]);
    assert_told_alike(dir, &truth);
    let theirs = |name: &str| {
        let mut entries = truth.entries(name).unwrap();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        entries
    };
    for (name, expected) in forest.everything() {
        assert_same(&expected, &theirs(&name), Compare::MODEL);
    }
    for (name, ours) in ours {
        let mut theirs = theirs(&name);
        if name.contains('@') {
            // the kernel numbers the roots of mounted snapshots by itself
            theirs[0].object = ours[0].object;
        }
        assert_same(&as_the_kernel_tells_holes(ours, &theirs), &theirs, BESIDE);
    }
}

fn rounds_of(shape: &Shape, seed: u64) {
    if !vm::wanted(&format!("rounds with the OpenZFS kernel over {}", shape.name)) {
        return;
    }
    let (images, mut session) = Session::create(shape, 16 << 10);
    session.pool().set_freeing(5, false).unwrap();
    let none = Some(Stored::Text(b"none".to_vec()));
    session.pool().set_property(POOL, "mountpoint", none).unwrap();
    // What the kernel has unmounted with a log in its header, though an empty one, is read-only here.
    session.pool().set_property(POOL, "sync", Some(Stored::Number(2))).unwrap();
    plant_acls(&session);
    let mut forest = Forest::plant(session.pool(), seed);
    let count = rounds(1, 3);
    for round in 0..count {
        for _ in 0..rounds(150, 300) {
            forest.step(session.pool());
        }
        // The kernel goes on with what we have begun to free.
        session.pool().set_freeing(2, false).unwrap();
        while session.pool().freeing().unwrap() < 100_000 {
            forest.step(session.pool());
        }
        forest.let_go();
        session.close().unwrap();
        if round == 0 {
            assert_verified(images.path(), POOL);
        }
        assert_alike(images.path(), &forest);

        let mut acts = vec![set_acls(round)];
        while (acts.len() as u64) < rounds(24, 48) {
            let changes = forest.change().into_iter();
            acts.extend(changes.map(|change| Act::Command(change.commands())));
            let (dataset, ops) = forest.files(8);
            acts.push(Act::Files(dataset, ops));
        }
        let _status = kernel::story(images.path(), POOL, &acts);

        assert_verified_kernels(images.path(), POOL);
        session = Session::open(images.path(), POOL, POOL).unwrap();
        forest.check(session.pool());
        session.pool().set_freeing(5 + round, true).unwrap();
        let fs = Filesystem::open(session.pool(), ACLS).unwrap();
        assert!(with_acl(&engine::list(&fs).unwrap()) > 3);
        drop(fs);
        keep_acls(&session, round);
    }
    (0..100).for_each(|_| forest.step(session.pool()));
    forest.check(session.pool());
    forest.let_go();
    session.close().unwrap();
    if count > 1 {
        assert_alike(images.path(), &forest);
    }
    tool::zdb_content(images.path(), POOL);
    assert_verified_kernels(images.path(), POOL);
    drop(poolaudit_kernels(images.path(), POOL).expect_ok());
}

/// One round over one shape in the short round, three over each in the long ones; `THUMPER_ONLY` names one by its
/// number.
#[test]
fn the_kernel_and_we_take_turns() {
    let long = rounds(0, 1) == 1;
    let only = std::env::var("THUMPER_ONLY").ok().map(|n| n.parse::<usize>().unwrap());
    for (number, shape) in SHAPES.iter().enumerate() {
        if only.map_or(long || number == 5, |only| only == number) {
            rounds_of(shape, 70 + number as u64);
        }
    }
}
