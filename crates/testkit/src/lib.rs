//! What tests lean on: golden pools with their truth, OpenZFS's own tools, disk images.
//!
//! Place: beside the house, a dev-dependency of any crate; it uses none of them, so that a test
//! never judges the engine by the engine's own arithmetic.
//! The one idea: a helper that cannot do its work panics with what is missing and how to get it.
//! Nothing here skips quietly.

pub mod compare;
pub mod data;
pub mod golden;
pub mod host;
pub mod kernel;
pub mod model;
pub mod paths;
pub mod ports;
pub mod random;
pub mod scratch;
pub mod tool;
pub mod truth;
pub mod vm;
pub mod workload;

pub use compare::{Compare, assert_same};
pub use data::noise;
pub use golden::{golden, golden_copy};
pub use ports::free_port;
pub use scratch::{Images, TempDir, fresh_images, temp_dir};
pub use tool::{Ran, poolaudit, poolaudit_kernels, rounds, zdb};
pub use truth::{Entry, Kind, Truth, truth};
pub use vm::Vm;

/// What a test's double of a disk is not about: name, size and sectors are those of the disk in its
/// field of this name.
#[macro_export]
macro_rules! of_the_disk_inside {
    ($disk:tt) => {
        fn name(&self) -> &str {
            self.$disk.name()
        }
        fn size(&self) -> u64 {
            self.$disk.size()
        }
        fn sector_size(&self) -> u32 {
            self.$disk.sector_size()
        }
    };
}
