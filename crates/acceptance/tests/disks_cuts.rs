//! A cut after any write while disks come and go leaves the old pool or the new one: each opens, and every block is
//! where the pool says. Seen red: with labels of a vdev that has left, or is not there yet, taken for the pool's.

#![allow(clippy::unwrap_used)]

#[path = "crash/rig.rs"]
#[allow(dead_code)]
mod rig;

use device::sim::{Cut, SimSet};
use pool::{Additions, Joined, NewLeaf, NewTop, Pool, ScanAnswer, ScanStep, Stored, Trouble};
use rt::sync::Arc;
use verify::FindingKind;

fn leaf(set: &SimSet, disk: usize) -> NewLeaf {
    let disk = set.disk(disk);
    let path = format!("/sim/{}", device::Device::name(&disk)).into_bytes();
    NewLeaf { path, is_disk: false, device: Arc::new(disk) }
}

/// The guid of the leaf on a disk.
fn guid_on(pool: &Pool, disk: usize) -> u64 {
    let tree = pool.store().tree();
    let name = format!("/sim/d{disk:02}").into_bytes();
    let leaf = tree.leaves().iter().find(|leaf| leaf.config.path.as_deref() == Some(&name));
    leaf.unwrap_or_else(|| panic!("no leaf on disk {disk}")).guid()
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
    let set = SimSet::new(4, rig::MIRROR.disk_bytes);
    drop(rig::create_on(&set, rig::MIRROR, &[0, 1]).unwrap());
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    set.record();
    let mut mark = 0;
    let mut shapes = vec!["mirror 0 1".to_owned()];
    let mut step = |shape: &str| {
        mark += 1;
        set.mark(mark);
        shapes.push(shape.into());
    };
    pool.attach(guid_on(&pool, 1), leaf(&set, 2), false).unwrap();
    step("mirror 0 1 2");
    pool.offline(guid_on(&pool, 1), false, false).unwrap();
    step("mirror 0 -1 2");
    // The only disk that has all cannot go.
    assert!(pool.offline(guid_on(&pool, 0), false, false).is_err());
    assert!(pool.detach(guid_on(&pool, 0)).is_err());
    pool.online(guid_on(&pool, 1), None).unwrap();
    step("mirror 0 1 2");
    pool.attach(guid_on(&pool, 0), leaf(&set, 3), true).unwrap();
    step("mirror replacing 0 3 1 2");
    pool.detach(guid_on(&pool, 3)).unwrap();
    step("mirror 0 1 2");
    pool.detach(guid_on(&pool, 2)).unwrap();
    step("mirror 0 1");
    pool.detach(guid_on(&pool, 1)).unwrap();
    step("0");
    pool.attach(guid_on(&pool, 0), leaf(&set, 2), false).unwrap();
    step("mirror 0 2");
    pool.close().unwrap();
    drop(pool);
    assert_cuts_leave(&set, &shapes);
}

#[test]
fn a_cut_while_spares_stand_in_and_back_leaves_the_old_pool_or_the_new_one() {
    let set = SimSet::new(4, rig::MIRROR.disk_bytes);
    drop(rig::create_on(&set, rig::MIRROR, &[0, 1]).unwrap());
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    set.record();
    let mut mark = 0;
    let mut shapes = vec!["mirror 0 1".to_owned()];
    let mut step = |shape: &str| {
        mark += 1;
        set.mark(mark);
        shapes.push(shape.into());
    };
    let spare = |disk: usize| {
        let name = format!("/sim/d{disk:02}").into_bytes();
        let is_it = |spare: &&format::config::VdevConfig| spare.path.as_deref() == Some(&name);
        pool.spares().unwrap().iter().find(is_it).unwrap().guid
    };
    let engage = |old: usize, disk: usize, trouble: Trouble| {
        let device = Arc::new(set.disk(disk));
        pool.engage(guid_on(&pool, old), spare(disk), device, trouble).unwrap();
    };
    let fill = || {
        assert_eq!(
            pool.scan_start(format::scan::ScanFunction::Resilver).unwrap(),
            ScanAnswer::Done
        );
        assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
    };
    let spares = |spares| pool.add(Additions { spares, ..Additions::default() }).unwrap();
    spares(vec![leaf(&set, 2)]);
    step("mirror 0 1 +2");
    engage(1, 2, Trouble::Faulted);
    step("mirror 0 spare !1 2 +2");
    fill();
    pool.use_again(Some(guid_on(&pool, 1))).unwrap();
    // It lacks what was written while it was faulted: the spare stays that long.
    step("mirror 0 spare 1 2 +2");
    fill();
    step("mirror 0 1 +2");
    engage(0, 2, Trouble::Unnoted);
    step("mirror spare 0 2 1 +2");
    fill();
    pool.attach(guid_on(&pool, 0), leaf(&set, 3), true).unwrap();
    step("mirror spare replacing 0 3 2 1 +2");
    fill();
    step("mirror 3 1 +2");
    engage(1, 2, Trouble::Degraded);
    step("mirror 3 spare ?1 2 +2");
    fill();
    pool.detach(guid_on(&pool, 1)).unwrap();
    step("mirror 3 2");
    spares(vec![leaf(&set, 0), leaf(&set, 1)]);
    step("mirror 3 2 +0 +1");
    pool.remove_aux(spare(0)).unwrap();
    step("mirror 3 2 +1");
    pool.close().unwrap();
    drop(pool);
    assert_cuts_leave(&set, &shapes);
}

#[test]
fn a_cut_while_vdevs_come_and_go_leaves_the_old_pool_or_the_new_one() {
    let set = SimSet::new(6, rig::MIRROR.disk_bytes);
    drop(rig::create_on(&set, rig::MIRROR, &[0, 1]).unwrap());
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    set.record();
    let mut mark = 0;
    let mut shapes = vec!["mirror 0 1".to_owned()];
    let mut step = |shape: &str| {
        // What comes next is put on all that there is then.
        let value = Stored::Number(mark % 2);
        pool.set_pool_property("listsnapshots", Some(value)).unwrap();
        mark += 1;
        set.mark(mark);
        shapes.push(shape.into());
    };
    let top = |joined: Joined, disks: &[usize], is_log: bool| {
        let leaves = disks.iter().map(|disk| leaf(&set, *disk)).collect();
        (NewTop { joined, leaves, is_log }, 9)
    };
    let add = |tops: Vec<(NewTop, u32)>| pool.add(Additions { tops, ..Additions::default() });
    let remove = |disk: usize| pool.remove_log(guid_on(&pool, disk));
    add(vec![top(Joined::Mirror, &[2, 3], false)]).unwrap();
    step("mirror 0 1 mirror 2 3");
    add(vec![top(Joined::Single, &[4], true), top(Joined::Single, &[5], true)]).unwrap();
    step("mirror 0 1 mirror 2 3 4 5");
    assert!(remove(2).is_err(), "what holds data stays");
    remove(4).unwrap();
    step("mirror 0 1 mirror 2 3 hole 5");
    // What comes takes the place of what has gone.
    add(vec![top(Joined::Single, &[4], false)]).unwrap();
    step("mirror 0 1 mirror 2 3 4 5");
    remove(5).unwrap();
    step("mirror 0 1 mirror 2 3 4 hole");
    pool.close().unwrap();
    drop(pool);
    assert_cuts_leave(&set, &shapes);
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
