//! Checksums, compression and parity: pure functions of bytes.
//!
//! Place: beside the storeys, above `format` only; knows of no I/O, no thread, no clock.
//! The one idea: every algorithm has one plain scalar form that is easy to check by eye, and faster
//! forms for the processor at hand that tests hold to it, byte for byte.
#![deny(missing_docs)]

pub mod checksum;
pub mod compress;
pub mod digest;
pub mod embedded;
pub mod parity;
