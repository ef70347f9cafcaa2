//! Locks, condition variables, channels, atomics.
//!
//! The one idea: `lock()` gives the guard. A lock whose holder panicked is a broken invariant, so
//! the panic goes on to whoever asks for the lock next; nobody handles poison.

#[cfg(feature = "sim")]
#[path = "sync/sim.rs"]
mod form;
#[cfg(not(feature = "sim"))]
#[path = "sync/std.rs"]
mod form;

mod counter;
pub mod mpsc;

pub use counter::Counter;
pub use form::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use form::{atomic, hint};
pub use std::sync::Weak;
