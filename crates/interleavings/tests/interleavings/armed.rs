//! Somebody writes to a program that acts as its owner, while its owner says who may do what with it.
//!
//! Seen red: the permissions without set-id bits, looked up first and set later (the owner's own were undone).

use acceptance::engine::POOL;
use device::sim::SimSet;
use fs::{Filesystem, NewObject, Setattr, Who, acl, mode};
use rt::sync::Arc;
use rt::thread::{JoinHandle, spawn};
use testkit::rounds;

use crate::create;

/// Programs, one after the other.
const TIMES: usize = 4;

/// A list as Linux hands it over: what the owner, one more user, the group, all of them but the owner, and others may.
fn list(perms: [u16; 5]) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, perm) in [1u16, 2, 4, 0x10, 0x20].into_iter().zip(perms) {
        list.extend(tag.to_le_bytes());
        list.extend(perm.to_le_bytes());
        list.extend(if tag == 2 { 77u32 } else { u32::MAX }.to_le_bytes());
    }
    list
}

fn story() {
    let pool = create(&SimSet::new(2, 64 << 20));
    let fs = Arc::new(Filesystem::open(&pool, POOL).unwrap());
    for time in 0..TIMES {
        let new = NewObject::of(mode::FILE | 0o4777, Who { uid: 5, gid: 5 });
        let file = fs.create(fs.root(), format!("program{time}").as_bytes(), &new).unwrap();
        fs.set_acl(file, acl::ACCESS, Some(&list([7, 7, 7, 7, 7])), (0, 0)).unwrap();
        let by_list = time % 2 == 0;
        let (theirs, others) = (fs.clone(), fs.clone());
        let owner = spawn("owner", move || match by_list {
            true => theirs.set_acl(file, acl::ACCESS, Some(&list([7, 0, 0, 0, 0])), (0, 0)),
            false => theirs.setattr(file, &Setattr { mode: Some(0o700), ..Setattr::default() }),
        });
        let writer = spawn("writer", move || others.disarm(file));
        let done: Vec<_> = [owner, writer].into_iter().map(JoinHandle::join).collect();
        assert!(done.iter().all(Result::is_ok), "{done:?}");
        assert_eq!(fs.attrs(file).unwrap().permissions(), 0o700, "by a list: {by_list}");
        if by_list {
            let found = fs.xattr(file, acl::ACCESS).unwrap();
            assert_eq!(found, Some(list([7, 0, 0, 0, 0])));
        }
    }
}

#[test]
fn what_a_write_takes_away_is_no_permission_that_was_taken_before() {
    for seed in 0..rounds(40, 1000) {
        #[cfg(feature = "sim")]
        rt::sim::run(seed, story);
        #[cfg(not(feature = "sim"))]
        {
            let _ = seed;
            story();
        }
    }
}

/// A list of a pool from elsewhere, which means nothing here.
fn foreign() {
    let pool = create(&SimSet::new(2, 64 << 20));
    let fs = Filesystem::open(&pool, POOL).unwrap();
    let new = NewObject::of(mode::FILE | 0o6777, Who { uid: 5, gid: 5 });
    let file = fs.create(fs.root(), b"program", &new).unwrap();
    // What the first of its entries says is allowed, or denied, is something else.
    let give = |attrs: &mut fs::Attrs| attrs.aces.as_mut().unwrap()[4] ^= 1;
    fs.change_attrs(file, give).unwrap();
    let before = fs.attrs(file).unwrap();
    fs.disarm(file).unwrap();
    let after = fs.attrs(file).unwrap();
    assert_eq!((after.permissions(), after.flags), (0o777, before.flags));
    assert_eq!((after.acl_count, after.aces), (before.acl_count, before.aces));
}

#[test]
fn what_a_write_takes_away_is_no_list() {
    #[cfg(feature = "sim")]
    rt::sim::run(0, foreign);
    #[cfg(not(feature = "sim"))]
    foreign();
}
