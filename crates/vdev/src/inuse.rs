//! May a device be made part of a new pool, or does it hold something?
//!
//! The one idea: the answer names what is there, so that the message can; forcing is the caller's
//! business. A destroyed pool and a spare of a pool that is gone can be told from a living one by
//! their state, not here.

use crate::foreign;
use crate::label::Labels;
use device::{Device, Result};
use format::config::{AuxLabel, PoolConfig};

/// What a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// It is a leaf of a pool; see its state.
    Pool(Box<PoolConfig>),
    /// It is a spare or a cache device of some pool.
    Aux(AuxLabel),
    /// It holds a file system, a volume or a table of partitions.
    Foreign(&'static str),
}

/// What the device holds; `None` if nothing that is known here.
///
/// # Errors
/// If its first bytes cannot be read.
pub fn content(device: &dyn Device) -> Result<Option<Content>> {
    let labels = Labels::read(device);
    // Any good label will do, even one whose pool was never synced.
    if let Some(config) = labels.member(u64::MAX) {
        return Ok(Some(Content::Pool(Box::new(config.clone()))));
    }
    if let Some(aux) = labels.aux() {
        return Ok(Some(Content::Aux(aux.clone())));
    }
    Ok(foreign::holds(device)?.map(Content::Foreign))
}
