//! A directory loses its name while a kernel that knew it forgets it.
//!
//! Seen red: forgotten just after it was found to be used, it stayed in the delete queue for as long as the pool was open.

use acceptance::engine::POOL;
use device::sim::SimSet;
use fs::{Filesystem, NewObject, Who, mode};
use rt::sync::Arc;
use testkit::random::Rng;
use testkit::rounds;

use crate::create;

fn story(seed: u64) {
    let pool = create(&SimSet::new(2, 64 << 20));
    let fs = Arc::new(Filesystem::open(&pool, POOL).unwrap());
    let new = NewObject::of(mode::DIR | 0o700, Who { uid: 0, gid: 0 });
    let mut rng = Rng::of(seed, 0);
    for _ in 0..8 {
        let dir = fs.create(fs.root(), b"dir", &new).unwrap();
        fs.know(dir);
        let (theirs, looks) = (fs.clone(), rng.below(24));
        let forgets = rt::thread::spawn("forgets", move || {
            // What it does before decides where it meets the other one.
            (0..looks).for_each(|_| drop(theirs.attrs(theirs.root()).unwrap()));
            theirs.forget(dir, 1);
        });
        fs.rmdir(fs.root(), b"dir").unwrap();
        forgets.join();
        assert!(fs.attrs(dir).is_err(), "directory {dir} is still there");
    }
    (0..2).for_each(|_| assert!(pool.sync().is_ok()));
    assert!(fs.delete_queue().unwrap().is_empty());
}

#[test]
fn what_is_forgotten_while_it_loses_its_name_is_freed() {
    for seed in 0..rounds(20, 1000) {
        #[cfg(feature = "sim")]
        rt::sim::run(seed, move || story(seed));
        #[cfg(not(feature = "sim"))]
        story(seed);
    }
}
