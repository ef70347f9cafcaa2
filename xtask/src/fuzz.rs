//! `cargo xtask fuzz`: the targets in `fuzz/`, with coverage feedback, on the pinned toolchain.
//!
//! cargo-fuzz wants a nightly compiler for its sanitizers. What guides libFuzzer is the coverage, and
//! that the stable compiler can be told to count; there is no `unsafe` in what is fuzzed that
//! a sanitizer would watch.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};

use crate::packages;
use crate::run::{cargo, cores, read, run, side_by_side, target_dir};

/// What counts the coverage for libFuzzer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
     -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares \
     -Ccodegen-units=1";

/// Seconds for each target from which on it is worth the time to build them for speed.
const LONG: u32 = 30;

/// Runs `only` (all targets if there is none), each for `seconds`.
pub(crate) fn fuzz(only: Option<&str>, seconds: u32) -> Result<()> {
    let targets = targets()?;
    let wanted: Vec<_> = targets.iter().filter(|t| only.is_none_or(|o| o == t.as_str())).collect();
    ensure!(!wanted.is_empty(), "no such target; there are: {}", targets.join(" "));
    packages::ensure(&[&packages::FUZZER])?;
    let programs = build(seconds)?;
    let failed = Mutex::new(Vec::new());
    side_by_side(&wanted, cores(), |target| {
        let (about, ended) = match run_target(&programs, target, seconds) {
            Ok(about) => (about, true),
            Err(error) => (format!("{error:#}"), false),
        };
        let mut failed = failed.lock().expect("no runner panics");
        println!("-- {target}, {seconds} s\n{about}");
        if !ended {
            failed.push(target.as_str());
        }
        Ok(())
    })?;
    let failed = failed.into_inner().expect("no runner panics");
    ensure!(failed.is_empty(), "found something: {}", failed.join(" "));
    Ok(())
}

/// Refuses a list of the targets' packages that is not that of the crates as they are now: it is a workspace of its
/// own, which no other build looks at.
pub(crate) fn check_packages() -> Result<()> {
    let mut command = cargo();
    command.args(["metadata", "--locked", "--format-version", "1", "--manifest-path"]);
    let command = command.arg("fuzz/Cargo.toml").stdout(std::process::Stdio::null());
    run(command)
        .context("fuzz/Cargo.lock is out of date: run `cargo metadata` in fuzz/, and commit it")
}

/// The names of the targets.
fn targets() -> Result<Vec<String>> {
    let dir = crate::top().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

/// Builds all targets; gives the directory where they are.
fn build(seconds: u32) -> Result<PathBuf> {
    let (mut command, programs) = building(seconds)?;
    run(&mut command)?;
    Ok(programs)
}

/// What builds all targets to run for so many seconds each, and where they will be.
pub(crate) fn building(seconds: u32) -> Result<(Command, PathBuf)> {
    let about = read(Command::new("rustc").arg("-vV"))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV")?;
    let target = target_dir().join("fuzz");
    let profile = if seconds < LONG { "brief" } else { "release" };
    let mut command = cargo();
    command.args(["build", "--quiet", "--locked", "--profile", profile]);
    command.args(["--manifest-path", "fuzz/Cargo.toml"]);
    // a named target keeps the flags away from build scripts
    command.args(["--bins", "--target", host]).env("RUSTFLAGS", FLAGS);
    command.env("CARGO_TARGET_DIR", &target);
    Ok((command, target.join(host).join(profile)))
}

/// Runs a target; what it says of its work.
fn run_target(programs: &std::path::Path, target: &str, seconds: u32) -> Result<String> {
    let corpus = target_dir().join("fuzz/corpus").join(target);
    let found = target_dir().join("fuzz/found").join(target);
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(&found)?;
    let log = target_dir().join(format!("fuzz/{target}.log"));
    let mut command = Command::new(programs.join(target));
    command.current_dir(crate::top()).arg(&corpus);
    let seeds = crate::top().join("fuzz/seeds").join(target);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-artifact_prefix={}/", found.display()));
    // hostile bytes may cost neither memory nor time (INV-8)
    command.args(["-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1"]);
    let output = fs::File::create(&log).with_context(|| log.display().to_string())?;
    let status = command.stdout(output.try_clone()?).stderr(output).status()?;
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    let about = said.lines().filter(|l| l.starts_with("stat::number_of") || l.contains("Done "));
    let about = about.collect::<Vec<_>>().join("\n");
    let tail: Vec<&str> = said.lines().rev().take(30).collect();
    let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
    let again = programs.join(target);
    ensure!(
        status.success(),
        "{tail}\n{target} failed; play it again with {} FILE, FILE from {}",
        again.display(),
        found.display()
    );
    Ok(about)
}
