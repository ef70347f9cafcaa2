//! Damaged and hostile pools: `dump` says what it cannot read and ends, in bounded time and memory,
//! and never panics.
//!
//! Checksums keep random damage from the parsers, so a pool is forged whose pointers have none:
//! all its metadata is written anew, uncompressed and unchecked, below a new uberblock. There any
//! byte that is changed is believed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use acceptance::program;
use codec::embedded::{self, Place};
use format::blkptr::BlkProps;
use format::dnode::DNODE_SLOT;
use format::label::{DATA_AT, LABELS, RING_AT, label_offset};
use format::uberblock::{slot_of_txg, slot_size};
use format::{
    BlkPtr, Checksum, Compress, DnodePhys, Dva, ObjectType, ObjsetPhys, Uberblock, bpobj,
};
use testkit::random::Rng;
use testkit::{Ran, golden_copy, rounds, temp_dir};
use verify::Look;

use crate::{dump, facts};

const ASHIFT: u64 = 12;
/// Where forged blocks go on the only disk: behind all that the pool needs.
const FORGED: std::ops::Range<u64> = 0x380_0000..0x5a0_0000;

/// Writes a pool's metadata again, without checksums.
struct Forge<'a> {
    look: Look<'a>,
    disk: File,
    next: u64,
    done: BTreeMap<(u32, u64), BlkPtr>,
}

impl Forge<'_> {
    fn pointer(&mut self, bp: &BlkPtr) -> BlkPtr {
        let data = [ObjectType::PLAIN_FILE_CONTENTS, ObjectType::ZVOL].contains(&bp.kind());
        if !bp.has_space() || (data && bp.level() == 0) {
            return *bp;
        }
        let key = (bp.dva(0).vdev, bp.dva(0).offset);
        if let Some(done) = self.done.get(&key) {
            return *done;
        }
        let mut bytes = self.look.read(bp).unwrap().to_vec();
        if bp.level() > 0 {
            let children = bpobj::entries(&bytes, bytes.len() as u64 / 128).unwrap().to_vec();
            for (child, to) in children.iter().zip(bytes.chunks_exact_mut(128)) {
                store(&self.pointer(child), to);
            }
        } else if bp.kind() == ObjectType::OBJSET {
            let mut objset = ObjsetPhys::parse(&bytes).unwrap();
            self.dnode(&mut objset.meta);
            objset.accounting.iter_mut().flatten().for_each(|dnode| self.dnode(dnode));
            bytes = objset.to_bytes();
        } else if bp.kind() == ObjectType::DNODE {
            let mut slot = 0;
            while slot < bytes.len() / DNODE_SLOT {
                let Some(mut dnode) = DnodePhys::parse(&bytes[slot * DNODE_SLOT..]).unwrap() else {
                    slot += 1;
                    continue;
                };
                self.dnode(&mut dnode);
                let size = dnode.size();
                dnode.store(&mut bytes[slot * DNODE_SLOT..][..size]);
                slot += dnode.slots();
            }
        }
        let forged = self.write(bp, &bytes);
        self.done.insert(key, forged);
        forged
    }

    fn dnode(&mut self, dnode: &mut DnodePhys) {
        let pointers: Vec<BlkPtr> = dnode.blkptrs().to_vec();
        for (at, bp) in pointers.iter().enumerate() {
            dnode.blkptrs_mut()[at] = self.pointer(bp);
        }
        if let Some(spill) = dnode.spill().copied() {
            dnode.set_spill(Some(self.pointer(&spill))).unwrap();
        }
        if dnode.bonus_kind() == ObjectType::DSL_DATASET {
            let mut bonus = dnode.bonus().to_vec();
            let bp = bpobj::entries(&bonus[128..], 1).unwrap()[0];
            store(&self.pointer(&bp), &mut bonus[128..256]);
            dnode.set_bonus(&bonus).unwrap();
        }
    }

    fn write(&mut self, bp: &BlkPtr, bytes: &[u8]) -> BlkPtr {
        let size = bytes.len() as u64;
        let dva =
            Dva { vdev: 0, offset: self.next, asize: size.next_multiple_of(4096), gang: false };
        self.disk.write_all_at(bytes, DATA_AT + self.next).unwrap();
        self.next += dva.asize;
        assert!(self.next <= FORGED.end, "no room for forged blocks");
        let props = BlkProps {
            lsize: size,
            psize: size,
            compress: Compress::Off,
            checksum: Checksum::Off,
            kind: bp.kind(),
            level: bp.level(),
        };
        BlkPtr::new(props, &[dva], bp.birth(), bp.fill(), [0; 4])
    }
}

fn store(bp: &BlkPtr, to: &mut [u8]) {
    for (word, to) in bp.words().iter().zip(to.chunks_exact_mut(8)) {
        to.copy_from_slice(&word.to_le_bytes());
    }
}

/// Forges the golden pool `single` in `dir`; where the forged blocks end.
fn forge(dir: &Path) -> u64 {
    let scan = vdev::import::scan(&[PathBuf::from(dir)]).unwrap();
    let tree = scan.pools[0].open_tree().unwrap();
    let newest = scan.pools[0].uberblocks[0];
    let disk = OpenOptions::new().read(true).write(true).open(dir.join("d00")).unwrap();
    let size = disk.metadata().unwrap().len();
    let mut forge =
        Forge { look: Look::new(&tree), disk, next: FORGED.start, done: BTreeMap::new() };
    let root = forge.pointer(&newest.root);
    let txg = newest.txg.get() + 1;
    let uberblock = Uberblock::new(txg, newest.guid_sum.get(), newest.timestamp.get() + 1, root);
    for label in 0..LABELS {
        let slot = slot_of_txg(txg, ASHIFT, false);
        let offset = label_offset(label, size).unwrap() + RING_AT;
        let offset = offset + (slot * slot_size(ASHIFT)) as u64;
        let mut bytes = uberblock.to_slot(ASHIFT);
        embedded::seal(Place::Label { offset }, &mut bytes).unwrap();
        forge.disk.write_all_at(&bytes, offset).unwrap();
    }
    forge.next
}

/// Runs `dump` with all that it can tell, its memory and time capped.
fn survives(dir: &Path, words: &[&str], round: &str) {
    let state = temp_dir();
    let mut command = Command::new("timeout");
    // 2 GiB of address space: none of the tables of a dump is near that.
    command.args(["120", "sh", "-c", "ulimit -v 2097152; exec \"$0\" \"$@\""]);
    command.arg(program::thumper_path()).arg("-d").arg(dir).arg("dump").args(words);
    command.env("THUMPER_STATE", state.path().join("state")).stdout(Stdio::null());
    let ran = Ran::of(&mut command);
    assert!(ran.status == 0 || ran.status == 1, "{round}: {ran}");
    assert!(!ran.err.contains("panicked"), "{round}: {ran}");
}

/// Changes some bytes of `disk` in `range`, as `seed` says; gives what was there.
fn damage(disk: &File, range: std::ops::Range<u64>, seed: u64) -> Vec<(u64, [u8; 8])> {
    let mut rng = Rng::of(seed, 815);
    let places = rng.between(1, 64);
    let mut before = Vec::new();
    while (before.len() as u64) < places {
        let at = rng.between(range.start, range.end - 8) & !7;
        let mut old = [0; 8];
        disk.read_exact_at(&mut old, at).unwrap();
        // Most of the forged pool is zero, and most of that means nothing.
        if old == [0; 8] && !rng.one_in(40) {
            continue;
        }
        let new = match rng.below(4) {
            0 => (u64::from_le_bytes(old) ^ (1 << rng.below(64))).to_le_bytes(),
            1 => rng.pick(&[0, u64::MAX, 1 << 63, u64::MAX >> 1]).to_le_bytes(),
            2 => u64::from_le_bytes(old).wrapping_add(rng.below(9)).wrapping_sub(4).to_le_bytes(),
            _ => rng.word().to_le_bytes(),
        };
        disk.write_all_at(&new, at).unwrap();
        before.push((at, old));
    }
    before
}

fn rounds_on(dir: &Path, range: std::ops::Range<u64>, count: u64) {
    let disk = OpenOptions::new().read(true).write(true).open(dir.join("d00")).unwrap();
    let all: [&[&str]; 3] =
        [&["-uCdddddmmmiH", "single"], &["-dddddmmmiHj", "single"], &["single"]];
    for seed in 1..=count {
        let before = damage(&disk, range.clone(), seed);
        survives(dir, all[(seed % 3) as usize], &format!("seed {seed}"));
        if seed % 4 == 0 {
            survives(dir, &["single", "0:200"], &format!("seed {seed}, MOS objects"));
            survives(dir, &["single/", "0:700"], &format!("seed {seed}, file system objects"));
        }
        for (at, old) in before.iter().rev() {
            disk.write_all_at(old, *at).unwrap();
        }
    }
}

#[test]
fn unchecked_metadata_of_any_kind_is_survived() {
    let images = golden_copy("single");
    let before = dump(images.path(), &["-dddd", "single"]).expect_ok();
    let end = forge(images.path());
    // The forged pool is the same pool: every object with its contents, and nothing unreadable.
    let after = dump(images.path(), &["-dddd", "single"]).expect_ok();
    let contents = |said: &str| {
        let mut facts = facts::objects(said);
        // Sizes on disk, roots and other pointers are new.
        facts.retain(|fact, _| !fact.contains("dnode ") && !fact.contains("DVA"));
        facts
    };
    let differs = facts::difference(&contents(&before.out), &contents(&after.out));
    assert!(differs.is_empty(), "{differs}");
    rounds_on(images.path(), DATA_AT + FORGED.start..DATA_AT + end, rounds(40, 3000));
}

#[test]
fn damage_under_checksums_is_survived() {
    let images = golden_copy("single");
    // Labels and blocks alike.
    rounds_on(images.path(), 0..DATA_AT + 0x60_0000, rounds(8, 300));
    let disk = OpenOptions::new().read(true).write(true).open(images.disk(0)).unwrap();
    let path = images.disk(0);
    for seed in 1..=rounds(8, 300) {
        let before = damage(&disk, 0..512 << 10, seed);
        survives(images.path(), &["-lu", path.to_str().unwrap()], &format!("labels, seed {seed}"));
        for (at, old) in before.iter().rev() {
            disk.write_all_at(old, *at).unwrap();
        }
    }
}
