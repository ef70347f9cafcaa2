//! Where a scan is: the data set at hand, the block it goes on with, and the data sets that wait.
//!
//! The one idea: it is OpenZFS's own position, so that either side can go on where the other has stopped. Data sets
//! come and go meanwhile; whoever does that moves the position with them, so that no block is left out.
//! FORMAT: section 13.1.

use std::collections::BTreeMap;

use format::scan::{Bookmark, Scan, ScanFlags};

use super::destroyed::Trees;

/// Object set of a bookmark: the data set at hand is gone or done, the next one is in the queue.
pub(crate) const NONE: u64 = u64::MAX;
/// Level of a bookmark that stands before the first block of an object set.
const ROOT_LEVEL: i64 = -1;

/// Where a scan is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The next block; everything before it is done.
    pub(crate) bookmark: Bookmark,
    /// Blocks born in (min, max] are visited in the data set at hand.
    pub(crate) min_txg: u64,
    pub(crate) max_txg: u64,
    /// The data set at hand has to be visited once more, for what was born later.
    pub(crate) again: bool,
    /// Bytes of blocks of the data set at hand that this process has looked at.
    pub(crate) walked: u64,
    /// Blocks of its intent log that this process has looked at.
    pub(super) logged: u64,
    /// Data sets that wait; 0, or the txg up to which their blocks were visited with others.
    pub(crate) queue: BTreeMap<u64, u64>,
    /// What comes behind all of them.
    pub(super) trees: Trees,
}

/// What has become of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// A snapshot of the head was taken.
    Snapshotted { head: u64, snapshot: u64 },
    /// It is gone; what it shared with a later one is there, if it was a snapshot.
    Destroyed { object: u64, next: Option<u64> },
}

impl Position {
    /// Before everything.
    pub(crate) fn start(min_txg: u64, max_txg: u64) -> Position {
        Position { min_txg, max_txg, ..Position::default() }
    }

    /// As a scan on disk has it.
    pub(crate) fn of(scan: &Scan, queue: BTreeMap<u64, u64>) -> Position {
        if queue.is_empty() && has_lost_its_way(scan) {
            return Position::start(scan.min_txg, scan.max_txg);
        }
        // OpenZFS puts down what it visits only once it does: of one that was just begun that is nothing.
        let in_mos = scan.bookmark.objset == 0;
        Position {
            bookmark: scan.bookmark,
            min_txg: if in_mos { scan.min_txg } else { scan.current_min_txg },
            max_txg: if in_mos { scan.max_txg } else { scan.current_max_txg },
            again: scan.flags & ScanFlags::VISIT_AGAIN != 0,
            walked: 0,
            logged: 0,
            queue,
            trees: Trees::default(),
        }
    }

    /// Puts it into a scan that goes to disk.
    pub(crate) fn put(&self, scan: &mut Scan) {
        scan.bookmark = self.bookmark;
        scan.current_min_txg = self.min_txg;
        scan.current_max_txg = self.max_txg;
        scan.flags &= !ScanFlags::VISIT_AGAIN;
        if self.again {
            scan.flags |= ScanFlags::VISIT_AGAIN;
        }
    }

    /// Is no data set left?
    pub(crate) fn is_end(&self) -> bool {
        self.bookmark.objset == NONE && self.queue.is_empty()
    }

    /// Is nothing of the data set at hand done yet?
    pub(super) fn is_before_all(&self) -> bool {
        self.bookmark.level == ROOT_LEVEL
    }

    /// The data set at hand is done, or gone.
    pub(crate) fn leave(&mut self) {
        self.bookmark = Bookmark { objset: NONE, ..Bookmark::default() };
        // Nobody takes it for a scan that has lost its way.
        self.min_txg = self.max_txg;
        (self.again, self.walked, self.logged) = (false, 0, 0);
    }

    /// Goes to the beginning of a data set.
    pub(crate) fn enter(&mut self, objset: u64, (min_txg, max_txg): (u64, u64)) {
        self.bookmark = Bookmark { objset, object: 0, level: ROOT_LEVEL, block: 0 };
        (self.min_txg, self.max_txg, self.again) = (min_txg, max_txg, false);
        (self.walked, self.logged) = (0, 0);
    }

    /// A data set waits, whose blocks up to `txg` are visited with others.
    pub(crate) fn push(&mut self, object: u64, txg: u64) {
        let known = self.queue.entry(object).or_insert(txg);
        *known = txg.min(*known);
    }

    /// Follows what has become of a data set.
    pub(crate) fn follow(&mut self, moved: Moved) {
        let at_hand = |object| object != 0 && self.bookmark.objset == object;
        match moved {
            // What was before the bookmark is the snapshot's as well, and the head comes after it.
            Moved::Snapshotted { head, snapshot } => {
                if at_hand(head) {
                    self.bookmark.objset = snapshot;
                }
                if let Some(txg) = self.queue.remove(&head) {
                    self.push(snapshot, txg);
                }
            }
            Moved::Destroyed { object, next } => {
                match next {
                    // It has the same blocks at the same places, or later ones, which the second visit finds.
                    Some(next) if at_hand(object) => {
                        self.bookmark.objset = next;
                        self.again = true;
                    }
                    None if at_hand(object) => self.leave(),
                    _ => {}
                }
                if let (Some(txg), Some(next)) = (self.queue.remove(&object), next) {
                    self.push(next, txg);
                }
            }
        }
    }
}

/// OpenZFS 2.1 whose time is up in the data set that all others have grown from, which is empty, forgets that it has to go
/// on, puts down that no data set waits, and ends with next to nothing examined. It was still at the txgs of the whole scan
/// then; whoever comes to the last data set has left those of the first behind, or does what there is once more.
fn has_lost_its_way(scan: &Scan) -> bool {
    scan.bookmark.objset == NONE
        && (scan.current_min_txg, scan.current_max_txg) == (scan.min_txg, scan.max_txg)
        && scan.min_txg < scan.max_txg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(objset: u64, queue: &[(u64, u64)]) -> Position {
        let bookmark = Bookmark { objset, object: 7, level: 0, block: 3 };
        let queue = queue.iter().copied().collect();
        Position { bookmark, min_txg: 5, max_txg: 9, queue, ..Position::default() }
    }

    #[test]
    fn a_snapshot_takes_the_place_of_its_head() {
        let mut position = at(50, &[(60, 4)]);
        position.follow(Moved::Snapshotted { head: 50, snapshot: 51 });
        position.follow(Moved::Snapshotted { head: 60, snapshot: 61 });
        position.follow(Moved::Snapshotted { head: 70, snapshot: 71 });
        assert_eq!(position, at(51, &[(61, 4)]));
    }

    #[test]
    fn the_next_one_takes_the_place_of_what_was_destroyed() {
        let mut position = at(50, &[(60, 4), (70, 8), (80, 0)]);
        position.follow(Moved::Destroyed { object: 50, next: Some(52) });
        position.follow(Moved::Destroyed { object: 60, next: Some(70) });
        position.follow(Moved::Destroyed { object: 80, next: None });
        let again = Position { again: true, ..at(52, &[(70, 4)]) };
        assert_eq!(position, again);
        position.follow(Moved::Destroyed { object: 52, next: None });
        assert_eq!((position.bookmark.objset, position.again), (NONE, false));
        assert!(!position.is_end());
        position.follow(Moved::Destroyed { object: 70, next: None });
        assert!(position.is_end());
    }

    #[test]
    fn it_is_the_same_on_disk() {
        let position = Position { again: true, ..at(50, &[]) };
        let mut scan = Scan::from_words(&[0; 24]).unwrap();
        scan.flags = ScanFlags::PAUSED;
        position.put(&mut scan);
        assert_eq!(scan.flags, ScanFlags::PAUSED | ScanFlags::VISIT_AGAIN);
        assert_eq!(Position::of(&scan, BTreeMap::new()), position);
    }

    #[test]
    fn one_that_the_kernel_gave_up_in_the_empty_origin_begins_again() {
        let mut scan = Scan::from_words(&[0; 24]).unwrap();
        (scan.min_txg, scan.max_txg) = (0, 38);
        (scan.current_min_txg, scan.current_max_txg) = (0, 38);
        scan.bookmark.objset = NONE;
        assert_eq!(Position::of(&scan, BTreeMap::new()), Position::start(0, 38));
        assert_eq!(Position::of(&scan, BTreeMap::from([(60, 4)])).bookmark.objset, NONE);
        // The kernel at the last data set, and we at ours.
        scan.current_min_txg = 1;
        assert!(Position::of(&scan, BTreeMap::new()).is_end());
        let mut position = Position::start(0, 38);
        position.enter(50, (0, 38));
        position.leave();
        position.put(&mut scan);
        assert!(Position::of(&scan, BTreeMap::new()).is_end());
    }

    #[test]
    fn one_that_the_kernel_has_just_begun_visits_the_pools_own_objects() {
        let mut scan = Scan::from_words(&[0; 24]).unwrap();
        (scan.min_txg, scan.max_txg) = (3, 14);
        assert_eq!(Position::of(&scan, BTreeMap::new()), Position::start(3, 14));
    }
}
