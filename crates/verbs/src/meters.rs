//! What the devices of a pool have done, and which of them are slow, as reports tell it.
//!
//! The one idea: the engine's own figures, passed on: counters since the pool was opened, of which a door shows
//! differences.

pub use pool::meters::mean;
pub use pool::meters::{
    CLASSES, Class, ClassMeters, LeafMeters, Meters, SIZES, Sizes, TIMES, Times,
};
pub use pool::slow::{LOOK, News, Slow, What};
