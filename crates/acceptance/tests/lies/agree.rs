//! Two judges that share nothing, on pools with a random lie: they agree whether something is
//! wrong, or it is known why they do not.

use crate::forge::{Forge, Os};
use crate::judge;
use format::ObjectType;
use format::dnode::DNODE_CORE;
use rt::Workers;
use rt::sync::Mutex;
use std::process::Command;
use testkit::random::Rng;
use testkit::{Images, Ran, paths, rounds};
use verify::{FindingKind, Report, Verdict};

const GOLDEN: [&str; 7] = ["mir", "single", "rz1", "rz3", "wide", "nofeat", "old"];

/// Changes a word somewhere, so that parsers see it.
fn spoil(bytes: &mut [u8], rng: &mut Rng) -> String {
    // Where there is something, or beside it: most of a block is zeros.
    let used: Vec<usize> = (0..bytes.len() / 8).filter(|i| bytes[i * 8..][..8] != [0; 8]).collect();
    let at = match used.is_empty() || rng.one_in(8) {
        true => rng.index(bytes.len() / 8),
        false => *rng.pick(&used),
    } * 8;
    let old = u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    let new = match rng.below(6) {
        0 => old ^ 1 << rng.below(64),
        1 => old.wrapping_add(1),
        2 => old.wrapping_sub(1),
        3 => rng.below(1 << 12),
        4 => old.wrapping_add(4096),
        _ => 0,
    };
    bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
    format!("word at {at:#x}: {old:#x} is now {new:#x}")
}

/// Tells a lie somewhere; what it was.
fn lie(forge: &mut Forge, rng: &mut Rng) -> Option<String> {
    let os = match rng.below(2) {
        0 => Os::Mos,
        _ => Os::Set(*rng.pick(&forge.datasets())),
    };
    let object = *rng.pick(&forge.objects(os));
    let dnode = forge.dnode(os, object);
    let what = format!("{os:?} object {object} ({})", dnode.kind().name());
    let mut told = String::new();
    match rng.below(8) {
        0..3 => {
            let len = DNODE_CORE
                + dnode.blkptrs().len() * 128
                + usize::from(dnode.core().bonus_len.get()).next_multiple_of(8);
            forge.edit_dnode(os, object, |bytes| {
                let len = len.min(bytes.len());
                told = spoil(&mut bytes[..len], rng);
            });
            told = format!("{what}: its dnode: {told}");
        }
        3 => {
            let level = rng.below(u64::from(dnode.core().levels)) as u8;
            let block =
                rng.below((dnode.max_block() >> (u32::from(level) * dnode.pointers_shift())) + 1);
            if forge.pointer(os, object, level, block).is_hole() {
                return None;
            }
            forge.edit_pointer(os, object, (level, block), |words| {
                let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                told = spoil(&mut bytes, rng);
                for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                    *word = u64::from_le_bytes(*bytes);
                }
            });
            told = format!("{what}: pointer of level {level} block {block}: {told}");
        }
        _ => {
            // What is in files only their readers can judge.
            let data = [ObjectType::PLAIN_FILE_CONTENTS, ObjectType::ZVOL];
            let block = rng.below(dnode.max_block() + 1);
            if data.contains(&dnode.kind()) || forge.pointer(os, object, 0, block).is_hole() {
                return None;
            }
            forge.edit(os, object, (0, block), |bytes| told = spoil(bytes, rng));
            told = format!("{what}: block {block}: {told}");
        }
    }
    (!forge.failed.get()).then_some(told)
}

/// What poolaudit says; it is stopped when it takes too much time or memory.
fn audit(images: &Images) -> Ran {
    let script = "ulimit -v 4000000; exec timeout 60 \"$0\" \"$1\"";
    let tool = paths::repository().join("tools/poolaudit");
    Ran::of(Command::new("sh").args(["-c", script]).arg(tool).arg(images.path()))
}

/// What only `verify` sees: words of what it says, and why poolaudit does not see it.
const ONLY_VERIFY: &[(&str, &str)] = &[
    ("the registry of attributes lacks", "poolaudit takes attributes as they come"),
    ("pointer to ZFS plain file level 0", "poolaudit reads no data"),
    ("attribute is", "poolaudit takes attributes that it does not know as they come"),
    ("bpobj: bonus size is", "poolaudit takes a header of any size"),
    ("its compressed data is damaged", "poolaudit's decompressors stop where the bytes end"),
    ("history: ", "poolaudit does not read it"),
    ("normalization of names of snapshots", "poolaudit does not look at flags of ZAPs"),
    ("normflags are", "poolaudit does not look at flags of ZAPs"),
    ("space map: length is", "poolaudit leaves out what is no whole word"),
    ("but it has none", "poolaudit replays logs whatever a metaslab says of them"),
    ("an ACL of", "poolaudit does not read ACLs"),
    ("ACL: ", "poolaudit does not read ACLs"),
    ("counted for its owner, and does not say so", "poolaudit does not look at flags of dnodes"),
    (", it can be ", "poolaudit does not count features of vdevs"),
    ("its deadlist has a block that is in use", "poolaudit compares first copies alone"),
    ("its deadlist lacks a block", "poolaudit compares first copies alone"),
];

/// What only poolaudit sees: words of what it says, and why `verify` does not see it.
const ONLY_POOLAUDIT: &[(&str, &str)] = &[];

/// Is it known why only one sees something? Of all that it says the cause must be on a list.
fn explained(report: &Report, audit: &Ran) -> bool {
    let known =
        |list: &[(&str, &str)], line: &str| list.iter().any(|(words, _)| line.contains(words));
    if report.verdict == Verdict::Clean {
        let mut lines = audit.out.lines().filter(|line| !line.ends_with("violations"));
        return lines.all(|line| known(ONLY_POOLAUDIT, line));
    }
    // Space that is not accounted for, since something could not be read.
    let follows = |kind| matches!(kind, FindingKind::Leaked | FindingKind::ReachableButFree);
    let counted = |text: &str| text.starts_with("and ") && text.contains(" more like this");
    let causes: Vec<_> =
        report.findings.iter().filter(|f| !follows(f.kind) && !counted(&f.text)).collect();
    // Poolaudit reads no data: blocks of files that are lost are seen by `verify` alone.
    let data = report.findings.is_empty() && report.lost_files().next().is_some();
    data || !causes.is_empty() && causes.iter().all(|f| known(ONLY_VERIFY, &f.text))
}

#[test]
fn both_judges_agree() {
    let (wrong, seen) = (Mutex::new(Vec::new()), Mutex::new((0u64, 0u64)));
    Workers::per_core().run(rounds(20, 500) as usize, |_, job| {
        let mut rng = Rng::of(job as u64, 17);
        let (images, golden, told) = loop {
            let golden = *rng.pick(&GOLDEN);
            let mut forge = Forge::of(golden);
            if let Some(told) = lie(&mut forge, &mut rng) {
                break (forge.close(), golden, told);
            }
        };
        let (report, audit) = (judge(&images), audit(&images));
        let clean = report.verdict == Verdict::Clean;
        let agreed = clean == audit.ok();
        {
            let mut seen = seen.lock();
            seen.0 += u64::from(clean);
            seen.1 += u64::from(!agreed);
        }
        if agreed || explained(&report, &audit) {
            return;
        }
        let findings: Vec<String> =
            report.findings.iter().map(|f| format!("\n    {:?}: {f}", f.kind)).collect();
        wrong.lock().push(format!(
            "seed {job}: {golden}: {told}\n  verify: {:?}{}\n  poolaudit {}: {}",
            report.verdict,
            findings.concat(),
            audit.status,
            audit.out
        ));
    });
    let (wrong, seen) = (wrong.into_inner(), seen.into_inner());
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    let ((clean, differ), all) = (seen, rounds(20, 500));
    // If all were clean, nothing was tried; if they often differed, the lists are too long.
    assert!(clean < all / 2 && differ < all / 5, "of {all} {clean} are clean, {differ} differ");
}
