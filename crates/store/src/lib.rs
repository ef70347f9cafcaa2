//! Block pointers to bytes and back: checksums, compression, copies, gangs, allocation, cache.
//!
//! Place: on top of `vdev`, below `dmu`. Knows block pointers, not objects.
//! The one idea: reading and writing are separate types. [`Store`] reads and verifies; [`Writer`]
//! exists only for a pool that was opened for writing.
#![deny(missing_docs)]

mod allocator;
mod cache;
mod error;
mod fits;
mod flight;
mod gang;
mod gate;
mod hold;
mod log;
mod metaslab;
mod overwritten;
mod pieces;
mod ranges;
mod read;
mod streams;
mod trouble;
mod write;

pub use allocator::{Allocator, SlabSummary, SpaceMaps, TopSpace};
pub use cache::{Block, Bytes, Cache};
pub use error::{Result, StoreError};
pub use fits::{Fit, Fits};
pub use flight::Flight;
pub use gate::{Gate, may_pass};
pub use hold::Hold;
pub use metaslab::{DEFER_TXGS, MapError, Metaslab, Pending};
pub use pieces::Part;
pub use ranges::{BUCKETS, RangeSet};
pub use read::{At, Store};
pub use streams::{Member, Stream, Streams};
pub use trouble::{Trouble, Troubles};
pub use write::{BlockWrite, Writer};
