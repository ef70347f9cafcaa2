//! Disk images and directories that belong to one test and go away with it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use tempfile::TempDir;

use crate::golden::images_in;
use crate::random::Rng;

/// A new empty directory, removed when it is dropped. `THUMPER_TEST_DIR` names its parent, else
/// the system's directory for temporary files.
#[must_use]
pub fn temp_dir() -> TempDir {
    let parent = std::env::var_os("THUMPER_TEST_DIR").map_or_else(std::env::temp_dir, Into::into);
    tempfile::Builder::new()
        .prefix("thumper-")
        .tempdir_in(&parent)
        .unwrap_or_else(|e| panic!("{}: {e}", parent.display()))
}

/// Disk images d00, d01, ... in a directory of their own.
#[derive(Debug)]
pub struct Images {
    dir: TempDir,
}

/// `n` sparse images of `size_bytes` each.
#[must_use]
pub fn fresh_images(n: usize, size_bytes: u64) -> Images {
    let images = Images { dir: temp_dir() };
    for i in 0..n {
        let path = images.disk(i);
        let made = File::create(&path).and_then(|file| file.set_len(size_bytes));
        made.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    images
}

impl Images {
    /// A copy, holes kept, of the images in `dir`.
    #[must_use]
    pub fn copy_of(dir: &Path) -> Images {
        let images = Images { dir: temp_dir() };
        let status = Command::new("cp")
            .args(["--sparse=always", "--no-preserve=mode", "--"])
            .args(images_in(dir))
            .arg(images.path())
            .status()
            .unwrap_or_else(|e| panic!("cp (Debian: coreutils): {e}"));
        assert!(status.success(), "cp from {}: {status}", dir.display());
        images
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The path of image `i`, whether it is there or not.
    #[must_use]
    pub fn disk(&self, i: usize) -> PathBuf {
        self.path().join(format!("d{i:02}"))
    }

    /// The paths of all images that are there, in order.
    #[must_use]
    pub fn disks(&self) -> Vec<PathBuf> {
        images_in(self.path())
    }

    /// Another directory with the same images but those in `hidden`. They are the same files: what
    /// is written to one is written to the other.
    #[must_use]
    pub fn without(&self, hidden: &[usize]) -> Images {
        let rest = Images { dir: temp_dir() };
        let hidden: Vec<PathBuf> = hidden.iter().map(|i| self.disk(*i)).collect();
        for path in self.disks().iter().filter(|path| !hidden.contains(path)) {
            let link = rest.path().join(path.file_name().expect("it is a file"));
            fs::hard_link(path, &link).unwrap_or_else(|e| panic!("{}: {e}", link.display()));
        }
        rest
    }

    /// Takes image `i` away for good.
    pub fn remove(&self, i: usize) {
        let path = self.disk(i);
        fs::remove_file(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Overwrites image `i` from byte `from` to its end with noise that `seed` determines.
    pub fn noise(&self, i: usize, from: u64, seed: u64) {
        let path = self.disk(i);
        let file = OpenOptions::new().write(true).open(&path);
        let file = file.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let size = file.metadata().unwrap_or_else(|e| panic!("{}: {e}", path.display())).len();
        let mut rng = Rng::new(seed);
        let mut chunk = vec![0u8; 1 << 20];
        let mut at = from;
        while at < size {
            rng.fill(&mut chunk);
            let n = chunk.len().min(usize::try_from(size - at).unwrap_or(usize::MAX));
            let written = file.write_all_at(&chunk[..n], at);
            written.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            at += n as u64;
        }
    }
}
