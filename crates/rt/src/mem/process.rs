//! The memory of this process as the system counts it, and giving back what the allocator keeps.
//!
//! The one idea: what is freed is not at once the system's. The allocator keeps it, in an arena for every few
//! threads; a server that shall be small when nobody wants anything of it has few arenas, and empties them.
//!
//! `unsafe` is for two functions of the C library, which take numbers and touch nothing that is in use.
#![allow(unsafe_code)]

/// Memory of the process that is backed by no file, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resident {
    /// Anonymous: heap, stacks, buffers.
    pub anonymous: u64,
    /// Shared.
    pub shared: u64,
}

/// What is resident of this process; `None` where the system does not say.
pub fn resident() -> Option<Resident> {
    resident_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// As [`resident`], of the text of some /proc/PID/status.
pub fn resident_in(status: &str) -> Option<Resident> {
    let bytes = |key: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Resident { anonymous: bytes("RssAnon:")?, shared: bytes("RssShmem:")? })
}

/// CPU time that the process has used.
pub fn cpu_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.try_into().unwrap_or_default()
}

/// Threads of the process that share an arena: so many arenas at most, and blocks from so many bytes on are the
/// system's own, which come and go at once.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS_AND_BLOCKS: [(i32, i32); 2] = [(-8, 4), (-3, 128 << 10)];

/// Has the allocator keep little: for a process that lives long and has many threads. Call it at the start.
pub fn keep_little() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (parameter, value) in ARENAS_AND_BLOCKS {
        // SAFETY: mallopt(3) takes two numbers and changes how later requests are served.
        unsafe { c::mallopt(parameter, value) };
    }
}

/// Gives back to the system what the allocator keeps and nobody uses.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim(3) takes a number and gives back pages that hold nothing.
    unsafe {
        c::malloc_trim(0)
    };
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod c {
    unsafe extern "C" {
        pub(super) fn mallopt(parameter: i32, value: i32) -> i32;
        pub(super) fn malloc_trim(pad: usize) -> i32;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sync::{Mutex, MutexGuard};

    /// Whoever takes much memory, or looks at how much the process has, does so alone: tests of one binary run side by
    /// side, and what one gives back another one would miss.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock()
    }

    #[test]
    fn what_is_resident_is_read() {
        let text = "Name:\tx\nRssAnon:\t    2048 kB\nRssFile:\t  9 kB\nRssShmem:\t       4 kB\n";
        let seen = Resident { anonymous: 2 << 20, shared: 4096 };
        assert_eq!(resident_in(text), Some(seen));
        assert_eq!(resident_in("Name:\tx\n"), None);
    }

    /// Bytes resident before 100 MB of blocks are made, with them, and after they were freed.
    fn before_full_after() -> [u64; 3] {
        let resident = || resident().expect("the system says").anonymous;
        let before = resident();
        // Small blocks, which come from arenas, and one that keeps their end from being cut off.
        let mut blocks: Vec<Vec<u8>> = (0..100_000).map(|_| vec![1; 1000]).collect();
        let last = vec![1; 1000];
        let full = resident();
        blocks.clear();
        give_back();
        let after = resident();
        drop(last);
        [before, full, after]
    }

    #[test]
    fn what_was_freed_is_given_back() {
        let _alone = alone();
        // Those that take little come and go meanwhile: one undisturbed look tells.
        let looks: Vec<[u64; 3]> = (0..10).map(|_| before_full_after()).collect();
        let is_back = |[before, full, after]: &[u64; 3]| {
            *full > before + (40 << 20) && after + (40 << 20) < *full
        };
        assert!(looks.iter().any(is_back), "{looks:?}");
        assert!(cpu_time() > std::time::Duration::ZERO);
    }
}
