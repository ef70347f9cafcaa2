//! Object sets, dnodes, records, and the objects built from them: ZAPs, bpobjs, space maps.
//!
//! Place: on top of `store`, below `pool`. Knows objects, not data sets or files.
//! The one idea: a change belongs to one txg, a frozen txg never changes, and its sync is one pure
//! bottom-up pass.
#![deny(missing_docs)]

mod accounting;
mod bpobj;
mod bytes;
mod changed;
mod dirty;
mod error;
mod extents;
mod ledger;
mod numbers;
mod object;
mod objset;
mod policy;
mod reaper;
mod salvage;
mod space_map;
mod sync;
mod tree;
mod txg;
pub mod zap;
mod zap_object;

pub use bpobj::Bpobj;
pub use changed::{Changed, Slots};
pub use error::{DmuError, Result};
pub use ledger::{Needs, Space, Tally};
pub use object::{Lent, Object};
pub use objset::{Objset, Owner, OwnerOf, needs_of_slots};
pub use policy::{BlockPolicy, Policy, RedundantMetadata};
pub use reaper::Kin;
pub use salvage::Left;
pub use space_map::SpaceMap;
pub use sync::Syncing;
pub use tree::Tail;
pub use txg::{Closed, Promise, TXG_SIZE, Tx, Txgs};
pub use zap_object::Zap;
