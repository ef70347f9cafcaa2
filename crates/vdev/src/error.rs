//! What can go wrong between a block's address and its bytes.
//!
//! The one idea: an error names the vdev, the offset, what was seen and what was expected; who
//! asked adds pool and object.

use crate::label::LabelError;
use device::DeviceError;

/// Result of an operation on vdevs.
pub type Result<T> = std::result::Result<T, VdevError>;

/// An operation on vdevs that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VdevError {
    /// The config has no top-level vdev of this number, or a hole or an unknown one there.
    #[error("no vdev {top} in this pool (it has {tops} top-level slots)")]
    NoSuchTop {
        /// The number asked for.
        top: u32,
        /// Number of slots.
        tops: usize,
    },
    /// A kind of vdev that is recognised but not read.
    #[error("vdev {top}: kind {kind} is not supported")]
    Unsupported {
        /// Number of the top-level vdev.
        top: u32,
        /// The kind, in the config's word.
        kind: &'static str,
    },
    /// The address is not one that the vdev can have given out.
    #[error(
        "vdev {top}: {size} bytes at offset {offset:#x} are not a block of it \
         (asize {asize:#x}, ashift {ashift})"
    )]
    BadAddress {
        /// Number of the top-level vdev.
        top: u32,
        /// Offset in its allocatable space, in bytes.
        offset: u64,
        /// Size of the block, in bytes.
        size: u64,
        /// Allocatable bytes.
        asize: u64,
        /// log2 of its sector size.
        ashift: u32,
    },
    /// No combination of what could be read passes the check: the block's bytes are lost.
    #[error(
        "vdev {top}: {size} bytes at offset {offset:#x} are lost: {missing} of {pieces} pieces are \
         missing, {unreadable} unreadable, and no {tried} combinations of the rest are right"
    )]
    Lost {
        /// Number of the top-level vdev.
        top: u32,
        /// Offset in its allocatable space, in bytes.
        offset: u64,
        /// Size of the block, in bytes.
        size: u64,
        /// Columns or copies that the block has.
        pieces: usize,
        /// Pieces whose leaf is not there.
        missing: usize,
        /// Pieces whose leaf gave an error.
        unreadable: usize,
        /// Combinations that were checked.
        tried: u64,
    },
    /// More leaves failed to take a write than the redundancy covers.
    #[error(
        "vdev {top}: write at offset {offset:#x} failed on {failed} children, {parity} may: {first}"
    )]
    WriteFailed {
        /// Number of the top-level vdev.
        top: u32,
        /// Offset in its allocatable space, in bytes.
        offset: u64,
        /// Children that did not take the write, missing ones included.
        failed: usize,
        /// Children that may fail.
        parity: usize,
        /// The first error.
        first: Box<LeafFailure>,
    },
    /// After a failed flush the leaves that are left cannot hold all that was written.
    #[error(
        "vdev {top}: flush failed, {failed} children are not up to date, {parity} may: {first}"
    )]
    FlushFailed {
        /// Number of the top-level vdev.
        top: u32,
        /// Children that missed a write or a flush since the last good flush.
        failed: usize,
        /// Children that may.
        parity: usize,
        /// The first error.
        first: Box<LeafFailure>,
    },
    /// No leaf of a top-level vdev (or of the pool) took the labels.
    #[error("labels could not be written on any leaf: {first}")]
    LabelsFailed {
        /// The first error.
        first: Box<LeafFailure>,
    },
    /// The vdev tree of a config says something that cannot be.
    #[error("config: vdev {guid:#018x}: {field} is {seen}, {expected}")]
    Config {
        /// Guid of the vdev, 0 if it has none.
        guid: u64,
        /// The field.
        field: &'static str,
        /// What is there.
        seen: u64,
        /// What is allowed, in words.
        expected: &'static str,
    },
    /// Between the scan and the open a device became something else.
    #[error("{device}: its label is no longer that of leaf {guid}")]
    Changed {
        /// Name of the device.
        device: String,
        /// Guid of the leaf that it was.
        guid: u64,
    },
    /// Between the scan and the open somebody wrote to the pool: what the scan knows of it is old.
    #[error("{device}: its pool was written to since it was looked at")]
    Written {
        /// Name of the device.
        device: String,
    },
    /// A label could not be built.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// A device refused what nothing else covers (a probe, an open).
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Why a leaf did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeafFailure {
    /// There is no device for the leaf.
    #[error("leaf {guid} ({path}) is missing")]
    Missing {
        /// Guid of the leaf.
        guid: u64,
        /// Its path in the config.
        path: String,
    },
    /// Its device reported an error.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
