//! What nobody may change stays, what goes goes as a whole, what cannot come leaves nothing, and what is hidden is theirs whose
//! the object is.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use acceptance::judges::assert_verified;
use acceptance::{SHAPES, Session, engine, judge};
use format::zap::{Key, NormFlags, zap_hash};
use format::znode::Pflags;
use fs::{
    Algorithm, Filesystem, FsError, NewObject, Setattr, When, Who, code, make_filesystem, mode,
};
use pool::Stored;

const ME: Who = Who { uid: 1000, gid: 100 };

fn make(session: &Session, name: &str, xattr: u64) -> Filesystem {
    make_with(session, name, &[("xattr", xattr)])
}

fn make_with(session: &Session, name: &str, numbers: &[(&str, u64)]) -> Filesystem {
    let mut props = BTreeMap::from([("mountpoint".into(), Stored::Text(b"none".to_vec()))]);
    props.extend(numbers.iter().map(|(name, number)| (name.to_string(), Stored::Number(*number))));
    session.pool().create_filesystem(name, props, make_filesystem).unwrap();
    Filesystem::open(session.pool(), name).unwrap()
}

fn file() -> NewObject<'static> {
    NewObject::of(mode::FILE | 0o644, ME)
}

fn errno<T>(done: Result<T, FsError>) -> i32 {
    done.err().map_or(0, |error| error.errno())
}

/// Each flag that chattr(1) sets under OpenZFS stops what it stops there, root too, and nothing else.
#[test]
fn flags_protect_files_from_everybody() {
    let (images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let fs = make(&session, "tank/flags", 2);
    let dir = fs.create(fs.root(), b"dir", &NewObject::of(mode::DIR | 0o755, ME)).unwrap();
    let inside = fs.create_with(dir, b"inside", &file(), &[1; 1000]).unwrap();
    let flag = |number: u64, flag: u64| {
        fs.change_attrs(number, |attrs| {
            attrs.flags = attrs.flags & !(0xf << 32 | 0xf << 36) | flag;
        })
        .unwrap();
    };
    let set = |set: Setattr| errno(fs.setattr(inside, &set));
    let now = Some(When::Now);
    let tries = || {
        let size = fs.attrs(inside).unwrap().size;
        let read = fs.read(inside, 0, &mut [0; 10]).unwrap();
        assert_eq!(read, 10);
        [
            ("write", errno(fs.write(inside, 0, b"x"))),
            ("append", errno(fs.append(inside, b"x").map(drop))),
            ("write behind", errno(fs.write(inside, size + 10, b"x"))),
            ("cut", errno(fs.truncate(inside, 500))),
            ("hole", errno(fs.punch_hole(inside, 0, 100))),
            ("chmod", set(Setattr { mode: Some(0o600), ..Setattr::default() })),
            ("chown", set(Setattr { uid: Some(7), ..Setattr::default() })),
            ("touch", set(Setattr { atime: now, mtime: now, ..Setattr::default() })),
            ("xattr", errno(fs.set_xattr(inside, b"user.a", Some(b"1")))),
            ("acl", errno(fs.set_acl(inside, b"system.posix_acl_access", None, (0, 0)))),
            ("link", errno(fs.link(fs.root(), b"link", inside))),
            ("rename", errno(fs.rename(dir, b"inside", fs.root(), b"moved"))),
            (
                "replace",
                errno(
                    fs.create(dir, b"new", &file())
                        .and_then(|_| fs.rename(dir, b"new", dir, b"inside")),
                ),
            ),
            ("unlink", errno(fs.unlink(dir, b"inside"))),
        ]
    };
    let refused = |tries: [(&'static str, i32); 14]| -> Vec<&str> {
        let refused = tries.into_iter().filter(|(_, errno)| *errno != 0);
        refused
            .inspect(|(what, errno)| assert_eq!(*errno, code::PERM, "{what}"))
            .map(|(what, _)| what)
            .collect()
    };
    flag(inside, Pflags::IMMUTABLE);
    assert_eq!(refused(tries()).len(), 14, "all");
    assert_eq!(errno(fs.may_be_written(inside, true)), code::PERM);
    drop(fs.unlink(dir, b"new"));
    flag(inside, Pflags::APPENDONLY);
    let all_but = [
        "write", "cut", "hole", "chmod", "chown", "xattr", "acl", "link", "rename", "replace",
        "unlink",
    ];
    assert_eq!(refused(tries()), all_but);
    assert_eq!(
        [errno(fs.may_be_written(inside, true)), errno(fs.may_be_written(inside, false))],
        [0, code::PERM]
    );
    drop(fs.unlink(dir, b"new"));
    assert_eq!(errno(fs.extend(inside, 100_000)), 0, "room at its end");
    flag(inside, Pflags::READONLY);
    flag(dir, Pflags::IMMUTABLE);
    // What is in a directory is not the directory's.
    let contents_and_names =
        ["write", "append", "write behind", "cut", "hole", "rename", "replace", "unlink"];
    assert_eq!(refused(tries()), contents_and_names);
    assert_eq!(fs.attrs(inside).unwrap().uid, 7);
    drop(fs);
    session.close().unwrap();
    drop(session);
    judge(&images, engine::POOL, 0, 1);
}

/// Who gets a file gets what of it is hidden, and pays for that, too.
#[test]
fn hidden_attributes_change_hands_with_their_file() {
    let (images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let fs = make(&session, "tank/hidden", 1);
    let number = fs.create(fs.root(), b"file", &file()).unwrap();
    for name in [&b"user.a"[..], b"user.b"] {
        fs.set_xattr(number, name, Some(&[1; 5000])).unwrap();
    }
    fs.setattr(
        number,
        &Setattr { uid: Some(7), gid: Some(8), mode: Some(0o640), ..Setattr::default() },
    )
    .unwrap();
    let hidden = fs.attrs(number).unwrap().xattr_object.unwrap();
    let mut all = vec![number, hidden];
    all.extend(fs.read_dir(hidden).unwrap().into_iter().map(|entry| entry.object));
    assert_eq!(all.len(), 4);
    // Their number is bounded: whoever writes the file looks at all of them. What is there can be changed.
    let set = |name: usize| {
        errno(fs.set_xattr(number, format!("user.{name}").as_bytes(), Some(&[1; 10])))
    };
    assert_eq!((2..4096).find(|name| set(*name) != 0), None);
    assert_eq!([set(4096), set(5)], [code::NOSPC, 0]);
    for number in all {
        let attrs = fs.attrs(number).unwrap();
        assert_eq!((attrs.uid, attrs.gid), (7, 8), "object {number}");
    }
    drop(fs);
    session.close().unwrap();
    drop(session);
    judge(&images, engine::POOL, 0, 1);
}

/// What cannot be taken away as a whole stays as a whole.
#[test]
fn a_name_whose_hidden_attributes_cannot_be_read_stays() {
    let (images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let fs = make(&session, "tank/whole", 2);
    for name in [&b"one"[..], b"two"] {
        let number = fs.create(fs.root(), name, &file()).unwrap();
        fs.change_attrs(number, |attrs| attrs.xattr_object = Some(1 << 30)).unwrap();
    }
    let before = fs.attrs(fs.root()).unwrap().size;
    assert_ne!(errno(fs.unlink(fs.root(), b"one")), 0);
    assert_ne!(errno(fs.rename(fs.root(), b"one", fs.root(), b"two")), 0);
    let names: Vec<_> =
        fs.read_dir(fs.root()).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [b"one", b"two"]);
    assert_eq!(fs.attrs(fs.root()).unwrap().size, before);
    for name in [&b"one"[..], b"two"] {
        let number = fs.lookup(fs.root(), name).unwrap().unwrap().object;
        fs.change_attrs(number, |attrs| attrs.xattr_object = Some(0)).unwrap();
        fs.unlink(fs.root(), name).unwrap();
    }
    drop(fs);
    session.close().unwrap();
    drop(session);
    judge(&images, engine::POOL, 0, 1);
}

/// A name that can be no entry of a directory is refused for the hidden one before anything is made for it.
///
/// Seen red: the value's file and the directory were made first, and stayed without a name.
#[test]
fn an_attribute_that_no_directory_can_name_is_refused() {
    let (images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let name = b"user.\xff";
    for (rule, value, expected) in [
        ("normalization", NormFlags::NFD, code::INVAL),
        ("casesensitivity", 1, code::INVAL),
        ("utf8only", 1, code::ILSEQ),
    ] {
        let fs = make_with(&session, &format!("tank/{rule}"), &[("xattr", 1), (rule, value)]);
        let number = fs.create(fs.root(), b"file", &file()).unwrap();
        assert_eq!(errno(fs.set_xattr(number, name, Some(&[1; 5000]))), expected, "{rule}");
        assert_eq!(fs.attrs(number).unwrap().xattr_object, None, "{rule}");
        let new = NewObject { xattrs: &[(name, b"1")], ..file() };
        assert_eq!(errno(fs.create(fs.root(), b"other", &new)), expected, "{rule}");
        assert_eq!(fs.lookup(fs.root(), b"other").unwrap(), None);
        fs.set_xattr(number, b"user.a", Some(&[1; 5000])).unwrap();
        // In a list there is a place for it, as long as its value is short.
        let fs = make_with(&session, &format!("tank/{rule}2"), &[("xattr", 2), (rule, value)]);
        let number = fs.create(fs.root(), b"file", &file()).unwrap();
        fs.set_xattr(number, name, Some(b"short")).unwrap();
        assert_ne!(errno(fs.set_xattr(number, name, Some(&[1; 40_000]))), 0, "{rule}");
        assert_eq!(fs.xattr(number, name).unwrap().as_deref(), Some(&b"short"[..]));
        fs.set_xattr(number, name, None).unwrap();
    }
    session.close().unwrap();
    drop(session);
    judge(&images, engine::POOL, 0, 1);
    assert_verified(images.path(), engine::POOL);
}

/// Names that have the same hash in each ZAP, whatever its salt, so that no leaf can be split between them.
fn names_of_one_hash() -> Vec<Vec<u8>> {
    let bits = 36;
    let name = |turned: u64| {
        let one = |i: u64| if i < bits && turned >> i & 1 == 1 { b'c' } else { b'a' };
        [b"user.".to_vec(), (0..200).map(one).collect()].concat()
    };
    let hash = |turned: u64| zap_hash(1, 0, 0, Key::Name(&name(turned))).unwrap();
    // A CRC is linear: those bits that together change nothing change nothing beside others either.
    let (mut basis, mut free): (Vec<(u64, u64)>, Vec<u64>) = Default::default();
    for bit in 0..bits {
        let (mut turned, mut change) = (1_u64 << bit, hash(1 << bit) ^ hash(0));
        for (with, its) in &basis {
            if change & (1 << its.ilog2()) != 0 {
                (turned, change) = (turned ^ with, change ^ its);
            }
        }
        match change {
            0 => free.push(turned),
            _ => basis.push((turned, change)),
        }
    }
    let sum = |choice: u64| {
        let chosen = free.iter().enumerate().filter(|(i, _)| choice >> i & 1 == 1);
        name(chosen.fold(0, |all, (_, turned)| all ^ turned))
    };
    (0..128).map(sum).collect()
}

/// What was made for a name that its directory has no place for goes with the change that made it.
///
/// Seen red: it stayed, without a name.
#[test]
fn what_gets_no_name_is_taken_away_again() {
    let (images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let fs = make(&session, "tank/names", 1);
    let names = names_of_one_hash();
    let first_refused = |make: &dyn Fn(&[u8]) -> i32| {
        let found = names.iter().position(|name| make(name) != 0).unwrap();
        assert!((20..100).contains(&found), "{found} names");
    };
    let dir = fs.create(fs.root(), b"dir", &NewObject::of(mode::DIR | 0o755, ME)).unwrap();
    first_refused(&|name| errno(fs.create_with(dir, name, &file(), &[1; 5000])));
    let number = fs.create(fs.root(), b"file", &file()).unwrap();
    first_refused(&|name| errno(fs.set_xattr(number, name, Some(&[1; 5000]))));
    // A new file with more attributes than there is place for: all that was made for them goes.
    let xattrs: Vec<(&[u8], &[u8])> = names.iter().map(|name| (&name[..], &[1; 10][..])).collect();
    let new = NewObject { xattrs: &xattrs, ..file() };
    assert_ne!(errno(fs.create(fs.root(), b"other", &new)), 0);
    assert_eq!(fs.lookup(fs.root(), b"other").unwrap(), None);
    drop(fs);
    session.close().unwrap();
    drop(session);
    judge(&images, engine::POOL, 0, 1);
    assert_verified(images.path(), engine::POOL);
}

/// Who only reads a file that nobody may change does not change it: its digest is told, and not kept beside it.
///
/// Seen red: it was kept in the file's extended attributes.
#[test]
fn a_digest_of_what_nobody_may_change_is_not_kept() {
    let (_images, session) = Session::create(&SHAPES[0], 128 << 10);
    let fs = make(&session, "tank/digests", 2);
    let number = fs.create_with(fs.root(), b"file", &file(), &[1; 1000]).unwrap();
    let kept_with = |flag: u64| {
        fs.change_attrs(number, |attrs| attrs.flags |= flag).unwrap();
        let before = fs.attrs(number).unwrap();
        assert!(fs.digest(number, Algorithm::Adler32).unwrap().is_some());
        let is_kept = fs.attrs(number).unwrap() != before;
        fs.change_attrs(number, |attrs| attrs.flags &= !flag).unwrap();
        is_kept
    };
    assert_eq!([Pflags::IMMUTABLE, Pflags::APPENDONLY, 0].map(kept_with), [false, false, true]);
}

/// Whatever is given to somebody else loses its set-id bits, but for directories.
///
/// Seen red: fifos kept them.
#[test]
fn special_files_are_disarmed_as_files_are() {
    let (_images, session) = Session::create(&SHAPES[0], 128 << 10);
    let fs = make(&session, "tank/ids", 2);
    let disarmed = |kind: u32| {
        let name = format!("{kind:o}");
        let new = NewObject::of(kind | 0o7775, ME);
        let number = fs.create(fs.root(), name.as_bytes(), &new).unwrap();
        fs.disarm(number).unwrap();
        fs.attrs(number).unwrap().permissions()
    };
    let kinds = [mode::FILE, mode::FIFO, mode::SOCKET, mode::CHAR, mode::BLOCK, mode::DIR];
    assert_eq!(kinds.map(disarmed), [0o1775, 0o1775, 0o1775, 0o1775, 0o1775, 0o7775]);
}
