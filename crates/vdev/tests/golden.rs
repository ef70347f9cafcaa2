//! Pools that the OpenZFS kernel wrote: found by their labels, read block by block.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

#[path = "common/walk.rs"]
mod walk;

use format::config::VdevKind;
use std::path::{Path, PathBuf};
use vdev::import::{ChooseError, FoundPool, Scan, scan};
use vdev::sizes::metaslab_shift;
use vdev::{LeafState, ReadScratch, Tree, VdevError};
use walk::{Walk, is_right};

fn scan_golden(name: &str) -> Scan {
    scan(&[testkit::golden(name)]).unwrap()
}

/// The only pool of a scan.
fn the_pool(scan: Scan) -> FoundPool {
    assert_eq!(scan.pools.len(), 1);
    scan.pools.into_iter().next().unwrap()
}

/// The tree without the leaves `hidden`, by their place in the tree.
fn tree_without(pool: &FoundPool, hidden: &[usize]) -> Tree {
    let mut devices = pool.devices();
    for (place, leaf) in pool.root.leaves().enumerate() {
        if hidden.contains(&place) {
            devices.remove(&leaf.guid).unwrap();
        }
    }
    Tree::open(&pool.root, devices).unwrap()
}

/// Reads every copy of every block (or of those of the MOS); gives their number.
fn read_all(pool: &FoundPool, tree: &Tree, only_mos: bool) -> u64 {
    let mut scratch = ReadScratch::default();
    let mut read = |bp: &format::BlkPtr, dva: format::Dva, salt: &walk::Salt| {
        let mut buf = vec![0; bp.psize() as usize];
        let check = &mut |bytes: &[u8]| is_right(bp, bytes, salt);
        tree.read_with(dva.vdev, dva.offset, 0, &mut buf, &mut scratch, check).unwrap();
        buf
    };
    let mut walk = Walk::new(&mut read);
    walk.pool(&pool.uberblocks[0].root, only_mos);
    walk.blocks
}

/// Every copy and every parity column of every block, and the sizes that follow from the shape.
#[test]
fn every_piece_of_every_block_of_healthy_pools_is_right() {
    for (name, least) in
        [("single", 900), ("rz1", 4000), ("rz2", 300), ("mir", 300), ("rz3", 50), ("wide", 50)]
    {
        let pool = the_pool(scan_golden(name));
        assert_eq!(pool.name(), name);
        assert!(pool.missing_tops().is_empty());
        assert_eq!(pool.root.guid_sum(), pool.uberblocks[0].guid_sum.get(), "{name}");
        let tree = pool.open_tree().unwrap();
        assert!(tree.leaves().iter().all(|leaf| leaf.state == LeafState::Online));
        for top in tree.tops() {
            let Some(config) = top.config.top.filter(|_| top.layout.is_some()) else { continue };
            assert_eq!(config.metaslab_shift, u64::from(metaslab_shift(config.asize)));
            let devices = top.slots().iter().flatten().map(|leaf| &tree.leaves()[*leaf]);
            let space =
                devices.map(|leaf| format::label::leaf_asize(leaf.device().unwrap().size()));
            let layout = top.layout.unwrap();
            assert_eq!(layout.top_asize(space.min().unwrap().unwrap()), config.asize, "{name}");
        }
        let mut scratch = ReadScratch::default();
        let mut read = |bp: &format::BlkPtr, dva: format::Dva, salt: &walk::Salt| {
            let layout = tree.top(dva.vdev).unwrap().layout.unwrap();
            assert_eq!(dva.asize, layout.asize(bp.psize()));
            let mut buf = vec![0; bp.psize() as usize];
            let check = &mut |bytes: &[u8]| is_right(bp, bytes, salt);
            let examined =
                tree.examine(dva.vdev, dva.offset, 0, &mut buf, &mut scratch, check).unwrap();
            assert!(examined.is_whole(), "{name}: {dva:?}: {examined:?}");
            buf
        };
        let mut walk = Walk::new(&mut read);
        walk.pool(&pool.uberblocks[0].root, false);
        assert!(walk.blocks >= least, "{name}: {}", walk.blocks);
        assert!(tree.leaves().iter().all(|leaf| leaf.errors.get() == Default::default()));
    }
}

#[test]
fn with_every_pair_of_disks_hidden_the_mos_is_read() {
    let pool = the_pool(scan_golden("rz2"));
    let all = read_all(&pool, &pool.open_tree().unwrap(), true);
    let disks = pool.root.leaves().count();
    for a in 0..disks {
        for b in 0..a {
            let tree = tree_without(&pool, &[a, b]);
            assert!(tree.is_complete(0));
            assert_eq!(read_all(&pool, &tree, true), all);
        }
    }
    // Three are more than two parities bear: for some of the root's copies, not for all.
    let root = pool.uberblocks[0].root;
    let mut buf = vec![0; root.psize() as usize];
    let mut lost = 0;
    for a in 0..disks - 2 {
        let tree = tree_without(&pool, &[a, a + 1, a + 2]);
        assert!(!tree.is_complete(0));
        for dva in root.dvas() {
            let check = &mut |bytes: &[u8]| is_right(&root, bytes, &[0; 32]);
            match tree.read(0, dva.offset, 0, &mut buf, check) {
                Err(VdevError::Lost { missing: 3, .. }) => lost += 1,
                other => drop(other.unwrap()),
            }
        }
    }
    assert!(lost > 0);
}

#[test]
fn with_as_many_disks_hidden_as_there_are_parities_every_byte_is_read() {
    for (name, hidden) in [
        ("rz1", &[3][..]),
        ("rz2", &[0, 5]),
        ("rz2", &[9, 10]),
        ("rz3", &[1, 2, 4]),
        ("mir", &[0, 2]),
    ] {
        let pool = the_pool(scan_golden(name));
        let tree = tree_without(&pool, hidden);
        let blocks = read_all(&pool, &tree, false);
        assert!(blocks > 50, "{name}: {blocks}");
        assert!(tree.leaves().iter().all(|leaf| leaf.errors.get() == Default::default()));
    }
}

/// One disk is away, one is noise from 4 MiB on.
#[test]
fn a_hurt_pool_gives_everything_and_names_the_disk_that_lies() {
    let pool = the_pool(scan_golden("hurt"));
    let tree = pool.open_tree().unwrap();
    let missing = |leaf: &&vdev::Leaf| leaf.state == LeafState::Missing;
    let names: Vec<String> = tree.leaves().iter().filter(missing).map(|l| l.name()).collect();
    assert_eq!(names, ["/d/d02"]);
    let blocks = read_all(&pool, &tree, false);
    assert!(blocks > 80, "{blocks}");
    for (leaf, i) in tree.leaves().iter().zip(0..) {
        assert_eq!(leaf.errors.get().checksum > 0, i == 5, "{}", leaf.name());
        assert_eq!(leaf.errors.get().read, 0);
    }
}

#[test]
fn pools_are_found_by_their_labels_whatever_the_names() {
    let dir = testkit::temp_dir();
    for (name, disk, new) in
        [("mir", 0, "x"), ("mir", 2, "a b"), ("rz2", 11, "spare"), ("single", 0, "0")]
    {
        let from = testkit::golden(name).join(format!("d{disk:02}"));
        std::os::unix::fs::symlink(&from, dir.path().join(new)).unwrap();
        // The same disk by another name is the same disk.
        std::os::unix::fs::symlink(&from, dir.path().join(format!("again {new}"))).unwrap();
    }
    std::fs::write(dir.path().join("text"), "no pool").unwrap();
    std::fs::create_dir(dir.path().join("directory")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
    let scan = scan(&[dir.path().to_owned()]).unwrap();
    let names: Vec<_> = scan.pools.iter().map(|pool| pool.name().into_owned()).collect();
    assert_eq!(names, ["mir", "single"]);
    assert_eq!((scan.aux.len(), scan.unopened.len()), (1, 0));
    let mir = scan.choose("mir").unwrap();
    assert_eq!((mir.members.len(), mir.duplicates.len()), (2, 0));
    assert_eq!(scan.choose(&mir.guid().to_string()).unwrap().guid(), mir.guid());
    let online: Vec<bool> =
        mir.open_tree().unwrap().leaves().iter().map(|leaf| leaf.state.is_online()).collect();
    assert_eq!(online, [true, false, true]);
    let Err(error) = scan.choose("tank") else { panic!() };
    let seen = vec!["mir".to_owned(), "single".to_owned()];
    assert_eq!(error, ChooseError::NoSuchPool { name: "tank".to_owned(), seen });
    assert_eq!(error.to_string(), "no such pool available: tank (found: mir, single)");
}

/// A disk whose labels are destroyed is no leaf of the pool; but where nothing else is left its
/// bytes are tried, and the checksums say that they are right.
#[test]
fn a_disk_without_labels_is_the_last_resort() {
    use std::os::unix::fs::FileExt;
    let images = testkit::golden_copy("rz2");
    let file = std::fs::OpenOptions::new().write(true).open(images.disk(3)).unwrap();
    for label in 0..4 {
        let at = format::label::label_offset(label, 64 << 20).unwrap();
        file.write_all_at(&vec![0; 256 << 10], at).unwrap();
    }
    images.remove(5);
    images.remove(8);
    let pool = the_pool(scan(&[images.path().to_owned()]).unwrap());
    let tree = pool.open_tree().unwrap();
    let states: Vec<&LeafState> = [3, 5].map(|i| &tree.leaves()[i].state).into();
    assert_eq!(states, [&LeafState::BadLabel, &LeafState::Missing]);
    assert!(!tree.is_complete(0));
    assert!(read_all(&pool, &tree, false) > 300);
    assert!(tree.leaves().iter().all(|leaf| leaf.errors.get() == Default::default()));
}

#[test]
fn a_copy_of_a_disk_is_a_duplicate_not_a_second_leaf() {
    let copy = testkit::golden_copy("mir");
    std::fs::copy(copy.disk(0), copy.path().join("copy")).unwrap();
    let pool = the_pool(scan(&[copy.path().to_owned()]).unwrap());
    assert_eq!((pool.members.len(), pool.duplicates.len()), (3, 1));
    assert_eq!(pool.duplicates[0].guid, pool.root.leaves().next().unwrap().guid);
}

#[test]
fn whole_pools_may_lack_top_level_vdevs() {
    let golden = testkit::golden("wide");
    let full = the_pool(scan(&[golden]).unwrap());
    let tops = full.root.children.len();
    assert!(tops > 1, "wide has several");
    // Only the leaves of top 0.
    let first = full.root.children[0].clone();
    let paths: Vec<PathBuf> = full
        .members
        .iter()
        .filter(|member| first.find(member.guid).is_some())
        .map(|member| member.candidate.path.clone().unwrap())
        .collect();
    let part = the_pool(scan(&paths).unwrap());
    let missing = part.missing_tops();
    assert_eq!(part.root.children.len(), tops);
    assert!(!missing.is_empty() && missing.iter().all(|id| *id != 0));
    let tree = part.open_tree().unwrap();
    let result = tree.read(missing[0] as u32, 0, 0, &mut [0; 4096], &mut |_| true);
    assert!(matches!(result, Err(VdevError::NoSuchTop { .. })));
}

#[test]
fn draid_is_recognised_and_refused_with_its_name() {
    let pool = the_pool(scan_golden("draid"));
    let draid = pool.root.children.iter().find(|top| top.kind == VdevKind::Draid).unwrap();
    let tree = pool.open_tree().unwrap();
    let result = tree.read(draid.id.unwrap() as u32, 0, 0, &mut [0; 4096], &mut |_| true);
    let Err(error) = result else { panic!() };
    assert_eq!(error.to_string(), "vdev 0: kind draid is not supported");
}

/// The pool is in a partition: at the start of the disk there is only the table.
#[test]
fn a_disk_with_partitions_is_not_taken_for_a_leaf() {
    let pool = the_pool(scan_golden("gpt"));
    let shown: Vec<_> =
        pool.members.iter().map(|member| member.candidate.shown_path().unwrap()).collect();
    let dir = testkit::golden("gpt");
    assert_eq!(shown, ["d00-part1", "d01-part1", "d02-part1"].map(|name| dir.join(name)));
    assert!(read_all(&pool, &pool.open_tree().unwrap(), true) > 20);
    let disk = device::ReadFile::open(dir.join("d00")).unwrap();
    let content = vdev::content(&disk).unwrap();
    assert_eq!(content, Some(vdev::Content::Foreign("GPT partition table")));
}

#[test]
fn either_table_of_partitions_will_do_and_none_that_lies() {
    use device::WriteDevice;
    let images = testkit::golden_copy("gpt");
    let damage = |disk: &Path, at: u64| {
        let file = device::WriteFile::open(disk).unwrap();
        let mut bytes = [0; 512];
        device::Device::read_at(&file, at, &mut bytes).unwrap();
        bytes[72] ^= 1;
        file.write_at(at, &bytes).unwrap();
    };
    let found = || the_pool(scan(&[images.path().to_path_buf()]).unwrap()).members.len();
    let size = std::fs::metadata(&images.disks()[0]).unwrap().len();
    damage(&images.disks()[0], 512);
    assert_eq!(found(), 3, "the second table is good");
    damage(&images.disks()[0], size - 512);
    assert_eq!(found(), 2, "none is");
    damage(&images.disks()[1], 1024);
    damage(&images.disks()[1], size - 512);
    assert_eq!(found(), 1, "no checksum of the entries fits");
}

#[test]
fn a_pool_under_resilver_is_read() {
    let pool = the_pool(scan_golden("resilvering"));
    let tree = pool.open_tree().unwrap();
    assert!(tree.leaves().iter().any(vdev::Leaf::is_filling));
    assert!(read_all(&pool, &tree, false) > 20);
    assert!(tree.leaves().iter().all(|leaf| leaf.errors.get() == Default::default()));
}

#[test]
fn what_a_device_holds_is_said_before_it_is_overwritten() {
    let content = |name: &str, disk: &str| {
        vdev::content(&device::ReadFile::open(testkit::golden(name).join(disk)).unwrap()).unwrap()
    };
    let Some(vdev::Content::Pool(config)) = content("mir", "d01") else { panic!() };
    assert_eq!(config.name, b"mir");
    let Some(vdev::Content::Aux(aux)) = content("rz2", "d11") else { panic!() };
    assert_eq!(aux.state, format::config::PoolState::Spare);
}
