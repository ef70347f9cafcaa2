//! Running programs, step by step, and counting the tests that they report.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
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
    let program = std::path::Path::new(command.get_program());
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
