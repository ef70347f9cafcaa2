//! Tests of the whole against its referees are in `tests/` of this crate; here is what they share.
//!
//! Place: above the doors, beside the house. Programs from outside (zdb, poolaudit, the OpenZFS
//! kernel) judge here and nowhere else, so that the other crates' tests run anywhere.
//! The one idea: the product is driven as its users drive it, by the program `thumper`; what it did
//! is judged by those who share no code with it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use testkit::random::Rng;
use testkit::{Images, Ran, poolaudit, tool};

/// The program `thumper` as it is in this working tree: built on first use, so that no test judges
/// a stale one.
///
/// # Panics
/// If it does not build.
#[must_use]
pub fn thumper_path() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let folder = if cfg!(debug_assertions) { "debug" } else { "release" };
        let mut cargo = Command::new(env!("CARGO"));
        // the whole workspace decides on features, as in the build that made this test
        cargo.args(["build", "--quiet", "--workspace", "--bin", "thumper", "--profile", profile]);
        let cache = testkit::paths::cache();
        let target = cache.parent().expect("the cache lies in cargo's target directory");
        let cargo = cargo.current_dir(testkit::paths::repository()).arg("--target-dir").arg(target);
        drop(Ran::of(cargo).expect_ok());
        target.join(folder).join("thumper")
    };
    BUILT.get_or_init(build).clone()
}

/// A command that runs `thumper`, with its state kept in `state` instead of the user's directory.
#[must_use]
pub fn thumper(state: &std::path::Path) -> Command {
    let mut command = Command::new(thumper_path());
    command.env("THUMPER_STATE", state).env("TZ", "UTC").env("LC_ALL", "C");
    command
}

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
