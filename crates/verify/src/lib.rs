//! The judge: walks a pool by itself and says what is wrong with it.
//!
//! Place: beside the engine, above `vdev`. It shares the structures (`format`), the sums (`codec`)
//! and the columns (`vdev`) with the engine, and nothing of how the engine finds, allocates or
//! counts: a judge must not share the arithmetic of the accused.
//! The one idea: every block is visited once, every copy and every column of it is compared, and
//! what is in use is compared with what is allocated. Damage ends in the report, never in a stop.
//! Its reader is lent to `dump` ([`Look`], docs/decisions/0006-dump.md).
#![deny(missing_docs)]

mod accounts;
mod block;
mod chain;
mod config;
mod datasets;
mod dead;
mod diff;
mod dtl;
mod features;
mod files;
mod history;
mod holds;
mod judge;
mod kept;
mod look;
mod mos;
mod moved;
mod names;
mod object;
mod pending;
mod report;
mod rings;
mod shared;
mod sorter;
mod space;
mod spacemaps;
mod subtrees;
#[cfg(test)]
mod tests;
mod usage;
mod walk;
mod zaps;

pub use judge::{Options, VerifyError, verify, verify_pool};
pub use kept::Keep;
pub use look::Look;
pub use object::Unread;
pub use report::{
    DeviceDamage, FILES_MAX, FINDINGS_MAX_OF_KIND, FileDamage, Finding, FindingKind, Progress,
    Report, SpaceTotals, Verdict,
};
