//! Signals that ask a program to end, waited for by a thread instead of interrupting one.

use nix::sys::signal::{SigSet, Signal};

/// SIGTERM, SIGINT and, unless the process was started with it ignored, SIGHUP of this process, held back from all
/// threads that are started from now on.
#[derive(Debug)]
pub struct Signals(SigSet);

impl Signals {
    /// Holds them back, in this thread and those that it starts.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn hold_back() -> std::io::Result<Signals> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            // What is held back is waited for, also where it would be ignored.
            if signal != Signal::SIGHUP || !rt::signals::is_ignored(signal as i32) {
                set.add(signal);
            }
        }
        set.thread_block()?;
        Ok(Signals(set))
    }

    /// Waits for one of them; its number.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self) -> std::io::Result<i32> {
        Ok(self.0.wait()? as i32)
    }

    /// The next one does what it does where nobody waits for it: it ends the process. It comes to this thread, which
    /// must live on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn let_through(&self) -> std::io::Result<()> {
        Ok(self.0.thread_unblock()?)
    }
}
