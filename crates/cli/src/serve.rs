//! `thumper serve`: the server, in this process; and where the others find it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use daemon::{Form, Options};
use jiff::tz::TimeZone;
use rt::sync::Arc;
use verbs::host::Names;

use crate::door::{Door, Ran, Stop, bad_option, names};
use crate::getopt::{Opt, sort};

/// Bytes of a file with a time zone, at most: the longest of today have four thousand.
const ZONE_MAX: u64 = 1 << 20;

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
    let named = TimeZone::get(name).or_else(|_| TimeZone::posix(name)).ok();
    named.or_else(|| zone_of(Path::new(name))).unwrap_or_else(TimeZone::system)
}

/// The time zone in a file, as the system keeps them.
fn zone_of(path: &Path) -> Option<TimeZone> {
    let is_one = |meta: &std::fs::Metadata| meta.is_file() && meta.len() <= ZONE_MAX;
    path.metadata().ok().filter(|meta| path.is_absolute() && is_one(meta))?;
    TimeZone::tzif(&path.to_string_lossy(), &std::fs::read(path).ok()?).ok()
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

    /// Seen red: whoever had typed the command read the server's time.
    #[test]
    fn a_zone_may_be_a_file() {
        let path = std::env::temp_dir().join(format!("thumper-zone-{}", std::process::id()));
        // One time, nine hours ahead: a header with how many there are of what, and its name.
        let counts = [0u32, 0, 0, 0, 1, 4].map(u32::to_be_bytes).concat();
        let head = [&b"TZif"[..], &[0; 16], &counts].concat();
        let zone_is = [&head[..], &32_400i32.to_be_bytes(), &[0, 0], b"JST\0"].concat();
        std::fs::write(&path, zone_is).expect("a file");
        let at = |word: &str| crate::door::time_in(&zone(OsStr::new(word)), 0, "%H:%M %Z");
        let name = path.display().to_string();
        assert_eq!(at(&name), "09:00 JST");
        assert_eq!(at(&format!(":{name}")), "09:00 JST");
        std::fs::write(&path, "no zone").expect("a file");
        assert_eq!(at(&name), at(""));
        // Nobody waits for what has no end.
        assert_eq!(at("/dev/zero"), at(""));
        std::fs::remove_file(path).expect("it goes");
    }
}
