//! A file system that is mounted for a test.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use acceptance::mounts::detach;
use acceptance::{Stage, judge};
use testkit::{Ran, tool};

/// May mounts be tested? Where they cannot be, they must be left out by hand, and this says so.
///
/// # Panics
/// If they are wanted and cannot be tested: with what to do.
pub(crate) fn wanted(what: &str) -> bool {
    if std::env::var_os("THUMPER_NO_MOUNT").is_some_and(|v| !v.is_empty()) {
        let line = format!("{what}: NOT shown (THUMPER_NO_MOUNT is set)");
        drop(writeln!(std::io::stderr(), "{line}"));
        return false;
    }
    assert!(
        Path::new("/dev/fuse").exists(),
        "/dev/fuse is not there, and the tests of the mount cannot do without it: load the kernel's \
         module (`modprobe fuse`), give a container the device, or set THUMPER_NO_MOUNT=1 to leave \
         these tests out"
    );
    let root = rustix::process::getuid().is_root();
    assert!(root, "the tests of the mount need root; set THUMPER_NO_MOUNT=1 to leave them out");
    true
}

/// A program that serves a mount, and the directory of it.
pub(crate) struct Served {
    pub(crate) dir: PathBuf,
    child: Child,
    out: BufReader<ChildStdout>,
}

/// A stage with a pool called `tank` of one disk with these options for its root file system.
pub(crate) fn stage(disk_bytes: u64, options: &str) -> Stage {
    let stage = Stage::new(1, disk_bytes);
    let made = format!("zpool create -o ashift=12 {options} tank $D/d00");
    let _made = stage.ok(&made);
    stage
}

/// Mounts a file system of the stage on a directory beside its disks.
pub(crate) fn serve(stage: &Stage, what: &str, on: &str) -> Served {
    serve_by(&[], stage, what, on)
}

/// The same by another program, such as nohup, which becomes ours.
pub(crate) fn serve_by(by: &[&str], stage: &Stage, what: &str, on: &str) -> Served {
    let dir = stage.aside(on);
    std::fs::create_dir_all(&dir).unwrap();
    let mut child = run_by(by, stage.command(&format!("mount {what} {}", dir.display())))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    if !line.starts_with("mounted") {
        let mut said = String::new();
        let _ = child.stderr.take().unwrap().read_to_string(&mut said);
        panic!("mount {what}: {line}{said}{}", child.wait().unwrap());
    }
    Served { dir, child, out }
}

/// A command that another program runs.
pub(crate) fn run_by(by: &[&str], command: Command) -> Command {
    let Some((program, words)) = by.split_first() else { return command };
    let mut outer = Command::new(program);
    outer.args(words).arg(command.get_program()).args(command.get_args());
    outer.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(dir) = command.get_current_dir() {
        outer.current_dir(dir);
    }
    outer
}

impl Served {
    /// A path in it.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    /// Unmounts it; who has served it must end in peace.
    pub(crate) fn unmount(mut self, stage: &Stage) {
        let words = format!("unmount {}", self.dir.display());
        let mut ran = stage.run(&words);
        // A program that another test starts in this process has what is open here, until it is the other program.
        for _ in 0..50 {
            if !ran.err.contains("target is busy") {
                break;
            }
            rt::time::sleep(Duration::from_millis(100));
            ran = stage.run(&words);
        }
        let ran = ran.expect_ok();
        assert!(ran.err.is_empty(), "{ran}");
        self.ended();
    }

    /// Waits for the end of who served it.
    pub(crate) fn ended(&mut self) {
        let status = self.child.wait().unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        let _ = self.out.read_to_string(&mut out);
        let _ = self.child.stderr.take().unwrap().read_to_string(&mut err);
        assert!(status.success() && out.is_empty() && err.is_empty(), "{status}: {out}{err}");
    }

    /// The next line that it complains in.
    pub(crate) fn said(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        let err = self.child.stderr.as_mut().unwrap();
        while line.last() != Some(&b'\n') && err.read(&mut byte).unwrap() == 1 {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    /// Kills who serves it, without a warning. What is left of the mount refuses all.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        let _ = self.child.wait();
    }

    /// Takes what is left of the mount away, when nobody uses it any more.
    pub(crate) fn clear(self) {
        detach(&self.dir);
    }

    /// The number of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A test has failed: nothing may be left behind.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            detach(&self.dir);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The pool is clean to all who judge from outside, and to our own judge.
pub(crate) fn judged(stage: &Stage) {
    judge(&stage.images, "tank", 0, 1);
    acceptance::assert_verified(stage.images.path(), "tank");
}

/// Mounts something over a directory, as somebody else may.
pub(crate) fn cover(dir: &Path) {
    let words = ["-t", "tmpfs", "theirs"].map(OsStr::new);
    drop(Ran::of(Command::new("mount").args(words).arg(dir)).expect_ok());
    std::fs::write(dir.join("theirs"), "theirs").unwrap();
}

/// Takes it away: it must be there still.
#[track_caller]
pub(crate) fn uncover(dir: &Path) {
    assert_eq!(std::fs::read_to_string(dir.join("theirs")).unwrap(), "theirs");
    drop(Ran::of(Command::new("umount").arg(dir)).expect_ok());
}

/// A program in a directory, which must end with 0.
#[track_caller]
pub(crate) fn run_in(dir: &Path, program: &str, package: &str, words: &[&str]) -> Ran {
    let path = tool::program(program, package);
    Ran::of(Command::new(path).args(words).current_dir(dir).env("HOME", dir)).expect_ok()
}
