//! The client library as programs link it that are not ours.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use testkit::Ran;

/// The static library, built on first use, as the tests themselves are.
///
/// # Panics
/// When it cannot be built.
pub fn client_library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let (profile, folder) =
            if cfg!(debug_assertions) { ("dev", "debug") } else { ("release", "release") };
        let cache = testkit::paths::cache();
        let target = cache.parent().expect("the cache is in the target directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "-p", "client", "--profile", profile]);
        cargo.current_dir(testkit::paths::repository()).arg("--target-dir").arg(target);
        drop(Ran::of(&mut cargo).expect_ok());
        target.join(folder).join("libclient.a")
    };
    BUILT.get_or_init(build).clone()
}
