//! Lies that would keep the judge busy for ever, or fill the disk for its scratch files: it ends, and says why.

use std::time::Duration;

use format::dnode::{BLKPTR, DNODE_CORE};
use format::{BlkPtr, Checksum, DnodePhys, ObjectType};
use testkit::Images;
use verify::{FindingKind, Options, Report};
use zerocopy::IntoBytes;

use crate::forge::{Forge, Os};
use crate::pool::edit_config;

/// Longer than any of these judgements takes. The lies are told in snapshots, which are walked first.
const LONG: Duration = Duration::from_secs(20);
/// Where a pointer says what it is: checksum and deduplication.
const CHECKSUM: u64 = 0xff << 40;
const DEDUP: u64 = 1 << 62;
/// Words of a bpobj.
const COUNT: usize = 0;

/// Judges, but not for ever.
fn judge(images: &Images) -> Report {
    let scan = vdev::import::scan(&[images.path().to_owned()]).unwrap();
    let began = rt::time::now();
    let mut wait = |_| began.elapsed() < LONG;
    verify::verify_pool(scan.pools.first().unwrap(), &Options::default(), &mut wait).unwrap()
}

fn has(report: &Report, kind: FindingKind, text: &str) -> bool {
    report.findings.iter().any(|finding| finding.kind == kind && finding.text.contains(text))
}

/// Makes the indirect block of a file lead to itself by all its pointers, which no checksum holds back. What they
/// say beside that is `change`.
fn endless(forge: &mut Forge, change: impl Fn(&mut [u64; 16])) -> BlkPtr {
    let os = Os::Set(forge.dataset("single/a@first"));
    let file = forge.file(os, "f");
    let own = |forge: &Forge| {
        let mut words = forge.pointer(os, file, 1, 0).words();
        words[6] = words[6] & !CHECKSUM | u64::from(Checksum::Off.id()) << 40;
        // Embedded, encrypted and gang bits aside: a piece of 128 MiB.
        words[0] = words[0] & !0xff_ffff | 1 << 18;
        change(&mut words);
        BlkPtr::from_words(words)
    };
    // The first time over it is found out how the block is compressed.
    for _ in 0..2 {
        let bytes = own(forge).as_bytes().repeat(1024);
        if forge.block(os, file, 1, 0) != bytes {
            forge.edit(os, file, (1, 0), |block| *block = bytes);
        }
    }
    own(forge)
}

/// Puts a tree of these levels over a pointer into an object.
fn put(forge: &mut Forge, os: Os, object: u64, levels: u8, root: BlkPtr) {
    forge.edit_dnode(os, object, |bytes| {
        bytes[2] = levels;
        bytes[16..24].copy_from_slice(&(1u64 << 52).to_le_bytes());
        bytes[DNODE_CORE..][..BLKPTR].copy_from_slice(root.as_bytes());
    });
}

#[test]
fn a_block_of_dnodes_in_itself_is_judged_once() {
    let mut forge = Forge::of("single");
    let os = Os::Set(forge.dataset("single/a@first"));
    for _ in 0..2 {
        let mut own = forge.pointer(os, 0, 0, 0).words();
        own[6] = own[6] & !CHECKSUM | u64::from(Checksum::Off.id()) << 40;
        let mut dnode = DnodePhys::new(ObjectType::DNODE, 16 << 10, ObjectType::NONE, 0, 1);
        dnode.blkptrs_mut()[0] = BlkPtr::from_words(own);
        let mut bytes = forge.block(os, 0, 0, 0);
        dnode.store(&mut bytes[..512]);
        if forge.block(os, 0, 0, 0) != bytes {
            forge.edit(os, 0, (0, 0), |block| *block = bytes);
        }
    }
    assert!(!forge.failed.get());
    let report = judge(&forge.close());
    assert!(
        has(&report, FindingKind::Structure, "single/a@first object 0: "),
        "{:#?}",
        report.findings
    );
}

/// A block behind so many levels that its number still fits, and those of its dnodes do not.
#[test]
fn dnodes_beyond_all_numbers_are_judged() {
    let mut forge = Forge::of("single");
    let os = Os::Set(forge.dataset("single/none@first"));
    let own = |forge: &Forge| {
        let mut words = forge.pointer(os, 0, 1, 0).words();
        words[6] = words[6] & !CHECKSUM | u64::from(Checksum::Off.id()) << 40;
        BlkPtr::from_words(words)
    };
    for _ in 0..2 {
        let mut bytes = vec![0; forge.block(os, 0, 1, 0).len()];
        bytes[BLKPTR..][..BLKPTR].copy_from_slice(own(&forge).as_bytes());
        if forge.block(os, 0, 1, 0) != bytes {
            forge.edit(os, 0, (1, 0), |block| *block = bytes);
        }
    }
    let root = own(&forge);
    let levels = 64 / forge.dnode(os, 0).pointers_shift() + 2;
    put(&mut forge, os, 0, levels as u8, root);
    assert!(!forge.failed.get());
    let report = judge(&forge.close());
    let text = "single/none@first: a block of dnodes of";
    assert!(has(&report, FindingKind::Structure, text), "{report:#?}");
}

/// Only what a file holds is deduplicated, never what leads to it.
#[test]
fn blocks_that_call_themselves_deduplicated_count() {
    for contents in [false, true] {
        let mut forge = Forge::of("single");
        let root = endless(&mut forge, |words| words[6] |= DEDUP);
        let os = Os::Set(forge.dataset("single/a@first"));
        let file = forge.file(os, "f");
        put(&mut forge, os, file, if contents { 3 } else { 10 }, root);
        assert!(!forge.failed.get());
        let report = judge(&forge.close());
        assert!(has(&report, FindingKind::Unjudged, "walk ended"), "{:#?}", report.findings);
    }
}

#[test]
fn lists_are_not_read_when_the_walk_was_given_up() {
    let mut forge = Forge::of("single");
    let root = endless(&mut forge, |_| ());
    let list = forge.find("free_bpobj");
    put(&mut forge, Os::Mos, list, 8, root);
    forge.set(Os::Mos, list, COUNT, 1 << 49);
    assert!(!forge.failed.get());
    let report = judge(&forge.close());
    assert!(has(&report, FindingKind::Unjudged, "walk ended"), "{:#?}", report.findings);
}

#[test]
fn metaslabs_are_as_many_as_the_disks_have_room_for() {
    let mut forge = Forge::of("single");
    edit_config(&mut forge, |config| {
        config.vdev_tree.children[0].top.as_mut().unwrap().asize = 1 << 44;
    });
    assert!(!forge.failed.get());
    let report = judge(&forge.close());
    assert!(has(&report, FindingKind::Label, "its disks have room for"), "{:#?}", report.findings);
}

/// A table of millions of pointers, all of it holes.
#[test]
fn tables_of_holes_are_given_up() {
    let mut forge = Forge::of("single");
    let list = forge.find("feature_descriptions");
    forge.edit(Os::Mos, list, (0, 0), |block| {
        assert_eq!(block[..8], format::zap::KIND_HEADER.to_le_bytes());
        let blocks = (1u64 << 31) / block.len() as u64;
        for (word, value) in [(2, 1 << 20), (3, blocks), (4, 28)] {
            block[word * 8..][..8].copy_from_slice(&u64::to_le_bytes(value));
        }
    });
    assert!(!forge.failed.get());
    let report = judge(&forge.close());
    let text = "counts of features: 1024 parts of it";
    assert!(has(&report, FindingKind::Structure, text), "{:#?}", report.findings);
}
