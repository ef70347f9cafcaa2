//! The program `thumper`, as it is in this working tree.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::Ran;

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
pub fn thumper(state: &Path) -> Command {
    let mut command = Command::new(thumper_path());
    command.env("THUMPER_STATE", state).env("TZ", "UTC").env("LC_ALL", "C");
    command
}
