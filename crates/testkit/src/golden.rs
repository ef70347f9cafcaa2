//! Golden pools: images that the real OpenZFS kernel wrote, unpacked once for all tests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::paths;
use crate::scratch::Images;
use crate::truth::hex_digest;

/// The file `tests/golden/NAME`.
#[must_use]
pub fn archive(name: &str) -> PathBuf {
    paths::repository().join("tests/golden").join(name)
}

/// The directory with the images d00, d01, ... of the golden pool `name`, shared by all tests:
/// look, do not touch. See [`golden_copy`] for images that may be damaged.
///
/// # Panics
/// If there is no such pool, or it cannot be unpacked.
#[must_use]
pub fn golden(name: &str) -> PathBuf {
    let packed = archive(&format!("{name}.tar.zst"));
    let bytes = fs::read(&packed).unwrap_or_else(|e| panic!("{}: {e}", packed.display()));
    let sum = hex_digest(&bytes);
    let place = paths::cache().join(format!("{name}-{}", &sum[..16]));
    if place.exists() {
        return place;
    }
    let _held = paths::lock(&format!("golden-{name}"));
    if !place.exists() {
        // under another name first: what stands under its own name is whole
        let half = place.with_extension("half");
        drop(fs::remove_dir_all(&half));
        fs::create_dir_all(&half).unwrap_or_else(|e| panic!("{}: {e}", half.display()));
        unpack(&bytes, &half);
        for image in images_in(&half) {
            let mut mode = fs::metadata(&image).expect("it was just unpacked").permissions();
            mode.set_readonly(true);
            fs::set_permissions(&image, mode).expect("it was just unpacked");
        }
        fs::rename(&half, &place).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
    }
    place
}

/// A copy of the images of the golden pool `name` in a directory of its own, to be damaged.
///
/// # Panics
/// As [`golden`] does.
#[must_use]
pub fn golden_copy(name: &str) -> Images {
    Images::copy_of(&golden(name))
}

/// The files of `dir`, sorted by name.
pub(crate) fn images_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap_or_else(|e| panic!("{}: {e}", dir.display())).path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

/// Unpacks a zstd-compressed tar with GNU tar, which keeps holes.
fn unpack(bytes: &[u8], to: &Path) {
    let mut tar = Command::new("tar")
        .args(["--extract", "--sparse", "--no-same-owner", "--file=-", "--directory"])
        .arg(to)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("tar is needed to unpack golden pools (Debian: tar): {e}"));
    let mut pipe = tar.stdin.take().expect("it was asked for");
    let copied = zstd::stream::copy_decode(bytes, &mut pipe);
    drop(pipe);
    let status = tar.wait().expect("tar was started");
    copied.unwrap_or_else(|e| panic!("unpacking into {}: {e}", to.display()));
    assert!(status.success(), "tar into {}: {status}", to.display());
}

/// The decompressed bytes of `tests/golden/NAME`.
pub(crate) fn decompressed(name: &str) -> Vec<u8> {
    let path = archive(name);
    let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    zstd::stream::decode_all(file).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
