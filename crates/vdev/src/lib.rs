//! Virtual devices: labels, mirrors and RAID-Z on top of devices.
//!
//! Place: between `device` (bytes of one disk) and `store` (blocks by their pointers).
//! The one idea: a top-level vdev is an address space; a block in it is pieces on leaves, with
//! enough redundancy that the checksum can tell which leaf lied.
#![deny(missing_docs)]

pub mod raidz;
pub mod sizes;
