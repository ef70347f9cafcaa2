//! `thumper serve`: the server, in this process; and where the others find it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use daemon::{Form, Options};
use jiff::tz::TimeZone;
use rt::sync::Arc;
use verbs::host::Names;

use crate::door::{Door, Ran, Stop, bad_option, names};
use crate::getopt::{Opt, sort};

/// What `-h` says besides.
pub(crate) const HELP: &str = "
Owns the pools (all that are remembered, or those named) until it gets SIGTERM, SIGINT or, but under nohup, SIGHUP, and
runs every command that is typed meanwhile. In the foreground; it tells systemd (Type=notify) when it is ready.

\t--hooks dir  runs the programs there on events, as OpenZFS's event daemon does its zedlets: all-* on every
\t            event, statechange-* on those of that class; what they are to know is in the environment
\t--listen-metrics port | address:port
\t            answers there to browsers (/, a status page) and to collectors (/metrics, in OpenMetrics' form), on the
\t            loopback unless the address says otherwise: whoever reaches it may look
\t--memory    the most memory that it takes (512M, 2G): by itself a quarter of what the machine or its
\t            control group has; 64M at least
\t--log-json  a line of the log is a JSON object
\t--mount     file systems are mounted where their properties mountpoint and canmount say
\t-s          where commands find it, instead of THUMPER_SOCKET or /run/thumper/socket
\t-u          users, with commas between: their programs may move files, for whomever they name, as XRootD's
\t            user with the plug-in; they command nothing
";

/// Where the server listens, as the environment has it.
#[must_use]
pub fn socket() -> PathBuf {
    daemon::socket_path(|name| std::env::var_os(name), rustix::process::geteuid().is_root())
}

/// The time zone of a word for `TZ`; the system's if there is none, or it means nothing.
fn zone(word: &OsStr) -> TimeZone {
    let word = word.to_str().unwrap_or_default();
    let name = word.strip_prefix(':').unwrap_or(word);
    if name.is_empty() {
        return TimeZone::system();
    }
    TimeZone::get(name).or_else(|_| TimeZone::posix(name)).unwrap_or_else(|_| TimeZone::system())
}

/// The number of a user, given as such or by name.
fn number(user: &str) -> Result<u32, Stop> {
    let named = || Names::Users.number(user).and_then(|number| u32::try_from(number).ok());
    let unknown = || Stop::Said(format!("'{user}': there is no such user"), 1);
    user.parse().ok().or_else(named).ok_or_else(unknown)
}

/// A cap for its memory, in bytes.
fn memory(word: &OsStr) -> Result<u64, Stop> {
    let bytes = verbs::props::parse_number(word.as_bytes());
    let bytes = bytes.map_err(|why| Stop::Said(format!("--memory: {why}"), 1))?;
    match bytes >= verbs::memory::CAP_LEAST {
        true => Ok(bytes),
        false => {
            Err(Stop::Said(format!("--memory: {bytes} bytes are too little; it needs 64M"), 1))
        }
    }
}

/// `thumper serve`.
pub(crate) fn serve(door: &mut Door<'_>, words: &[OsString]) -> Ran {
    let long = ["log-json", "foreground", "mount", "hooks:", "listen-metrics:", "memory:"];
    let words = sort(words, "s:u:", &long);
    let mut options = Options { socket: socket(), ..Options::default() };
    for opt in &words.opts {
        match opt {
            Opt::Long(word) if word == "log-json" => options.log = Form::Json,
            Opt::Long(word) if word == "foreground" => {}
            Opt::LongValue(word, dir) if word == "hooks" => options.hooks = Some(dir.into()),
            Opt::LongValue(word, at) if word == "listen-metrics" => {
                let at = daemon::address(&at.to_string_lossy());
                options.page = Some(at.map_err(Stop::Usage)?);
            }
            Opt::Long(word) if word == "mount" => options.mount = true,
            Opt::LongValue(name, word) if name == "memory" => options.memory = Some(memory(word)?),
            Opt::Value('s', path) => options.socket = path.into(),
            Opt::Value('u', users) => {
                for user in users.to_string_lossy().split(',') {
                    options.movers.push(number(user)?);
                }
            }
            other => return Err(bad_option(other)),
        }
    }
    options.pools = names(&words);
    door.out.flush()?;
    let engine = verbs::Local::from_environment();
    let run: Arc<daemon::Run> =
        Arc::new(|words, tz, engine, out, err| crate::run_in(words, engine, out, err, zone(tz)));
    match daemon::serve(&engine, &options, run) {
        Ok(closed) => Ok(u8::from(!closed)),
        Err(error) => Err(Stop::Said(error.to_string(), 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_those_of_the_environment() {
        let at = |word: &str| crate::door::time_in(&zone(OsStr::new(word)), 0, "%H:%M");
        assert_eq!(at("UTC"), "00:00");
        assert_eq!(at("Asia/Tokyo"), "09:00");
        assert_eq!(at(":Asia/Tokyo"), "09:00");
        assert_eq!(at("XYZ-3"), "03:00");
        assert_eq!(at("no such zone"), at(""));
    }
}
