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
    let (path, file) = lock_file(name);
    file.lock().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file
}

/// Holds one of as many locks `name` as there are cores, in the same way.
#[must_use]
pub fn lock_a_core(name: &str) -> File {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let files = || (0..cores).map(|core| lock_file(&format!("{name}-{core}")).1);
    let free = files().find(|file| file.try_lock().is_ok());
    // None is: who waits, waits for the one that its process has the number of.
    free.unwrap_or_else(|| lock(&format!("{name}-{}", std::process::id() as usize % cores)))
}

fn lock_file(name: &str) -> (PathBuf, File) {
    let path = cache().join(format!("{name}.lock"));
    let file = File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    (path, file)
}
