//! A pool filled until it refuses, its free space in holes of one small record: it still deletes, frees and
//! syncs, and the space comes back to the byte.
//!
//! Seen red: with changes admitted as if nothing became a gang (raidz2 is suspended in the middle of a txg).
//! What the MOS has grown by in the end are space maps, which remember what came and went.

use std::collections::BTreeMap;

use acceptance::judges::assert_verified;
use acceptance::{Session, Shape, engine};
use fs::{Filesystem, FsError, NewObject, Who, make_filesystem, mode};
use pool::{Joined, Stored};
use testkit::{Images, noise, poolaudit, tool};

use crate::gangs::gangs;

const SINGLE: Shape = Shape {
    name: "one disk",
    disks: 1,
    tops: 1,
    disk_bytes: 576 << 20,
    joined: Joined::Single,
    ashift: 12,
    spare_copies: 0,
};
const RAIDZ2: Shape = Shape {
    name: "raidz2 of 6",
    disks: 6,
    tops: 1,
    disk_bytes: 200 << 20,
    joined: Joined::Raidz(2),
    ashift: 12,
    spare_copies: 2,
};

const WHO: Who = Who { uid: 0, gid: 0 };

/// Here is no room beside what is to be kept free: what goes under a snapshot frees nothing.
const SMALL: Shape = Shape { name: "one small disk", disk_bytes: 256 << 20, ..SINGLE };

/// Files of one size in directories of a data set, until there is no space.
struct Filler {
    dataset: &'static str,
    bytes: usize,
    /// Those that are there, by number.
    there: Vec<u64>,
    next: u64,
}

impl Filler {
    fn new(session: &Session, dataset: &'static str, bytes: usize, record: u64) -> Filler {
        let none = ("mountpoint".to_string(), Stored::Text(b"none".to_vec()));
        let props = [none, ("recordsize".to_string(), Stored::Number(record))];
        session.pool().create_filesystem(dataset, BTreeMap::from(props), make_filesystem).unwrap();
        Filler { dataset, bytes, there: Vec::new(), next: 0 }
    }

    fn open(&self, session: &Session) -> Filesystem {
        Filesystem::open(session.pool(), self.dataset).unwrap()
    }

    /// Makes files until one is refused; how many.
    fn fill(&mut self, session: &Session) -> usize {
        let fs = self.open(session);
        let before = self.there.len();
        loop {
            let name = format!("f{}", self.next);
            let data = noise(self.next, self.bytes);
            let new = NewObject::of(mode::FILE | 0o600, WHO);
            match fs.create_with(fs.root(), name.as_bytes(), &new, &data) {
                Ok(_) => self.there.push(self.next),
                Err(FsError::NoSpace { .. }) => {
                    // What was begun goes, in the full pool.
                    match fs.unlink(fs.root(), name.as_bytes()) {
                        Ok(()) | Err(FsError::NotFound { .. }) => {}
                        Err(e) => panic!("{name}: {e}"),
                    }
                    break;
                }
                Err(e) => panic!("{}: file {name}: {e}", self.dataset),
            }
            self.next += 1;
        }
        session.pool().sync().unwrap();
        self.there.len() - before
    }

    /// Removes the files at the places for which `goes` holds.
    fn remove(&mut self, session: &Session, goes: impl Fn(usize) -> bool) {
        let fs = self.open(session);
        let mut place = 0;
        self.there.retain(|number| {
            place += 1;
            if goes(place - 1) {
                let name = format!("f{number}");
                fs.unlink(fs.root(), name.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"));
            }
            !goes(place - 1)
        });
        session.pool().sync().unwrap();
    }

    /// Do all files that were acknowledged hold what they must?
    fn check(&self, session: &Session) {
        let fs = self.open(session);
        let mut found = vec![0; self.bytes];
        for number in &self.there {
            let name = format!("f{number}");
            let entry = fs.lookup(fs.root(), name.as_bytes()).unwrap().expect("acknowledged");
            assert_eq!(fs.read(entry.object, 0, &mut found).unwrap(), self.bytes, "{name}");
            assert!(found == noise(*number, self.bytes), "{}: {name}", self.dataset);
        }
    }
}

/// Syncs until nothing that was freed rests, then the allocated bytes, and of them those of the MOS.
fn settled(session: &Session) -> (u64, u64) {
    let pool = session.pool();
    pool.finish_freeing(|_| true).unwrap();
    for value in [0, 1, 0, 1] {
        pool.set_property(engine::POOL, "devices", Some(Stored::Number(value))).unwrap();
    }
    let mos = pool.mos();
    let root = mos.dir(mos.expect(pool::mos::key::ROOT_DATASET).unwrap()).unwrap();
    let children = mos.zap(root.child_dir_zap_object.get()).unwrap();
    let own = children.get_u64(format::dsl_dir::MOS_DIR_NAME.as_bytes()).unwrap().unwrap();
    (root.used_bytes.get(), mos.dir(own).unwrap().used_bytes.get())
}

fn judge(images: &Images, session: &mut Session) {
    session.close().unwrap();
    tool::zdb_content(images.path(), engine::POOL);
    drop(poolaudit(images.path(), engine::POOL).expect_ok());
    assert_verified(images.path(), engine::POOL);
    *session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
}

/// `of`: one of so many files goes before large ones are written.
fn filled(shape: &Shape, of: usize, under_a_snapshot: bool) {
    let (images, mut session) = Session::create(shape, 128 << 10);
    let before = settled(&session);
    let mut small = Filler::new(&session, "tank/small", 8 << 10, 8 << 10);
    let mut large = Filler::new(&session, "tank/large", 1 << 20, 128 << 10);

    // Every other record goes, and what is written then lies first where there is most room: in the end
    // all that is free lies between records.
    let first = small.fill(&session);
    small.remove(&session, |place| place % 2 == 0);
    let second = small.fill(&session);
    say(&format!("{}: {first}, then {second} files", shape.name));
    assert!(first > 5000 && second > first / 3, "{first} and {second} files");
    if under_a_snapshot {
        session.pool().snapshot(&["tank/small@full".to_string()], &[]).unwrap();
    } else {
        small.remove(&session, |place| place % of == 0);
    }
    let count = large.fill(&session);
    if !under_a_snapshot {
        assert!(count > 0, "{count} large files");
    }
    say(&format!("{count} large files"));
    judge(&images, &mut session);
    if !under_a_snapshot {
        assert!(gangs(&images) > 0, "{} gangs", gangs(&images));
    }
    small.check(&session);
    large.check(&session);

    // All goes, half of it in a pool that was opened anew.
    large.remove(&session, |_| true);
    small.remove(&session, |place| place % 2 == 1);
    judge(&images, &mut session);
    small.check(&session);
    small.remove(&session, |_| true);
    if under_a_snapshot {
        session.pool().destroy_snapshots(&["tank/small@full".to_string()], false).unwrap();
    }
    session.pool().destroy_dataset("tank/small").unwrap();
    session.pool().destroy_dataset("tank/large").unwrap();
    let after = settled(&session);
    say(&format!("{}: {before:?} {after:?}", shape.name));
    assert_eq!(after.0 - after.1, before.0 - before.1, "{}: bytes of data sets", shape.name);
    judge(&images, &mut session);
}

fn say(line: &str) {
    use std::io::Write as _;
    drop(writeln!(std::io::stderr(), "full: {line}"));
}

#[test]
fn one_disk() {
    // More than is kept free, so that not all of what comes then can lie there.
    filled(&SINGLE, 2, false);
}

#[test]
fn one_disk_under_a_snapshot() {
    filled(&SMALL, 32, true);
}

#[test]
fn raidz2() {
    filled(&RAIDZ2, 5, false);
}
