//! The project's own tool.
fn main() {}
