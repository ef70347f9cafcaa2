//! A stage for a story told by the program alone: disk images, a list of pools of its own, and a
//! directory of the host beside them.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Images, Ran, TempDir, fresh_images, host, temp_dir};

use crate::thumper;

/// Images d00, d01, ... and a directory for everything else; both go away with it.
#[derive(Debug)]
pub struct Stage {
    /// The disks.
    pub images: Images,
    aside: TempDir,
}

impl Stage {
    /// A stage with so many empty disks of so many bytes.
    #[must_use]
    pub fn new(disks: usize, disk_bytes: u64) -> Stage {
        Stage::with(fresh_images(disks, disk_bytes))
    }

    /// A stage with these disks.
    #[must_use]
    pub fn with(images: Images) -> Stage {
        Stage { images, aside: temp_dir() }
    }

    /// `name` in the directory beside the disks: where commands run.
    #[must_use]
    pub fn aside(&self, name: &str) -> PathBuf {
        self.aside.path().join(name)
    }

    /// The command `thumper WORDS`: split at spaces; `$D` is the directory of the disks, `$A` the one
    /// beside it.
    #[must_use]
    pub fn command(&self, words: &str) -> Command {
        let text = |path: &Path| path.display().to_string();
        let (disks, aside) = (text(self.images.path()), text(self.aside.path()));
        let mut command = thumper(&self.aside("pools"));
        command.current_dir(self.aside.path());
        command
            .args(words.split_whitespace().map(|w| w.replace("$D", &disks).replace("$A", &aside)));
        command
    }

    /// Runs `thumper WORDS`, see [`Stage::command`].
    #[must_use]
    pub fn run(&self, words: &str) -> Ran {
        Ran::of(&mut self.command(words))
    }

    /// Runs it, and it must end with 0 and complain of nothing.
    ///
    /// # Panics
    /// If it does not: with what it said.
    #[track_caller]
    pub fn ok(&self, words: &str) -> Ran {
        let ran = self.run(words).expect_ok();
        assert!(ran.err.is_empty(), "{ran}");
        ran
    }

    /// Runs it, and it must end with `status`, say nothing on standard output, and on standard error
    /// begin with `message`, in which `$D` and `$A` stand for the directories.
    ///
    /// # Panics
    /// If it does not: with what it said.
    #[track_caller]
    pub fn refused(&self, words: &str, status: i32, message: &str) -> Ran {
        let text = |path: &Path| path.display().to_string();
        let message = message.replace("$D", &text(self.images.path()));
        let message = message.replace("$A", &text(self.aside.path()));
        let ran = self.run(words);
        assert_eq!(ran.status, status, "{ran}");
        assert!(ran.err.starts_with(&message), "expected: {message}\n{ran}");
        assert!(ran.out.is_empty(), "{ran}");
        ran
    }

    /// A tree of files in the directory beside the disks. Who is not root leaves all to himself.
    ///
    /// # Panics
    /// If the host refuses.
    pub fn plant(&self, name: &str, ops: &[testkit::workload::Op]) -> PathBuf {
        let dir = self.aside(name);
        std::fs::create_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        for op in ops {
            let done = host::apply(&dir, op);
            let may_fail = matches!(op, testkit::workload::Op::SetOwner { .. });
            if let Err(e) = done
                && !(may_fail && e.kind() == std::io::ErrorKind::PermissionDenied)
            {
                panic!("{op} in {}: {e}", dir.display());
            }
        }
        dir
    }
}
