//! One lie for each row of what is recounted (format sections 8.10 and 17.2), planted into copies of
//! pools that OpenZFS wrote, with all checksums right: each is named for what it is, and nothing
//! else is.

#![allow(clippy::unwrap_used)]

mod agree;
mod bounds;
mod dsl;
mod endless;
mod files;
mod forge;
mod pool;

use forge::Forge;
use rt::Workers;
use rt::sync::Mutex;
use testkit::Images;
use verify::{FindingKind, Options, Report, Verdict};

/// A lie.
pub(crate) struct Lie {
    /// The golden pool that is copied for it.
    golden: &'static str,
    /// What is said that is not so.
    what: &'static str,
    /// As what it must be named.
    kind: FindingKind,
    /// Words that must be in the finding.
    text: &'static str,
    tell: fn(&mut Forge),
}

pub(crate) fn judge(images: &Images) -> Report {
    let scan = vdev::import::scan(&[images.path().to_owned()]).unwrap();
    let pool = scan.pools.first().unwrap();
    verify::verify_pool(pool, &Options::default(), &mut |_| true).unwrap()
}

/// Tells each lie to a copy of its own; what the judge said wrongly.
fn tell_all(lies: &[Lie]) {
    let wrong = Mutex::new(Vec::new());
    Workers::per_core().run(lies.len(), |_, job| {
        let Some(lie) = lies.get(job) else { return };
        let mut forge = Forge::of(lie.golden);
        (lie.tell)(&mut forge);
        assert!(!forge.failed.get(), "{}: it was not told", lie.what);
        let report = judge(&forge.close());
        let named = report.findings.iter().any(|f| f.kind == lie.kind && f.text.contains(lie.text));
        let other = report.findings.iter().find(|f| f.kind != lie.kind);
        let damage = report.lost_blocks > 0 || !report.devices.is_empty();
        let verdict = if lie.kind.is_harmless() { Verdict::Clean } else { Verdict::Whole };
        if !named || other.is_some() || damage || report.verdict != verdict {
            let told: Vec<_> =
                report.findings.iter().map(|f| format!("\n    {:?}: {f}", f.kind)).collect();
            let line = format!(
                "{}: {}: expected {:?} \"{}\", the verdict is {:?}, {} blocks lost, {:?}{}",
                lie.golden,
                lie.what,
                lie.kind,
                lie.text,
                report.verdict,
                report.lost_blocks,
                report.devices,
                told.concat()
            );
            wrong.lock().push(line);
        }
    });
    let wrong = wrong.into_inner();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), lies.len(), wrong.join("\n"));
}

#[test]
fn lies_of_data_sets_are_told() {
    tell_all(dsl::LIES);
}

/// Labels list these features: they differ then, too.
#[test]
fn lies_of_features_in_labels_are_told() {
    for (name, guid) in
        [("device_removal", "com.delphix:device_removal"), ("draid", "org.openzfs:draid")]
    {
        let mut forge = Forge::of("mir");
        dsl::add_feature(&mut forge, guid, 3);
        let report = judge(&forge.close());
        let text = format!("feature {name}: its count is 3, it can be 0 to 0");
        assert!(report.findings.iter().any(|f| f.text == text), "{:?}", report.findings);
    }
}

#[test]
fn lies_of_objects_and_files_are_told() {
    tell_all(files::LIES);
}

#[test]
fn lies_of_the_pool_are_told() {
    tell_all(pool::LIES);
}

/// Seen red: of the names after it none was listed.
#[test]
fn a_name_that_leads_nowhere_hides_no_other() {
    let list = |images: &Images| {
        let state = testkit::temp_dir();
        let mut command = acceptance::thumper(&state.path().join("pools"));
        testkit::Ran::of(command.args(["ls", "-d"]).arg(images.path()).arg("rz1:/"))
    };
    let before = list(&testkit::golden_copy("rz1")).expect_ok();
    let mut forge = Forge::of("rz1");
    let os = forge::Os::Set(forge.dataset("rz1"));
    let root = forge.file(os, "");
    forge.set_zap(os, root, "big", 99_999 | 8 << 60);
    let ran = list(&forge.close());
    let others: Vec<&str> = before.out.lines().filter(|name| *name != "big").collect();
    assert!(others.len() > 3, "{before}");
    assert_eq!(ran.out.lines().collect::<Vec<_>>(), others);
    assert!(ran.status == 2 && ran.err.starts_with("cannot access 'rz1:/big': "), "{ran}");
}

/// Seen red: what `zfs receive -s` had begun was called damaged.
#[test]
fn files_of_a_receive_in_part_are_not_held_against_it() {
    let (flags, inconsistent) = (15, 1);
    let mut forge = Forge::of("rz1");
    let set = forge.dataset("rz1/rs16K");
    let root = forge.file(forge::Os::Set(set), "");
    forge.micro(forge::Os::Set(set), root, "text", |entry| entry.fill(0));
    let flags_now = forge.word(forge::Os::Mos, set, flags);
    forge.set(forge::Os::Mos, set, flags, flags_now | inconsistent);
    assert!(!forge.failed.get());
    let report = judge(&forge.close());
    assert_eq!(report.verdict, Verdict::Clean, "{:?}", report.findings);
}

#[test]
fn there_are_many() {
    let all = [dsl::LIES, files::LIES, pool::LIES];
    assert!(all.iter().map(|lies| lies.len()).sum::<usize>() >= 60);
    // A pool is as clean after being written again without a lie as before.
    let forge = Forge::of("mir");
    forge.write_uberblock();
    let report = judge(&forge.close());
    assert_eq!(report.verdict, Verdict::Clean, "{:?}", report.findings);
}
