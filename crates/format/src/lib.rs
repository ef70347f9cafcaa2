//! The on-disk structures of OpenZFS pools, as types: parsed from hostile bytes, built to the byte.
//!
//! Place: pure, beside the storeys; knows of no I/O, no thread, no clock.
//! The one idea: every offset, size and bit of the format is written down here once, checked at
//! compile time, and nowhere else.
//!
//! Structures are `zerocopy` views of little-endian words. A block written by a big-endian host is
//! swapped once when it is read, so there is one definition of each structure.
#![deny(missing_docs, clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

pub mod accounting;
pub mod acl;
pub mod blkptr;
pub mod bookmark;
pub mod bootenv;
pub mod bpobj;
pub mod bptree;
pub mod config;
pub mod deadlist;
pub mod dirent;
pub mod dnode;
pub mod dsl_dataset;
pub mod dsl_dir;
pub mod dtl;
pub mod dxattr;
pub mod eck;
pub mod errlog;
pub mod error;
pub mod features;
pub mod fuid;
pub mod gang;
pub mod gpt;
pub mod history;
pub mod ids;
pub mod indirect;
pub mod label;
pub mod master_node;
pub mod mos_directory;
pub mod nvlist;
pub mod objset;
pub mod printing;
mod reader;
pub mod removal;
pub mod sa;
pub mod scan;
pub mod space_map;
pub mod swap;
pub mod uberblock;
mod view;
pub mod xrdcks;
pub mod zap;
pub mod zil;
pub mod znode;

pub use blkptr::{BlkPtr, Dva};
pub use dnode::DnodePhys;
pub use error::{FormatError, Result};
pub use ids::{Checksum, Compress, ObjectType};
pub use nvlist::NvList;
pub use objset::ObjsetPhys;
pub use uberblock::Uberblock;

/// Bytes in one sector of the format: the unit of sizes and offsets in block pointers.
pub const SECTOR: u64 = 512;
/// log2 of [`SECTOR`].
pub const SECTOR_SHIFT: u32 = 9;
/// The pool version that has feature flags.
pub const SPA_VERSION: u64 = 5000;
/// The largest block that the engine writes or reads, in bytes.
pub const BLOCK_SIZE_MAX: u64 = 16 << 20;
