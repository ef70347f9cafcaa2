//! Properties: what each is called, what it may be, and how its values are written and read.
//!
//! Place: a pure table with its parsers; no I/O, no pool. The one idea: the rows say everything,
//! so that the engine, the doors and the usage texts cannot disagree about a property.
//!
//! A value is a number or a text, as in the properties' ZAP; words (`on`, `lz4`) are numbers
//! there. Names with a colon are the users' own and always text. FORMAT: section 8.7.

pub mod assign;
pub mod dataset;
pub mod lookup;
pub mod name;
pub mod number;
pub mod pool;
mod share;
pub mod show;
pub mod space;
#[cfg(test)]
mod tests;
mod words;

pub use assign::{Key, PropError, Target, Value, assign};
pub use dataset::{Access, DefaultValue, Form, Kind, Kinds, Prop, Property, Unit};
pub use lookup::{Source, Stored, default_value, lookup};
pub use name::NameError;
pub use number::{NumberError, nice_bytes, nice_count, parse_number};
pub use pool::{PoolKey, PoolProp, PoolPropError, When, assign_pool, default_pool_value};
pub use show::{Style, show};
pub use space::SpaceProp;
pub use words::Words;

/// The properties that promise or limit space. A reservation comes after the quota it must fit into.
pub const LIMITS: [&str; 4] = ["quota", "refquota", "reservation", "refreservation"];
