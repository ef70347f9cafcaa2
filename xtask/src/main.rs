//! `cargo xtask VERB`: all that is done to this repository besides writing it.
//!
//! The one idea: a newcomer needs Rust and these verbs; each says what it is about to do, installs
//! what it needs where it may, and otherwise says exactly what is missing.

mod bench;
mod demo;
mod fuzz;
mod packages;
mod run;
mod suites;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask VERB

  demo                  make a pool of eleven image files, fill it, hurt it, get everything back
  test [--no-kernel]    everything that must hold before a change lands
  tidy                  the rules of the house alone (seconds)
  fuzz [TARGET [SECS]]  feed the parsers hostile bytes (TARGET all: one after another)
  bench [ROUNDS] [all]  speed, beside libzpool and the limits of this machine
  bench serve [paths|sites] [ROUNDS]  library, mount and root://; many clients of an xrootd at once; beside peers
  interop               the long rounds with the OpenZFS kernel, zdb and the simulator
";

/// The top directory of the repository.
fn top() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[&str]) -> Result<()> {
    match words {
        ["demo"] => demo::demo(),
        ["test"] => suites::test(true),
        ["test", "--no-kernel"] => suites::test(false),
        ["tidy"] => suites::tidy(),
        ["fuzz"] => fuzz::fuzz(None, 60),
        ["fuzz", target] => fuzz::fuzz(Some(target), 60),
        ["fuzz", target, seconds] => {
            let seconds = seconds.parse().context("SECONDS is a number")?;
            fuzz::fuzz(Some(target).filter(|t| **t != "all").copied(), seconds)
        }
        ["bench", rest @ ..] => bench::bench(rest),
        ["interop"] => suites::interop(),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => bail!("no such verb\n\n{USAGE}"),
    }
}
