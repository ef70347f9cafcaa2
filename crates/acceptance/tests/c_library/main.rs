//! The client library as C sees it: the header as a C compiler reads it, and each function, by a program in C.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use acceptance::{Server, assert_verified, client_library, thumper};
use testkit::{Ran, fresh_images, temp_dir, tool};

#[test]
fn a_program_in_c_does_all_that_there_is() {
    let (images, aside) = (fresh_images(4, 96 << 20), temp_dir());
    let here = testkit::paths::repository();
    let program = aside.path().join("all");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    cc.arg("-I").arg(here.join("crates/client/include"));
    cc.arg(here.join("crates/acceptance/tests/c_library/all.c")).arg(client_library());
    drop(Ran::of(cc.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program)).expect_ok());

    let state = aside.path().join("pools");
    let server = Server::start(&state);
    let run = |words: &[&str]| Ran::of(thumper(&state).args(words)).expect_ok();
    let disks = images.disks();
    let words = ["zpool", "create", "tank", "raidz1"].into_iter();
    drop(run(&words.chain(disks.iter().map(|disk| disk.to_str().unwrap())).collect::<Vec<_>>()));
    drop(Ran::of(Command::new(&program).arg(server.socket()).arg("tank")).expect_ok());

    // What it was promised is there when the server has died.
    server.kill();
    let server = Server::start(&state);
    let got = aside.path().join("got");
    let big: Vec<u8> = (0..3_000_001u64).map(|i| ((i * 7) >> 3) as u8).collect();
    let all =
        [("finished", &b"begun"[..]), ("underway", b"bogun"), ("empty", b""), ("a/b/put", &big)];
    for (path, bytes) in all {
        drop(run(&["get", &format!("tank:{path}"), got.to_str().unwrap()]));
        assert!(fs::read(&got).unwrap() == bytes, "{path}");
        fs::remove_file(&got).unwrap();
    }
    drop(server.stop());
    tool::zdb_content(images.path(), "tank");
    assert_verified(images.path(), "tank");
}
