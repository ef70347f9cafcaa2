//! Labels of a leaf that cannot all be written: one is enough to find it by.
//!
//! Seen red: one bad sector in one label of a disk without redundancy ended the pool.

use device::sim::{Fault, Kind, On, SimSet};
use fs::{Filesystem, NewObject, Who, mode};

use crate::check;
use crate::rig::{self, POOL, STRIPE};

/// Bytes of a label, of which there are two at each end.
const LABEL: u64 = 256 << 10;

#[test]
fn a_label_that_cannot_be_written_is_an_error_and_no_end() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let pool = rig::create(&set, STRIPE).unwrap();
    let end = STRIPE.disk_bytes / LABEL * LABEL;
    let error = Kind::Error(rustix::io::Errno::IO);
    for label in [end - LABEL, LABEL] {
        let bad = Fault::new(error.clone(), On::Writes).within(label..label + LABEL);
        set.disks().iter().for_each(|disk| _ = disk.inject(bad.clone()));
        let fs = Filesystem::open(&pool, POOL).unwrap();
        let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
        fs.create_with(fs.root(), format!("{label}").as_bytes(), &new, &[1; 900]).unwrap();
        pool.sync().unwrap();
    }
    let written =
        pool.store().tree().leaves().iter().map(|leaf| leaf.errors.get().write).sum::<u64>();
    assert!(written > 0, "nothing was counted");
    drop(pool);
    // Not closed: as a crash leaves it.
    set.disks().iter().for_each(|disk| disk.heal());
    let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
    let fs = Filesystem::open(&pool, POOL).unwrap();
    assert_eq!(fs.read_dir(fs.root()).unwrap().len(), 2);
    drop(fs);
    pool.close().unwrap();
    check::verified(&set, &rig::all(&set)).unwrap();
}
