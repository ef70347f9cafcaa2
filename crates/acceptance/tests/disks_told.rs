//! What is told of disks that were exchanged, failed or taken away, by a server and by commands alone.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use acceptance::{Server, Stage};

/// Rows of `zpool status` that are not as they should be.
fn troubled(stage: &Stage) -> Vec<String> {
    let said = stage.ok("zpool status tank").out;
    let rows = said.lines().skip_while(|line| !line.contains("NAME ")).skip(1);
    let rows = rows.take_while(|line| !line.starts_with("errors"));
    rows.filter(|row| !row.is_empty() && !row.contains("ONLINE")).map(str::to_owned).collect()
}

#[test]
fn a_disk_that_came_while_a_server_holds_the_pool_is_told_of_as_any_other() {
    let stage = Stage::new(4, 128 << 20);
    let server = Server::start(&stage.aside("pools"));
    drop(stage.ok("zpool create tank mirror $D/d00 $D/d01"));
    drop(stage.run("zpool replace -w tank $D/d00 $D/d02").expect_ok());
    drop(stage.run("zpool attach -w tank $D/d01 $D/d03").expect_ok());
    assert_eq!(troubled(&stage), [""; 0]);
    assert!(stage.ok("zpool status -P tank").out.contains("/d02"));
    // Nothing is asked of it: that it is gone is seen by its name.
    let gone = &stage.images.disks()[2];
    std::fs::rename(gone, stage.aside("d02")).unwrap();
    let start = rt::time::now();
    while !troubled(&stage).iter().any(|row| row.contains("d02") && row.contains("REMOVED")) {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", troubled(&stage));
        rt::time::sleep(Duration::from_millis(100));
    }
    drop(server.stop());
}

#[test]
fn a_disk_that_is_used_again_has_what_was_written_without_it() {
    let stage = Stage::new(2, 128 << 20);
    std::fs::write(stage.aside("f"), vec![7; 1 << 20]).unwrap();
    drop(stage.ok("zpool create tank mirror $D/d00 $D/d01"));
    drop(stage.ok("zpool offline -f tank $D/d01"));
    let told = stage.run("zpool status tank").out;
    assert!(told.lines().any(|row| row.ends_with("external device fault")), "{told}");
    drop(stage.run("put $A/f tank:/").expect_ok());
    drop(stage.run("zpool clear tank").expect_ok());
    // What the other one has this one has, too.
    drop(stage.ok("zpool offline tank $D/d00"));
}

#[test]
fn pools_that_cannot_be_opened_are_not_called_healthy() {
    let stage = Stage::new(1, 128 << 20);
    drop(stage.ok("zpool create tank $D/d00"));
    assert_eq!(stage.ok("zpool status -x").out, "all pools are healthy\n");
    std::fs::rename(&stage.images.disks()[0], stage.aside("d00")).unwrap();
    let said = stage.ok("zpool status -x").out;
    assert!(said.contains(" state: UNAVAIL\n") && !said.contains("healthy"), "{said}");
}

#[test]
fn of_a_pool_without_its_disks_there_is_told_which_are_missing() {
    let stage = Stage::new(4, 128 << 20);
    drop(stage.ok("zpool create tank raidz $D/d00 $D/d01 $D/d02"));
    drop(stage.ok("zpool create pond $D/d03"));
    let away = |at: usize| {
        std::fs::rename(stage.images.disk(at), stage.aside(&format!("d0{at}"))).unwrap();
    };
    (1..4).for_each(away);
    // One label is left of the one, none of the other.
    let rows = [
        ("tank", "UNAVAIL", "insufficient replicas"),
        ("raidz1-0", "UNAVAIL", "insufficient replicas"),
        ("/d00", "ONLINE", "0"),
        ("/d01", "UNAVAIL", "cannot open"),
        ("/d02", "UNAVAIL", "cannot open"),
    ];
    let said = stage.ok("zpool status -P").out;
    for (name, state, end) in rows.into_iter().chain([("/d03", "UNAVAIL", "cannot open")]) {
        let named = |row: &&str| row.split_whitespace().next().is_some_and(|n| n.ends_with(name));
        let row = said.lines().find(named).unwrap_or_else(|| panic!("{name} in {said}"));
        assert!(row.contains(state) && row.ends_with(end), "{said}");
    }
    assert!(!said.contains("errors:"), "{said}");
    let listed = stage.ok("zpool list -H -o name,size,health").out;
    assert_eq!(listed, "pond\t-\tUNAVAIL\ntank\t-\tUNAVAIL\n");
    let json: serde_json::Value =
        serde_json::from_str(&stage.ok("zpool status -j tank").out).unwrap();
    assert_eq!(json["pools"]["tank"]["state"], "UNAVAIL");
    // What works on a pool's contents says what it always did.
    let unavailable = "cannot open 'tank': one or more devices is currently unavailable\n";
    let _said = stage.refused("zfs list tank", 1, unavailable);
    let said =
        "cannot export 'pond': one or more devices is currently unavailable\nuse '-f' to forget";
    let _said = stage.refused("zpool export pond", 1, said);
    drop(stage.ok("zpool export -f pond"));
    assert_eq!(stage.ok("zpool list -H -o name").out, "tank\n");
}

#[test]
fn lists_come_as_often_as_is_said() {
    let stage = Stage::new(1, 128 << 20);
    drop(stage.ok("zpool create tank $D/d00"));
    for words in ["zpool list -H tank 0.1 2", "zpool status tank 0.1 2"] {
        assert_eq!(stage.ok(words).out.matches("tank").count() % 2, 0, "{words}");
    }
}
