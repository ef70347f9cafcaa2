//! Pool configs: what labels and the MOS say about a pool and its vdevs.
//!
//! The one idea: a config is read once into typed structures, and written back with its keys in
//! the kernel's order, so that a label that the kernel wrote comes out the same to the byte. Keys
//! that are not known here are kept. FORMAT: section 1.4.
//!
//! A label has the tree of the leaf's top-level vdev, the MOS the tree of the whole pool.

mod keys;
mod pool;
mod vdev;

#[cfg(test)]
mod tests;

pub use pool::{AuxLabel, Label, LabelIds, PoolConfig, PoolState, aux_from_nvlist, aux_to_nvlist};
pub use vdev::{Draid, DraidSpare, Indirect, TopConfig, VdevConfig, VdevKind};
