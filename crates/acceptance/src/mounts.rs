//! Mounts that a test made, and their end.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Takes a mount away, whoever serves it or not.
pub fn detach(dir: &Path) {
    drop(Command::new(testkit::tool::program("umount", "mount")).arg("-l").arg(dir).output());
}

/// Takes away what a server that was killed, or a test that failed, has left mounted below a directory.
#[derive(Debug)]
pub struct Tidy(pub PathBuf);

impl Drop for Tidy {
    fn drop(&mut self) {
        let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let on = list.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
        let below: Vec<&Path> = on.filter(|on| on.starts_with(&self.0)).collect();
        below.into_iter().rev().for_each(detach);
    }
}
