//! What happens to pools, told as OpenZFS's kernel tells it: classes, and named values.
//!
//! The one idea: a ring. Whoever has something to tell puts it in and goes on; the last few hundred events are
//! kept for whoever asks, or waits, and those who are too slow miss some. Nobody in the engine ever waits for a
//! reader.

use std::collections::VecDeque;
use std::time::Duration;

use format::NvList;
use format::nvlist::Value;
use rt::sync::{Arc, Condvar, Mutex};

/// What the values of events are.
pub use format::nvlist;

/// Events that are kept, as many as OpenZFS keeps.
pub const KEPT_MAX: usize = 512;
/// Bytes of a text in an event, at most: a command can be longer.
const TEXT_MAX: usize = 4096;

/// The pool is there: made, imported, or opened when the server began.
pub const POOL_CREATE: &str = "sysevent.fs.zfs.pool_create";
/// See [`POOL_CREATE`].
pub const POOL_IMPORT: &str = "sysevent.fs.zfs.pool_import";
/// It was let go of.
pub const POOL_EXPORT: &str = "sysevent.fs.zfs.pool_export";
/// It was destroyed.
pub const POOL_DESTROY: &str = "sysevent.fs.zfs.pool_destroy";
/// What the labels say of the pool has changed.
pub const CONFIG_SYNC: &str = "sysevent.fs.zfs.config_sync";
/// A command has gone into the pool's history.
pub const HISTORY: &str = "sysevent.fs.zfs.history_event";
/// A scrub or resilver begins, ends, is paused: what it is and what became of it follow.
pub const SCAN: &str = "sysevent.fs.zfs.";
/// Errors of a vdev are forgotten.
pub const VDEV_CLEAR: &str = "sysevent.fs.zfs.vdev_clear";
/// A disk was attached, or is to replace another.
pub const VDEV_ATTACH: &str = "sysevent.fs.zfs.vdev_attach";
/// A disk was detached.
pub const VDEV_REMOVE: &str = "sysevent.fs.zfs.vdev_remove";
/// A spare stands in for a leaf.
pub const VDEV_SPARE: &str = "sysevent.fs.zfs.vdev_spare";
/// Vdevs were added.
pub const VDEV_ADD: &str = "sysevent.fs.zfs.vdev_add";
/// A log vdev was removed.
pub const VDEV_REMOVE_DEV: &str = "sysevent.fs.zfs.vdev_remove_dev";
/// A spare left the list.
pub const VDEV_REMOVE_AUX: &str = "sysevent.fs.zfs.vdev_remove_aux";
/// A disk is used again.
pub const VDEV_ONLINE: &str = "sysevent.fs.zfs.vdev_online";
/// A vdev is in another state.
pub const STATE_CHANGE: &str = "resource.fs.zfs.statechange";
/// A device has gone.
pub const REMOVED: &str = "resource.fs.zfs.removed";
/// Reads or writes of a device failed.
pub const IO: &str = "ereport.fs.zfs.io";
/// A device gave other bytes than were written.
pub const CHECKSUM: &str = "ereport.fs.zfs.checksum";
/// Blocks are lost: no redundancy covered them.
pub const DATA: &str = "ereport.fs.zfs.data";
/// The pool is suspended.
pub const IO_FAILURE: &str = "ereport.fs.zfs.io_failure";
/// A device takes much longer than those beside it.
pub const DELAY: &str = "ereport.fs.zfs.delay";

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number; each is one more than the one before.
    pub number: u64,
    /// When, since 1970.
    pub time: Duration,
    /// What it is told as, in the order in which OpenZFS prints it.
    pub values: NvList,
}

impl Event {
    /// What kind of event it is: one of the words of this module.
    #[must_use]
    pub fn class(&self) -> String {
        self.text("class")
    }

    /// The pool that it is about.
    #[must_use]
    pub fn pool(&self) -> String {
        self.text("pool")
    }

    fn text(&self, name: &str) -> String {
        self.values.text(name).map(|text| text.into_owned()).unwrap_or_default()
    }
}

/// The ring.
#[derive(Default)]
pub struct Events {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    kept: VecDeque<Arc<Event>>,
    /// Number of the last one, 0: none yet.
    last: u64,
}

impl Events {
    /// Tells of something of `class`; `values` are what is special to it.
    pub fn post(&self, class: &str, values: NvList) {
        let time = rt::time::wall_clock();
        let mut told = NvList::new();
        let is_report = class.starts_with("ereport.");
        if !is_report {
            told.put("version", Value::U64(0));
        }
        told.put_string("class", class);
        for pair in values.pairs() {
            told.put(&pair.name, shortened(&pair.value));
        }
        let nanos = i64::from(time.subsec_nanos());
        let secs = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        told.put("time", Value::I64Array(vec![secs, nanos]));
        let mut state = self.state.lock();
        state.last += 1;
        told.put_u64("eid", state.last);
        let event = Arc::new(Event { number: state.last, time, values: told });
        if state.kept.len() >= KEPT_MAX {
            state.kept.pop_front();
        }
        state.kept.push_back(event);
        self.more.notify_all();
    }

    /// Those that are kept and have come after number `after`, oldest first.
    #[must_use]
    pub fn after(&self, after: u64) -> Vec<Arc<Event>> {
        self.state.lock().after(after)
    }

    /// The same; if there are none, it waits for some, but not longer than `patience`.
    #[must_use]
    pub fn wait_after(&self, after: u64, patience: Duration) -> Vec<Arc<Event>> {
        let start = rt::time::now();
        let mut state = self.state.lock();
        loop {
            let found = state.after(after);
            let left = patience.saturating_sub(start.elapsed());
            if !found.is_empty() || left.is_zero() {
                return found;
            }
            (state, _) = self.more.wait_timeout(state, left);
        }
    }

    /// The number of the last one; 0: there was none.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.state.lock().last
    }

    /// Forgets those that are kept; how many they were.
    pub fn clear(&self) -> usize {
        std::mem::take(&mut self.state.lock().kept).len()
    }
}

impl State {
    fn after(&self, after: u64) -> Vec<Arc<Event>> {
        let since = self.kept.partition_point(|event| event.number <= after);
        self.kept.iter().skip(since).cloned().collect()
    }
}

fn shortened(value: &Value) -> Value {
    match value {
        Value::String(text) if text.len() > TEXT_MAX => Value::String(text[..TEXT_MAX].to_vec()),
        other => other.clone(),
    }
}

/// Asks for events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Of this pool alone.
    pub pool: Option<String>,
    /// Then wait for more, for ever.
    pub follow: bool,
}

/// What whoever asked hears.
#[derive(Clone, Copy, Debug)]
pub enum Heard<'a> {
    /// An event.
    Event(&'a Event),
    /// Nothing has happened for a moment.
    Silence,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_pool(name: &str) -> NvList {
        let mut values = NvList::new();
        values.put_string("pool", name);
        values
    }

    #[test]
    fn the_ring_keeps_the_last_ones() {
        let events = Events::default();
        for i in 0..KEPT_MAX + 7 {
            events.post(HISTORY, of_pool(&i.to_string()));
        }
        let kept = events.after(0);
        assert_eq!((kept.len(), kept[0].number, kept[0].pool()), (KEPT_MAX, 8, "7".into()));
        assert_eq!(kept[0].class(), HISTORY);
        assert_eq!(events.after(events.last() - 2).len(), 2);
        assert!(events.wait_after(events.last(), Duration::from_millis(1)).is_empty());
        assert_eq!((events.clear(), events.clear()), (KEPT_MAX, 0));
        events.post(IO, of_pool("tank"));
        assert_eq!(events.after(0)[0].number, KEPT_MAX as u64 + 8);
    }

    #[test]
    fn whoever_waits_is_woken() {
        let events = Arc::new(Events::default());
        let waiting = {
            let events = events.clone();
            rt::thread::spawn("waits", move || events.wait_after(0, Duration::from_secs(60)))
        };
        events.post(IO, of_pool("tank"));
        assert_eq!(waiting.join().len(), 1);
    }

    #[test]
    fn texts_are_bounded() {
        let events = Events::default();
        events.post(HISTORY, of_pool(&"x".repeat(1 << 20)));
        assert_eq!(events.after(0)[0].pool().len(), TEXT_MAX);
    }
}
