//! Pools: open, create, the txg pipeline, the MOS, data sets, properties, features, history.
//!
//! Place: on top of `dmu`, below `fs`. Only this crate writes uberblocks.
//! The one idea: a pool moves from one consistent state on disk to the next, txg by txg; whatever
//! is charged to somebody passes through one ledger.
#![deny(missing_docs)]

mod bookmarks;
mod branches;
pub mod capacity;
mod claim;
mod config;
pub mod create;
mod dataset;
mod dedup;
pub mod devices;
mod disks;
pub mod dsl;
mod dtl;
mod errlog;
mod error;
mod features;
mod fragmentation;
mod frees;
mod healing;
pub mod history;
mod intent;
mod ledger;
mod logging;
mod logmaps;
mod memory;
pub mod meters;
pub mod mos;
mod open;
mod operations;
mod pieces;
mod pool;
mod pool_props;
pub mod props;
mod removed;
mod reshaped;
mod ruins;
mod scan;
mod sitting;
pub mod slow;
mod space;
mod spacemaps;
mod sync;
mod volumes;
mod zil;

pub use create::{Joined, MakeFilesystem, NewLeaf, NewPool, NewTop};
pub use dataset::{Dataset, FileProperties};
pub use dedup::DedupSpace;
pub use disks::{Additions, Trouble, Unlabelled};
pub use dsl::bookmark::Mark;
pub use dsl::limits::Counted;
pub use dsl::property::{Change, Source, Stored};
pub use error::{PoolError, Result};
pub use features::Features;
pub use format::features::Feature;
pub use intent::IntentLog;
pub use ledger::Ledger;
pub use memory::{CAP_LEAST, account, default_cap_bytes};
pub use mos::Mos;
pub use open::{Devices, OpenOptions};
pub use pool::Pool;
pub use reshaped::Checkpoint;
pub use scan::{Answer as ScanAnswer, ScanStatus, Step as ScanStep};
pub use space::PoolSpace;
pub use sync::TaskContext;
pub use volumes::VOLUME_BLOCK;
pub use zil::{Change as LogChange, Stable, SyncMode};
