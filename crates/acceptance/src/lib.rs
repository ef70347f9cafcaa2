//! Tests of the whole against its referees are in `tests/` of this crate; here is what they share.
//!
//! Place: above the doors, beside the house. The other crates test themselves; here the OpenZFS
//! kernel, zdb and poolaudit judge what all of them did together.
//! The one idea: what is judged was made as users make it, by the program or by the engine's front
//! door; who judges shares no code with it.

pub mod alike;
pub mod disks;
pub mod engine;
pub mod forest;
pub mod judges;
pub mod library;
pub mod mounts;
pub mod program;
pub mod server;
pub mod stage;
pub mod transcript;

pub use engine::{SHAPES, Session, Shape};
pub use judges::{assert_verified, assert_verified_kernels, choose, judge, judge_without};
pub use library::client_library;
pub use program::{thumper, thumper_path};
pub use server::Server;
pub use stage::Stage;
