//! A cut after any write while disks come and go leaves the old pool or the new one: each opens, and every block is
//! where the pool says. Seen red: with labels of a vdev that has left, or is not there yet, taken for the pool's.

#![allow(clippy::unwrap_used)]

#[path = "crash/rig.rs"]
#[allow(dead_code)]
mod rig;

use device::sim::{Cut, SimSet};
use format::scan::ScanFunction;
use pool::{Additions, Joined, NewLeaf, NewTop, Pool, ScanAnswer, ScanStep, Stored, Trouble};
use rt::sync::Arc;
use verify::FindingKind;

/// A pool on simulated disks, and what becomes of it.
struct Story {
    set: SimSet,
    pool: Arc<Pool>,
    /// What is in it at first and after each step, as [`shape_of`] tells it.
    shapes: Vec<String>,
}

impl Story {
    /// Begins with a mirror of the first two of so many disks.
    fn of(disks: usize) -> Story {
        let set = SimSet::new(disks, rig::MIRROR.disk_bytes);
        drop(rig::create_on(&set, rig::MIRROR, &[0, 1]).unwrap());
        let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
        set.record();
        Story { set, pool, shapes: vec!["mirror 0 1".to_owned()] }
    }

    /// A step has been done: the pool is of this shape now.
    fn step(&mut self, shape: &str) {
        self.set.mark(self.shapes.len() as u64);
        self.shapes.push(shape.into());
    }

    /// Ends it, and looks at what is left if it is cut anywhere.
    fn end(self) {
        self.pool.close().unwrap();
        drop(self.pool);
        assert_cuts_leave(&self.set, &self.shapes);
    }

    /// A disk as a new leaf.
    fn leaf(&self, disk: usize) -> NewLeaf {
        let device = Arc::new(self.set.disk(disk));
        NewLeaf { path: path_of(disk), is_disk: false, device }
    }

    /// The guid of the leaf on a disk.
    fn guid(&self, disk: usize) -> u64 {
        let (tree, path) = (self.pool.store().tree(), path_of(disk));
        let leaf = tree.leaves().iter().find(|leaf| leaf.config.path.as_deref() == Some(&path));
        leaf.unwrap_or_else(|| panic!("no leaf on disk {disk}")).guid()
    }

    /// The guid of the spare on a disk.
    fn spare(&self, disk: usize) -> u64 {
        let (spares, path) = (self.pool.spares().unwrap(), path_of(disk));
        spares.iter().find(|spare| spare.path.as_deref() == Some(&path)).unwrap().guid
    }

    fn attach(&self, old: usize, disk: usize, replace: bool) {
        self.pool.attach(self.guid(old), self.leaf(disk), replace).unwrap();
    }

    fn detach(&self, disk: usize) {
        self.pool.detach(self.guid(disk)).unwrap();
    }

    /// Has the spare on a disk stand in.
    fn engage(&self, old: usize, disk: usize, trouble: Trouble) {
        let device = Arc::new(self.set.disk(disk));
        self.pool.engage(self.guid(old), self.spare(disk), device, trouble).unwrap();
    }

    fn add_spares(&self, disks: &[usize]) {
        let spares = disks.iter().map(|disk| self.leaf(*disk)).collect();
        self.pool.add(Additions { spares, ..Additions::default() }).unwrap();
    }

    /// Adds vdevs: how each is joined, of which disks, and whether it is a log.
    fn add(&self, tops: &[(Joined, &[usize], bool)]) {
        let top = |(joined, disks, is_log): &(Joined, &[usize], bool)| {
            let leaves = disks.iter().map(|disk| self.leaf(*disk)).collect();
            (NewTop { joined: *joined, leaves, is_log: *is_log }, 9)
        };
        let tops = tops.iter().map(top).collect();
        self.pool.add(Additions { tops, ..Additions::default() }).unwrap();
    }

    /// Resilvers from the beginning to the end.
    fn fill(&self) {
        let started = self.pool.scan_start(ScanFunction::Resilver).unwrap();
        assert_eq!(started, ScanAnswer::Done);
        assert_eq!(self.pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
    }
}

fn path_of(disk: usize) -> Vec<u8> {
    format!("/sim/d{disk:02}").into_bytes()
}

/// The pool as a crash has left it: which disks it has, and whether all its blocks are there.
fn shape_of(set: &SimSet) -> Result<String, String> {
    let all = rig::all(set);
    let opened = rig::open_to_read(set, &all, u64::MAX)?;
    let (pool, _) = opened.ok_or("no pool was found")?;
    let mut shape = String::new();
    for vdev in pool.config().vdev_tree.walk().skip(1) {
        let path = vdev.path.as_deref().map(|path| String::from_utf8_lossy(path).into_owned());
        let offline = match vdev {
            vdev if vdev.offline => "-",
            vdev if vdev.faulted => "!",
            vdev if vdev.degraded => "?",
            _ => "",
        };
        let word = path.map_or_else(
            || String::from_utf8_lossy(vdev.kind.name()).into_owned(),
            |path| path.trim_start_matches("/sim/d0").to_owned(),
        );
        shape += &format!("{offline}{word} ");
    }
    let config = pool.config();
    let out_of_use = config.vdev_tree.leaves().filter(|leaf| leaf.offline || leaf.faulted);
    let out_of_use: Vec<u64> = out_of_use.map(|leaf| leaf.guid).collect();
    for spare in pool.spares().map_err(|e| e.to_string())? {
        let path = String::from_utf8_lossy(spare.path.as_deref().unwrap_or_default()).into_owned();
        shape += &format!("+{} ", path.trim_start_matches("/sim/d0"));
    }
    let tree = pool.store().tree();
    let mut tops = tree.tops().iter().zip(&config.vdev_tree.children);
    if let Some((top, _)) = tops.find(|(top, config)| top.config.guid != config.guid) {
        return Err(format!("{shape}: by its label vdev {} is another", top.id()));
    }
    pool.close().map_err(|e| e.to_string())?;
    let scan = rig::scan(set, &all);
    let found = scan.pools.iter().find(|pool| pool.name() == rig::POOL).ok_or("no pool")?;
    let options = verify::Options::default();
    let report = verify::verify_pool(found, &options, &mut |_| true).map_err(|e| e.to_string())?;
    let other = report.findings.iter().find(|finding| finding.kind != FindingKind::Label);
    // Who is out of use is not asked; of all others the labels are there.
    let device = report.devices.iter().find(|device| {
        let lacks_labels = device.missing && !out_of_use.contains(&device.guid);
        lacks_labels || device.read_errors + device.bad_blocks > 0
    });
    if report.blocks == 0 || report.lost_blocks > 0 || other.is_some() || device.is_some() {
        return Err(format!("{shape}: {:?}, {other:?}, {device:?}", report.verdict));
    }
    Ok(shape.trim_end().to_owned())
}

#[test]
fn a_cut_while_disks_come_and_go_leaves_the_old_pool_or_the_new_one() {
    let mut story = Story::of(4);
    story.attach(1, 2, false);
    story.step("mirror 0 1 2");
    story.pool.offline(story.guid(1), false, false).unwrap();
    story.step("mirror 0 -1 2");
    // The only disk that has all cannot go.
    assert!(story.pool.offline(story.guid(0), false, false).is_err());
    assert!(story.pool.detach(story.guid(0)).is_err());
    story.pool.online(story.guid(1), None).unwrap();
    story.step("mirror 0 1 2");
    story.attach(0, 3, true);
    story.step("mirror replacing 0 3 1 2");
    story.detach(3);
    story.step("mirror 0 1 2");
    story.detach(2);
    story.step("mirror 0 1");
    story.detach(1);
    story.step("0");
    story.attach(0, 2, false);
    story.step("mirror 0 2");
    story.end();
}

#[test]
fn a_cut_while_spares_stand_in_and_back_leaves_the_old_pool_or_the_new_one() {
    let mut story = Story::of(4);
    story.add_spares(&[2]);
    story.step("mirror 0 1 +2");
    story.engage(1, 2, Trouble::Faulted);
    story.step("mirror 0 spare !1 2 +2");
    story.fill();
    story.pool.use_again(Some(story.guid(1))).unwrap();
    // It lacks what was written while it was faulted: the spare stays that long.
    story.step("mirror 0 spare 1 2 +2");
    story.fill();
    story.step("mirror 0 1 +2");
    story.engage(0, 2, Trouble::Unnoted);
    story.step("mirror spare 0 2 1 +2");
    story.fill();
    story.attach(0, 3, true);
    story.step("mirror spare replacing 0 3 2 1 +2");
    story.fill();
    story.step("mirror 3 1 +2");
    story.engage(1, 2, Trouble::Degraded);
    story.step("mirror 3 spare ?1 2 +2");
    story.fill();
    story.detach(1);
    story.step("mirror 3 2");
    story.add_spares(&[0, 1]);
    story.step("mirror 3 2 +0 +1");
    story.pool.remove_aux(story.spare(0)).unwrap();
    story.step("mirror 3 2 +1");
    story.end();
}

#[test]
fn a_cut_while_vdevs_come_and_go_leaves_the_old_pool_or_the_new_one() {
    let mut story = Story::of(6);
    let step = |story: &mut Story, shape: &str| {
        // What comes next is put on all that there is then.
        let value = Stored::Number((story.shapes.len() as u64 + 1) % 2);
        story.pool.set_pool_property("listsnapshots", Some(value)).unwrap();
        story.step(shape);
    };
    story.add(&[(Joined::Mirror, &[2, 3], false)]);
    step(&mut story, "mirror 0 1 mirror 2 3");
    story.add(&[(Joined::Single, &[4], true), (Joined::Single, &[5], true)]);
    step(&mut story, "mirror 0 1 mirror 2 3 4 5");
    assert!(story.pool.remove_log(story.guid(2)).is_err(), "what holds data stays");
    story.pool.remove_log(story.guid(4)).unwrap();
    step(&mut story, "mirror 0 1 mirror 2 3 hole 5");
    // What comes takes the place of what has gone.
    story.add(&[(Joined::Single, &[4], false)]);
    step(&mut story, "mirror 0 1 mirror 2 3 4 5");
    story.pool.remove_log(story.guid(5)).unwrap();
    step(&mut story, "mirror 0 1 mirror 2 3 4 hole");
    story.end();
}

/// After a cut at any write the pool is of the shape of the last step, or of that before.
fn assert_cuts_leave(set: &SimSet, shapes: &[String]) {
    let log = set.log();
    let mut replay = log.replay();
    let mut wrong = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for index in 0..=log.writes() {
        replay.advance_to(index);
        let at = replay.mark().unwrap_or(0) as usize;
        let cut = Cut::ALL[index as usize % 4];
        let images = SimSet::from_images(replay.crash(cut, index));
        match shape_of(&images) {
            Ok(shape) if shapes[at..].iter().take(2).any(|known| *known == shape) => {
                seen.insert((at, shape));
            }
            Ok(shape) => wrong.push(format!("{index} {cut:?}: {shape:?} after {:?}", shapes[at])),
            Err(error) => wrong.push(format!("{index} {cut:?} after {:?}: {error}", shapes[at])),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}: {:#?}",
        wrong.len(),
        log.writes(),
        &wrong[..wrong.len().min(8)]
    );
    // Both sides of each step were seen.
    assert!(seen.len() >= 2 * shapes.len() - 2, "{seen:?}");
}
