//! What can go wrong between a block pointer and its bytes.

use crate::metaslab::MapError;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No copy of the block could be read and verified.
    #[error("block {bp:?}: {reason}; no copy of it is good")]
    Unreadable {
        /// The block.
        bp: Box<format::BlkPtr>,
        /// What the last copy suffered from.
        reason: String,
        /// Did a device give an error? Then it may be good later.
        by_device: bool,
    },
    /// The pointer itself cannot be followed.
    #[error("block {bp:?}: {reason}")]
    BadPointer {
        /// The block.
        bp: Box<format::BlkPtr>,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The block needs a key that is not loaded.
    #[error("block {bp:?} is encrypted")]
    Encrypted {
        /// The block.
        bp: Box<format::BlkPtr>,
    },
    /// No region is free that could take a block.
    #[error("out of space: no free region of {asize} bytes")]
    NoSpace {
        /// Bytes that the block would take.
        asize: u64,
    },
    /// A space map contradicts an allocation or a free.
    #[error("top-level vdev {top}: {source}")]
    Map {
        /// The top-level vdev.
        top: u32,
        /// The contradiction.
        source: MapError,
    },
    /// A space map could not be loaded.
    #[error("top-level vdev {top}: space map of metaslab {index}: {reason}")]
    SpaceMap {
        /// The top-level vdev.
        top: u32,
        /// The metaslab.
        index: u64,
        /// What is wrong.
        reason: String,
    },
    /// Devices failed beyond redundancy.
    #[error(transparent)]
    Vdev(#[from] vdev::VdevError),
}

/// Result of the store.
pub type Result<T> = std::result::Result<T, StoreError>;
