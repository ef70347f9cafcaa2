//! Clones of clones: what a destroy takes along is found without a stack for each generation.
//!
//! Seen red: a walk that called itself for each, and a process that ended.

use std::process::Command;

use acceptance::{Stage, engine};
use testkit::tool::Ran;

/// More than a quarter of a megabyte of stack has room for at a kilobyte each.
const GENERATIONS: usize = 280;

#[test]
fn a_destroy_takes_clones_of_clones_along_however_many_generations() {
    let stage = Stage::new(1, 256 << 20);
    drop(stage.ok("zpool create tank $D/d00"));
    drop(stage.ok("zfs create tank/g0"));
    let pool = engine::open_for_writing(stage.images.path(), "tank");
    for at in 1..=GENERATIONS {
        let origin = format!("tank/g{}@s", at - 1);
        pool.snapshot(std::slice::from_ref(&origin), &[]).unwrap();
        pool.clone_snapshot(&origin, &format!("tank/g{at}"), Default::default()).unwrap();
    }
    pool.close().unwrap();
    drop(pool);
    // Another host had it meanwhile.
    drop(stage.ok("zpool import -f -d $D tank"));
    let whole = stage.command("zfs destroy -R tank/g0");
    let mut small = Command::new("sh");
    small.arg("-c").arg("ulimit -s 256; exec \"$0\" \"$@\"");
    small.arg(whole.get_program()).args(whole.get_args());
    let set = whole.get_envs().filter_map(|(name, value)| Some((name, value?)));
    drop(Ran::of(small.envs(set)).expect_ok());
    assert_eq!(stage.ok("zfs list -H -o name -t all").out, "tank\n");
}
