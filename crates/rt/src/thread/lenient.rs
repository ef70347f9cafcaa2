//! Who is woken leaves the core to who woke it.
//!
//! The one idea: who asks for something and goes on has his own work to do, which others wait for; the system would rather run at
//! once whom he woke, on his core, since he who wakes somebody mostly sleeps next. A thread whose work can wait for that says so.
//!
//! `unsafe` is for the declaration of one function of the C library, which reads a number by a reference.
#![allow(unsafe_code)]

/// From now on this thread, and those that it starts, run when who wakes them has nothing more to do, or another core has not,
/// and in their turn at the latest: the policy `SCHED_BATCH` of sched(7). Their share of the processor stays as it was. Where the
/// system refuses that all is as before.
pub fn be_lenient() {
    #[cfg(feature = "sim")]
    if crate::sim::is_running() {
        return;
    }
    #[cfg(target_os = "linux")]
    c::sched_setscheduler(0, c::BATCH, &c::Param { priority: 0 });
}

#[cfg(target_os = "linux")]
mod c {
    pub(super) const BATCH: i32 = 3;

    /// `struct sched_param`.
    #[repr(C)]
    pub(super) struct Param {
        pub(super) priority: i32,
    }

    // SAFETY: as in sched_setscheduler(2); it reads one `struct sched_param`, and thread 0 is the one that calls.
    unsafe extern "C" {
        pub(super) safe fn sched_setscheduler(thread: i32, policy: i32, param: &Param) -> i32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 41st word of stat, of which the second one, the name in brackets, may have blanks.
    fn policy() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("it is there");
        let (_, words) = stat.rsplit_once(')').expect("the name ends");
        words.split_whitespace().nth(38).expect("it has 52 words").into()
    }

    #[test]
    fn it_is_for_one_thread() {
        let before = policy();
        let lenient = crate::thread::spawn("lenient", || {
            be_lenient();
            policy()
        });
        assert_eq!(lenient.join(), "3");
        assert_eq!(policy(), before, "another one");
    }
}
