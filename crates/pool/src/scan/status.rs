//! What there is to say of a scan.

use format::scan::{Scan, ScanFunction, ScanState};

use super::Pass;
use crate::error::Result;
use crate::mos::key;
use crate::pool::Pool;

/// A scan that is under way, or the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanStatus {
    /// As on disk, with what was done since.
    pub scan: Scan,
    /// When it was paused, in seconds since 1970, if it is; of one that was paused by somebody else, since when that is
    /// known.
    pub paused: Option<u64>,
    /// Seconds that this process has spent with it, pauses left out.
    pub pass_secs: u64,
    /// Bytes of blocks that it has passed.
    pub pass_examined: u64,
    /// Bytes that it has read, and written.
    pub pass_read: u64,
    /// See there.
    pub pass_written: u64,
}

impl ScanStatus {
    /// Is it under way, paused or not?
    pub fn is_running(&self) -> bool {
        self.scan.state == ScanState::Scanning
    }

    /// Is it a resilver?
    pub fn is_resilver(&self) -> bool {
        self.scan.function == ScanFunction::Resilver
    }
}

impl Pool {
    /// The scan that is under way, or the last one; `None`: there was none, or it is of an unknown kind.
    pub fn scan_status(&self) -> Result<Option<ScanStatus>> {
        let (running, last) = {
            let state = self.scan.state.lock();
            (state.running.as_ref().map(|running| (running.scan, running.pass)), state.last)
        };
        let (scan, pass) = match running {
            Some(running) => running,
            None => {
                let Some(words) = self.mos.directory()?.get(key::SCAN)? else { return Ok(None) };
                (Scan::from_words(&words.ints())?, Pass { paused: None, ..last })
            }
        };
        if !matches!(scan.function, ScanFunction::Scrub | ScanFunction::Resilver) {
            return Ok(None);
        }
        let now = pass.paused.unwrap_or_else(|| rt::time::wall_clock().as_secs());
        Ok(Some(ScanStatus {
            scan,
            paused: pass.paused,
            pass_secs: now.saturating_sub(pass.start).saturating_sub(pass.spent_paused),
            pass_examined: pass.examined,
            pass_read: pass.read,
            pass_written: pass.written,
        }))
    }
}
