//! What every door can ask of the engine: typed requests, typed reports.
//!
//! Place: above pool, fs and verify, below the doors. The one idea: a verb is a value. A door
//! makes a request and prints a report; it never sees how it is done, so that a command line, a
//! socket and a test ask for the same thing in the same way.

pub mod datasets;
pub mod engine;
pub mod error;
pub mod files;
pub mod find;
pub mod health;
pub mod host;
pub mod inuse;
pub mod judge;
pub mod layout;
pub mod local;
pub mod pools;
pub mod state;

pub use engine::Engine;
pub use error::{Doing, Error, Result, Why};
pub use local::Local;
pub use pool::props;

/// True for the name of a feature that OpenZFS 2.1 knows.
#[must_use]
pub fn is_feature(name: &str) -> bool {
    FEATURES.contains(&name)
}

/// The features of OpenZFS 2.1, in the order in which they are enabled and listed.
pub const FEATURES: [&str; 34] = [
    "async_destroy",
    "empty_bpobj",
    "lz4_compress",
    "multi_vdev_crash_dump",
    "spacemap_histogram",
    "enabled_txg",
    "hole_birth",
    "extensible_dataset",
    "embedded_data",
    "bookmarks",
    "filesystem_limits",
    "large_blocks",
    "large_dnode",
    "sha512",
    "skein",
    "edonr",
    "userobj_accounting",
    "encryption",
    "project_quota",
    "device_removal",
    "obsolete_counts",
    "zpool_checkpoint",
    "spacemap_v2",
    "allocation_classes",
    "resilver_defer",
    "bookmark_v2",
    "redaction_bookmarks",
    "redacted_datasets",
    "bookmark_written",
    "log_spacemap",
    "livelist",
    "device_rebuild",
    "zstd_compress",
    "draid",
];
