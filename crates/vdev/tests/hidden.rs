//! Hidden disks: golden pools read block by block, each copy, with every choice of as many disks away
//! as there is redundancy, and of one fewer away and one that lies.
//!
//! Blocks are judged by their checksums, so a choice costs no more than reading what it can touch.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

#[path = "common/walk.rs"]
mod walk;

use device::{Device, Result};
use format::{BlkPtr, Dva};
use rt::Workers;
use rt::sync::Arc;
use std::collections::BTreeSet;
use vdev::import::{FoundPool, scan};
use vdev::sizes::Layout;
use vdev::{Found, ReadScratch, Tree};
use walk::{Salt, Walk, is_right};

/// A copy of a block.
type Copy = (BlkPtr, Dva, Salt);

/// A disk of which every byte is noise, the labels too; but the tree was told that it is a leaf.
struct Noise(u64);

impl Device for Noise {
    fn name(&self) -> &str {
        "noise"
    }

    fn size(&self) -> u64 {
        self.0
    }

    fn sector_size(&self) -> u32 {
        512
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        for (byte, at) in buf.iter_mut().zip(offset..) {
            *byte = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        }
        Ok(())
    }
}

/// A golden pool with all of its blocks.
struct Pool {
    name: &'static str,
    found: FoundPool,
    copies: Vec<Copy>,
}

/// Disks to take away, and disks to overwrite, by their place among the leaves.
#[derive(Debug, Clone, Default)]
struct Choice {
    away: Vec<usize>,
    noise: Vec<usize>,
}

impl Pool {
    fn open(name: &'static str) -> Pool {
        let scan = scan(&[testkit::golden(name)]).unwrap();
        assert_eq!(scan.pools.len(), 1);
        let found = scan.pools.into_iter().next().unwrap();
        let tree = found.open_tree().unwrap();
        let mut copies = Vec::new();
        let mut read = |bp: &BlkPtr, dva: Dva, salt: &Salt| {
            copies.push((*bp, dva, *salt));
            let mut buf = vec![0; bp.psize() as usize];
            let check = &mut |bytes: &[u8]| is_right(bp, bytes, salt);
            tree.read(dva.vdev, dva.offset, 0, &mut buf, check).unwrap();
            buf
        };
        Walk::new(&mut read).pool(&found.uberblocks[0].root, false);
        assert!(copies.len() > 100, "{name}: {} copies", copies.len());
        Pool { name, found, copies }
    }

    /// The leaves of each top-level vdev that holds blocks, and how many of them it can lack.
    fn tops(&self) -> Vec<(BTreeSet<usize>, usize)> {
        let tree = self.found.open_tree().unwrap();
        let redundancy = |layout| match layout {
            Layout::Plain { .. } => None,
            Layout::Raidz(geometry) => Some(Layout::Raidz(geometry).parity()),
        };
        let shape = |top: &vdev::Top| {
            let leaves: BTreeSet<usize> = top.slots().iter().flatten().copied().collect();
            let parity = redundancy(top.layout?).unwrap_or(leaves.len() - 1);
            Some((leaves, parity))
        };
        tree.tops().iter().filter_map(shape).filter(|(_, parity)| *parity > 0).collect()
    }

    /// Reads every copy that one of the chosen disks may have a piece of; how many there are, and how
    /// many of them did not come back.
    fn read(&self, choice: &Choice) -> (usize, usize) {
        let mut devices = self.found.devices();
        let mut touched = BTreeSet::new();
        let healthy = self.found.open_tree().unwrap();
        for leaf in choice.away.iter().chain(&choice.noise) {
            let leaf = &healthy.leaves()[*leaf];
            touched.insert(leaf.top);
            let old = devices.remove(&leaf.guid()).unwrap();
            if choice.noise.iter().any(|noise| healthy.leaves()[*noise].guid() == leaf.guid()) {
                let device = Arc::new(Noise(old.device.size()));
                devices.insert(leaf.guid(), Found { device, labelled: true });
            }
        }
        let tree = Tree::open(&self.found.root, devices).unwrap();
        let mut scratch = ReadScratch::default();
        let mut buf = Vec::new();
        let touched = |copy: &&Copy| touched.contains(&copy.1.vdev);
        let (mut count, mut lost) = (0, 0);
        for (bp, dva, salt) in self.copies.iter().filter(touched) {
            buf.resize(bp.psize() as usize, 0);
            let check = &mut |bytes: &[u8]| is_right(bp, bytes, salt);
            let read = tree.read_with(dva.vdev, dva.offset, 0, &mut buf, &mut scratch, check);
            count += 1;
            lost += usize::from(read.is_err());
        }
        (count, lost)
    }

    fn check_all(&self, choices: &[Choice]) {
        Workers::per_core().run(choices.len(), |_, job| {
            let (count, lost) = self.read(&choices[job]);
            assert!(count > 0, "{}, {:?}: no block was touched", self.name, choices[job]);
            assert_eq!(lost, 0, "{}, {:?}: of {count} blocks", self.name, choices[job]);
        });
    }
}

/// Every choice of `count` of these.
fn choose(of: &[usize], count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in of.iter().enumerate() {
        for mut rest in choose(&of[at + 1..], count - 1) {
            rest.insert(0, *first);
            all.push(rest);
        }
    }
    all
}

/// Every choice for one top-level vdev.
fn choices(leaves: &BTreeSet<usize>, redundancy: usize) -> Vec<Choice> {
    let leaves: Vec<usize> = leaves.iter().copied().collect();
    let mut all: Vec<Choice> = choose(&leaves, redundancy)
        .into_iter()
        .map(|away| Choice { away, ..Choice::default() })
        .collect();
    for away in choose(&leaves, redundancy - 1) {
        let rest = leaves.iter().filter(|leaf| !away.contains(leaf));
        all.extend(rest.map(|leaf| Choice { away: away.clone(), noise: vec![*leaf] }));
    }
    all
}

/// All choices of all top-level vdevs of a pool, of which there are `expected`.
fn every_choice(name: &'static str, expected: usize) {
    let pool = Pool::open(name);
    let all: Vec<Choice> =
        pool.tops().iter().flat_map(|(leaves, parity)| choices(leaves, *parity)).collect();
    assert_eq!(all.len(), expected, "{name}");
    pool.check_all(&all);
}

#[test]
fn mirrors_lack_all_disks_but_one() {
    every_choice("mir", 3 + 6);
    every_choice("nofeat", 2 + 2);
}

#[test]
fn raidz1_lacks_any_disk() {
    every_choice("rz1", 5 + 5);
    every_choice("gpt", 3 + 3);
    every_choice("old", 3 + 3);
    every_choice("dirty", 4 + 4);
}

#[test]
fn raidz2_lacks_any_two_disks() {
    every_choice("rz2", 55 + 11 * 10);
}

#[test]
fn raidz3_lacks_any_three_disks() {
    every_choice("rz3", 84 + 36 * 7);
}

#[test]
fn each_of_several_vdevs_lacks_its_disks() {
    // Two raidz2 of six, a mirror for special blocks; the mirrored log holds none that is reached.
    let pool = Pool::open("wide");
    let tops = pool.tops();
    let used: BTreeSet<u32> = pool.copies.iter().map(|(_, dva, _)| dva.vdev).collect();
    let healthy = pool.found.open_tree().unwrap();
    let is_used = |leaves: &BTreeSet<usize>| {
        leaves.iter().all(|leaf| used.contains(&healthy.leaves()[*leaf].top))
    };
    let tops: Vec<_> = tops.iter().filter(|(leaves, _)| is_used(leaves)).collect();
    assert_eq!(tops.len(), 3);
    let all: Vec<Choice> =
        tops.iter().flat_map(|(leaves, parity)| choices(leaves, *parity)).collect();
    assert_eq!(all.len(), 2 * (15 + 6 * 5) + (2 + 2));
    pool.check_all(&all);
    // And in all of them at once.
    let mut rng = testkit::random::Rng::of(1, 9);
    let mut mixed = Vec::new();
    for _ in 0..50 {
        let mut choice = Choice::default();
        for (leaves, parity) in &tops {
            let of_top = choices(leaves, *parity);
            let one = &of_top[rng.index(of_top.len())];
            choice.away.extend(&one.away);
            choice.noise.extend(&one.noise);
        }
        mixed.push(choice);
    }
    pool.check_all(&mixed);
}

#[test]
fn one_more_is_too_many() {
    for (name, away) in [("mir", 3), ("rz1", 2), ("rz2", 3), ("rz3", 4)] {
        let pool = Pool::open(name);
        let lies = Choice { away: (1..away).collect(), noise: vec![0] };
        for choice in [Choice { away: (0..away).collect(), ..Choice::default() }, lies] {
            let (count, lost) = pool.read(&choice);
            assert!(lost > count / 20, "{name}, {choice:?}: {lost} of {count}");
        }
    }
}
