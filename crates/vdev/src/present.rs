//! The tree of a pool as it is now.
//!
//! Place: between the [`Tree`] and those who keep reading from a pool whose vdevs change beneath them.
//! The one idea: a tree is exchanged as a whole. Who reads takes the present one, once for each I/O, and goes on with
//! it to the end, though another may be there by then: its devices stay open as long as somebody reads from them, and
//! where blocks lie never changes, so what it gives is right if its checksum is.
//!
//! The places of leaves ([`Tree::leaves`]) hold for one tree: who keeps such a place keeps the tree with it.

use crate::tree::Tree;
use rt::sync::{Arc, RwLock};

/// Where the present tree is found. The lock is held for the time of a clone only, and no other is taken under it.
pub struct Present(RwLock<Arc<Tree>>);

impl Present {
    /// Begins with this tree.
    pub fn new(tree: Arc<Tree>) -> Arc<Present> {
        Arc::new(Present(RwLock::new(tree)))
    }

    /// The tree as it is now.
    pub fn get(&self) -> Arc<Tree> {
        self.0.read().clone()
    }

    pub(crate) fn set(&self, tree: Arc<Tree>) {
        *self.0.write() = tree;
    }
}
