//! Scenarios and what OpenZFS answered, and a stage to play them on with our program.
//!
//! They lie in `crates/cli/tests/transcripts`; the kernel and its tools wrote the answers.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Ran, TempDir, temp_dir};

/// The directory that the scenarios were recorded in. Ours is as long: it shows in columns.
const STAGE: &str = "/tmp/t-0000000";

/// One command with what OpenZFS answered.
#[derive(Debug)]
pub struct Case {
    /// The command as typed.
    pub command: String,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    /// Its exit status.
    pub status: i32,
}

/// The text of a scenario or transcript.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn text(name: &str, ending: &str) -> String {
    let dir = testkit::paths::repository().join("crates/cli/tests/transcripts");
    let path = dir.join(format!("{name}.{ending}"));
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The commands of a scenario with their answers.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn cases(name: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text(name, "transcript").lines() {
        let rest = line.get(2..).unwrap_or("");
        match (line.chars().next(), cases.last_mut()) {
            (Some('$'), _) => {
                let (out, err) = (String::new(), String::new());
                cases.push(Case { command: rest.into(), out, err, status: 0 });
            }
            (Some('|'), Some(case)) => case.out += &format!("{rest}\n"),
            (Some('!'), Some(case)) => case.err += &format!("{rest}\n"),
            (Some('='), Some(case)) => case.status = rest.parse().unwrap(),
            _ => {}
        }
    }
    cases
}

/// A line of a history without its time.
#[must_use]
pub fn undated(line: &str) -> &str {
    let dated = line.as_bytes().get(10) == Some(&b'.') && line.starts_with("20");
    line.get(if dated { 19 } else { 0 }..).unwrap_or_default()
}

/// The number of the host, in [`Played`]'s directory for what is not a disk.
const HOSTID: &str = "hostid";

/// The stage of a scenario: a directory with disks, and one with the program under its names.
#[derive(Debug)]
pub struct Played {
    /// Where the disks are.
    pub dir: PathBuf,
    aside: TempDir,
    _server: Option<crate::Server>,
}

impl Played {
    /// An empty stage for a scenario.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Played {
        Played::on(name, false)
    }

    /// The same, and a server runs all that is typed.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn served(name: &str) -> Played {
        Played::on(name, true)
    }

    fn on(name: &str, served: bool) -> Played {
        let number = std::process::id() % 1_000_000;
        let letter = match name {
            "create-errors" => 'e',
            "create-inuse" => 'u',
            "props" => 'r',
            "diff" => 'f',
            other => other.chars().next().unwrap(),
        };
        let letter = if served { letter.to_ascii_uppercase() } else { letter };
        let dir = PathBuf::from(format!("/tmp/t-{letter}{number:06}"));
        assert_eq!(dir.as_os_str().len(), STAGE.len());
        fs::create_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let aside = temp_dir();
        for name in ["zpool", "zfs"] {
            symlink(crate::thumper_path(), aside.path().join(name)).unwrap();
        }
        // That of the host which the scenarios were recorded on; they change it.
        fs::write(aside.path().join(HOSTID), "muht").unwrap();
        let server = served.then(|| {
            let state = aside.path().join("pools");
            let mut command = crate::thumper(&state);
            command.env("THUMPER_HOSTID", aside.path().join(HOSTID));
            crate::Server::of(command, &state, &[])
        });
        Played { dir, aside, _server: server }
    }

    /// Runs a line of a scenario; the stage is called as the recorded one in what it prints.
    #[must_use]
    pub fn bash(&self, script: &str) -> Ran {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        // The number of this machine is not for tests to change.
        let hostid = self.aside.path().join(HOSTID);
        let script = script.replace("/etc/hostid", &hostid.display().to_string());
        command.args(["-c", &script]).current_dir(&self.dir).env("THUMPER_HOSTID", hostid);
        command.env("PATH", format!("{}:{path}", self.aside.path().display()));
        command.env("D", &self.dir).env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
        command.env("THUMPER_STATE", self.aside.path().join("pools"));
        let mut ran = Ran::of(&mut command);
        let here = self.dir.display().to_string();
        ran.err = ran.err.replace(&here, STAGE);
        ran.out = ran.out.replace(&here, STAGE);
        ran
    }

    /// What shows that a file was written to.
    ///
    /// # Panics
    /// If a file cannot be looked at.
    #[must_use]
    pub fn traces(&self) -> BTreeMap<PathBuf, (i64, i64, u64, u64)> {
        let trace = |path: &Path| {
            let meta = fs::symlink_metadata(path).unwrap();
            (meta.mtime(), meta.mtime_nsec(), meta.blocks(), meta.size())
        };
        let files = fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|p| p.is_file()).map(|p| (p.clone(), trace(&p))).collect()
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.dir));
    }
}
