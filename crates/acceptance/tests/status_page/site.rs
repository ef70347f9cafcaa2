//! A pool of image files, its server, and what is done to both.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use acceptance::{Server, thumper};
use testkit::random::Rng;
use testkit::{Images, Ran, TempDir, fresh_images, temp_dir};

/// A pool `tank` of five disks, raidz2, with a list of pools that only this test knows.
pub(crate) struct Site {
    pub(crate) images: Images,
    pub(crate) aside: TempDir,
}

impl Site {
    pub(crate) fn new() -> Site {
        Site { images: fresh_images(5, 128 << 20), aside: temp_dir() }
    }

    fn state(&self) -> PathBuf {
        self.aside.path().join("pools")
    }

    /// Starts the server with these words.
    pub(crate) fn serve(&self, words: &[&str]) -> Server {
        Server::start_with(&self.state(), words)
    }

    pub(crate) fn try_run(&self, words: &[&str]) -> Ran {
        Ran::of(thumper(&self.state()).args(words).current_dir(self.aside.path()))
    }

    #[track_caller]
    pub(crate) fn run(&self, words: &[&str]) -> String {
        self.try_run(words).expect_ok().out
    }

    pub(crate) fn create(&self) {
        let disks = self.images.disks();
        let mut words = vec!["zpool", "create", "tank", "raidz2"];
        words.extend(disks.iter().map(|disk| disk.to_str().unwrap()));
        drop(self.run(&words));
    }

    /// Puts a file of noise.
    pub(crate) fn put(&self, name: &str, seed: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        Rng::of(seed, 1).fill(&mut bytes);
        fs::write(self.aside.path().join(name), &bytes).unwrap();
        drop(self.run(&["put", name, &format!("tank:/{name}")]));
        bytes
    }

    pub(crate) fn disk(&self, index: usize) -> PathBuf {
        self.images.disks()[index].clone()
    }
}

/// Waits until it holds; what it was that long.
#[track_caller]
pub(crate) fn until(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let start = rt::time::now();
    while !holds() {
        assert!(start.elapsed() < patience, "not within {patience:?}: {what}");
        rt::time::sleep(Duration::from_millis(50));
    }
    start.elapsed()
}
