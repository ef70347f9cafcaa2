//! Pools in which space is short or in small pieces: blocks become gangs, what is refused is refused before
//! anything is done, and what is removed comes back to the byte.

#![allow(clippy::unwrap_used, reason = "tests")]

mod full;
mod gangs;
