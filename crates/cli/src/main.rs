//! `thumper`, `zpool`, `zfs`: one program, by the name it is called.

use std::io::{BufWriter, stderr, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let mut engine = verbs::Local::from_environment();
    let mut out = BufWriter::with_capacity(1 << 16, stdout().lock());
    let status = cli::run(&words, &mut engine, &mut out, &mut stderr().lock());
    ExitCode::from(status)
}
