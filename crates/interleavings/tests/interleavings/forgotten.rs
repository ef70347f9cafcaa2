//! A directory loses its name, or a file has its place taken by another one, while a kernel that knew it forgets it.
//!
//! Seen red: forgotten just after it was found to be used, it stayed in the delete queue for as long as the pool was open.

use acceptance::engine::POOL;
use device::sim::SimSet;
use fs::{Filesystem, NewObject, Who, mode};
use rt::sync::Arc;
use testkit::random::Rng;
use testkit::rounds;

use crate::create;

/// What goes is of this kind, and goes so.
fn story(seed: u64, kind: u32, goes: fn(&Filesystem)) {
    let pool = create(&SimSet::new(2, 64 << 20));
    let fs = Arc::new(Filesystem::open(&pool, POOL).unwrap());
    let new = NewObject::of(kind | 0o700, Who { uid: 0, gid: 0 });
    let mut rng = Rng::of(seed, 0);
    for _ in 0..8 {
        let known = fs.create(fs.root(), b"name", &new).unwrap();
        fs.know(known);
        let (theirs, looks) = (fs.clone(), rng.below(24));
        let forgets = rt::thread::spawn("forgets", move || {
            // What it does before decides where it meets the other one.
            (0..looks).for_each(|_| drop(theirs.attrs(theirs.root()).unwrap()));
            theirs.forget(known, 1);
        });
        goes(&fs);
        forgets.join();
        assert!(fs.attrs(known).is_err(), "object {known} is still there");
    }
    (0..2).for_each(|_| assert!(pool.sync().is_ok()));
    assert!(fs.delete_queue().unwrap().is_empty());
}

fn stories(kind: u32, goes: fn(&Filesystem)) {
    for seed in 0..rounds(20, 1000) {
        #[cfg(feature = "sim")]
        rt::sim::run(seed, move || story(seed, kind, goes));
        #[cfg(not(feature = "sim"))]
        story(seed, kind, goes);
    }
}

#[test]
fn what_is_forgotten_while_it_loses_its_name_is_freed() {
    stories(mode::DIR, |fs| fs.rmdir(fs.root(), b"name").unwrap());
}

#[test]
fn what_is_forgotten_while_another_takes_its_place_is_freed() {
    stories(mode::FILE, |fs| {
        let new = NewObject::of(mode::FILE | 0o700, Who { uid: 0, gid: 0 });
        fs.create(fs.root(), b"next", &new).unwrap();
        fs.rename(fs.root(), b"next", fs.root(), b"name").unwrap();
        fs.unlink(fs.root(), b"name").unwrap();
    });
}
