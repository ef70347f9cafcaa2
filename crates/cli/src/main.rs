//! `thumper`, `zpool`, `zfs`: one program, by the name it is called.

use std::io::{BufWriter, Write, stderr, stdout};
use std::process::ExitCode;

use daemon::Forwarded;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    if !cli::is_own(&words) {
        let zone = std::env::var_os("TZ").unwrap_or_default();
        match daemon::forward(&cli::serve::socket(), &words, zone) {
            Forwarded::Nobody => {}
            Forwarded::Ran(status) => return ExitCode::from(status),
            Forwarded::Lost(why) => {
                drop(writeln!(stderr(), "{why}"));
                return ExitCode::from(cli::broken_off(&words));
            }
        }
    }
    let mut engine = verbs::Local::from_environment();
    let mut out = BufWriter::with_capacity(1 << 16, stdout().lock());
    // Not locked for good: a pool that is suspended meanwhile is told of by another thread.
    verbs::on_suspended(|line| drop(writeln!(stderr(), "{line}")));
    let status = cli::run(&words, &mut engine, &mut out, &mut stderr());
    ExitCode::from(status)
}
