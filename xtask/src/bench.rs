//! `cargo xtask bench`: builds the peers and ours, and runs them in turns.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::packages;
use crate::run::{cargo, run, target_dir};

/// Runs `bench/runall` for some rounds (5 unless said), in memory: the rows of the goals, or all.
pub(crate) fn bench(words: &[&str]) -> Result<()> {
    let (rounds, all) = match words {
        [] => ("5", false),
        ["all"] => ("5", true),
        [rounds] => (*rounds, false),
        [rounds, "all"] => (*rounds, true),
        _ => bail!("usage: cargo xtask bench [ROUNDS] [all]"),
    };
    let rounds: u32 = rounds.parse().context("ROUNDS is a number")?;
    ensure!(rounds > 0, "ROUNDS is at least 1");
    packages::ensure(&[&packages::PEERS])?;
    if all {
        packages::ensure(&[&packages::KERNEL_PEERS])?;
    }
    let dir = crate::top().join("bench");
    run(Command::new("make").arg("--silent").arg("-C").arg(&dir))?;
    run(cargo().args(["build", "--release", "--quiet", "--locked", "-p", "bench"]))?;
    let ours = target_dir().join("release/thumper-bench");
    let out = target_dir().join("bench.jsonl");
    if out.exists() {
        std::fs::remove_file(&out)?;
    }
    let memory = std::env::var_os("BENCH_DIR").unwrap_or_else(|| "/dev/shm".into());
    println!("{rounds} rounds in {}; each line goes to {}", memory.display(), out.display());
    let mut command = Command::new(dir.join("runall"));
    command.arg(&memory).arg(&out).arg(rounds.to_string());
    if !all {
        command.env("SHORT", "1").env("NOPEERS", "1");
    }
    run(command.env("OURS", ours))
}
