//! Files for clients in other processes: the server's side of `wire`.
//!
//! Place: on `fs`, beside the commands. The one idea: a connection is a thread that takes one request after the
//! other; what is open belongs to the session, which ends with its last connection, whatever became
//! of the client.

mod access;
mod beside;
mod broken;
mod handles;
mod lane;
mod leases;
mod reads;
mod requests;
mod shares;
mod tree;
mod turns;

pub(crate) use handles::Sessions;
pub(crate) use lane::{Supply, serve};
pub(crate) use leases::Shop;
pub(crate) use shares::Shares;
