//! `thumper`: the command line.
fn main() {}
