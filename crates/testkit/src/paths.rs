//! Where things are: the repository, and the cache that test processes share.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The top directory of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lies in crates/testkit").to_path_buf()
}

/// A directory under cargo's target directory that all tests of this build share. What is in it
/// is named by the hash of its source, so it never goes stale and may be deleted at any time.
#[must_use]
pub fn cache() -> PathBuf {
    let program = std::env::current_exe().expect("a running test has a path");
    // cargo marks its target directory, wherever it was told to put it
    let target = program.ancestors().find(|dir| dir.join("CACHEDIR.TAG").exists());
    let cache = match target {
        Some(target) => target.join("testkit"),
        None => repository().join("target/testkit"),
    };
    fs::create_dir_all(&cache).unwrap_or_else(|e| panic!("{}: {e}", cache.display()));
    cache
}

/// Holds the lock `name` among all threads and processes of this build until it is dropped.
#[must_use]
pub fn lock(name: &str) -> File {
    let path = cache().join(format!("{name}.lock"));
    let file = File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.lock().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file
}
