//! `COMPAT.md` has a row for every property, feature and verb of OpenZFS 2.1.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use verbs::props::space::PREFIXES;
use verbs::props::{PoolProp, Prop};

fn compat() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../COMPAT.md");
    std::fs::read_to_string(path).unwrap()
}

/// The lines of the table below a heading.
fn section<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let from = text.find(heading).unwrap_or_else(|| panic!("{heading}"));
    let rest = &text[from + heading.len()..];
    let until = rest.find("\n## ").unwrap_or(rest.len());
    rest[..until].lines().filter(|line| line.starts_with('|')).collect()
}

#[track_caller]
fn assert_named(rows: &[&str], name: &str) {
    let quoted = format!("`{name}`");
    assert!(rows.iter().any(|row| row.contains(&quoted)), "COMPAT.md has no {quoted}");
}

#[test]
fn every_property_has_a_row() {
    let text = compat();
    let rows = section(&text, "\n## Properties of data sets");
    let known = Prop::all().filter(|prop| prop.is_visible() && *prop != Prop::Name);
    known.for_each(|prop| assert_named(&rows, prop.name()));
    PREFIXES.iter().for_each(|prefix| assert_named(&rows, &format!("{prefix}@")));
    let rows = section(&text, "\n## Properties of pools");
    let known = PoolProp::all().filter(|prop| prop.is_visible() && *prop != PoolProp::Name);
    known.for_each(|prop| assert_named(&rows, prop.name()));
    assert_named(&rows, "feature@");
}

#[test]
fn every_feature_has_a_row() {
    let text = compat();
    let rows = section(&text, "\n## Feature flags");
    format::features::Feature::ALL.iter().for_each(|f| assert_named(&rows, f.guid()));
}

/// Verbs as the man pages of zpool(8) and zfs(8) list them, and what the program says of each.
#[test]
fn every_verb_has_a_row() {
    let text = compat();
    const ZPOOL: &str = "add attach checkpoint clear create destroy detach events export get history \
        import initialize iostat labelclear list offline online reguid remove reopen replace \
        resilver scrub set split status sync trim upgrade wait";
    const ZFS: &str = "allow bookmark change-key clone create destroy diff get groupspace hold holds \
        inherit jail list load-key mount program project projectspace promote receive redact \
        release rename rollback send set share snapshot unallow unload-key unmount unshare upgrade \
        userspace wait";
    for (program, verbs) in [("zpool", ZPOOL), ("zfs", ZFS)] {
        let rows = section(&text, &format!("\n## Verbs of {program}"));
        for verb in verbs.split_whitespace() {
            assert_named(&rows, verb);
            let row = rows.iter().find(|row| row.contains(&format!("`{verb}`"))).unwrap();
            let works = row.split('|').nth(2).unwrap().trim() != "-";
            let ran =
                Command::new(env!("CARGO_BIN_EXE_thumper")).args([program, verb, "-h"]).output();
            let ran = ran.unwrap();
            let there = String::from_utf8_lossy(&ran.stdout).starts_with("usage:");
            // no zones here, so no jails
            assert_eq!(there, works, "{program} {verb}: {row}");
        }
    }
}
