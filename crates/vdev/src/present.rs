//! The tree of a pool as it is now.
//!
//! Place: between the [`Tree`] and those who keep reading from a pool whose vdevs change beneath them.
//! The one idea: a tree is exchanged as a whole. Who reads takes the present one, once for each I/O, and goes on with
//! it to the end, though another may be there by then: its devices stay open as long as somebody reads from them, and
//! where blocks lie never changes, so what it gives is right if its checksum is.
//!
//! The places of leaves ([`Tree::leaves`]) hold for one tree: who keeps such a place keeps the tree with it.

use std::collections::BTreeMap;

use format::config::VdevConfig;
use rt::sync::{Arc, RwLock};

use crate::error::Result;
use crate::tree::Tree;

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

    /// Exchanges the tree of a pool that is only read for that of another config of it, on the devices that are open.
    ///
    /// # Errors
    /// [`crate::VdevError::Config`] if the config says what cannot be; then nothing has changed.
    pub fn exchange(&self, root: &VdevConfig) -> Result<()> {
        let tree = Tree::after(&self.get(), root, BTreeMap::new())?;
        self.set(Arc::new(tree));
        Ok(())
    }

    pub(crate) fn set(&self, tree: Arc<Tree>) {
        *self.0.write() = tree;
    }
}
