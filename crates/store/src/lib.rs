//! Block pointers to bytes and back: checksums, compression, allocation.
