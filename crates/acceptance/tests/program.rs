//! The program itself, before any pool.

use testkit::{Ran, temp_dir};

#[test]
fn it_runs_from_an_empty_directory() {
    let dir = temp_dir();
    let mut command = acceptance::thumper(dir.path());
    let ran = Ran::of(command.current_dir(dir.path()).arg("--help"));
    assert!(ran.ok(), "{ran}");
}
