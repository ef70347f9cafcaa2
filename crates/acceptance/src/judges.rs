//! Those who judge from outside, called together.

use std::path::Path;

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
    judge_without(images, pool, &choose(images.disks().len(), hide, seed));
}

/// The same, with these disks away in the end.
///
/// # Panics
/// With what was said, if one of them is not content.
#[track_caller]
pub fn judge_without(images: &Images, pool: &str, hidden: &[usize]) {
    tool::zdb_content(images.path(), pool);
    tool::zdb_objects(images.path(), pool);
    drop(poolaudit(images.path(), pool).expect_ok());
    if !hidden.is_empty() {
        let rest = images.without(hidden);
        tool::zdb_content(rest.path(), pool);
    }
}

/// Our own judge, which shares nothing with what wrote the pool, finds nothing: neither in the pool nor on
/// a disk. Returns how many blocks it read.
///
/// # Panics
/// With what it found.
#[track_caller]
pub fn assert_verified(dir: &Path, pool: &str) -> u64 {
    let report = verified(dir, pool);
    assert!(report.findings.is_empty(), "{report:#?}");
    report.blocks
}

/// The same for a pool that the kernel wrote to: what [`verify::FindingKind::is_harmless`] tells may be in it.
///
/// # Panics
/// With what was found besides.
#[track_caller]
pub fn assert_verified_kernels(dir: &Path, pool: &str) -> u64 {
    verified(dir, pool).blocks
}

#[track_caller]
fn verified(dir: &Path, pool: &str) -> verify::Report {
    let scan = vdev::import::scan(&[dir.to_path_buf()]).unwrap_or_else(|e| panic!("{e}"));
    let found = scan.choose(pool).unwrap_or_else(|e| panic!("{e}"));
    let report = verify::verify_pool(found, &verify::Options::default(), &mut |_| true);
    let report = report.unwrap_or_else(|e| panic!("{e}"));
    assert!(report.verdict == verify::Verdict::Clean, "{report:#?}");
    report
}

/// `count` different numbers below `among`, chosen by `seed`.
#[must_use]
pub fn choose(among: usize, count: usize, seed: u64) -> Vec<usize> {
    let mut rng = Rng::of(seed, 4711);
    let mut all: Vec<usize> = (0..among).collect();
    (0..count.min(among)).map(|_| all.swap_remove(rng.index(all.len()))).collect()
}
