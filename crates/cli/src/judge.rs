//! `thumper verify`.
//!
//! `verify` ends with 0 if nothing is wrong, 1 if something is and all data can be read, 2 if data
//! is lost, and 3 if it could not judge.

use std::ffi::OsString;

use verbs::judge::{Verdict, Verify, VerifyReport};
use verbs::props::{nice_bytes, parse_number};

use crate::door::{Door, Ran, Stop, bad_option, text};
use crate::getopt::{Opt, sort};

/// What `-h` says besides.
pub(crate) const HELP: &str = "
Reads every copy and all parity, and counts again what the pool says of itself. 0: nothing is wrong; 1: something is,
and all data can be read; 2: data is lost; 3: it could not be judged.

\t--at-risk disk,..  what would be lost if these disks died now
\t-T txg             as of that txg, or the last one before it that is left
";

/// Status where no verdict was reached.
pub(crate) const NO_VERDICT: u8 = 3;

/// `thumper verify`.
pub(crate) fn verify(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    judge(door, words).map_err(|stop| match stop {
        Stop::Failed(error) => Stop::Said(error.to_string(), NO_VERDICT),
        Stop::Said(message, _) => Stop::Said(message, NO_VERDICT),
        other => other,
    })
}

fn judge(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let words = sort(words, "T:d:jm:qs:", &["json", "quiet", "at-risk:"]);
    let (mut json, mut quiet) = (false, false);
    let mut request = Verify::default();
    let mut places = Vec::new();
    for opt in &words.opts {
        match opt {
            Opt::Value('d', dir) => places.push(dir.into()),
            Opt::Value('T', word) => door.engine.rescue(crate::rescue::at(word)?),
            Opt::Value('m', word) => {
                let memory = parse_number(std::os::unix::ffi::OsStrExt::as_bytes(&**word));
                request.memory = memory.map_err(|why| Stop::Said(why.to_string(), NO_VERDICT))?;
            }
            Opt::Value('s', file) => request.keep = Some(file.into()),
            Opt::LongValue(name, disk) if name == "at-risk" => {
                request.at_risk.extend(text(disk).split(',').map(str::to_string));
            }
            Opt::Flag('q') => quiet = true,
            Opt::Long(word) if word == "quiet" => quiet = true,
            Opt::Flag('j') | Opt::Long(_) => json = true,
            other => return Err(bad_option(other)),
        }
    }
    request.name = match &words.operands[..] {
        [] => return Err(Stop::Usage("missing pool argument".into())),
        [name] => text(name),
        _ => return Err(Stop::Usage("too many arguments".into())),
    };
    request.places = door.places(places);
    let err = &mut *door.err;
    let (mut shown, mut there) = (false, Ok(()));
    let show = !quiet && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let report = door.engine.verify(&request, &mut |progress| {
        shown |= show && tell(err, progress.done, progress.total);
        // A served command's outputs are gone when the command is.
        there = err.flush();
        there.is_ok()
    });
    there?;
    let report = report?;
    if shown {
        door.complain("")?;
    }
    let text = if json { crate::json::verify(&report) } else { report_text(&report) };
    door.print(text)?;
    Ok(match report.verdict {
        Verdict::Clean => 0,
        Verdict::Whole => 1,
        Verdict::Lost => 2,
    })
}

/// Tells how far long work is, over what was told before; false if there is nothing to tell.
pub(crate) fn tell(err: &mut dyn std::io::Write, done: u64, total: u64) -> bool {
    if total > 0 {
        let share = 100.0 * done as f64 / total as f64;
        let (done, total) = (nice_bytes(done), nice_bytes(total));
        // Progress that cannot be shown is no reason to stop.
        let _ = write!(err, "\r{share:5.1}%  {done} of {total}  ");
    }
    total > 0
}

/// The report for people.
#[must_use]
pub fn report_text(report: &VerifyReport) -> String {
    let verdict = match report.verdict {
        Verdict::Clean => "clean",
        Verdict::Whole => "damaged but whole: all data can be read",
        Verdict::Lost => "DATA LOST",
    };
    let mut text = format!(
        "pool '{}' at txg {}: {verdict}\n{} blocks, {} with copies and parity, in {} data sets\n",
        report.name,
        report.txg,
        report.blocks,
        nice_bytes(report.bytes),
        report.datasets
    );
    for name in &report.encrypted {
        text += &format!("encrypted, checked by checksums alone: {name}\n");
    }
    for device in &report.devices {
        let mut what = Vec::new();
        if device.missing {
            what.push("missing".to_string());
        }
        let list = |labels: &[u8]| labels.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
        if !device.labels.is_empty() {
            what.push(format!("labels {} unreadable", list(&device.labels)));
        }
        if !device.rings.is_empty() {
            what.push(format!("uberblocks of labels {} damaged", list(&device.rings)));
        }
        if device.read_errors > 0 {
            what.push(format!("{} reads failed", device.read_errors));
        }
        if device.bad_blocks > 0 {
            what.push(format!("{} bad blocks", device.bad_blocks));
        }
        if device.lacks_txgs > 0 {
            what.push(format!("lacks what was written in {} txgs", device.lacks_txgs));
        }
        text += &format!("device {}: {}\n", device.device, what.join(", "));
    }
    for finding in &report.findings {
        text += &format!("{finding}\n");
    }
    for note in &report.notes {
        text += &format!("note: {note}\n");
    }
    for file in &report.files {
        let bytes = nice_bytes(file.bytes);
        text += &format!("lost: {bytes} of {}:{}\n", file.dataset, file.path);
    }
    if report.verdict != Verdict::Clean {
        text += &format!("{} files lost\n", report.files.len());
    }
    text
}
