//! Programs that are run on events, as OpenZFS's event daemon runs them.
//!
//! The one idea: the programs follow the ring of events like any other reader. They run one after the other, each
//! for a bounded time, and who is too slow misses events; the engine does not know of them. One that cannot even be
//! killed (it waits for a file system that hangs) is left behind, and not run again before it has ended.
//!
//! A program in the directory is run on an event if its name begins with `all` or with the last part of the event's
//! class, followed by something that is no letter: `all-mail.sh`, `statechange-mail.sh`. The values of the event are in
//! its environment, as that daemon gives them: `ZEVENT_CLASS`, `ZEVENT_POOL`, `ZEVENT_VDEV_PATH`, ..
//! Since they run as the server, only what root or the server's user alone can have put there is run.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rt::sync::Arc;
use rt::time::Instant;
use rustix::process::{Pid, Signal, kill_process_group};
use verbs::Held;
use verbs::events::Event;
use verbs::events::nvlist::Value;

/// How long a program may run.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one that was killed may take to go.
const GOING: Duration = Duration::from_secs(1);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Events of one class that are handed over within [`WINDOW`], at most.
const RUNS_MAX: u32 = 30;
/// See [`RUNS_MAX`].
const WINDOW: Duration = Duration::from_secs(60);
/// Programs in the directory, at most.
const PROGRAMS_MAX: usize = 64;
/// Bits of a mode: others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// Bits of a mode: somebody may execute.
const EXECUTABLE: u32 = 0o111;

/// Where what goes wrong is said.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// A directory of programs.
#[derive(Debug)]
pub struct Hooks {
    dir: PathBuf,
    patience: Duration,
    /// Kills a program and all that it has started.
    kill: fn(&Child),
    /// Those that were killed and have not gone.
    left: BTreeMap<PathBuf, Child>,
}

impl Hooks {
    /// The programs in `dir`.
    ///
    /// # Errors
    /// It is no directory, or somebody else could put something there.
    pub fn new(dir: &Path) -> Result<Hooks> {
        let dir = dir.canonicalize()?;
        let meta = dir.metadata()?;
        if !meta.is_dir() {
            return Err(Error::new(ErrorKind::NotADirectory, "it is no directory"));
        }
        match why_not_ours(&meta) {
            Some(why) => Err(Error::new(ErrorKind::PermissionDenied, why)),
            None => Ok(Hooks { dir, patience: PATIENCE, kill, left: BTreeMap::new() }),
        }
    }

    /// Runs them on all that happens to `held` from now on, as long as it lives.
    pub fn start(mut self, held: &Arc<Held>, say: Say) {
        let held = Arc::downgrade(held);
        let body = move || {
            let (mut last, mut limits) = (0, Limits::default());
            loop {
                // Nothing is held on to while it waits for long.
                let Some(held) = held.upgrade() else { return };
                let more = held.events().wait_after(last, Duration::from_millis(200));
                drop(held);
                if let Some(first) = more.first().filter(|first| first.number > last + 1) {
                    let missed = first.number - last - 1;
                    say(&format!("hooks: {missed} events came too fast and were not handed over"));
                }
                for event in more {
                    last = event.number;
                    match limits.admit(&event.class(), rt::time::now()) {
                        Admitted::Yes => self.run(&event, &say),
                        Admitted::NoMore => {
                            let class = event.class();
                            say(&format!(
                                "hooks: too many events of class {class}; some are left out"
                            ));
                        }
                        Admitted::No => {}
                    }
                }
            }
        };
        drop(rt::thread::spawn("hooks", body));
    }

    /// Runs all that want the event.
    fn run(&mut self, event: &Event, say: &Say) {
        // Who cannot be asked is as good as gone.
        self.left.retain(|_, child| matches!(child.try_wait(), Ok(None)));
        let programs = match self.programs(event, say) {
            Ok(programs) => programs,
            Err(error) => return say(&format!("hooks: {}: {error}", self.dir.display())),
        };
        for program in programs {
            // It was said when it was left behind.
            if self.left.contains_key(&program) {
                continue;
            }
            if let Err(why) = self.run_one(&program, event) {
                say(&format!("hooks: {}: {why}", program.display()));
            }
        }
    }

    /// The programs that want the event, by name.
    fn programs(&self, event: &Event, say: &Say) -> Result<Vec<PathBuf>> {
        let class = event.class();
        let subclass = class.rsplit('.').next().unwrap_or_default();
        let mut programs = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !(is_for(&name, "all") || is_for(&name, subclass)) {
                continue;
            }
            let path = entry.path();
            // A link that leads nowhere is nobody's program, and keeps no other from being run.
            let meta = match path.metadata() {
                Ok(meta) => meta,
                Err(why) => {
                    say(&format!("hooks: {} is not run: {why}", path.display()));
                    continue;
                }
            };
            if !meta.is_file() || meta.mode() & EXECUTABLE == 0 {
                continue;
            }
            match why_not_ours(&meta) {
                None => programs.push(path),
                Some(why) => say(&format!("hooks: {} is not run: {why}", path.display())),
            }
            if programs.len() >= PROGRAMS_MAX {
                break;
            }
        }
        programs.sort();
        Ok(programs)
    }

    fn run_one(&mut self, program: &Path, event: &Event) -> std::result::Result<(), String> {
        let mut command = Command::new(program);
        command.env_clear().envs(environment(event)).env("ZED_ZEDLET_DIR", &self.dir);
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("ZED_PID", std::process::id().to_string());
        command.current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let told = |error: Error| error.to_string();
        match wait(&mut child, self.patience).map_err(told)? {
            Some(0) => return Ok(()),
            Some(status) => return Err(format!("ended with status {status}")),
            None => {}
        }
        (self.kill)(&child);
        let why = format!("did not end within {:?}", self.patience);
        if wait(&mut child, GOING).map_err(told)?.is_some() {
            return Err(format!("{why}, and was stopped"));
        }
        let pid = child.id();
        self.left.insert(program.into(), child);
        Err(format!(
            "{why}, and cannot be stopped; it is not run again before process {pid} has ended"
        ))
    }
}

/// Waits for the end of a child: its status. `None`: it did not come to it.
fn wait(child: &mut Child, patience: Duration) -> Result<Option<i32>> {
    let start = rt::time::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.code().unwrap_or(-1)));
        }
        if start.elapsed() >= patience {
            return Ok(None);
        }
        rt::time::sleep(LOOK);
    }
}

fn kill(child: &Child) {
    // It may have ended by now.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
}

/// Does the name of a program begin with this word?
fn is_for(name: &str, word: &str) -> bool {
    let rest = name.strip_prefix(word);
    rest.is_some_and(|rest| {
        rest.chars().next().is_none_or(|c| !c.is_ascii_alphabetic() && c != '_')
    })
}

/// Why what has this owner and mode is not to be trusted.
fn why_not_ours(meta: &Metadata) -> Option<&'static str> {
    let ours = rustix::process::geteuid().as_raw();
    if meta.uid() != 0 && meta.uid() != ours {
        return Some("it belongs to another user");
    }
    (meta.mode() & OTHERS_WRITE != 0).then_some("others may write to it")
}

/// What a program learns of an event.
fn environment(event: &Event) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let (seconds, nanos) = (event.time.as_secs(), event.time.subsec_nanos());
    let class = event.class();
    let subclass = class.rsplit('.').next().unwrap_or_default().to_string();
    for pair in event.values.pairs() {
        let name = String::from_utf8_lossy(&pair.name).to_ascii_uppercase();
        let name = format!("ZEVENT_{}", name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        if let Some(value) = shown(&name, &pair.value) {
            // What the system takes has no NUL in it.
            variables.insert(name.clone(), value.replace('\0', " "));
        }
        if let (Value::U64(state), true) = (&pair.value, name.ends_with("STATE")) {
            let word = STATES.get(*state as usize).unwrap_or(&"UNKNOWN");
            variables.insert(format!("{name}_STR"), (*word).into());
        }
    }
    variables.insert("ZEVENT_SUBCLASS".into(), subclass);
    variables.insert("ZEVENT_TIME_SECS".into(), seconds.to_string());
    variables.insert("ZEVENT_TIME_NSECS".into(), nanos.to_string());
    let stamp = i64::try_from(seconds).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    if let Some(stamp) = stamp {
        let local = stamp.to_zoned(jiff::tz::TimeZone::system());
        let text = local.strftime("%Y-%m-%d %H:%M:%S%z").to_string();
        variables.insert("ZEVENT_TIME_STRING".into(), text);
    }
    variables
}

/// States of vdevs, by number.
const STATES: [&str; 8] =
    ["UNKNOWN", "CLOSED", "OFFLINE", "REMOVED", "UNAVAIL", "FAULTED", "DEGRADED", "ONLINE"];

/// A value as text: guids in base 16, other numbers in base 10, lists with blanks between.
fn shown(name: &str, value: &Value) -> Option<String> {
    let list = |numbers: &mut dyn Iterator<Item = String>| numbers.collect::<Vec<_>>().join(" ");
    Some(match value {
        Value::U64(guid) if name.ends_with("_GUID") => format!("0x{guid:016X}"),
        Value::U64(number) => number.to_string(),
        Value::I64(number) => number.to_string(),
        Value::U32(number) => number.to_string(),
        Value::I32(number) => number.to_string(),
        Value::String(text) => String::from_utf8_lossy(text).into_owned(),
        Value::U64Array(numbers) => list(&mut numbers.iter().map(u64::to_string)),
        Value::I64Array(numbers) => list(&mut numbers.iter().map(i64::to_string)),
        _ => return None,
    })
}

/// How many events of each class were handed over lately.
#[derive(Default)]
struct Limits(BTreeMap<String, (Instant, u32)>);

/// What becomes of an event.
#[derive(Debug, PartialEq, Eq)]
enum Admitted {
    Yes,
    /// It is the first that is one too many.
    NoMore,
    No,
}

impl Limits {
    fn admit(&mut self, class: &str, now: Instant) -> Admitted {
        let (since, count) = self.0.entry(class.into()).or_insert((now, 0));
        if now.saturating_since(*since) > WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        match (*count).cmp(&(RUNS_MAX + 1)) {
            std::cmp::Ordering::Less => Admitted::Yes,
            std::cmp::Ordering::Equal => Admitted::NoMore,
            std::cmp::Ordering::Greater => Admitted::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use rt::sync::Mutex;
    use verbs::events::nvlist::NvList;

    use super::*;

    fn program(dir: &Path, name: &str, body: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn event() -> Event {
        let mut values = NvList::new();
        values.put_string("class", "resource.fs.zfs.statechange");
        values.put_string("pool", "tank");
        values.put_u64("vdev_guid", 0xabc);
        values.put_u64("vdev_state", 5);
        values.put_string("vdev_path", "/dev/$(touch x)\0");
        values.put("time", Value::I64Array(vec![1_700_000_000, 5]));
        Event { number: 1, time: Duration::new(1_700_000_000, 5), values }
    }

    fn said() -> (Say, Arc<Mutex<Vec<String>>>) {
        let said: Arc<Mutex<Vec<String>>> = Arc::default();
        let into = said.clone();
        (Arc::new(move |line: &str| into.lock().push(line.into())), said)
    }

    #[test]
    fn those_that_want_an_event_are_run_with_its_values() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let note =
            format!("echo $(basename $0) $ZEVENT_POOL $ZEVENT_SUBCLASS >> {}", out.display());
        for name in ["all-note", "statechange-note.sh", "io-note", "statechanged", "allow"] {
            program(dir.path(), name, &note);
        }
        program(dir.path(), "all.env", &format!("env > {}", dir.path().join("env").display()));
        std::fs::write(dir.path().join("all-readme"), "not executable").unwrap();
        let open = program(dir.path(), "all-open", &note);
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        let (say, said) = said();
        Hooks::new(dir.path()).unwrap().run(&event(), &say);
        let ran = std::fs::read_to_string(&out).unwrap();
        assert_eq!(ran, "all-note tank statechange\nstatechange-note.sh tank statechange\n");
        let said = said.lock();
        assert!(said.len() == 1 && said[0].contains("others may write to it"), "{said:?}");
        let env = std::fs::read_to_string(dir.path().join("env")).unwrap();
        for line in [
            "ZEVENT_CLASS=resource.fs.zfs.statechange",
            "ZEVENT_VDEV_GUID=0x0000000000000ABC",
            "ZEVENT_VDEV_STATE=5",
            "ZEVENT_VDEV_STATE_STR=FAULTED",
            "ZEVENT_VDEV_PATH=/dev/$(touch x) ",
            "ZEVENT_TIME=1700000000 5",
            "ZEVENT_TIME_SECS=1700000000",
        ] {
            assert!(env.lines().any(|l| l == line), "no {line} in {env}");
        }
        assert!(!env.contains("CARGO"), "{env}");
    }

    #[test]
    fn one_that_does_not_end_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let path = program(dir.path(), "all-slow", "sleep 300 & sleep 300");
        let mut command = Command::new(path);
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdout.take().unwrap();
        assert_eq!(wait(&mut child, Duration::from_millis(200)).unwrap(), None);
        kill(&child);
        assert_eq!(wait(&mut child, Duration::from_secs(20)).unwrap(), Some(-1));
        // It is at its end when nobody is left who could write to it.
        std::io::Read::read_to_end(&mut pipe, &mut Vec::new()).unwrap();
    }

    /// Here the killing is left out: nobody can make a process that cannot be killed without a file system that hangs.
    #[test]
    fn one_that_cannot_be_ended_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (out, fifo) = (dir.path().join("out"), dir.path().join("fifo"));
        let noted = || std::fs::read_to_string(&out).unwrap_or_default();
        let wait = format!("echo hangs >> {0}; read x < {1}", out.display(), fifo.display());
        program(
            dir.path(),
            "all-1-hangs",
            &format!("[ -p {0} ] || mkfifo {0}; {wait}", fifo.display()),
        );
        program(dir.path(), "all-2-note", &format!("echo note >> {}", out.display()));
        let (say, said) = said();
        let mut hooks = Hooks::new(dir.path()).unwrap();
        hooks.patience = Duration::from_secs(2);
        hooks.kill = |_| {};
        hooks.run(&event(), &say);
        assert_eq!(noted(), "hangs\nnote\n");
        assert!(said.lock().len() == 1 && said.lock()[0].contains("cannot be stopped"), "{said:?}");
        // The others do not wait for it again.
        let start = rt::time::now();
        hooks.run(&event(), &say);
        assert!(noted() == "hangs\nnote\nnote\n" && start.elapsed() < Duration::from_secs(2));
        // When it has gone, it is run again.
        std::fs::write(&fifo, "x\n").unwrap();
        while hooks.left.values_mut().any(|child| matches!(child.try_wait(), Ok(None))) {
            rt::time::sleep(LOOK);
        }
        let late = rt::thread::spawn("writer", move || std::fs::write(&fifo, "x\n").unwrap());
        hooks.run(&event(), &say);
        late.join();
        assert_eq!(noted(), "hangs\nnote\nnote\nhangs\nnote\n");
        assert_eq!(said.lock().len(), 1);
    }

    #[test]
    fn what_others_can_change_is_no_directory_of_hooks() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(Hooks::new(dir.path()).unwrap_err().to_string().contains("others may write"));
        assert!(Hooks::new(&dir.path().join("none")).is_err());
    }

    /// Seen red: it counted as told, and the same was not told again for an hour.
    #[test]
    fn a_mail_that_could_not_be_sent_is_sent_the_next_time() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let takes = format!("[ ! -e {} ] && cat >> {}", at("down").display(), at("sent").display());
        let sendmail = program(dir.path(), "sendmail", &takes);
        let lines = format!("SENDMAIL={}\nSTAMPS={}\n", sendmail.display(), at("stamps").display());
        std::fs::write(at("mail.conf"), lines).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/hooks/all-mail.sh");
        let tell = || {
            let mut command = Command::new("sh");
            command.arg(&script).env("ZED_ZEDLET_DIR", dir.path());
            command.env("ZEVENT_SUBCLASS", "io_failure").env("ZEVENT_POOL", "tank");
            command.status().unwrap().success()
        };
        let mails = || std::fs::read_to_string(at("sent")).unwrap_or_default();
        std::fs::write(at("down"), "").unwrap();
        assert!(!tell() && mails().is_empty());
        std::fs::remove_file(at("down")).unwrap();
        assert!(tell() && tell());
        assert_eq!(mails().matches("tank: the pool is suspended\n").count(), 1, "{}", mails());
    }

    #[test]
    fn a_flood_is_cut_off() {
        let mut limits = Limits::default();
        let now = rt::time::now();
        for _ in 0..RUNS_MAX {
            assert_eq!(limits.admit("a", now), Admitted::Yes);
        }
        assert_eq!(limits.admit("a", now), Admitted::NoMore);
        assert_eq!(limits.admit("a", now), Admitted::No);
        assert_eq!(limits.admit("b", now), Admitted::Yes);
        assert_eq!(limits.admit("a", now + WINDOW + WINDOW), Admitted::Yes);
    }
}
