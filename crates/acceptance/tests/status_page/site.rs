//! A pool of image files, its server, and what is done to both.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
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
        self.create_on(&self.images.disks());
    }

    pub(crate) fn create_on(&self, disks: &[PathBuf]) {
        let mut words = vec!["zpool", "create", "tank", "raidz2"];
        words.extend(disks.iter().map(|disk| disk.to_str().unwrap()));
        drop(self.run(&words));
    }

    /// A directory of hooks with the script that writes mail; what it sends comes to the file `sent`.
    pub(crate) fn hooks_with_mail(&self) -> PathBuf {
        let hooks = self.aside.path().join("hooks");
        fs::create_dir(&hooks).unwrap();
        fs::set_permissions(&hooks, Permissions::from_mode(0o755)).unwrap();
        let mail = testkit::paths::repository().join("tools/hooks/all-mail.sh");
        put_program(&hooks, "all-mail.sh", &fs::read_to_string(mail).unwrap());
        let aside = |name: &str| self.aside.path().join(name).display().to_string();
        let script = format!("#!/bin/sh\n[ \"$1\" = -t ]\ncat >> {}\n", aside("sent"));
        put_program(self.aside.path(), "sendmail", &script);
        let (sendmail, stamps) = (aside("sendmail"), aside("stamps"));
        let conf = format!("MAIL_TO=admin@example.org\nSENDMAIL={sendmail}\nSTAMPS={stamps}\n");
        fs::write(hooks.join("mail.conf"), conf).unwrap();
        hooks
    }

    /// The mails that were sent so far.
    pub(crate) fn mails(&self) -> String {
        fs::read_to_string(self.aside.path().join("sent")).unwrap_or_default()
    }

    /// The classes of the events that are kept.
    pub(crate) fn classes(&self) -> Vec<String> {
        let out = self.run(&["zpool", "events", "-H"]);
        out.lines().map(|line| line.split('\t').nth(1).unwrap().to_string()).collect()
    }

    pub(crate) fn has_event(&self, class: &str) -> bool {
        self.classes().iter().any(|other| other == class)
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

/// Makes a file that can be run.
pub(crate) fn put_program(dir: &Path, name: &str, body: &str) {
    let path = dir.join(name);
    fs::write(&path, body).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
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
