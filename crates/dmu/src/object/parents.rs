//! The indirect blocks of a stream: they are on their way before the windows that need their pointers.
//!
//! Place: under the windows of `ahead`.
//! The one idea: a window that finds no pointers keeps the disks waiting for two turns of the head, so the
//! indirect blocks that come next are asked for as soon as the last known one is begun, many at once: those
//! of one txg lie side by side. When a window comes to them they are verified and put into the cache, from which it
//! takes them as if they had always been there.
//!
//! They belong to one version of the object, as the windows do; those of another are let go.

use std::ops::Range;

use format::BlkPtr;
use store::{Flight, Store, Streams};

use crate::tree::Root;

/// Indirect blocks of level 1 that are asked for at once: at 128 KiB a record, 2 GiB of data.
const TOGETHER: u64 = 16;

/// What is known of the indirect blocks in front of a stream.
#[derive(Default)]
pub(super) struct Parents {
    version: u64,
    /// Those before this one were asked for.
    end: u64,
    under_way: Option<UnderWay>,
}

struct UnderWay {
    /// The first of them.
    first: u64,
    flight: Flight,
}

impl Parents {
    /// Lets go of what is under way.
    pub(super) fn clear(&mut self) {
        *self = Parents::default();
    }

    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.under_way.as_ref().map_or(0, |under_way| under_way.flight.bytes())
    }

    /// A window is about to ask for the pointers to data blocks `first` to `last`: what is under way of them is
    /// waited for, and what else is missing is read together.
    pub(super) fn before(
        &mut self,
        store: &Store,
        root: &Root,
        version: u64,
        (first, last): (u64, u64),
    ) {
        if self.version != version {
            *self = Parents { version, ..Parents::default() };
        }
        if root.levels < 2 {
            return;
        }
        let (first, last) = (first >> root.shift, last >> root.shift);
        let wanted = |under_way: &mut UnderWay| under_way.first <= last;
        if let Some(under_way) = self.under_way.take_if(wanted) {
            store.land_in_cache(under_way.flight);
        }
        if first < last {
            let mut flight = store.plan(root.object, missing(store, root, first..last + 1));
            store.start(&mut flight, true, None);
            store.land_in_cache(flight);
        }
    }

    /// The window has its pointers, up to data block `last` of an object that ends with block `max`: if they
    /// are of the last known ones, asks for the next.
    pub(super) fn after(
        &mut self,
        store: &Store,
        root: &Root,
        (last, max): (u64, u64),
        streams: &Streams,
    ) {
        if root.levels < 2 || self.under_way.is_some() {
            return;
        }
        let last = last >> root.shift;
        // Those of one block above, which is in memory: nothing is waited for here.
        let above = ((last >> root.shift) + 1) << root.shift;
        let (first, end) = (last + 1, above.min((max >> root.shift) + 1));
        let end = end.min(first + TOGETHER);
        if first < self.end || first >= end {
            return;
        }
        self.end = end;
        let mut flight = store.plan(root.object, missing(store, root, first..end));
        if flight.bytes() > 0
            && let Some(memory) = streams.room(flight.bytes())
        {
            // All of the stream will wait for them, where data is waited for a piece at a time.
            store.start(&mut flight, true, Some(memory));
            self.under_way = Some(UnderWay { first, flight });
        }
    }
}

/// Pointers to those of the indirect blocks of level 1 that are not in memory. What is wrong with one is told to
/// whoever needs it.
fn missing(store: &Store, root: &Root, parents: Range<u64>) -> Vec<(u64, BlkPtr)> {
    let pointers = parents.map_while(|parent| Some((parent, root.pointer(store, 1, parent).ok()?)));
    let fits = |bp: &BlkPtr| bp.level() == 1 && bp.lsize() == 128 << root.shift;
    pointers.filter(|(_, bp)| !bp.is_hole() && fits(bp) && !store.is_kept(bp)).collect()
}
