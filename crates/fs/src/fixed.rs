//! What was fixed when an object set was made: kept in itself, not among the properties.
//!
//! FORMAT: section 11.1 (master node), 11.9 (volumes).

use dmu::{Objset, Policy, Zap};
use format::master_node::{
    CASE_SENSITIVITY, MASTER_NODE_OBJECT, NORMALIZATION, UTF8_ONLY, VERSION, ZVOL_DATA_OBJECT,
    ZVOL_PROPS_OBJECT, ZVOL_SIZE,
};
use format::objset::ObjsetType;
use pool::dsl::lookup::Found;
use pool::{Pool, PoolError};
use rt::sync::Arc;

/// What was fixed when a data set was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fixed {
    /// A file system.
    Filesystem {
        /// Version of its structures.
        version: u64,
        /// Only names in UTF-8.
        utf8_only: u64,
        /// How names are normalised: flags of the ZAPs of directories.
        normalization: u64,
        /// Case: 0 sensitive, 1 insensitive, 2 mixed.
        case: u64,
    },
    /// An encrypted data set, which does not show it.
    Hidden {
        /// It is a volume.
        is_volume: bool,
    },
    /// A volume.
    Volume {
        /// Its size, in bytes.
        size: u64,
        /// The size of its blocks, in bytes.
        block_size: u64,
    },
}

/// Reads what was fixed when a data set (or what a snapshot is of) was made.
pub fn fixed(pool: &Pool, found: &Found) -> Result<Fixed, PoolError> {
    let store = Arc::new(pool.store().of_objset(found.object));
    let objset = Objset::open(store, &found.phys.bp, Policy::new(false), None)?;
    let is_volume = objset.kind() == ObjsetType::Zvol;
    if objset.phys().macs.iter().any(|byte| *byte != 0) {
        return Ok(Fixed::Hidden { is_volume });
    }
    if is_volume {
        let props = Zap::open(&objset, ZVOL_PROPS_OBJECT)?;
        return Ok(Fixed::Volume {
            size: props.get_u64(ZVOL_SIZE.as_bytes())?.unwrap_or(0),
            block_size: objset.object(ZVOL_DATA_OBJECT)?.block_size()?.into(),
        });
    }
    let master = Zap::open(&objset, MASTER_NODE_OBJECT)?;
    let word = |key: &str| master.get_u64(key.as_bytes());
    Ok(Fixed::Filesystem {
        version: word(VERSION)?.unwrap_or(0),
        utf8_only: word(UTF8_ONLY)?.unwrap_or(0),
        normalization: word(NORMALIZATION)?.unwrap_or(0),
        case: word(CASE_SENSITIVITY)?.unwrap_or(0),
    })
}
