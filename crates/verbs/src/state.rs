//! Remembered pools: which pool is on which devices, and the number by which pools know us.
//!
//! A pool that was made or imported and not exported is remembered, so that later commands find
//! it by name. The list is a text file, one pool or device a line, replaced as a whole under a
//! lock: a crash leaves the old list or the new one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::{Error, Result, lockfile};

/// The environment variable that names the list.
pub const VARIABLE: &str = "THUMPER_STATE";
/// First line of the list.
const HEAD: &str = "thumper state 1";
/// The longest list that is read, in bytes.
const LENGTH_MAX: u64 = 64 << 20;

/// A remembered pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its name.
    pub name: String,
    /// Its guid.
    pub guid: u64,
    /// It was imported for reading only.
    pub readonly: bool,
    /// Where its file systems would be mounted below.
    pub altroot: Option<Vec<u8>>,
    /// How a server has let go of it in order; nothing while one holds it.
    pub closed: Option<Closed>,
    /// Paths of its devices: where they were seen last.
    pub paths: Vec<PathBuf>,
}

/// A server has put on disk all that it had taken, and let go of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// That of the last uberblock: a later one is somebody else's.
    pub txg: u64,
    /// Since then, in milliseconds since 1970, it and those before it have lost nothing.
    pub kept_since_ms: u64,
}

/// The list of remembered pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The number by which pools know this system, if it has none of its own.
    pub hostid: Option<u32>,
    /// The pools, by name.
    pub pools: Vec<Known>,
}

/// Where the list is: `THUMPER_STATE`, from where the process is now, else the user's state directory. `variable` reads
/// the environment.
#[must_use]
pub fn default_path(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    if let Some(path) = variable(VARIABLE).filter(|p| !p.is_empty()) {
        // A server runs commands in other directories, where the same words lead elsewhere.
        return std::path::absolute(&path).unwrap_or_else(|_| path.into());
    }
    let state = variable("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || variable("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    state.unwrap_or_else(|| home().join(".local/state")).join("thumper/pools")
}

impl State {
    /// The pool of a name.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<&Known> {
        self.pools.iter().find(|known| known.name == name)
    }

    /// Remembers a pool, in place of `stale`, which is known of it and does not hold any more. False: its name or guid has
    /// come into the list meanwhile, which stays as it is.
    #[must_use]
    pub fn remember(&mut self, pool: Known, stale: Option<&Known>) -> bool {
        let is_taken = |known: &Known| known.name == pool.name || known.guid == pool.guid;
        if self.pools.iter().any(|known| is_taken(known) && Some(known) != stale) {
            return false;
        }
        self.pools.retain(|known| Some(known) != stale);
        self.pools.push(pool);
        self.pools.sort_by(|a, b| a.name.cmp(&b.name));
        true
    }

    /// A server has let go of a pool in order.
    pub fn note_closed(&mut self, guid: u64, closed: Closed) {
        self.pools
            .iter_mut()
            .filter(|pool| pool.guid == guid)
            .for_each(|p| p.closed = Some(closed));
    }

    /// A pool is held again.
    pub fn forget_closed(&mut self, guid: u64) {
        self.pools.iter_mut().filter(|pool| pool.guid == guid).for_each(|pool| pool.closed = None);
    }

    /// Forgets a pool.
    pub fn forget(&mut self, guid: u64) {
        self.pools.retain(|known| known.guid != guid);
    }

    /// The list as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        if let Some(hostid) = self.hostid {
            text += &format!("hostid {hostid:08x}\n");
        }
        for pool in &self.pools {
            let mode = if pool.readonly { "readonly" } else { "writable" };
            text += &format!("pool {} {mode} {}\n", pool.guid, escape(pool.name.as_bytes()));
            if let Some(root) = &pool.altroot {
                text += &format!("altroot {}\n", escape(root));
            }
            if let Some(Closed { txg, kept_since_ms }) = pool.closed {
                text += &format!("closed {txg} {kept_since_ms}\n");
            }
            for path in &pool.paths {
                text += &format!("device {}\n", escape(path.as_os_str().as_bytes()));
            }
        }
        text
    }

    /// Reads the list.
    ///
    /// # Errors
    /// What is wrong with it, with the number of the line.
    pub fn from_text(text: &str) -> std::result::Result<State, String> {
        let mut lines = text.lines().enumerate();
        if lines.next().map(|(_, line)| line) != Some(HEAD) {
            return Err(format!("line 1 is not '{HEAD}'"));
        }
        let mut state = State::default();
        for (number, line) in lines {
            let fail = || format!("line {} is not understood", number + 1);
            let (word, rest) = line.split_once(' ').ok_or_else(fail)?;
            match word {
                "hostid" => state.hostid = Some(u32::from_str_radix(rest, 16).map_err(|_| fail())?),
                "pool" => {
                    let mut parts = rest.splitn(3, ' ');
                    let mut part = || parts.next().ok_or_else(fail);
                    let guid = part()?.parse().map_err(|_| fail())?;
                    let readonly = match part()? {
                        "readonly" => true,
                        "writable" => false,
                        _ => return Err(fail()),
                    };
                    let name = unescape(part()?).ok_or_else(fail)?;
                    let name = String::from_utf8(name).map_err(|_| fail())?;
                    let (altroot, closed, paths) = (None, None, Vec::new());
                    let known = Known { name, guid, readonly, altroot, closed, paths };
                    state.pools.push(known);
                }
                "altroot" => {
                    let pool = state.pools.last_mut().ok_or_else(fail)?;
                    pool.altroot = Some(unescape(rest).ok_or_else(fail)?);
                }
                "closed" => {
                    let pool = state.pools.last_mut().ok_or_else(fail)?;
                    let (txg, since) = rest.split_once(' ').ok_or_else(fail)?;
                    let number = |word: &str| word.parse().map_err(|_| fail());
                    pool.closed = Some(Closed { txg: number(txg)?, kept_since_ms: number(since)? });
                }
                "device" => {
                    let pool = state.pools.last_mut().ok_or_else(fail)?;
                    let path = unescape(rest).ok_or_else(fail)?;
                    pool.paths.push(OsString::from_vec(path).into());
                }
                _ => return Err(fail()),
            }
        }
        Ok(state)
    }
}

/// Spaces and what is not printable, and `%` itself, as `%XX`.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'!'..=b'$' | b'&'..=b'~' => text.push(char::from(*byte)),
            _ => text += &format!("%{byte:02x}"),
        }
    }
    text
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after.get(2..)?;
        } else {
            bytes.push(*first);
        }
    }
    Some(bytes)
}

/// The file that holds the list.
#[derive(Clone, Debug)]
pub struct StateFile {
    path: PathBuf,
}

impl StateFile {
    /// The list at a path, which need not be there yet.
    #[must_use]
    pub fn new(path: PathBuf) -> StateFile {
        StateFile { path }
    }

    /// The list's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file beside the list: its name and this, so that no list is its own helper, whatever it is called.
    fn beside(&self, end: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(end);
        name.into()
    }

    fn fail(&self, why: impl ToString) -> Error {
        Error::State { path: self.path.display().to_string(), why: why.to_string() }
    }

    /// Reads the list; an empty one if there is none.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn load(&self) -> Result<State> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(State::default()),
            Err(error) => return Err(self.fail(error)),
        };
        let mut text = String::new();
        file.take(LENGTH_MAX).read_to_string(&mut text).map_err(|e| self.fail(e))?;
        State::from_text(&text).map_err(|why| self.fail(why))
    }

    /// Changes the list: no other process changes it meanwhile.
    ///
    /// # Errors
    /// [`Error::State`]; the list is as it was.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(parent).map_err(|e| self.fail(e))?;
        let _lock = lockfile::wait(&self.beside(".lock")).map_err(|e| self.fail(e))?;
        let mut state = self.load()?;
        let before = state.clone();
        let result = change(&mut state);
        if state != before {
            let new = self.beside(".new");
            let mut file = File::create(&new).map_err(|e| self.fail(e))?;
            file.write_all(state.to_text().as_bytes()).map_err(|e| self.fail(e))?;
            file.sync_all().map_err(|e| self.fail(e))?;
            fs::rename(&new, &self.path).map_err(|e| self.fail(e))?;
            let dir = File::open(parent).and_then(|dir| dir.sync_all());
            dir.map_err(|e| self.fail(e))?;
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn known(name: &str, guid: u64) -> Known {
        let odd = OsString::from_vec(b"/a b/%\xff\n".to_vec());
        Known {
            name: name.into(),
            guid,
            readonly: guid == 2,
            altroot: (guid == 2).then(|| b"/mnt x".to_vec()),
            closed: (guid == 1).then_some(Closed { txg: 7, kept_since_ms: 1_000_000 }),
            paths: vec!["/d/d0".into(), odd.into()],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut state = State { hostid: Some(0xabc), pools: Vec::new() };
        assert!(state.remember(known("tank", 1), None));
        assert!(state.remember(known("po nd", 2), None));
        let text = state.to_text();
        assert_eq!(State::from_text(&text).unwrap(), state);
        assert!(text.contains("device /a%20b/%25%ff%0a\n"), "{text}");
        // Seen red: whoever came second threw out the first.
        let before = state.clone();
        for (name, guid) in [("tank", 3), ("pond", 1)] {
            assert!(!state.remember(known(name, guid), None));
            assert!(!state.remember(known(name, guid), Some(&known("tank", 4))));
            assert_eq!(state, before);
        }
        assert!(state.remember(known("tank", 3), Some(&known("tank", 1))));
        assert_eq!(state.pools.iter().map(|p| p.guid).collect::<Vec<_>>(), [2, 3]);
        state.forget(3);
        assert_eq!(state.pool("tank"), None);
    }

    #[test]
    fn what_is_not_a_list_is_refused() {
        for text in [
            "",
            "thumper state 2\n",
            "thumper state 1\npool x writable tank\n",
            "thumper state 1\npool 1 maybe tank\n",
            "thumper state 1\ndevice /d0\n",
            "thumper state 1\npool 1 writable tank\ndevice /%4\n",
            "thumper state 1\npool 1 writable tank\nclosed 7\n",
            "thumper state 1\npool 1 writable tank\nclosed 7 soon\n",
            "thumper state 1\nhostid x\n",
            "thumper state 1\nwhat is this\n",
        ] {
            assert!(State::from_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_list_is_kept_where_the_user_says() {
        let path = |pairs: &[(&str, &str)]| {
            default_path(|name| {
                pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v))
            })
        };
        assert_eq!(path(&[("THUMPER_STATE", "/x/y"), ("HOME", "/h")]), Path::new("/x/y"));
        // Whoever runs commands for others does so in their directories.
        let here = std::env::current_dir().unwrap();
        assert_eq!(path(&[("THUMPER_STATE", "x/y")]), here.join("x/y"));
        assert_eq!(
            path(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]),
            Path::new("/s/thumper/pools")
        );
        assert_eq!(path(&[("HOME", "/h")]), Path::new("/h/.local/state/thumper/pools"));
    }

    /// Seen red: a list called `x.lock` was its own lock, and was empty after the first change.
    #[test]
    fn a_list_of_any_name_is_kept() {
        let dir = std::env::temp_dir().join(format!("thumper-names-{}", std::process::id()));
        for name in ["pools.lock", "pools.new", "pools"] {
            let file = StateFile::new(dir.join(name));
            for guid in 1..4 {
                file.change(|state| state.remember(known(&format!("p{guid}"), guid), None))
                    .unwrap();
            }
            assert_eq!(file.load().unwrap().pools.len(), 3, "{name}");
            // Seen red: whoever could read it could keep it locked.
            let lock = file.beside(".lock").metadata().unwrap();
            assert_eq!(lock.permissions().mode() & 0o777, 0o600, "{name}");
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn changes_are_kept_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("thumper-state-{}", std::process::id()));
        let file = StateFile::new(dir.join("sub/pools"));
        assert_eq!(file.load().unwrap(), State::default());
        assert!(file.change(|state| state.remember(known("tank", 1), None)).unwrap());
        assert_eq!(file.load().unwrap().pools.len(), 1);
        fs::write(file.path(), "rubbish").unwrap();
        let error = file.change(|state| state.forget(1)).unwrap_err().to_string();
        assert!(error.ends_with("line 1 is not 'thumper state 1'"), "{error}");
        assert_eq!(fs::read(file.path()).unwrap(), b"rubbish");
        fs::remove_dir_all(dir).unwrap();
    }
}
