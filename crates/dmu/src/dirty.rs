//! Which objects each living txg has changed.

use rt::sync::{Arc, Mutex};

use crate::object::Object;
use crate::txg::TXG_SIZE;

/// Objects to sync, per living txg.
#[derive(Default)]
pub(crate) struct DirtyLists {
    lists: [Mutex<Vec<Arc<Object>>>; TXG_SIZE],
}

impl DirtyLists {
    pub(crate) fn add(&self, txg: u64, object: Arc<Object>) {
        self.lists[txg as usize % TXG_SIZE].lock().push(object);
    }

    /// Takes the objects that `txg` has changed, each once, by number.
    pub(crate) fn take(&self, txg: u64) -> Vec<Arc<Object>> {
        let mut list = std::mem::take(&mut *self.lists[txg as usize % TXG_SIZE].lock());
        list.sort_by_key(|o| o.number());
        list.dedup_by_key(|o| o.number());
        list
    }

    pub(crate) fn any(&self, txg: u64) -> bool {
        !self.lists[txg as usize % TXG_SIZE].lock().is_empty()
    }

    /// Forgets everything: what was changed holds this list, and this list what was changed.
    pub(crate) fn clear(&self) {
        for list in &self.lists {
            let objects = std::mem::take(&mut *list.lock());
            drop(objects);
        }
    }
}
