//! Running programs, step by step, and counting the tests that they report.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

/// cargo, in the top directory: the one that runs us.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::top());
    command
}

/// Where cargo builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| crate::top().join("target"), Into::into)
}

/// Runs `command`, its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().with_context(|| shown.clone())?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// The standard output of `command`.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| shown.clone())?;
    ensure!(output.status.success(), "{shown}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Tests that ran.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Tally {
    /// Adds what a line of `cargo test` says: `test result: ok. 3 passed; 0 failed; 0 ignored; ...`
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else { return };
        let counts = counts.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split("; ") {
            match part.split_once(' ').map(|(n, what)| (n.parse().unwrap_or(0), what)) {
                Some((n, "passed")) => self.passed += n,
                Some((n, "failed")) => self.failed += n,
                Some((n, "ignored")) => self.ignored += n,
                _ => {}
            }
        }
    }
}

/// The steps of a run: all of them are taken, and the last line says how it ended.
pub(crate) struct Steps {
    began: Instant,
    tally: Tally,
    failed: Vec<String>,
}

impl Steps {
    pub(crate) fn new() -> Steps {
        Steps { began: Instant::now(), tally: Tally::default(), failed: Vec::new() }
    }

    /// Takes a step; a failure is kept for the end.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce(&mut Tally) -> Result<()>) {
        println!("\n== {name}");
        let began = Instant::now();
        let result = work(&mut self.tally);
        let seconds = began.elapsed().as_secs_f64();
        match result {
            Ok(()) => println!("== {name}: ok ({seconds:.0} s)"),
            Err(error) => {
                println!("== {name}: FAILED ({seconds:.0} s): {error:#}");
                self.failed.push(name.to_string());
            }
        }
    }

    /// Prints the closing line.
    pub(crate) fn close(self, left_out: &str) -> Result<()> {
        let Tally { passed, failed, ignored } = self.tally;
        let seconds = self.began.elapsed().as_secs();
        println!();
        if !left_out.is_empty() {
            println!("NOT SHOWN: {left_out}");
        }
        println!(
            "{passed} passed, {failed} failed, {ignored} ignored; {} min {} s",
            seconds / 60,
            seconds % 60
        );
        if !self.failed.is_empty() {
            bail!("failed: {}", self.failed.join(", "));
        }
        Ok(())
    }
}

/// Runs a `cargo test` command, shows its output as it comes, and counts.
pub(crate) fn run_tests(command: &mut Command, tally: &mut Tally) -> Result<()> {
    let shown = shown(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| shown.clone())?;
    let stdout = child.stdout.take().context("it was asked for")?;
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.add(&line);
    }
    let status = child.wait()?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// A program of tests, and the directory of its crate, which it expects to run in.
struct TestProgram {
    path: PathBuf,
    dir: PathBuf,
}

/// Builds what the `cargo test` command would run; gives the programs in cargo's order.
fn build_tests(command: &mut Command) -> Result<Vec<TestProgram>> {
    let told = read(command.args(["--no-run", "--message-format=json-render-diagnostics"]))?;
    let mut programs = Vec::new();
    for line in told.lines() {
        let message: serde_json::Value = serde_json::from_str(line).context("cargo's message")?;
        let manifest = message["manifest_path"].as_str().map(Path::new);
        if let (Some(path), Some(dir), Some(true)) = (
            message["executable"].as_str(),
            manifest.and_then(Path::parent),
            message["profile"]["test"].as_bool(),
        ) {
            programs.push(TestProgram { path: path.into(), dir: dir.into() });
        }
    }
    ensure!(!programs.is_empty(), "cargo built no tests");
    Ok(programs)
}

/// Programs that take longest, the longest first: what is begun last should not be waited for.
const LONGEST: &[&str] =
    &["crash", "cramped", "snapshots", "additions", "damage", "kernel_replay", "xrootd"];

impl TestProgram {
    /// Its place among those that take longest.
    fn turn(&self) -> usize {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let is = |longest: &&str| name.rsplit_once('-').is_some_and(|(name, _)| name == *longest);
        LONGEST.iter().position(is).unwrap_or(LONGEST.len())
    }
}

/// Builds the tests of a `cargo test` command and runs their programs, one more at a time than there are
/// cores: some of them wait for a VM, for zdb or for a clock most of the time. What a program prints is shown
/// when it ends. `meanwhile` is done beside them.
pub(crate) fn run_side_by_side(
    command: &mut Command,
    tally: &mut Tally,
    meanwhile: impl FnOnce() + Send,
) -> Result<()> {
    let mut programs = build_tests(command)?;
    programs.sort_by_key(TestProgram::turn);
    let done = Mutex::new((tally, Vec::new()));
    let one = |program: &TestProgram| -> Result<()> {
        let mut test = Command::new(&program.path);
        test.current_dir(&program.dir).env("CARGO_MANIFEST_DIR", &program.dir);
        test.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = test.output().with_context(|| program.path.display().to_string())?;
        let (tally, failed) = &mut *done.lock().expect("no test runner panics");
        println!("\n     Running {}", program.path.display());
        for said in [&output.stdout, &output.stderr] {
            for line in String::from_utf8_lossy(said).lines() {
                println!("{line}");
                tally.add(line);
            }
        }
        if !output.status.success() {
            failed.push(format!("{}: {}", program.path.display(), output.status));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        scope.spawn(meanwhile);
        side_by_side(&programs, cores() + 1, one)
    })?;
    let (_, failed) = done.into_inner().expect("no test runner panics");
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

/// How much this machine does at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Does the work on each of the items, so many at once. An error ends one of those who work.
pub(crate) fn side_by_side<T: Sync>(
    items: &[T],
    at_once: usize,
    one: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            one(item)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let runners: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let ended = runners.into_iter().map(|runner| runner.join().expect("it does not panic"));
        ended.collect::<Result<()>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let mut tally = Tally::default();
        for line in [
            "running 2 tests",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.13s",
            "test result: FAILED. 3 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out",
        ] {
            tally.add(line);
        }
        assert_eq!(tally, Tally { passed: 5, failed: 1, ignored: 4 });
    }
}
