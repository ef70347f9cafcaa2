//! How much memory this process may count on: what the machine has, or what its control group leaves of it.
//!
//! The one idea: caps are made from this number, which is asked for once, so that a small machine gets small
//! ones. In the simulation it is always the same.

use crate::sync::atomic::{AtomicU64, Ordering};

/// What is taken for granted where nothing can be found out.
const UNKNOWN_BYTES: u64 = 4 << 30;

/// Bytes of memory that this process may count on.
pub fn memory_bytes() -> u64 {
    static FOUND: AtomicU64 = AtomicU64::new(0);
    #[cfg(feature = "sim")]
    if crate::sim::is_running() {
        return UNKNOWN_BYTES;
    }
    let found = match FOUND.load(Ordering::Relaxed) {
        0 => find(|path| std::fs::read_to_string(path).ok()),
        known => known,
    };
    FOUND.store(found, Ordering::Relaxed);
    found
}

fn find(read: impl Fn(&str) -> Option<String>) -> u64 {
    let machine = read("/proc/meminfo").as_deref().and_then(total).unwrap_or(UNKNOWN_BYTES);
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    groups.lines().filter_map(|line| limit(line, &read)).fold(machine, u64::min).max(1)
}

/// `MemTotal` of /proc/meminfo, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least limit on the way from a control group, as a line of /proc/self/cgroup names it, up to the root.
fn limit(line: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let mut parts = line.splitn(3, ':');
    let (id, kinds, mut group) = (parts.next()?, parts.next()?, parts.next()?);
    let (root, file) = match kinds {
        "" if id == "0" => ("/sys/fs/cgroup", "memory.max"),
        kinds if kinds.split(',').any(|kind| kind == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let mut least = None;
    loop {
        group = group.trim_end_matches('/');
        // "max", or a number.
        let here = read(&format!("{root}{group}/{file}")).and_then(|text| text.trim().parse().ok());
        least = [least, here].into_iter().flatten().min();
        match group.rsplit_once('/') {
            Some((above, _)) => group = above,
            None => return least,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine<'a>(files: &'a [(&'a str, &'a str)]) -> u64 {
        find(|path| {
            files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_least_limit_counts() {
        const INFO: (&str, &str) =
            ("/proc/meminfo", "MemTotal:       24646412 kB\nMemFree:        12 kB\n");
        const GROUP: &str = "/proc/self/cgroup";
        assert_eq!(machine(&[]), UNKNOWN_BYTES);
        assert_eq!(machine(&[INFO]), 24_646_412 << 10);
        let two = (GROUP, "0::/a/b\n");
        let (inner, outer) = ("/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max");
        assert_eq!(machine(&[INFO, two, (inner, "max\n")]), 24_646_412 << 10);
        assert_eq!(machine(&[INFO, two, (inner, "max\n"), (outer, "1000000\n")]), 1_000_000);
        assert_eq!(machine(&[INFO, two, (inner, "500\n"), (outer, "1000000\n")]), 500);
        let one = (GROUP, "5:cpu,memory:/\n4:pids:/x\n0::/\n");
        let limit = |text| ("/sys/fs/cgroup/memory/memory.limit_in_bytes", text);
        assert_eq!(machine(&[INFO, one, limit("777\n")]), 777);
        // What version 1 says when there is none.
        assert_eq!(machine(&[INFO, one, limit("9223372036854771712\n")]), 24_646_412 << 10);
    }

    #[test]
    fn this_machine_has_some() {
        assert!(memory_bytes() > 1 << 20);
        assert_eq!(memory_bytes(), memory_bytes());
    }
}
