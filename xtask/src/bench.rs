//! `cargo xtask bench`: builds the peers and ours, and runs them in turns.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::packages;
use crate::run::{cargo, run, target_dir};

/// Runs `bench/serve/paths`, so many rounds, then `bench/serve/sites` with files of so many bytes; or one of the two.
fn serve(words: &[&str]) -> Result<()> {
    let (which, numbers) = match words {
        [which @ ("paths" | "sites"), numbers @ ..] => (Some(*which), numbers),
        numbers => (None, numbers),
    };
    let (rounds, size) = match numbers {
        [] => ("3", "4000000"),
        [rounds] => (*rounds, "4000000"),
        [rounds, size] => (*rounds, *size),
        _ => bail!("usage: cargo xtask bench serve [paths|sites] [ROUNDS [BYTES]]"),
    };
    for (word, what) in [(rounds, "ROUNDS"), (size, "BYTES")] {
        ensure!(word.parse().is_ok_and(|n: u64| n > 0), "{what} is a number of at least 1");
    }
    packages::ensure(&[&packages::XROOTD, &packages::KERNEL_PEERS])?;
    let ours = ours()?;
    run(cargo().args(["build", "--release", "--quiet", "--locked", "-p", "cli", "-p", "client"]))?;
    let built = target_dir().join("release");
    let plugin = plugin(&built.join("libclient.a"), "release")?;
    let directory = plugin_over_directory()?;
    for one in ["paths", "sites"] {
        if which.is_some_and(|which| which != one) {
            continue;
        }
        let mut command = Command::new(crate::top().join("bench/serve").join(one));
        command.arg("--dir").arg(memory()).args(["--rounds", rounds]);
        command.arg("--thumper").arg(built.join("thumper")).arg("--plugin").arg(&plugin);
        command.arg("--directory-plugin").arg(&directory);
        match one {
            "paths" => command.arg("--bench").arg(&ours),
            _ => command.args(["--size", size]),
        };
        run(&mut command)?;
    }
    Ok(())
}

/// Builds the plug-in with a client library in it; where it is.
fn plugin(client: &std::path::Path, name: &str) -> Result<std::path::PathBuf> {
    let into = target_dir().join("xrootd").join(name);
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(crate::top().join("xrootd")).arg("-B").arg(&into);
    run(cmake.arg(format!("-DTHUMPER_CLIENT={}", client.display())))?;
    run(Command::new("cmake").arg("--build").arg(&into))?;
    Ok(into.join("libXrdThumper-5.so"))
}

/// The plug-in with `bench/serve/directory.c` in it instead.
fn plugin_over_directory() -> Result<std::path::PathBuf> {
    let into = target_dir().join("xrootd/directory");
    std::fs::create_dir_all(&into)?;
    let (object, library) = (into.join("directory.o"), into.join("libdirectory.a"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-c"]);
    cc.arg("-I").arg(crate::top().join("crates/client/include"));
    run(cc.arg(crate::top().join("bench/serve/directory.c")).arg("-o").arg(&object))?;
    run(Command::new("ar").arg("rcs").arg(&library).arg(&object))?;
    plugin(&library, "directory")
}

/// Runs `bench/runall` for some rounds (5 unless said), in memory: the rows of the goals, or all. Or `bench/grow`,
/// at a tenth of the goal's sizes, or at another part of them (1: all of it).
pub(crate) fn bench(words: &[&str]) -> Result<()> {
    if let ["grow", part @ ..] = words {
        return grow(part);
    }
    if let ["serve", rest @ ..] = words {
        return serve(rest);
    }
    let (rounds, all) = match words {
        [] => ("5", false),
        ["all"] => ("5", true),
        [rounds] => (*rounds, false),
        [rounds, "all"] => (*rounds, true),
        _ => bail!("usage: cargo xtask bench [ROUNDS] [all], or bench grow [PART]"),
    };
    let rounds: u32 = rounds.parse().context("ROUNDS is a number")?;
    ensure!(rounds > 0, "ROUNDS is at least 1");
    packages::ensure(&[&packages::PEERS])?;
    if all {
        packages::ensure(&[&packages::KERNEL_PEERS])?;
    }
    let dir = crate::top().join("bench");
    run(Command::new("make").arg("--silent").arg("-C").arg(&dir))?;
    let ours = ours()?;
    let out = target_dir().join("bench.jsonl");
    if out.exists() {
        std::fs::remove_file(&out)?;
    }
    let memory = memory();
    println!("{rounds} rounds in {}; each line goes to {}", memory.display(), out.display());
    let mut command = Command::new(dir.join("runall"));
    command.arg(&memory).arg(&out).arg(rounds.to_string());
    if !all {
        command.env("SHORT", "1").env("NOPEERS", "1");
    }
    run(command.env("OURS", ours))
}

fn grow(words: &[&str]) -> Result<()> {
    let part = match words {
        [] => "10",
        [part] => *part,
        _ => bail!("usage: cargo xtask bench grow [PART]"),
    };
    ensure!(part.parse().is_ok_and(|part: u32| part > 0), "PART is a number of at least 1");
    packages::ensure(&[&packages::PEERS])?;
    let mut command = Command::new(crate::top().join("bench/grow"));
    run(command.arg(memory()).arg(part).env("OURS", ours()?))
}

fn memory() -> std::ffi::OsString {
    std::env::var_os("BENCH_DIR").unwrap_or_else(|| "/dev/shm".into())
}

/// Builds our side of the bench; where it is.
fn ours() -> Result<std::path::PathBuf> {
    run(cargo().args(["build", "--release", "--quiet", "--locked", "-p", "bench"]))?;
    Ok(target_dir().join("release/thumper-bench"))
}
