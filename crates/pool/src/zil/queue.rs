//! Records of changes that no txg has yet, in memory, in their order.
//!
//! The one idea: what changes names is needed by whoever asks for anything, in the order in which it happened; what
//! changes an object only by who asks for that object, or for its name. The bytes of a write are not copied: they
//! go out with their txg, and should somebody ask before, the object reads or lends them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dmu::{Lent, Tx};
use rt::buf::PooledBuf;

use super::State;
use super::commit::DATA_MAX;
use crate::dataset::Dataset;

/// Bytes of memory that the records of a data set may take.
const BYTES_MAX: usize = 16 << 20;
/// What an entry takes beside its bytes, about.
const ENTRY_BYTES: usize = 96;

/// A change, told by who makes it while it holds the locks that keep others from the same.
#[derive(Debug)]
pub enum Change {
    /// Names have changed: a record as `format::zil::build` makes it.
    Names(Vec<u8>),
    /// An object has changed, not its data: its number, and a record.
    Object(u64, Vec<u8>),
    /// Bytes of an object were written.
    Written {
        /// The object.
        object: u64,
        /// From where on.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// An object has changed in a way that no record tells.
    Untold(u64),
    /// Names have changed in a way that no record tells.
    UntoldNames,
    /// An object is about to get another name: what is known of it belongs with that.
    Moving(u64),
    /// An object has lost its last name.
    Gone(u64),
}

/// A record.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) txg: u64,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// Complete but for txg and number.
    Record(Vec<u8>),
    /// A write whose bytes are in the object.
    Written { object: u64, offset: u64, length: u64 },
    /// A write with its bytes.
    Data { object: u64, offset: u64, data: Data },
}

/// Bytes of a write, as they were.
pub(super) enum Data {
    Copied(PooledBuf),
    /// All of a record, or most of it, which nobody changes as long as it is lent.
    Lent(Lent),
}

impl Data {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Data::Copied(bytes) => bytes,
            Data::Lent(lent) => lent.pieces().next().unwrap_or_default(),
        }
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes().len())
    }
}

impl Entry {
    pub(super) fn bytes(&self) -> usize {
        ENTRY_BYTES
            + match &self.what {
                What::Record(bytes) => bytes.len(),
                What::Data { data, .. } => data.bytes().len(),
                What::Written { .. } => 0,
            }
    }
}

/// Records of a data set.
#[derive(Default)]
pub(super) struct Queue {
    /// What the next commit writes.
    ready: VecDeque<Entry>,
    /// What only who asks for an object needs.
    objects: BTreeMap<u64, Vec<Entry>>,
    /// Txgs until which an object has changes that no record tells.
    untold: BTreeMap<u64, u64>,
    /// How many were ever ready.
    pushed: u64,
    bytes: usize,
    /// Bytes of data of writes that are ready, and are read when they are put into blocks.
    unread: u64,
    /// Objects of such writes.
    to_read: BTreeSet<u64>,
    /// Objects whose writes a commit is reading.
    being_read: BTreeSet<u64>,
    /// One of them has changed meanwhile.
    has_changed: bool,
}

/// Bytes of data that an entry stands for without having them.
fn unread(entry: &Entry) -> u64 {
    match entry.what {
        What::Written { length, .. } => length,
        _ => 0,
    }
}

/// The object whose data an entry stands for without having them.
fn read_of(entry: &Entry) -> Option<u64> {
    match entry.what {
        What::Written { object, .. } => Some(object),
        _ => None,
    }
}

impl Queue {
    /// How many records were ever ready to be written.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.unread += unread(&entry);
        self.to_read.extend(read_of(&entry));
        self.ready.push_back(entry);
        self.pushed += 1;
    }

    fn push_of(&mut self, object: u64, entry: Entry) {
        let list = self.objects.entry(object).or_default();
        if let (Some(last), What::Written { offset, length, .. }) = (list.last_mut(), &entry.what)
            && let What::Written { offset: start, length: len, .. } = &mut last.what
            && last.txg == entry.txg
            && *start + *len == *offset
        {
            *len += length;
            return;
        }
        self.bytes += entry.bytes();
        list.push(entry);
    }

    fn forget(&mut self, object: u64) {
        let list = self.objects.remove(&object).unwrap_or_default();
        self.bytes -= list.iter().map(Entry::bytes).sum::<usize>();
        self.untold.remove(&object);
    }

    /// Takes what is ready and of a txg after `synced`. Whoever does reads the data of writes, and calls
    /// [`Queue::have_changed`] then.
    pub(super) fn take(&mut self, synced: u64) -> Vec<Entry> {
        let all = std::mem::take(&mut self.ready);
        self.bytes -= all.iter().map(Entry::bytes).sum::<usize>();
        self.unread = 0;
        (self.being_read, self.has_changed) = (std::mem::take(&mut self.to_read), false);
        all.into_iter().filter(|entry| entry.txg > synced).collect()
    }

    /// The data of what was taken have been read: may some be as a change has left them that was told since?
    pub(super) fn have_changed(&mut self) -> bool {
        self.being_read.clear();
        std::mem::take(&mut self.has_changed)
    }

    /// Takes what is known of an object.
    pub(super) fn take_of(&mut self, object: u64) -> Vec<Entry> {
        let list = self.objects.remove(&object).unwrap_or_default();
        self.bytes -= list.iter().map(Entry::bytes).sum::<usize>();
        list
    }

    /// Bytes of data that were written to an object.
    pub(super) fn written(&self, object: u64) -> u64 {
        let list = self.objects.get(&object).map(Vec::as_slice).unwrap_or_default();
        list.iter().map(unread).sum()
    }

    /// Bytes of data that the next commit has to read.
    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    /// Until which txg an object has changes that no record tells; 0: it has none.
    pub(super) fn untold_until(&self, object: u64) -> u64 {
        self.untold.get(&object).copied().unwrap_or(0)
    }

    /// Txgs up to this one are on stable storage.
    pub(super) fn drop_until(&mut self, txg: u64) {
        self.ready.retain(|entry| entry.txg > txg);
        self.objects.retain(|_, list| {
            list.retain(|entry| entry.txg > txg);
            !list.is_empty()
        });
        self.untold.retain(|_, until| *until > txg);
        let of_objects = self.objects.values().flatten();
        self.bytes = self.ready.iter().chain(of_objects).map(Entry::bytes).sum();
        self.unread = self.ready.iter().map(unread).sum();
        self.to_read = self.ready.iter().filter_map(read_of).collect();
    }

    /// Forgets everything but how much there was.
    pub(super) fn clear(&mut self) {
        *self = Queue { pushed: self.pushed, ..Queue::default() };
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl State {
    fn note(&mut self, txg: u64, change: Change) {
        match change {
            Change::Names(record) => self.queue.push(Entry { txg, what: What::Record(record) }),
            Change::Object(object, record) => {
                let entry = Entry { txg, what: What::Record(record) };
                self.queue.has_changed |= self.queue.being_read.contains(&object);
                match self.queue.to_read.contains(&object) {
                    // What was written and moved is read when it is already cut: the log has to say that, too.
                    true => {
                        self.make_ready(object);
                        self.queue.push(entry);
                    }
                    false => self.queue.push_of(object, entry),
                }
            }
            Change::Written { object, offset, length } => {
                let what = What::Written { object, offset, length };
                self.queue.push_of(object, Entry { txg, what });
            }
            Change::UntoldNames => self.incomplete_until = self.incomplete_until.max(txg),
            Change::Untold(object) => drop(self.queue.untold.insert(object, txg)),
            Change::Moving(object) => {
                self.make_ready(object);
                // Its name would be there, and it would not be what it was.
                let untold = self.queue.untold_until(object);
                self.incomplete_until = self.incomplete_until.max(untold);
            }
            Change::Gone(object) => self.queue.forget(object),
        }
        self.bound(txg);
    }

    /// Whoever asks for anything next gets what is known of an object written, too.
    fn make_ready(&mut self, object: u64) {
        // With that of others that were moved: whoever asks next writes all of it.
        let much = self.queue.written(object) + self.queue.unread() > DATA_MAX;
        for entry in self.queue.take_of(object) {
            match much {
                true => self.incomplete_until = self.incomplete_until.max(entry.txg),
                false => self.queue.push(entry),
            }
        }
    }

    /// Forgets all if that is too much. Others may have told of the txg after `txg` already.
    pub(super) fn bound(&mut self, txg: u64) {
        let untold = self.queue.untold.len() * ENTRY_BYTES;
        if self.queue.bytes() + untold > BYTES_MAX {
            self.queue.clear();
            self.incomplete_until = self.incomplete_until.max(txg + 1);
        }
    }
}

impl Dataset {
    /// Does anybody want to know of changes? If not, none need be told.
    pub fn records_changes(&self) -> bool {
        self.log.is_recording()
    }

    /// Tells of a change that is part of `tx`.
    pub fn note_change(&self, tx: &Tx<'_>, change: Change) {
        if self.log.is_recording() {
            self.log.state.lock().note(tx.txg(), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(object: u64, offset: u64, length: u64) -> Change {
        Change::Written { object, offset, length }
    }

    #[test]
    fn a_long_write_is_one_record_and_goes_with_its_txg() {
        let mut state = State::default();
        for i in 0..100 {
            state.note(7, written(5, i * 1000, 1000));
        }
        state.note(7, written(5, 0, 10));
        state.note(8, written(5, 10, 10));
        assert_eq!(state.queue.objects[&5].len(), 3);
        assert_eq!(state.queue.written(5), 100_020);
        state.queue.drop_until(7);
        assert_eq!(state.queue.written(5), 10);
        state.queue.drop_until(8);
        assert_eq!((state.queue.bytes(), state.queue.objects.len()), (0, 0));
    }

    #[test]
    fn an_object_without_a_name_is_forgotten_and_a_moved_one_is_not() {
        let mut state = State::default();
        state.note(7, written(5, 0, 10));
        state.note(7, written(6, 0, 10));
        state.note(7, Change::Gone(5));
        state.note(7, Change::Moving(6));
        state.note(7, Change::Names(vec![0; 48]));
        let taken = state.queue.take(6);
        assert!(matches!(taken[0].what, What::Written { object: 6, .. }), "{taken:?}");
        assert_eq!((taken.len(), state.queue.bytes()), (2, 0));
    }

    #[test]
    fn what_was_cut_stays_behind_what_was_moved_before() {
        let record = |seq| Change::Object(5, vec![seq; 48]);
        let mut state = State::default();
        state.note(7, written(5, 0, 10));
        state.note(7, Change::Moving(5));
        state.note(7, written(5, 10, 10));
        state.note(7, record(1));
        state.note(7, Change::Object(6, vec![0; 48]));
        let taken = state.queue.take(6);
        let is_write = |entry: &Entry| matches!(entry.what, What::Written { object: 5, .. });
        assert_eq!(taken.iter().map(is_write).collect::<Vec<_>>(), [true, true, false]);
        // It is read now: what that finds may be what this has left.
        state.note(7, record(2));
        assert!(state.queue.have_changed() && !state.queue.have_changed());
        state.note(7, record(3));
        assert!(!state.queue.have_changed() && state.queue.take(6).is_empty());
        assert_eq!(state.queue.take_of(5).len(), 2);
        state.queue.drop_until(7);
        assert_eq!(state.queue.bytes(), 0);
    }

    #[test]
    fn what_no_record_tells_moves_with_its_name() {
        let mut state = State::default();
        state.note(7, Change::Untold(5));
        assert_eq!((state.queue.untold_until(5), state.incomplete_until), (7, 0));
        state.note(8, Change::Moving(5));
        assert_eq!(state.incomplete_until, 7);
        state.queue.drop_until(7);
        assert_eq!(state.queue.untold_until(5), 0);
    }

    #[test]
    fn much_that_was_moved_goes_with_its_txg() {
        let mut state = State::default();
        for object in 0..40 {
            state.note(7, written(object, 0, 3 << 20));
            state.note(7, Change::Moving(object));
            state.note(7, Change::Names(vec![0; 48]));
        }
        let data = |entry: &Entry| unread(entry);
        let in_log: u64 = state.queue.ready.iter().map(data).sum();
        assert_eq!((in_log, state.queue.unread(), state.incomplete_until), (3 << 20, 3 << 20, 7));
        state.queue.drop_until(7);
        state.note(8, written(50, 0, 3 << 20));
        state.note(8, Change::Moving(50));
        assert_eq!((state.queue.unread(), state.incomplete_until), (3 << 20, 7));
        state.queue.take(7);
        assert_eq!(state.queue.unread(), 0);
    }

    #[test]
    fn memory_has_a_bound() {
        let mut state = State::default();
        for i in 0..1_000_000 {
            state.note(9, written(i, 0, 10));
            assert!(state.queue.bytes() <= BYTES_MAX);
        }
        assert_eq!(state.incomplete_until, 10);
    }
}
