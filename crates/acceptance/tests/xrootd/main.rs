//! A served pool through Debian's XRootD and its own clients, which know nothing of us: what they store and fetch is
//! right, and so are their words. Where XRootD's own storage layer over a directory can be asked the same, it is.

#![allow(clippy::unwrap_used)]

mod beginnings;
mod cluster;
mod copies;
mod crash;
mod files;
mod gate;
mod grid;
mod names;
mod people;
mod sent;
mod trees;
mod web;
