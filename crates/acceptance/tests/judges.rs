//! The judges themselves: content with what OpenZFS wrote, not with what was damaged.

use std::panic::catch_unwind;

use acceptance::{Session, Shape, Stage, choose, judge};
use pool::mos::key;
use testkit::data::Look;
use testkit::golden_copy;
use testkit::workload::Workload;
use verify::{FindingKind, Options, Verdict};

#[test]
fn they_are_content_with_a_whole_pool() {
    judge(&golden_copy("nofeat"), "nofeat", 1, 3);
}

#[test]
fn damage_is_not_passed_over() {
    let images = golden_copy("nofeat");
    // one side of the mirror, its labels spared: all of it can be read, and zdb counts the errors
    images.noise(1, 8 << 20, 5);
    let said = catch_unwind(|| judge(&images, "nofeat", 0, 0)).unwrap_err();
    let said = said.downcast_ref::<String>().expect("it says why");
    assert!(said.contains("nofeat"), "{said}");
}

#[test]
fn disks_to_hide_are_different_ones() {
    let mut hidden = choose(11, 3, 7);
    assert_eq!(hidden, choose(11, 3, 7));
    hidden.sort_unstable();
    hidden.dedup();
    assert_eq!(hidden.len(), 3);
    assert_eq!(choose(2, 5, 1).len(), 2);
}

/// Seen red: of two copies without a checksum that of the disk that had been away counted, and the other disk, the only one
/// that had the data, was called bad.
#[test]
fn without_a_checksum_a_disk_that_was_away_is_not_believed() {
    for layout in ["mirror $D/d00 $D/d01", "raidz1 $D/d00 $D/d01 $D/d02"] {
        let stage = Stage::new(3, 96 << 20);
        let create = "zpool create -o ashift=12 -O checksum=off -O compression=off tank";
        drop(stage.ok(&format!("{create} {layout}")));
        let (disk, away) = (stage.images.disk(0), stage.aside("d00"));
        std::fs::rename(&disk, &away).expect("it is taken away");
        let mut load = Workload::new(7);
        load.file(b"f", Look::Noise, 1 << 20);
        let dir = stage.plant("tank", &load.ops);
        drop(stage.ok(&format!("put -r {} tank:/", dir.display())));
        drop(stage.ok("zpool export tank"));
        std::fs::copy(&away, &disk).expect("it comes back");
        let said = stage.run("verify -d $D tank");
        let bad = said.out.contains("bad block");
        assert!(said.status == 1 && said.out.contains("d00: lacks") && !bad, "{layout}: {said}");
    }
}

/// Seen red: a pool was called clean of which nobody knows what is in it.
#[test]
fn features_that_are_not_known_are_told() {
    let (images, mut session) = Session::create(&Shape::SMALL, 128 << 10);
    let plant = |cx: &pool::TaskContext<'_>| {
        let mos = cx.making.mos;
        let zap = |name| mos.zap(mos.expect(name)?);
        zap(key::FEATURES_FOR_WRITE)?.put_u64(cx.tx, b"org.example:new", 1)?;
        let text = format::zap::Value::string(b"New.");
        Ok(zap(key::FEATURE_DESCRIPTIONS)?.put(cx.tx, b"org.example:new", &text)?)
    };
    session.pool().task(plant).expect("it is planted");
    session.close().expect("it is closed");
    let scan = vdev::import::scan(&[images.path().to_owned()]).expect("it is found");
    let report = verify::verify_pool(&scan.pools[0], &Options::default(), &mut |_| true);
    let report = report.expect("it is judged");
    let told = |kind| report.findings.iter().filter(|finding| finding.kind == kind).count();
    assert_eq!((told(FindingKind::Unjudged), report.findings.len()), (1, 1), "{report:?}");
    assert_eq!(report.verdict, Verdict::Whole);
}
