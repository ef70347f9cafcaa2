//! The strongest referee: the real OpenZFS kernel module, in a small VM (`tools/zfsvm`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::paths;
use crate::tool::Ran;

/// A run of a script under the OpenZFS kernel, with a directory of the host at /d.
#[derive(Debug)]
pub struct Vm {
    dir: PathBuf,
    options: Vec<String>,
}

/// False if the kernel's suites were switched off (`cargo xtask test --no-kernel` sets
/// `THUMPER_NO_KERNEL`); then it says so. A kernel test starts with
/// `if !vm::wanted("what is not shown") { return; }`.
#[must_use]
#[expect(clippy::print_stderr, reason = "what was left out must be seen")]
pub fn wanted(what: &str) -> bool {
    let off = std::env::var_os("THUMPER_NO_KERNEL").is_some_and(|v| !v.is_empty());
    if off {
        eprintln!("NOT RUN, kernel suites are switched off (--no-kernel): {what}");
    }
    !off
}

impl Vm {
    /// A run with `dir` as its /d and working directory. It may take ten minutes, in the long rounds an hour.
    #[must_use]
    pub fn new(dir: &Path) -> Vm {
        let limit = crate::rounds(600, 3600).to_string();
        Vm { dir: dir.to_path_buf(), options: vec!["-t".into(), limit] }
    }

    /// Adds options of `tools/zfsvm`, as `["-t", "300"]` or `["--kill-after", "0.5"]`.
    #[must_use]
    pub fn options<S: Into<String>>(mut self, options: impl IntoIterator<Item = S>) -> Vm {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// Runs the bash `script` as root. As many VMs run at a time as there are cores: each has one processor.
    /// `out` has what the script printed to either output, `err` what zfsvm itself said.
    ///
    /// # Panics
    /// If the VM or its build failed (exit status 125), with what to do.
    #[must_use]
    pub fn run(&self, script: &str) -> Ran {
        use std::io::Write;
        let _held = paths::lock_a_core("vm");
        let zfsvm = paths::repository().join("tools/zfsvm");
        let mut command = Command::new(&zfsvm);
        command.args(&self.options).arg("-").env("ZFSVM_DIR", &self.dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", zfsvm.display()));
        let mut pipe = child.stdin.take().expect("it was asked for");
        let written = pipe.write_all(script.as_bytes());
        drop(pipe);
        let output = child.wait_with_output().expect("it was started");
        let ran = Ran::from_output(format!("zfsvm on {}:\n{script}", self.dir.display()), &output);
        assert!(
            ran.status != 125,
            "{ran}\nThe VM did not run. `tools/zfsvm --build` shows why; it needs Debian 12, and \
             root the first time to install what is missing. `cargo xtask test --no-kernel` does \
             without."
        );
        written.unwrap_or_else(|e| panic!("{ran}: {e}"));
        ran
    }
}
