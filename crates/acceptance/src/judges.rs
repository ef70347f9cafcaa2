//! Those who judge from outside, called together.

use testkit::random::Rng;
use testkit::{Images, poolaudit, tool};

/// All judges from outside but the kernel, on a closed pool that only we wrote to: zdb reads every block
/// and recounts the space, zdb prints every object, poolaudit recounts what zdb does not; and zdb again
/// with `hide` of the disks away, chosen by `seed`.
///
/// # Panics
/// With what was said, if one of them is not content.
#[track_caller]
pub fn judge(images: &Images, pool: &str, hide: usize, seed: u64) {
    tool::zdb_content(images.path(), pool);
    tool::zdb_objects(images.path(), pool);
    drop(poolaudit(images.path(), pool).expect_ok());
    if hide > 0 {
        let hidden = choose(images.disks().len(), hide, seed);
        let rest = images.without(&hidden);
        tool::zdb_content(rest.path(), pool);
    }
}

/// `count` different numbers below `among`, chosen by `seed`.
#[must_use]
pub fn choose(among: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::of(seed, 4711);
    let mut all: Vec<usize> = (0..among).collect();
    (0..count.min(among)).map(|_| all.swap_remove(rng.index(all.len()))).collect()
}
