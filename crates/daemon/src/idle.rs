//! A server of which nobody wants anything is small.
//!
//! The one idea: whether it has anything to do shows in the CPU time that it takes, whoever it is for. After a
//! while of nearly none, what is only kept for speed is given back, by its holders to the allocator and by that to the
//! system. Not sooner than it has to be: pages that are new cost a burst of writes more than their use does.

use std::time::Duration;

use rt::Account;
use rt::mem::process;

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(3);
/// CPU time between two looks, at most, of one who has nothing to do.
const NOTHING: Duration = Duration::from_millis(60);
/// Looks in a row at which there was nothing to do. What a load has left to be synced is done some six seconds after it;
/// half a minute after it the server is small.
const QUIET: u32 = 5;

/// What was seen of one look to the next.
#[derive(Debug, Default)]
struct Quiet {
    looks: u32,
    rested: bool,
}

impl Quiet {
    /// So much CPU time was taken since the last look: is it time to rest?
    fn look(&mut self, taken: Duration) -> bool {
        if taken > NOTHING {
            *self = Quiet::default();
            return false;
        }
        self.looks += 1;
        let now = self.looks >= QUIET && !self.rested;
        self.rested |= now;
        now
    }
}

/// Watches this process for ever, and has `account` rest when there is nothing to do.
pub(crate) fn watch(account: &Account) {
    let account = account.clone();
    let body = move || {
        let (mut quiet, mut before) = (Quiet::default(), process::cpu_time());
        loop {
            rt::time::sleep(LOOK);
            let now = process::cpu_time();
            let rest = quiet.look(now.saturating_sub(before));
            before = now;
            if rest {
                account.rest();
                process::give_back();
                // That was no work for anybody.
                before = process::cpu_time();
            }
        }
    };
    drop(rt::thread::spawn("idle", body));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_once_after_each_time_of_work() {
        let (work, none) = (Duration::from_secs(2), Duration::from_millis(2));
        let mut quiet = Quiet::default();
        let looks =
            [[work, none, none, none, none], [none; 5], [work, none, none, none, none], [none; 5]];
        let rests: Vec<bool> = looks.concat().into_iter().map(|taken| quiet.look(taken)).collect();
        let at: Vec<usize> = (0..rests.len()).filter(|at| rests[*at]).collect();
        assert_eq!(at, [5, 15]);
    }
}
