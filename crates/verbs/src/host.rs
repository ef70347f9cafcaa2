//! Who we are to pools: the host's number and name.
//!
//! A pool remembers who had it last, so that two systems never write it at once. The number is the
//! system's own if it has one, else one that is made once and kept with the list of pools.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Result;
use crate::state::StateFile;

/// The number that the system has: of the kernel module if it is loaded, else of `/etc/hostid`.
#[must_use]
pub fn system_hostid(root: &Path) -> Option<u32> {
    let module = root.join("sys/module/spl/parameters/spl_hostid");
    let module = fs::read_to_string(module).ok().and_then(|text| text.trim().parse().ok());
    module.filter(|id| *id != 0).or_else(|| hostid_in(&root.join("etc/hostid")))
}

/// The number in such a file, if it is none of no host.
fn hostid_in(file: &Path) -> Option<u32> {
    let bytes = fs::read(file).ok()?;
    Some(u32::from_le_bytes(*bytes.first_chunk()?)).filter(|id| *id != 0)
}

/// Our number: that of the file which `THUMPER_HOSTID` names, else the system's, else that of the list.
///
/// # Errors
/// The list of pools cannot be read or written.
pub fn hostid(state: &StateFile) -> Result<u32> {
    let named = std::env::var_os("THUMPER_HOSTID").and_then(|file| hostid_in(Path::new(&file)));
    if let Some(id) = named.or_else(|| system_hostid(Path::new("/"))) {
        return Ok(id);
    }
    if let Some(id) = state.load()?.hostid {
        return Ok(id);
    }
    // Any number but 0, which means none. The high bits are the better ones.
    let fresh = ((rt::random::seed_from_system() >> 32) as u32).max(1);
    state.change(|state| *state.hostid.get_or_insert(fresh))
}

/// Our name.
#[must_use]
pub fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".into() } else { name.into() }
}

/// A list of the host that gives numbers names: `/etc/passwd` or `/etc/group`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Of users.
    Users,
    /// Of groups.
    Groups,
}

impl Names {
    fn lines(self) -> String {
        let path = match self {
            Names::Users => "/etc/passwd",
            Names::Groups => "/etc/group",
        };
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }

    /// All that are in the list, by number.
    #[must_use]
    pub fn by_number(self) -> BTreeMap<u64, String> {
        let mut names = BTreeMap::new();
        for (name, number) in self.lines().lines().filter_map(entry) {
            names.entry(number).or_insert_with(|| name.to_string());
        }
        names
    }

    /// The number of a name.
    #[must_use]
    pub fn number(self, name: &str) -> Option<u64> {
        self.lines().lines().filter_map(entry).find(|(n, _)| *n == name).map(|(_, number)| number)
    }
}

/// Name and number of a line of such a list.
fn entry(line: &str) -> Option<(&str, u64)> {
    let mut parts = line.split(':');
    let name = parts.next().filter(|name| !name.is_empty())?;
    Some((name, parts.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_number_is_found() {
        let root = std::env::temp_dir().join(format!("thumper-host-{}", std::process::id()));
        fs::create_dir_all(root.join("etc")).unwrap();
        assert_eq!(system_hostid(&root), None);
        fs::write(root.join("etc/hostid"), b"muht").unwrap();
        assert_eq!(system_hostid(&root), Some(0x7468_756d));
        fs::create_dir_all(root.join("sys/module/spl/parameters")).unwrap();
        let module = root.join("sys/module/spl/parameters/spl_hostid");
        fs::write(&module, "0\n").unwrap();
        assert_eq!(system_hostid(&root), Some(0x7468_756d));
        fs::write(&module, "4660\n").unwrap();
        assert_eq!(system_hostid(&root), Some(4660));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn names_have_numbers() {
        assert_eq!(entry("root:x:0:0:root:/root:/bin/bash"), Some(("root", 0)));
        assert_eq!(entry("games:x:60:"), Some(("games", 60)));
        for bad in ["", "::5", "a:b", "a:x:b:c"] {
            assert_eq!(entry(bad), None, "{bad}");
        }
        assert_eq!(Names::Users.number("root"), Some(0));
        assert_eq!(Names::Groups.by_number().get(&0).map(String::as_str), Some("root"));
        assert_eq!(Names::Users.number("no such user"), None);
    }

    #[test]
    fn a_number_that_was_made_is_kept() {
        let dir = std::env::temp_dir().join(format!("thumper-id-{}", std::process::id()));
        let state = StateFile::new(dir.join("pools"));
        let first = hostid(&state).unwrap();
        assert_ne!(first, 0);
        assert_eq!(hostid(&state).unwrap(), first);
        drop(fs::remove_dir_all(dir));
    }
}
