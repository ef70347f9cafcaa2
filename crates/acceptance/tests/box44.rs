//! The box of the first site: 44 disks as four raidz2 of eleven, with two spares, made and filled by
//! the program as its administrators would.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use acceptance::Stage;
use testkit::workload::acceptance;
use testkit::{Compare, assert_same, host, tool};

/// Disks of one raidz2.
const GROUP: usize = 11;
/// Such groups.
const GROUPS: usize = 4;
/// Disks that stand by.
const SPARES: usize = 2;

/// Far above the ten seconds that it may take when nothing else runs.
const MAKING_MAX: Duration = Duration::from_secs(60);

#[test]
fn with_four_disks_gone_every_file_reads() {
    let stage = Stage::new(GROUP * GROUPS + SPARES, 128 << 20);
    let disk = |i: usize| format!(" $D/d{i:02}");
    let mut words = String::from("zpool create -o ashift=12 -O compression=lz4 -O xattr=sa box");
    for group in 0..GROUPS {
        words += " raidz2";
        words.extend((0..GROUP).map(|i| disk(group * GROUP + i)));
    }
    words += " spare";
    words.extend((0..SPARES).map(|i| disk(GROUPS * GROUP + i)));
    let began = rt::time::now();
    let _made = stage.ok(&words);
    let took = began.elapsed();
    drop(writeln!(std::io::stderr(), "box: 44 disks and 2 spares are a pool in {took:.2?}"));
    assert!(took < MAKING_MAX, "{took:?}");

    let planted = stage.plant("files", &acceptance(44).ops);
    let _put = stage.ok("put -r files box:/files");
    let whole = stage.ok("verify box");
    assert!(whole.out.contains("clean"), "{whole}");
    tool::zdb_content(stage.images.path(), "box");

    // two disks each of two groups
    let gone = [3, 7, 2 * GROUP + 1, 2 * GROUP + 10];
    gone.iter().for_each(|i| stage.images.remove(*i));
    let status = stage.ok("zpool status -P box").out;
    for i in 0..GROUP * GROUPS + SPARES {
        let path = stage.images.disk(i).display().to_string();
        let line = status.lines().find(|line| line.contains(&path));
        let line = line.unwrap_or_else(|| panic!("{path} is not in: {status}"));
        let state = match i {
            i if gone.contains(&i) => "UNAVAIL",
            i if i < GROUP * GROUPS => "ONLINE",
            _ => "AVAIL",
        };
        assert!(line.split_whitespace().any(|word| word == state), "{path} is {state}: {status}");
    }
    assert!(status.contains(" state: DEGRADED\n"), "{status}");

    let _got = stage.ok("get -r box:/files back");
    assert_same(&host::list(&planted), &host::list(&stage.aside("back")), Compare::COPY);
    let judged = stage.run("verify box");
    assert_eq!(judged.status, 1, "damaged but whole: {judged}");
    tool::zdb_content(stage.images.path(), "box");

    // and on devices that nobody remembers
    fs::remove_file(stage.aside("pools")).unwrap();
    let _got = stage.ok("get -d $D -r box:/files again");
    assert_same(&host::list(&planted), &host::list(&stage.aside("again")), Compare::COPY);
}
