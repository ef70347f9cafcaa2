//! What every command needs: where to print, whom to ask, how to stop.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::tz::TimeZone;
use verbs::{Engine, Error};

use crate::getopt::{Opt, Words};

/// How often a command that waits looks whether it still should.
const LOOK: Duration = Duration::from_millis(200);

/// One run of one command.
pub struct Door<'a> {
    /// Who executes.
    pub engine: &'a mut dyn Engine,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
    /// The time zone in which people read times.
    pub zone: TimeZone,
    /// Directories to look for pools in, given before the verb.
    pub places: Vec<PathBuf>,
    /// The program's name and words, for the pools' history.
    pub command: String,
}

/// Why a command ends before its end.
#[derive(Debug)]
pub enum Stop {
    /// The words make no sense: what is wrong, then usage. Status 2.
    Usage(String),
    /// Usage was asked for.
    Help,
    /// A verb failed. Status 1.
    Failed(Error),
    /// A message and a status.
    Said(String, u8),
    /// Output cannot be written.
    Output(io::Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Output(error)
    }
}

/// Status of a command that ran.
pub type Ran = Result<u8, Stop>;

/// An option that is none, or lacks its value, as OpenZFS says it.
pub fn bad_option(opt: &Opt) -> Stop {
    match opt {
        Opt::Missing(letter) => Stop::Usage(format!("missing argument for '{letter}' option")),
        Opt::Unknown('-') => Stop::Usage("invalid option '-'".into()),
        Opt::Unknown(letter) | Opt::Flag(letter) | Opt::Value(letter, _) => {
            Stop::Usage(format!("invalid option '{letter}'"))
        }
        Opt::LongMissing(name) => Stop::Usage(format!("missing argument for '{name}' option")),
        Opt::Long(name) | Opt::LongValue(name, _) => {
            Stop::Usage(format!("invalid option '{name}'"))
        }
    }
}

/// As [`bad_option`], for commands that do not tell a missing value from a wrong letter.
pub fn bad_letter(opt: &Opt) -> Stop {
    match opt {
        Opt::Missing(letter) => Stop::Usage(format!("invalid option '{letter}'")),
        other => bad_option(other),
    }
}

/// True if the words ask for usage: `-h` or `--help` among the options.
pub fn wants_help(words: &[OsString]) -> bool {
    let options = words.iter().take_while(|w| *w != "--");
    options.into_iter().any(|w| w == "-h" || w == "--help")
}

/// A word as text for a message.
pub fn text(word: &OsStr) -> String {
    word.to_string_lossy().into_owned()
}

/// `name=value`; `None` without the sign.
pub fn split_assignment(word: &OsStr) -> Option<(&[u8], &[u8])> {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|c| *c == b'=')?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

impl Door<'_> {
    /// Prints bytes.
    pub fn print(&mut self, bytes: impl AsRef<[u8]>) -> Result<(), Stop> {
        Ok(self.out.write_all(bytes.as_ref())?)
    }

    /// Prints one line on standard error.
    pub fn complain(&mut self, message: impl std::fmt::Display) -> Result<(), Stop> {
        Ok(writeln!(self.err, "{message}")?)
    }

    /// Complains of each error; the status that follows.
    pub fn complain_all(&mut self, errors: &[Error]) -> Ran {
        for error in errors {
            self.complain(error)?;
        }
        Ok(u8::from(!errors.is_empty()))
    }

    /// Directories to look in: those of a verb's own `-d`, else those given before the verb.
    pub fn places(&self, own: Vec<PathBuf>) -> Vec<PathBuf> {
        if own.is_empty() { self.places.clone() } else { own }
    }

    /// A time for `zfs list`: `Wed May  1  0:03 2024`.
    pub fn date(&self, seconds: u64) -> String {
        self.format(seconds, "%a %b %e %k:%M %Y")
    }

    /// A time for `zfs holds`: `Wed May  1 00:03 2024`.
    pub fn full_date(&self, seconds: u64) -> String {
        self.format(seconds, "%a %b %e %H:%M %Y")
    }

    /// A time as `date` prints it: `Wed May  1 00:03:17 2024`.
    pub fn long_date(&self, seconds: u64) -> String {
        self.format(seconds, "%a %b %e %H:%M:%S %Y")
    }

    /// A time with its zone: `Wed May  1 00:03:17 UTC 2024`.
    pub fn zoned_date(&self, seconds: u64) -> String {
        self.format(seconds, "%a %b %e %H:%M:%S %Z %Y")
    }

    /// Waits, with everything printed that was to be; ends early when nobody is there to read on.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn wait(&mut self, interval: Duration) -> Result<(), Stop> {
        let start = rt::time::now();
        loop {
            // A served command's outputs are gone when the command is.
            self.out.flush()?;
            if self.engine.is_ending() {
                return Err(Stop::Said("the server ends".into(), 1));
            }
            let left = interval.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            rt::time::sleep(left.min(LOOK));
        }
    }

    /// A time for histories: `2024-05-01.00:03:17`.
    pub fn stamp(&self, seconds: u64) -> String {
        self.format(seconds, "%Y-%m-%d.%H:%M:%S")
    }

    fn format(&self, seconds: u64, pattern: &str) -> String {
        match i64::try_from(seconds) {
            Ok(seconds) => time_in(&self.zone, seconds, pattern),
            Err(_) => seconds.to_string(),
        }
    }
}

/// A time in a zone; its number of seconds if it is beyond what calendars have.
pub fn time_in(zone: &TimeZone, seconds: i64, pattern: &str) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => time.to_zoned(zone.clone()).strftime(pattern).to_string(),
        Err(_) => seconds.to_string(),
    }
}

/// The operands as text, for names that are checked before they are used.
pub fn names(words: &Words) -> Vec<String> {
    words.operands.iter().map(|o| text(o)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_are_split_at_the_first_sign() {
        let split = |w: &str| {
            split_assignment(OsStr::new(w))
                .map(|(n, v)| (String::from_utf8_lossy(n).into_owned(), v.to_vec()))
        };
        assert_eq!(split("a=b=c"), Some(("a".into(), b"b=c".to_vec())));
        assert_eq!(split("a="), Some(("a".into(), vec![])));
        assert_eq!(split("a"), None);
    }
}
