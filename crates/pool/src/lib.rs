//! Pools: open, create, the txg pipeline, data sets, properties, history.
pub mod props;
