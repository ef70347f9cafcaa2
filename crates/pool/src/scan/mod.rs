//! Scrub and resilver: every block of the pool, or what leaves lack, examined and mended.
//!
//! Place: beside the txg pipeline; nothing of it waits for a scan. The one idea: a scan goes in slices. A slice walks on
//! through the pool as of the last uberblock, with what is freed held back meanwhile, so that every pointer it finds
//! leads to that block as long as it lasts ([`store::Hold`]); then it examines what it found in the order of the disks.
//! Where it is goes to disk as OpenZFS keeps it, every few seconds, so whoever has the pool next goes on there.
//!
//! Locks: `stepping`, then the pool's sync; `state` alone, or inside a sync.

mod destroyed;
mod endangered;
mod logs;
mod mend;
mod position;
pub(crate) mod record;
mod resilvered;
mod run;
mod slice;
mod status;
mod walk;

use std::collections::BTreeMap;
use std::time::Duration;

use format::BlkPtr;
use format::dtl::Dtl;
use format::scan::{Bookmark, Scan, ScanFunction};
use rt::sync::atomic::AtomicBool;
use rt::sync::{Arc, Mutex};
use rt::time::Instant;
use vdev::FlushFailures;

use endangered::{Endangered, First};
pub(crate) use position::Moved;
use position::Position;
pub use run::Step;
pub use status::ScanStatus;

/// Bytes of blocks in the first slice, and in any.
const SLICE_FIRST: u64 = 64 << 20;
const SLICE_MAX: u64 = 512 << 20;
/// And at least, however often the hold is broken.
const SLICE_LEAST: u64 = 4 << 20;
/// Of disks with heads so many times as much, as far as there is memory for it: blocks of one slice lie scattered over
/// all of the disks, and the more of them, the shorter the way from one to the next.
const WITH_HEADS: u64 = 32;

/// Lost blocks that are remembered.
const LOST_MAX: usize = 4096;

/// What is said to whoever asks for a scan, its end or a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is so.
    Done,
    /// A paused scrub goes on.
    Resumed,
    /// A scrub is under way.
    Scrubbing,
    /// A resilver is under way.
    Resilvering,
    /// The scrub is paused already.
    Paused,
    /// There is none.
    NoScan,
    /// No leaf that is there lacks anything.
    NothingLacks,
}

/// The scans of an open pool.
#[derive(Default)]
pub(crate) struct Scans {
    state: Mutex<State>,
    /// One slice at a time.
    stepping: Mutex<()>,
    /// The last uberblock: its txg and its MOS.
    root: Mutex<(u64, BlkPtr)>,
    /// The slice under way is to end, and none to begin.
    hush: AtomicBool,
    /// Blocks that are lost.
    lost: Mutex<Vec<Bookmark>>,
}

#[derive(Default)]
struct State {
    running: Option<Running>,
    /// What this process did of the last one.
    last: Pass,
    /// What leaves still lacked after the last resilver: the same again would not help.
    given_up: Vec<(u64, Dtl)>,
    /// Leaves that did not take what they were given, by guid: no resilver begins for them alone until then, and how
    /// long that was.
    refusing: BTreeMap<u64, (Instant, Duration)>,
    /// How often it is put to disk where a scan is, if somebody has said so.
    save_every: Option<Duration>,
}

/// For so long no resilver begins for a leaf that did not take what it was given ..
const REFUSED_FIRST: Duration = Duration::from_secs(60);
/// .. and so long at most, where it does not take it again and again.
const REFUSED_LONGEST: Duration = Duration::from_secs(30 * 60);

impl State {
    /// A leaf does not take what it is given.
    fn refuses(&mut self, leaf: u64, now: Instant) {
        let length = match self.refusing.get(&leaf) {
            Some((until, _)) if now < *until => return,
            Some((_, length)) => (*length * 2).min(REFUSED_LONGEST),
            None => REFUSED_FIRST,
        };
        self.refusing.insert(leaf, (now + length, length));
    }

    fn is_refusing(&self, leaf: u64, now: Instant) -> bool {
        self.refusing.get(&leaf).is_some_and(|(until, _)| now < *until)
    }
}

/// A scan that is under way, or paused.
struct Running {
    /// As it goes to disk, but for the position.
    scan: Scan,
    /// Where it is.
    position: Position,
    /// What it does before it begins there.
    first: First,
    /// What became of data sets, with the txgs: for slices that walk an older state.
    moved: Vec<(u64, Moved)>,
    /// Bytes of the next slice.
    slice_bytes: u64,
    /// When it went to disk last, and whether there is more since.
    saved: Instant,
    unsaved: bool,
    /// What leaves were given and nobody has flushed yet, by guid: when the first and the last of it were born.
    given: BTreeMap<u64, (u64, u64)>,
    /// Whose flushes had failed before they were given that.
    failures: FlushFailures,
    /// Some leaf did not take what it was given.
    refused: bool,
    /// Something was passed over that may be read some day. Of what another process did that is not known.
    owed: bool,
    pass: Pass,
}

/// What this process has done of a scan.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    /// When it began, and when it was paused, in seconds since 1970.
    start: u64,
    paused: Option<u64>,
    /// Seconds that it was paused before.
    spent_paused: u64,
    /// Bytes of blocks passed, bytes read, bytes written.
    examined: u64,
    read: u64,
    written: u64,
}

impl Running {
    fn new(scan: Scan, position: Position) -> Running {
        let now = rt::time::wall_clock().as_secs();
        let paused = (scan.flags & format::scan::ScanFlags::PAUSED != 0).then_some(now);
        Running {
            scan,
            position,
            first: First::of(&scan),
            moved: Vec::new(),
            slice_bytes: SLICE_FIRST,
            saved: rt::time::now(),
            unsaved: false,
            given: BTreeMap::new(),
            failures: FlushFailures::default(),
            refused: false,
            owed: scan.errors > 0,
            pass: Pass { start: now, paused, ..Pass::default() },
        }
    }

    /// Where the pass at hand is, and of which blocks alone it is.
    fn at_hand(&self) -> (&Position, Option<&Arc<Endangered>>) {
        match &self.first {
            First::Pass(only, position, _) => (position, Some(only)),
            First::Unknown(_) | First::Nothing => (&self.position, None),
        }
    }

    fn at_hand_mut(&mut self) -> &mut Position {
        match &mut self.first {
            First::Pass(_, position, _) => position,
            First::Unknown(_) | First::Nothing => &mut self.position,
        }
    }

    /// What is said to whoever wants another one.
    fn in_the_way(&self) -> Answer {
        match self.scan.function {
            ScanFunction::Resilver => Answer::Resilvering,
            _ => Answer::Scrubbing,
        }
    }

    fn is_paused(&self) -> bool {
        self.scan.flags & format::scan::ScanFlags::PAUSED != 0
    }
}

impl Scans {
    /// A pool was opened by an uberblock: what scan is under way.
    pub(crate) fn load(
        &self,
        mos: &crate::mos::Mos,
        txg: u64,
        root: BlkPtr,
    ) -> crate::error::Result<()> {
        *self.root.lock() = (txg, root);
        if let Some((scan, position)) = record::load(mos)? {
            self.state.lock().running = Some(Running::new(scan, position));
        }
        Ok(())
    }

    /// The last uberblock: its txg and its MOS.
    pub(crate) fn newest(&self) -> (u64, BlkPtr) {
        *self.root.lock()
    }

    /// An uberblock is on disk.
    pub(crate) fn uberblock(&self, txg: u64, root: BlkPtr) {
        *self.root.lock() = (txg, root);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_that_takes_nothing_is_tried_again_and_ever_less_often() {
        let (mut state, start) = (State::default(), rt::time::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        state.refuses(1, start);
        // Of the same scan.
        state.refuses(1, at(30));
        assert!(state.is_refusing(1, at(59)) && !state.is_refusing(2, at(59)));
        assert!(!state.is_refusing(1, at(60)));
        state.refuses(1, at(70));
        assert!(state.is_refusing(1, at(189)) && !state.is_refusing(1, at(190)));
        for _ in 0..9 {
            state.refuses(1, at(3600));
            state.refusing.entry(1).and_modify(|(until, _)| *until = start);
        }
        state.refuses(1, at(3600));
        assert!(!state.is_refusing(1, at(3600 + 30 * 60)));
    }
}
