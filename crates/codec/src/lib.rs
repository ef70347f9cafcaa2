//! Checksums, compression and parity: pure functions of bytes.
