//! Damage of every kind that redundancy covers, on simulated disks: all of it comes back, is written back, and then as
//! many other disks may go as ever. Beyond it exactly what is lost is named.
//!
//! The one idea: what is hurt is chosen from the block map with arithmetic of its own (`map`), not by what the engine
//! says of where columns lie; so a scrub that looks in the wrong place is found out.
#![allow(clippy::unwrap_used)]

mod beyond;
#[allow(dead_code)]
#[path = "../crash/check.rs"]
mod check;
mod gone;
mod labels;
mod map;
mod placed;
#[allow(dead_code)]
#[path = "../crash/rig.rs"]
mod rig;
#[allow(dead_code)]
#[path = "../crash/story.rs"]
mod story;

use std::path::Path;

use device::Device;
use device::sim::{Image, SimSet};
use format::scan::ScanFunction;
use pool::{Joined, Pool, ScanAnswer, ScanStatus, ScanStep};
use rt::sync::Arc;
use testkit::{Vm, tool, vm};

use rig::{MIRROR, RAIDZ, RAIDZ2, Shape};
use story::{State, Step};

const MIRROR3: Shape = Shape { disks: 3, ..MIRROR };
const RAIDZ3: Shape = Shape { joined: Joined::Raidz(3), disks: 5, gang_every: 7, ..RAIDZ };
/// All that have redundancy.
const SHAPES: [Shape; 4] =
    [MIRROR3, RAIDZ, Shape { disks: 6, ashift: 9, gang_every: 5, ..RAIDZ2 }, RAIDZ3];

impl Shape {
    /// Disks that may be lost.
    fn parity(&self) -> usize {
        match self.joined {
            Joined::Single => 0,
            Joined::Mirror => self.disks - 1,
            Joined::Raidz(parity) => parity as usize,
        }
    }
}

/// A pool with files, snapshots and clones, closed, and what is in it.
struct Told {
    shape: Shape,
    images: Vec<(String, Image)>,
    state: State,
}

fn tell(shape: Shape, seed: u64) -> Told {
    let set = SimSet::new(shape.disks, shape.disk_bytes);
    let mut steps = story::steps(seed);
    let end = steps.iter().position(|step| matches!(step, Step::Reopen)).unwrap();
    steps.truncate(end);
    let told = story::tell(&set, shape, &steps, |_| {});
    assert_eq!(told.error, None);
    told.pool.unwrap().close().unwrap();
    let images = set.disks().iter().map(|disk| (disk.name().to_owned(), disk.image())).collect();
    Told { shape, images, state: told.history.states.last().unwrap().clone() }
}

impl Told {
    fn set(&self) -> SimSet {
        SimSet::from_images(self.images.clone())
    }

    /// With these disks all is there, and the judge finds nothing. Those in want may hold what is wrong.
    fn is_whole(&self, set: &SimSet, disks: &[usize], wanting: &[usize]) -> Result<(), String> {
        let opened = rig::open_to_read(set, disks, u64::MAX)?;
        let (pool, _) = opened.ok_or("no pool was found")?;
        check::holds(&pool, &self.state)?;
        pool.close().map_err(|e| e.to_string())?;
        check::is_sound(set, disks, wanting)?;
        Ok(())
    }

    /// All other choices of as many disks as may be lost that have none of these, or as many of the rest as there are.
    fn others(&self, than: &[usize]) -> Vec<Vec<usize>> {
        let rest: Vec<usize> = (0..self.shape.disks).filter(|disk| !than.contains(disk)).collect();
        let count = self.shape.parity().min(rest.len());
        let some = choices(rest.len(), count);
        some.into_iter().map(|some| some.iter().map(|place| rest[*place]).collect()).collect()
    }

    /// Nothing is wrong any more, and without each of these choices of disks all is there.
    fn survives(&self, set: &SimSet, choices: &[Vec<usize>], what: &str) {
        self.is_whole(set, &rig::all(set), &[]).unwrap_or_else(|e| panic!("{what}: {e}"));
        for away in choices {
            let rest: Vec<usize> = (0..set.len()).filter(|disk| !away.contains(disk)).collect();
            let whole = self.is_whole(set, &rest, &[]);
            whole.unwrap_or_else(|e| panic!("{what}, then without {away:?}: {e}"));
        }
    }
}

/// Every choice of `count` of the numbers below `among`.
fn choices(among: usize, count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let with = |last: usize| {
        choices(last, count - 1).into_iter().map(move |mut rest| {
            rest.push(last);
            rest
        })
    };
    (0..among).flat_map(with).collect()
}

fn open(set: &SimSet, disks: &[usize]) -> Arc<Pool> {
    let pool = rig::open_to_write(set, disks).unwrap();
    assert_eq!(pool.read_only_reason(), None);
    pool
}

/// A scrub to its end.
fn scrub(pool: &Pool) -> ScanStatus {
    assert_eq!(pool.scan_start(ScanFunction::Scrub).unwrap(), ScanAnswer::Done);
    assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
    pool.scan_status().unwrap().unwrap()
}

/// A scrub has nothing to do.
fn nothing_is_left(set: &SimSet, what: &str) {
    let pool = open(set, &rig::all(set));
    let again = scrub(&pool).scan;
    assert_eq!((again.processed, again.errors), (0, 0), "{what}: {again:?}");
    pool.close().unwrap();
}

/// zdb reads every block with nothing wrong, and so does the kernel, whose scrub repairs nothing.
fn the_judges_are_content(sets: &[(&str, &SimSet)]) {
    let dir = testkit::temp_dir();
    let put = |set: &SimSet, dir: &Path| {
        std::fs::create_dir(dir).unwrap();
        for disk in set.disks() {
            disk.image().to_file(dir.join(disk.name())).unwrap();
        }
    };
    let mut script = String::from("set -euo pipefail\n");
    for (name, set) in sets {
        let dir = dir.path().join(name);
        put(set, &dir);
        tool::zdb_content(&dir, rig::POOL);
        script += &format!(
            "zpool import -f -d /d/{name} -o cachefile=none tank\n\
             zpool scrub -w tank; zpool status -v tank; zpool export tank\n"
        );
    }
    if !vm::wanted("that the kernel's scrub finds nothing wrong in what was mended") {
        return;
    }
    let ran = Vm::new(dir.path()).run(&script).expect_ok();
    for what in ["repaired 0B", "with 0 errors", "No known data errors"] {
        assert_eq!(ran.out.matches(what).count(), sets.len(), "{what}: {ran}");
    }
}
