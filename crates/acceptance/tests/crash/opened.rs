//! A data set is opened while it is rolled back, or destroyed: who has it then has what the pool has.

use std::collections::BTreeMap;
use std::time::Duration;

use device::sim::{Fault, Kind, On, SimSet};
use fs::Volume;
use pool::Stored;

use crate::check;
use crate::rig::{self, STRIPE};

const NAME: &str = "tank/volume";
const SNAPSHOT: &str = "tank/volume@1";
const BLOCK: u64 = 8192;

/// Where it begins was looked up, and what is there is read from a slow disk; by then that is no more.
///
/// Seen red: it was among those that are open with what had been freed.
#[test]
fn who_opens_what_goes_has_it_as_it_is_or_is_told() {
    for destroyed in [false, true] {
        let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
        let pool = rig::create(&set, STRIPE).unwrap();
        pool.create_volume(NAME, BTreeMap::new(), 8 * BLOCK, BLOCK as u32).unwrap();
        let volume = Volume::open(&pool, NAME).unwrap().unwrap();
        volume.write(&pool, 0, &[1; BLOCK as usize]).unwrap();
        if !destroyed {
            pool.snapshot(&[SNAPSHOT.to_string()], &[]).unwrap();
        }
        volume.write(&pool, 0, &[2; BLOCK as usize]).unwrap();
        pool.close().unwrap();
        drop((volume, pool));

        let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
        let slow = Fault::new(Kind::Slow(Duration::from_millis(700)), On::Reads);
        set.disk(0).inject(slow.times(1));
        let theirs = pool.clone();
        let opener = rt::thread::spawn("opener", move || Volume::open(&theirs, NAME));
        rt::time::sleep(Duration::from_millis(100));
        match destroyed {
            true => pool.destroy_dataset(NAME).unwrap(),
            false => pool.rollback(SNAPSHOT).unwrap(),
        }
        let opened = opener.join();
        assert_eq!(opened.is_ok(), !destroyed, "{:?}", opened.err());
        if let Ok(Some(volume)) = opened {
            let mut found = [0; BLOCK as usize];
            volume.read(0, &mut found).unwrap();
            assert_eq!(found[0], 1, "it is what was rolled back");
            volume.write(&pool, BLOCK, &[3; BLOCK as usize]).unwrap();
        }
        pool.sync().unwrap();
        pool.close().unwrap();
        drop(pool);
        check::verified(&set, &rig::all(&set)).unwrap();
    }
}

/// What is set meanwhile, and what it is called, it has as all others.
#[test]
fn who_opens_what_changes_obeys_what_it_is_told() {
    let set = SimSet::new(STRIPE.disks, STRIPE.disk_bytes);
    let pool = rig::create(&set, STRIPE).unwrap();
    pool.create_volume(NAME, BTreeMap::new(), 8 * BLOCK, BLOCK as u32).unwrap();
    pool.close().unwrap();
    drop(pool);
    for renamed in [false, true] {
        let pool = rig::open_to_write(&set, &rig::all(&set)).unwrap();
        let slow = Fault::new(Kind::Slow(Duration::from_millis(700)), On::Reads);
        set.disk(0).inject(slow.times(1));
        let theirs = pool.clone();
        let opener = rt::thread::spawn("opener", move || theirs.dataset(NAME));
        rt::time::sleep(Duration::from_millis(100));
        match renamed {
            true => pool.rename(NAME, "tank/other").unwrap(),
            false => pool.set_property(NAME, "copies", Some(Stored::Number(2))).unwrap(),
        }
        match opener.join() {
            Ok(opened) => {
                assert_eq!((opened.objset.policy().copies, renamed), (2, false));
            }
            Err(error) => assert!(renamed, "{error}"),
        }
        pool.close().unwrap();
    }
}
