//! Disks that take nothing any more and leave the pool for good: they go, and nothing waits for them.

use device::sim::{Fault, Kind, On, SimSet};
use format::config::VdevKind;
use format::scan::ScanFunction;
use pool::{Pool, ScanAnswer, ScanStep};

use crate::rig::{self, MIRROR, guid_on, new_leaf};

/// The disk takes no write and no flush from now on, and can be read.
fn takes_nothing(set: &SimSet, disk: usize) {
    let error = Kind::Error(rustix::io::Errno::IO);
    set.disk(disk).inject(Fault::new(error.clone(), On::Writes));
    set.disk(disk).inject(Fault::new(error, On::Flushes));
}

/// Fills what leaves lack.
fn fill(pool: &Pool) {
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    assert_eq!(pool.scan_run(&mut |_| true).unwrap(), ScanStep::Done);
}

/// Names of the disks of the pool, and of vdevs that are there for a time.
fn shown(pool: &Pool) -> Vec<String> {
    let tree = pool.config().vdev_tree;
    let shown = tree.walk().filter_map(|vdev| match (&vdev.path, &vdev.kind) {
        (Some(path), _) => Some(String::from_utf8_lossy(path).replace("/sim/", "")),
        (None, VdevKind::Replacing | VdevKind::Spare | VdevKind::Hole) => {
            Some(String::from_utf8_lossy(vdev.kind.name()).into_owned())
        }
        _ => None,
    });
    shown.collect()
}

#[test]
fn a_dead_disk_goes_when_its_replacement_is_filled_and_holds_up_no_other() {
    let set = SimSet::new(6, MIRROR.disk_bytes);
    let pool = rig::create_on(&set, MIRROR, &[0, 1, 4]).unwrap();
    for (old, new) in [(0, 2), (1, 3)] {
        pool.attach(guid_on(&pool, old), new_leaf(&set, new), true).unwrap();
    }
    takes_nothing(&set, 0);
    fill(&pool);
    assert_eq!(shown(&pool), ["d02", "d03", "d04"]);
    let [gone] = &pool.take_unlabelled()[..] else { panic!("disk 0 took a label") };
    assert_eq!(gone.path, "/sim/d00");
    assert!(!gone.error.is_empty() && pool.take_unlabelled().is_empty());
    // One that somebody takes out goes, too.
    takes_nothing(&set, 4);
    pool.detach(guid_on(&pool, 4)).unwrap();
    assert_eq!((shown(&pool), pool.take_unlabelled().len()), (vec!["d02".into(), "d03".into()], 1));
    pool.close().unwrap();
    drop(pool);
    // What they still say of themselves does not make them parts of the pool.
    set.disks().iter().for_each(|disk| disk.heal());
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    assert_eq!((shown(&pool), pool.read_only_reason()), (vec!["d02".into(), "d03".into()], None));
    pool.close().unwrap();
}
