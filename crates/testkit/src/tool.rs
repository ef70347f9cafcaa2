//! Programs that judge pools from outside: OpenZFS's zdb, and poolaudit.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use crate::paths;

/// What a program said.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The command, to be read by people.
    pub command: String,
    /// Its exit status; 128 + N if signal N ended it, as a shell says.
    pub status: i32,
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub out: String,
    /// Standard error, likewise.
    pub err: String,
}

impl Ran {
    /// Runs `command` to its end.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "real time is the point, and this is no engine")]
    pub fn of(command: &mut Command) -> Ran {
        let shown = format!("{command:?}");
        for _ in 0..50 {
            match command.output() {
                // A child that another test has just forked has the program open still, as it was written.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                output => {
                    let output = output.unwrap_or_else(|e| panic!("{shown}: {e}"));
                    return Ran::from_output(shown, &output);
                }
            }
        }
        panic!("{shown}: somebody writes to the program")
    }

    pub(crate) fn from_output(command: String, output: &Output) -> Ran {
        use std::os::unix::process::ExitStatusExt;
        let signal = output.status.signal().unwrap_or(0);
        Ran {
            command,
            status: output.status.code().unwrap_or(128 + signal),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// True if it exited with 0.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.status == 0
    }

    /// Itself, if it exited with 0.
    ///
    /// # Panics
    /// With all that it said, otherwise.
    #[track_caller]
    #[must_use]
    pub fn expect_ok(self) -> Ran {
        assert!(self.ok(), "{self}");
        self
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: exit status {}\n{}{}", self.command, self.status, self.out, self.err)
    }
}

/// Runs `command` and kills it (SIGKILL) after some time. What it said until then; the status is 137 if it
/// was killed, its own if it ended before.
///
/// # Panics
/// If it cannot be started.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "real time is the point, and this is no engine")]
pub fn killed_after(command: &mut Command, time: Duration) -> Ran {
    let shown = format!("{command:?}");
    let piped = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = piped.spawn().unwrap_or_else(|e| panic!("{shown}: {e}"));
    std::thread::sleep(time);
    // one that has ended already cannot be killed, and need not be
    drop(child.kill());
    let output = child.wait_with_output().unwrap_or_else(|e| panic!("{shown}: {e}"));
    Ran::from_output(shown, &output)
}

/// How many rounds a test does: `short` in `cargo test`, `long` in `cargo xtask interop`.
#[must_use]
pub fn rounds(short: u64, long: u64) -> u64 {
    let asked = std::env::var("THUMPER_ROUNDS").unwrap_or_default();
    match asked.as_str() {
        "" => short,
        "long" => long,
        other => panic!("THUMPER_ROUNDS is {other}; it is not set, or `long`"),
    }
}

/// The path of `program`, which Debian's `package` holds.
///
/// # Panics
/// If it is not installed: a check that did not run is not a check that passed.
#[must_use]
pub fn program(program: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let also = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&path).chain(also).map(|dir| dir.join(program));
    found.into_iter().find(|file| file.is_file()).unwrap_or_else(|| {
        panic!(
            "{program} is not installed, and this test cannot do without it: install Debian's \
             {package} (zfsutils-linux and its libraries are in contrib), or run `cargo xtask \
             test` as root, which does"
        )
    })
}

/// Runs `zdb` with `args` (the exit status is the caller's to judge).
///
/// # Panics
/// If zdb is not installed.
#[must_use]
pub fn zdb<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    Ran::of(zdb_command().args(args))
}

/// The program zdb, which ends as soon as all is said.
///
/// By itself it empties its cache before it exits, and waits in a loop until what was read ahead is old enough for
/// that: six seconds of processor after some hundredths of work. What it has found, its exit status too, is settled
/// by then.
///
/// # Panics
/// If zdb is not installed.
#[must_use]
pub fn zdb_command() -> Command {
    let mut command = Command::new(program("zdb", "zfsutils-linux"));
    if let Some(library) = quick_end() {
        command.env("LD_PRELOAD", library);
    }
    command
}

/// A library in which the function that tears libzpool down does nothing. None if there is no C compiler: then zdb
/// takes its time.
fn quick_end() -> Option<&'static Path> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let library = paths::cache().join("zdb-quick-end.so");
        let _alone = paths::lock("zdb-quick-end");
        if !library.exists() {
            let new = library.with_extension("new");
            let source = new.with_extension("c");
            std::fs::write(&source, "void kernel_fini(void) {}\n").ok()?;
            let words = ["-shared", "-fPIC", "-o"];
            let made = Command::new("cc").args(words).args([&new, &source]).status().ok()?;
            made.success().then_some(())?;
            std::fs::rename(new, &library).ok()?;
        }
        Some(library)
    };
    LIBRARY.get_or_init(make).as_deref()
}

/// `zdb -e -p DIR -bccs POOL`: reads every block of the pool in `dir`, checks every checksum, and
/// recounts the space. Content means exit status 0, no leak and no error.
///
/// # Panics
/// If it is not content, with what it said.
#[track_caller]
pub fn zdb_content(dir: &Path, pool: &str) {
    let ran = zdb([OsStr::new("-e"), "-p".as_ref(), dir.as_ref(), "-bccs".as_ref(), pool.as_ref()]);
    let ran = ran.expect_ok();
    assert!(ran.out.contains("No leaks"), "no `No leaks` in: {ran}");
    assert!(!ran.out.contains("Error counts"), "{ran}");
    let errors = error_counts(&ran.out);
    assert!(!errors.is_empty(), "no table of errors in: {ran}");
    let first = errors.iter().find(|(_, counts)| *counts != [0; 3]);
    assert_eq!(first, None, "{ran}");
}

/// The table at the end of `zdb -s`: each device with its read, write and checksum errors. Counts
/// beyond a thousand are printed with a letter, and come back as 1000.
#[must_use]
pub fn error_counts(zdb_said: &str) -> Vec<(String, [u64; 3])> {
    let table = zdb_said.lines().skip_while(|line| !line.contains("---- errors ----")).skip(2);
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, counts) = (words.first()?, words.len().checked_sub(3)?);
        let count = |word: &str| word.parse().unwrap_or(1000);
        let counts = words.get(counts..)?;
        Some(((*name).to_string(), [count(counts[0]), count(counts[1]), count(counts[2])]))
    };
    table.map_while(row).collect()
}

/// `zdb -e -p DIR -dddd POOL`: prints every object; none may be leaked, no link count wrong.
///
/// # Panics
/// If it fails, or finds a leak or a mismatch.
#[track_caller]
pub fn zdb_objects(dir: &Path, pool: &str) {
    let ran = zdb([OsStr::new("-e"), "-p".as_ref(), dir.as_ref(), "-dddd".as_ref(), pool.as_ref()]);
    let ran = ran.expect_ok();
    for text in [&ran.out, &ran.err] {
        let bad = text.lines().find(|line| line.contains("leaked") || line.contains("mismatch"));
        assert_eq!(bad, None, "{}", ran.command);
    }
}

/// Runs `tools/poolaudit --strict DIR POOL`: 0 clean, 1 violations, 2 cannot be opened. For pools that
/// only we wrote to.
///
/// # Panics
/// If there is no python3.
#[must_use]
pub fn poolaudit(dir: &Path, pool: &str) -> Ran {
    audit(dir, pool, &["--strict"])
}

/// The same for a pool that the kernel wrote to, whose histograms of free space are often inexact.
///
/// # Panics
/// If there is no python3.
#[must_use]
pub fn poolaudit_kernels(dir: &Path, pool: &str) -> Ran {
    audit(dir, pool, &[])
}

fn audit(dir: &Path, pool: &str, options: &[&str]) -> Ran {
    let script = paths::repository().join("tools/poolaudit");
    let python = program("python3", "python3");
    Ran::of(Command::new(python).arg(script).args(options).arg(dir).arg(pool))
}
