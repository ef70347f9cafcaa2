//! The server: one process that owns pools, for every command and client of the machine.
//!
//! Place: between the verbs and the doors. The one idea: the server is an engine that outlives its commands. A
//! command line that finds a server hands it its words, its directory and its outputs, and the server runs the
//! very code that the command would have run, on a pool that is open already
//! (`docs/decisions/0013-served-commands.md`).

mod coming;
mod command;
mod data;
mod doors;
mod forward;
#[cfg(fuzzing)]
pub mod fuzzing;
mod idle;
mod log;
mod pace;
mod peer;
mod place;
mod serve;
mod words;

pub use forward::{Forwarded, forward};
pub use log::Form;
pub use place::{VARIABLE, socket_path};
pub use serve::{Options, Run, ServeError, serve};
pub use watch::address;
