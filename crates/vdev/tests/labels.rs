//! Labels: written as OpenZFS writes them, read whatever is in them.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod common;

use common::*;
use device::sim::{Cut, Fault, Image, Kind as Failure, On, SimSet};
use device::{Device, ReadFile, WriteDevice, WriteFile};
use format::config::{Label, LabelIds, PoolConfig, PoolState, VdevConfig, VdevKind};
use format::label::{CONFIG_AT, CONFIG_SIZE, LABEL_SIZE, LABELS, RING_AT, RING_SIZE, label_offset};
use format::uberblock::{slot_of_txg, slot_size};
use format::{BlkPtr, NvList, ObjectType, Uberblock};
use rt::Rng;
use rt::sync::Arc;
use vdev::import::{Scan, scan, scan_devices};
use vdev::label::{LabelError, Labels, write_config, write_fresh};
use vdev::{VdevError, WriteTree};

fn pool_config(name: &str, txg: u64, root: VdevConfig) -> PoolConfig {
    PoolConfig {
        version: 5000,
        name: name.as_bytes().to_vec(),
        state: PoolState::Active,
        txg,
        pool_guid: root.guid,
        errata: Some(0),
        comment: None,
        compatibility: None,
        hostid: 77,
        hostname: Some(b"host".to_vec()),
        has_per_vdev_zaps: false,
        label: None,
        holes: vec![],
        vdev_children: Some(root.children.len() as u64),
        split_guid: None,
        vdev_tree: root,
        features_for_read: Some(vec![]),
        unknown: vec![],
    }
}

fn scan_set(set: &SimSet) -> Scan {
    let device = |disk: device::sim::SimDisk| -> Arc<dyn Device> { Arc::new(disk.reader()) };
    scan_devices(set.disks().into_iter().map(|disk| (None, device(disk))).collect())
}

fn uberblock(txg: u64, root: &VdevConfig) -> Uberblock {
    Uberblock::new(txg, root.guid_sum(), 1000 + txg, BlkPtr::ZERO)
}

/// Fresh labels on every disk, as a pool's first txg finds them.
fn label_all(set: &SimSet, config: &PoolConfig) {
    for (disk, guid) in set.disks().iter().zip(1..) {
        write_fresh(disk, &config.for_leaf(guid).unwrap().to_nvlist()).unwrap();
    }
}

#[test]
fn openzfs_reads_our_fresh_labels() {
    let images = testkit::fresh_images(1, (64 << 20) + 12345);
    let disk = WriteFile::open(images.disk(0)).unwrap();
    let mut root = root(&top(VdevKind::Mirror, 1, 0, 12));
    root.children[0] = VdevConfig { id: Some(0), top: root.children[0].top, ..leaf(0, 1) };
    let config = pool_config("fresh", 4, root);
    write_fresh(&disk, &config.for_leaf(1).unwrap().to_nvlist()).unwrap();
    let ran = testkit::zdb(["-l", images.disk(0).to_str().unwrap()]);
    let text = ran.expect_ok().out;
    assert!(text.contains("labels = 0 1 2 3") && text.contains("name: 'fresh'"), "{text}");
}

/// A disk that somebody else flushes when so many more writes have been taken: just before labels are flushed.
struct Meddled {
    disk: device::sim::SimDisk,
    tree: std::sync::OnceLock<rt::sync::Weak<WriteTree>>,
    armed: std::sync::atomic::AtomicI32,
}

impl Device for Meddled {
    testkit::of_the_disk_inside!(disk);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> device::Result<()> {
        self.disk.read_at(offset, buf)
    }
}

impl WriteDevice for Meddled {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> device::Result<()> {
        self.disk.write_at(offset, bytes)?;
        if self.armed.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1 {
            self.disk.inject(Fault::new(Failure::Forget, On::Flushes).times(1));
            let tree = self.tree.get().and_then(rt::sync::Weak::upgrade).unwrap();
            assert!(tree.flush_blocks(&[(0, 0, 4096)], &tree.flush_failures()).is_err());
        }
        Ok(())
    }
    fn flush(&self) -> device::Result<()> {
        self.disk.flush()
    }
}

/// A disk tells once that what it was given is gone: if somebody else hears that an uberblock is, who wrote it must not take it for
/// stable.
#[test]
fn an_uberblock_that_somebody_else_was_told_is_gone_is_not_stable() {
    let set = SimSet::new(1, 64 << 20);
    let root = root(&top(VdevKind::Mirror, 1, 0, 9));
    let config = pool_config("tank", 4, root.clone());
    label_all(&set, &config);
    let (tree, armed) = (std::sync::OnceLock::new(), std::sync::atomic::AtomicI32::new(0));
    let disk = Arc::new(Meddled { disk: set.disk(0), tree, armed });
    let device: Arc<dyn WriteDevice> = disk.clone();
    let tree = Arc::new(WriteTree::open(&root, [(1, device)].into()).unwrap());
    disk.tree.set(Arc::downgrade(&tree)).unwrap();
    tree.commit(&uberblock(4, &root), Some(&config)).unwrap();
    disk.armed.store(4, std::sync::atomic::Ordering::Relaxed);
    assert!(tree.commit(&uberblock(5, &root), None).is_err());
    tree.commit(&uberblock(6, &root), None).unwrap();
}

/// A disk tells once that what it was given is gone, if need be to who flushes labels: one that is being filled is
/// not full then.
#[test]
fn labels_are_flushed_with_what_a_disk_is_filled_with() {
    let set = SimSet::new(2, 64 << 20);
    let root = root(&top(VdevKind::Mirror, 2, 0, 9));
    label_all(&set, &pool_config("tank", 4, root.clone()));
    let device = |disk: usize| -> (u64, Arc<dyn WriteDevice>) {
        (disk as u64 + 1, Arc::new(set.disk(disk)))
    };
    let tree = WriteTree::open(&root, [device(0), device(1)].into()).unwrap();
    tree.tree().leaves()[1].lacks.note(5);
    tree.begin(11);
    set.disks().iter().for_each(|disk| {
        disk.inject(Fault::new(Failure::Forget, On::Flushes).times(1));
    });
    let committed = tree.commit(&uberblock(11, &root), None);
    assert!(matches!(committed, Err(VdevError::LabelsFailed { .. })), "{committed:?}");
    let lacks = |leaf: usize| tree.tree().leaves()[leaf].lacks.contains(11);
    assert_eq!([lacks(0), lacks(1)], [false, true]);
}

/// What the kernel wrote, written again by us, gives the same bytes: configs, uberblock and seals.
#[test]
fn the_kernels_labels_come_out_the_same_to_the_byte() {
    for name in ["single", "mir", "rz1", "rz2", "wide"] {
        let images = testkit::golden_copy(name);
        let scan = scan(&[images.path().to_owned()]).unwrap();
        let pool = &scan.pools[0];
        let before: Vec<Vec<u8>> = images.disks().iter().map(|path| all_labels(path)).collect();
        let tree = pool.open_write_tree(&pool.root).unwrap();
        let config =
            PoolConfig { label: None, vdev_tree: pool.root.clone(), ..pool.config.clone() };
        // Wipe what the commit is to bring back.
        for member in &pool.members {
            let txg = pool.uberblocks[0].txg.get();
            let ashift = member.config.vdev_tree.top.unwrap().ashift;
            wipe(member.candidate.path.as_ref().unwrap(), txg, ashift);
        }
        let report = tree.commit(&pool.uberblocks[0], Some(&config)).unwrap();
        assert_eq!(report, Default::default());
        drop(tree);
        for (path, before) in images.disks().iter().zip(before) {
            assert!(all_labels(path) == before, "{}", path.display());
        }
    }
}

fn all_labels(path: &std::path::Path) -> Vec<u8> {
    let disk = ReadFile::open(path).unwrap();
    let mut all = Vec::new();
    for label in 0..LABELS {
        let mut bytes = vec![0; LABEL_SIZE as usize];
        disk.read_at(label_offset(label, disk.size()).unwrap(), &mut bytes).unwrap();
        all.extend(bytes);
    }
    all
}

fn wipe(path: &std::path::Path, txg: u64, ashift: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let slot = slot_of_txg(txg, ashift, false);
    let slot_size = slot_size(ashift);
    for label in 0..LABELS {
        let at = label_offset(label, size).unwrap();
        file.write_all_at(&[0xaa; CONFIG_SIZE], at + CONFIG_AT).unwrap();
        let at = at + RING_AT + (slot * slot_size) as u64;
        file.write_all_at(&vec![0xaa; slot_size], at).unwrap();
    }
}

#[test]
fn a_commit_cut_anywhere_leaves_a_pool_that_opens() {
    let spec = top(VdevKind::Raidz, 3, 1, 9);
    let root = root(&spec);
    let set = disks(3);
    let first = pool_config("first", 4, root.clone());
    label_all(&set, &first);
    let tree = open_write(&spec, &set);
    tree.commit(&uberblock(4, &root), Some(&first)).unwrap();
    set.record();
    let second = pool_config("second", 5, root.clone());
    tree.commit(&uberblock(5, &root), Some(&second)).unwrap();
    let log = set.log();
    assert_eq!(log.writes(), 3 * (2 + 4 + 2));
    let mut replay = log.replay();
    let (mut old, mut new) = (0, 0);
    for index in 0..=log.writes() {
        replay.advance_to(index);
        for cut in Cut::ALL {
            for seed in 0..8 {
                let after = SimSet::from_images(replay.crash(cut, seed));
                let scan = scan_set(&after);
                let pool = scan.choose("first").or(scan.choose("second")).unwrap();
                assert_eq!(pool.members.len(), 3);
                let txg = pool.uberblocks[0].txg.get();
                let name = pool.name().into_owned();
                assert!(pool.open_tree().is_ok());
                match txg {
                    4 => old += 1,
                    5 => new += 1,
                    other => panic!("uberblock {other}"),
                }
                let expected = if txg == 4 { "first" } else { "second" };
                assert_eq!(name, expected, "uberblock {txg} after write {index}, {cut:?} {seed}");
            }
        }
    }
    assert!(old > 100 && new > 100, "{old} {new}");
    replay.advance_to_end();
    let scan = scan_set(&SimSet::from_images(replay.crash(Cut::Dropped, 0)));
    assert_eq!(scan.choose("second").unwrap().uberblocks.len(), 2);
}

#[test]
fn a_leaf_that_fails_is_reported_and_the_rest_commits() {
    let spec = top(VdevKind::Mirror, 3, 0, 12);
    let root = root(&spec);
    let config = pool_config("pool", 9, root.clone());
    for bad in 0..=3 {
        let set = disks(3);
        label_all(&set, &config);
        let tree = open_write(&spec, &set);
        for i in 0..bad {
            let error = Failure::Error(rustix::io::Errno::IO);
            set.disk(i).inject(Fault::new(error, On::Writes));
        }
        let result = tree.commit(&uberblock(9, &root), Some(&config));
        if bad == 3 {
            assert!(matches!(result, Err(VdevError::LabelsFailed { .. })), "{result:?}");
            continue;
        }
        let failed: std::collections::BTreeSet<usize> =
            result.unwrap().failed.iter().map(|(leaf, _)| *leaf).collect();
        assert_eq!(failed, (0..bad).collect());
        let scan = scan_set(&set);
        let pool = scan.choose("pool").unwrap();
        for (member, i) in pool.members.iter().zip(0..) {
            assert_eq!(member.candidate.labels.uberblocks.len(), usize::from(i >= bad));
        }
    }
}

/// A label ahead of every uberblock was written for one that never came.
#[test]
fn labels_ahead_of_the_uberblock_are_not_believed() {
    let spec = top(VdevKind::Mirror, 2, 0, 12);
    let root = root(&spec);
    let set = disks(2);
    let now = pool_config("now", 9, root.clone());
    label_all(&set, &now);
    open_write(&spec, &set).commit(&uberblock(9, &root), Some(&now)).unwrap();
    let ahead = pool_config("ahead", 10, root).for_leaf(1).unwrap();
    // Labels 0 and 2 of one disk.
    let mut half = set.disk(0).image();
    write_config(&set.disk(0), &ahead.to_nvlist()).unwrap();
    for label in [0, 2] {
        let at = label_offset(label, half.size()).unwrap();
        let mut bytes = vec![0; LABEL_SIZE as usize];
        set.disk(0).image().read(at, &mut bytes);
        half.write(at, &bytes);
    }
    let other = set.disk(1).image();
    let set = SimSet::from_images(vec![("a".into(), half), ("b".into(), other)]);
    let scan = scan_set(&set);
    assert_eq!(scan.pools[0].name(), "now");
    assert_eq!(scan.pools[0].foreign_host(77), None);
    assert_eq!(scan.pools[0].foreign_host(78), Some(77));
}

/// Of two devices with the label of one leaf the one that is further is it, whatever the configs say of their age.
#[test]
fn of_two_devices_with_one_label_the_one_that_is_further_counts() {
    let spec = top(VdevKind::Mirror, 2, 0, 12);
    let root = root(&spec);
    let set = disks(2);
    label_all(&set, &pool_config("now", 9, root.clone()));
    open_write(&spec, &set).commit(&uberblock(9, &root), None).unwrap();
    let copy = SimSet::from_images(vec![("copy".into(), set.disk(0).image())]);
    let later = pool_config("now", 12, root.clone()).for_leaf(1).unwrap();
    write_config(&copy.disk(0), &later.to_nvlist()).unwrap();
    open_write(&spec, &set).commit(&uberblock(30, &root), None).unwrap();
    let images = [copy.disk(0), set.disk(0), set.disk(1)].map(|disk| disk.image());
    let images = ["copy", "a", "b"].into_iter().map(String::from).zip(images).collect();
    let pool = scan_set(&SimSet::from_images(images)).pools.remove(0);
    assert_eq!(pool.duplicates.len(), 1);
    assert_eq!(pool.duplicates[0].config.txg, 12);
}

/// What is the same for both, what a crash leaves, and what nobody can tell is no other way.
#[test]
fn disks_that_went_different_ways_are_told() {
    let ring = |ring: &[(u64, u64)]| -> Vec<Uberblock> {
        let at = |way| BlkPtr::hole(512, ObjectType::OBJSET, 0, way);
        ring.iter().map(|(txg, way)| Uberblock::new(*txg, 1, 1000, at(*way))).collect()
    };
    let way = ring(&[(9, 1), (8, 1), (7, 1), (6, 1)]);
    let mut labels = Labels::read(&disks(1).disk(0));
    for (own, parted) in [
        (&[(7, 1), (6, 1), (5, 1)][..], false),
        (&[(7, 2), (6, 1)], false),
        (&[(8, 2), (7, 2), (6, 1)], true),
        (&[(9, 2), (8, 1), (7, 1)], false),
        (&[(12, 2), (9, 2), (8, 1)], true),
        (&[(12, 2), (11, 2), (5, 1)], false),
        (&[(8, 1), (8, 2), (7, 1), (7, 2)], false),
        (&[], false),
    ] {
        labels.uberblocks = ring(own);
        assert_eq!(labels.has_parted(&way), parted, "{own:?}");
    }
}

/// One ring vouches for an uberblock of another only if it is the same.
#[test]
fn an_uberblock_with_a_wrong_sum_is_none_whatever_the_other_rings_hold() {
    let spec = top(VdevKind::Mirror, 2, 0, 12);
    let root = root(&spec);
    let set = disks(2);
    label_all(&set, &pool_config("now", 9, root.clone()));
    let config = pool_config("now", 9, root.clone());
    open_write(&spec, &set).commit(&uberblock(9, &root), Some(&config)).unwrap();
    let disk = set.disk(0);
    for label in 0..LABELS {
        // A later txg, in the place of the one that is right, its sum still the old one's.
        let slots = label_offset(label, disk.size()).unwrap() + RING_AT;
        let slot = slots + (slot_of_txg(9, 12, false) * slot_size(12)) as u64;
        disk.write_at(slot + 16, &10u64.to_le_bytes()).unwrap();
        let txgs: Vec<u64> = Labels::read(&disk).uberblocks.iter().map(|u| u.txg.get()).collect();
        assert_eq!(txgs, if label + 1 < LABELS { vec![9] } else { vec![] }, "after ring {label}");
    }
}

#[test]
fn a_device_without_room_says_so() {
    let set = SimSet::new(1, 4 << 20);
    let labels = Labels::read(&set.disk(0).reader());
    assert!(labels.configs.iter().all(|c| matches!(c, Err(LabelError::TooSmall { .. }))));
    let result = write_fresh(&set.disk(0), &NvList::new());
    assert_eq!(result, Err(LabelError::TooSmall { size: 4 << 20 }));
    let mut long = NvList::new();
    long.put_string("long", vec![b'x'; CONFIG_SIZE]);
    assert!(matches!(write_fresh(&disks(1).disk(0), &long), Err(LabelError::Format(_))));
}

#[test]
fn a_device_that_became_something_else_is_not_written() {
    let images = testkit::golden_copy("mir");
    let scan = scan(&[images.path().to_owned()]).unwrap();
    let pool = &scan.pools[0];
    let held = WriteFile::open(images.disk(1)).unwrap();
    let busy = pool.open_write_tree(&pool.root).err().unwrap();
    assert!(busy.to_string().contains("busy"), "{busy}");
    let mut config = pool.members[1].config.clone();
    let ids = config.label.unwrap();
    config.label = Some(LabelIds { guid: 5, ..ids });
    write_config(&held, &config.to_nvlist()).unwrap();
    drop(held);
    let changed = pool.open_write_tree(&pool.root).err().unwrap();
    assert!(matches!(changed, VdevError::Changed { .. }), "{changed}");
}

/// Seen red: the uberblocks of the scan were gone on from, and what another writer had acknowledged since was lost.
#[test]
fn a_pool_that_was_written_since_the_scan_is_looked_at_anew() {
    let images = testkit::golden_copy("mir");
    let look = || scan(&[images.path().to_owned()]).unwrap().pools.remove(0);
    let (before, other) = (look(), look());
    let tree = other.open_write_tree(&other.root).unwrap();
    let newest = other.uberblocks[0];
    let next = Uberblock { txg: (newest.txg.get() + 1).into(), ..newest };
    tree.commit(&next, None).unwrap();
    drop(tree);
    let written = before.open_write_tree(&before.root).err().expect("it is refused");
    assert!(matches!(written, VdevError::Written { .. }), "{written}");
    let now = look();
    assert_eq!(now.uberblocks[0].txg.get(), newest.txg.get() + 1);
    assert!(now.open_write_tree(&now.root).is_ok());
}

/// Configs that are sealed but lie: whatever they say is refused or survived.
#[test]
fn hostile_labels_never_panic() {
    let mut rng = Rng::new(99);
    let mut opened = 0;
    for name in ["mir", "rz2", "resilvering", "wide"] {
        let disk = testkit::golden(name).join("d00");
        let golden = Image::from_file(&disk).unwrap();
        let good = Labels::read(&ReadFile::open(&disk).unwrap());
        let config = good.member(u64::MAX).unwrap().to_nvlist();
        let xdr = config.to_xdr().unwrap();
        for round in 0..200 {
            let set = SimSet::from_images(vec![("d".into(), golden.clone())]);
            let device = set.disk(0);
            let mut region = vec![0; CONFIG_SIZE];
            region[..xdr.len()].copy_from_slice(&xdr);
            for _ in 0..1 + rng.below(4) {
                let at = rng.index(xdr.len());
                match rng.below(3) {
                    0 => region[at] = rng.next_u64() as u8,
                    1 => region[at] ^= 1 << rng.below(8),
                    _ => region[(at & !3) + 3] = rng.below(20) as u8,
                }
            }
            for label in 0..LABELS {
                let at = label_offset(label, device.size()).unwrap() + CONFIG_AT;
                let place = codec::embedded::Place::Label { offset: at };
                codec::embedded::seal(place, &mut region).unwrap();
                device.write_at(at, &region).unwrap();
            }
            if round % 4 == 0 {
                let at = label_offset(0, device.size()).unwrap() + RING_AT;
                device.overwrite(at, &noise(&mut rng, RING_SIZE));
            }
            for pool in scan_set(&set).pools {
                let Ok(tree) = pool.open_tree() else { continue };
                opened += 1;
                let mut buf = vec![0; 4096];
                for top in 0..tree.tops().len().min(300) as u32 + 1 {
                    for offset in [0, 1 << 20, rng.next_u64() & !4095] {
                        drop(tree.read(top, offset, 0, &mut buf, &mut |_| false));
                    }
                }
                let _ = (pool.missing_tops(), pool.name(), tree.is_complete(0));
            }
            drop(vdev::content(&device));
        }
    }
    assert!(opened > 100, "{opened}");
}

#[test]
fn noise_is_no_label() {
    let mut rng = Rng::new(3);
    for size in [0, 1, 511, 512 << 10, 5 << 20, (5 << 20) + 77] {
        let bytes = noise(&mut rng, size);
        let set = SimSet::new(1, size as u64);
        set.disk(0).overwrite(0, &bytes);
        let labels = Labels::read(&set.disk(0).reader());
        assert_eq!(labels.good().count(), 0);
        assert!(labels.uberblocks.is_empty());
        assert!(scan_set(&set).pools.is_empty());
    }
}

/// The writable tree is the only way to write, and it takes writable devices only: what a reader
/// holds is a type without a method to write (INV-4).
#[test]
fn a_tree_for_reading_writes_nothing() {
    let set = disks(2);
    let spec = top(VdevKind::Mirror, 2, 0, 9);
    let tree = open_read(&spec, &set, 0);
    drop(tree.read(0, 0, 0, &mut [0; 512], &mut |_| false));
    assert!(set.disks().iter().all(|disk| disk.counts().writes == 0));
    let _: fn(&VdevConfig, std::collections::BTreeMap<u64, Arc<dyn WriteDevice>>) -> _ =
        WriteTree::open;
}

/// A write of labels 1 and 3 that was cut off leaves labels 0 and 2; while those are written, the others must be whole
/// again. Seen red: 0 and 2 were written first, and a second cut would have left no label.
#[test]
fn labels_that_were_broken_off_are_written_first() {
    let images = testkit::golden_copy("mir");
    let size = std::fs::metadata(images.disk(0)).unwrap().len();
    let disk = std::fs::OpenOptions::new().write(true).open(images.disk(0)).unwrap();
    let at = |label| label_offset(label, size).unwrap() + CONFIG_AT;
    std::os::unix::fs::FileExt::write_all_at(&disk, &[0xa5; 64], at(1) + 4000).unwrap();
    let found = &scan(&[images.path().to_owned()]).unwrap().pools[0];
    let guid =
        found.members.iter().find(|m| m.candidate.path == Some(images.disk(0))).unwrap().guid;
    let broken = |labels: &Labels| labels.are_odd_broken();
    let all = found.members.iter().filter(|m| broken(&m.candidate.labels)).map(|m| m.guid);
    assert_eq!(all.collect::<Vec<_>>(), [guid]);
    drop(found.open_write_tree(&found.root).unwrap());

    // In which order they are written.
    let set = SimSet::new(2, 64 << 20);
    let root = root(&top(VdevKind::Mirror, 2, 0, 9));
    let config = pool_config("tank", 4, root.clone());
    label_all(&set, &config);
    let devices = (0..2).map(|i| (i as u64 + 1, Arc::new(set.disk(i)) as Arc<dyn WriteDevice>));
    let tree = WriteTree::open(&root, devices.collect()).unwrap();
    tree.are_odd_broken([2]);
    // The second step fails: what the first has written is seen.
    let newer = pool_config("tank", 5, root.clone());
    for disk in set.disks() {
        disk.inject(Fault::new(Failure::Error(rustix::io::Errno::IO), On::Writes).after(2));
    }
    assert!(tree.commit(&uberblock(5, &root), Some(&newer)).is_err());
    let newer_in = |disk: usize| {
        let labels = Labels::read(&set.disk(disk)).configs;
        labels.map(|label| matches!(label, Ok(Label::Member(config)) if config.txg == 5))
    };
    assert_eq!(newer_in(0), [true, false, true, false]);
    assert_eq!(newer_in(1), [false, true, false, true]);
    // Once all are whole it is as ever.
    set.disks().iter().for_each(|disk| disk.heal());
    tree.commit(&uberblock(5, &root), Some(&newer)).unwrap();
    assert_eq!([newer_in(0), newer_in(1)], [[true; 4]; 2]);
}
