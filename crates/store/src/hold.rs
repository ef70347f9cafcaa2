//! A hold on what was freed: while it lasts, no freed block is handed out.
//!
//! Place: [`crate::Allocator::hold`], for whoever writes to blocks by pointers that he read from the pool: to heal
//! them. The one idea: a pointer that was found in a tree *after* the hold began leads to that block and no other
//! until the hold ends, so putting its bytes there again cannot hurt (INV-1). A pool that runs out of space
//! breaks the hold; so each write asks, and keeps it from being broken meanwhile.

use rt::sync::RwLock;

/// A hold on what was freed. It ends when it is dropped.
#[derive(Default)]
pub struct Hold {
    broken: RwLock<bool>,
}

impl Hold {
    /// Does `write`, during which no block is handed out that was freed since the hold began. `None`, and nothing
    /// done, if the hold is broken. It must not allocate: who breaks the hold waits for it with the books locked.
    pub fn during<T>(&self, write: impl FnOnce() -> T) -> Option<T> {
        let broken = self.broken.read();
        (!*broken).then(write)
    }

    /// Has the pool needed its space?
    pub fn is_broken(&self) -> bool {
        *self.broken.read()
    }

    /// Ends it, after what is written under it: its space is needed.
    pub fn break_it(&self) {
        *self.broken.write() = true;
    }
}
