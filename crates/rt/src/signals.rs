//! Signals that this process is to ignore: who has started it says so, as nohup(1) does for a hangup.

/// Is it to ignore this signal? What it does with signals by itself must not have begun.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // Its own set of them: no call of the system that only asks is safe here.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_in(&status, signal)
}

fn is_in(status: &str, signal: i32) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    let bit = u32::try_from(signal.saturating_sub(1)).ok().and_then(|bit| 1u64.checked_shl(bit));
    set.zip(bit).is_some_and(|(set, bit)| set & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_of_ignored_signals_is_read() {
        let status = "SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\nSigCgt:\t0\n";
        assert!(is_in(status, 1) && is_in(status, 13));
        assert!(!is_in(status, 2) && !is_in(status, 0) && !is_in(status, 99) && !is_in("", 1));
    }
}
