//! The seam: threads, locks, time, randomness, buffers and the memory account come from here.
