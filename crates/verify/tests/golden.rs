//! The judge on pools that OpenZFS wrote, and on lies planted into them.

use std::path::Path;
use verify::{Options, Report, Verdict};

fn judge(dir: &Path) -> Report {
    let scan = vdev::import::scan(&[dir.to_owned()]).expect("the directory can be read");
    let pool = scan.pools.first().expect("a pool is there");
    let mut told = Vec::new();
    let report = verify::verify_pool(pool, &Options::default(), &mut |progress| {
        told.push(progress);
        true
    })
    .expect("its labels describe vdevs");
    assert!(told.is_sorted_by_key(|progress| progress.blocks));
    assert_eq!(told.last().map(|progress| progress.blocks), Some(report.blocks));
    report
}

fn show(report: &Report) -> String {
    let mut text = format!("{:?} {:?}\n", report.verdict, report.space);
    for device in &report.devices {
        text += &format!("{device:?}\n");
    }
    for finding in &report.findings {
        text += &format!("{:?}: {finding}\n", finding.kind);
    }
    for file in report.lost_files().take(20) {
        text += &format!("{file:?}\n");
    }
    text
}

fn is_clean(name: &str) {
    let report = judge(&testkit::golden(name));
    assert_eq!(report.verdict, Verdict::Clean, "{name}: {}", show(&report));
    assert!(
        report.blocks > 50 && report.datasets > 0,
        "{name}: {} {}",
        report.blocks,
        report.datasets
    );
    let space = report.space.expect("space was compared");
    assert_eq!(space.allocated, space.reachable, "{name}");
    assert!(space.allocated > 1 << 20, "{name}");
}

#[test]
fn single_is_clean() {
    is_clean("single");
}

#[test]
fn rz1_is_clean() {
    is_clean("rz1");
}

#[test]
fn rz2_is_clean() {
    is_clean("rz2");
}

#[test]
fn rz3_is_clean() {
    is_clean("rz3");
}

#[test]
fn mir_is_clean() {
    is_clean("mir");
}

#[test]
fn wide_is_clean() {
    is_clean("wide");
}

#[test]
fn nofeat_is_clean() {
    is_clean("nofeat");
}

#[test]
fn gpt_is_clean() {
    let scan = vdev::import::scan(&[testkit::golden("gpt")]).expect("it can be read");
    // Whole disks with partitions are judged as soon as they are found.
    if !scan.pools.is_empty() {
        is_clean("gpt");
    }
}

#[test]
fn old_is_clean() {
    is_clean("old");
}

/// Records in the intent log, some of them not in the space maps yet.
#[test]
fn dirty_is_clean() {
    is_clean("dirty");
}

#[test]
fn features_is_whole_with_a_disk_offline_and_space_adds_up() {
    let report = judge(&testkit::golden("features"));
    assert_eq!(report.verdict, Verdict::Whole, "{}", show(&report));
    let space = report.space.expect("space was compared");
    assert_eq!((space.allocated, space.leaked), (space.reachable, 0), "{}", show(&report));
    // What the judge never examines is a note, and no damage for ever.
    assert!(report.findings.is_empty(), "{}", show(&report));
    let told =
        |note: &String| note.contains("which blocks the deadlists should have is not examined");
    assert!(report.notes.iter().any(told), "{:?}", report.notes);
}

#[test]
fn draid_is_not_judged() {
    let scan = vdev::import::scan(&[testkit::golden("draid")]).expect("it can be read");
    let pool = scan.pools.first().expect("a pool is there");
    let refused = verify::verify_pool(pool, &Options::default(), &mut |_| true);
    assert_eq!(refused.map(|_| ()).unwrap_err().to_string(), "vdev 0: kind draid is not supported");
}

/// A hurt pool: one disk is missing, one is full of noise, and nothing is lost.
fn is_hurt(name: &str) {
    let report = judge(&testkit::golden(name));
    assert_eq!(report.verdict, Verdict::Whole, "{name}: {}", show(&report));
    assert_eq!((report.lost_blocks, report.lost_files().count()), (0, 0), "{}", show(&report));
    let missing = report.devices.iter().filter(|device| device.missing).count();
    let noisy = report.devices.iter().filter(|device| device.bad_blocks > 0).count();
    assert!(missing >= 1, "{name}: {}", show(&report));
    assert!(missing + noisy >= 2, "{name}: {}", show(&report));
    assert!(report.findings.is_empty(), "{name}: {}", show(&report));
}

#[test]
fn hurt_is_whole() {
    is_hurt("hurt");
}

#[test]
fn hurt2_is_whole() {
    is_hurt("hurt2");
}
