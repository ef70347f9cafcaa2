//! What the OpenZFS kernel says of the golden pools in words, `thumper` says: every property of every
//! data set, snapshot, volume and bookmark, with its source; of the pool; and the space of users,
//! groups and projects.
//!
//! The truth was taken of a read-only import. What such an import says that is not so of the pool
//! itself is listed here, each with its reason (`tests/golden/README.md` names them, too).

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use testkit::{Ran, Truth, golden, truth};

const POOLS: [&str; 12] = [
    "single", "mir", "rz1", "rz2", "rz3", "wide", "nofeat", "hurt", "hurt2", "old", "gpt", "dirty",
];

/// What the kernel said of a pool: of the one that was not exported, before its intent logs were replayed.
fn told_by_kernel(name: &str) -> Truth {
    truth(if name == "dirty" { "dirty.ro" } else { name })
}

/// Properties of data sets that a read-only import in the VM told otherwise.
const DATASET_ARTIFACTS: [(&str, &str); 2] = [
    ("mounted", "the kernel had mounted it when the truth was taken"),
    ("keystatus", "the keys were loaded when the truth was taken"),
];

/// What a key is needed for.
const HIDDEN: [&str; 4] = ["version", "utf8only", "normalization", "casesensitivity"];

/// Properties of pools that a read-only import in the VM told otherwise.
const POOL_ARTIFACTS: [(&str, &str); 7] = [
    ("capacity", "a read-only import loads no metaslabs"),
    ("free", "a read-only import loads no metaslabs"),
    ("allocated", "a read-only import loads no metaslabs"),
    ("fragmentation", "a read-only import loads no metaslabs"),
    ("readonly", "it was imported so"),
    ("load_guid", "random for each import"),
    ("cachefile", "none was wanted"),
];

fn is_artifact(list: &[(&str, &str)], name: &str) -> bool {
    list.iter().any(|(artifact, _)| *artifact == name)
}

/// What `thumper` says of the pool in `dir`; it must not complain.
fn told(dir: &Path, words: &[&str]) -> String {
    let aside = testkit::temp_dir();
    let mut command = acceptance::thumper(&aside.path().join("pools"));
    command.arg("-d").arg(dir).args(words);
    let ran = Ran::of(&mut command).expect_ok();
    assert!(ran.err.is_empty(), "{ran}");
    ran.out
}

fn columns(line: &str) -> Vec<&str> {
    line.split('\t').collect()
}

/// The names in the truth's own list.
fn names(truth: &Truth) -> Vec<&str> {
    truth.command("zfs list").lines().map(|line| columns(line)[0]).collect()
}

#[test]
fn data_sets_have_their_properties() {
    let mut seen = 0;
    for name in POOLS {
        let truth = told_by_kernel(name);
        let mut ours = BTreeSet::new();
        for line in
            told(&golden(name), &["zfs", "get", "-Hp", "-r", "-t", "all", "all", truth.pool()])
                .lines()
        {
            let [dataset, property, value, source] = columns(line)[..] else { panic!("{line}") };
            assert!(ours.insert((dataset.to_string(), property.to_string())), "{name}: {line}");
            if !is_artifact(&DATASET_ARTIFACTS, property) {
                let theirs = truth.zfs_get(dataset, property);
                assert_eq!(Some((value, source)), theirs, "{name}: {dataset} {property}");
                seen += 1;
            }
        }
        // and nothing that the kernel knows is missing
        for dataset in names(&truth) {
            let theirs = truth.json["zfs_get"][dataset].as_object().unwrap();
            let secret = truth.zfs_get(dataset, "encryption").is_some_and(|v| v.0 != "off");
            for property in theirs.keys() {
                let hidden = secret && HIDDEN.contains(&property.as_str());
                let found = ours.remove(&(dataset.to_string(), property.clone()));
                assert!(found || hidden, "{name}: {dataset} has no {property}");
            }
        }
        assert_eq!(ours, BTreeSet::new(), "{name}");
    }
    assert!(seen > 8000, "{seen}");
}

#[test]
fn data_sets_are_listed_line_by_line() {
    for name in POOLS {
        let truth = told_by_kernel(name);
        let command = truth.command_name("zfs list").to_string();
        let ours = told(&golden(name), &command.split(' ').collect::<Vec<_>>());
        let theirs: Vec<&str> = truth.command(&command).lines().collect();
        assert_eq!(ours.lines().collect::<Vec<_>>(), theirs, "{name}: {command}");
    }
}

#[test]
fn pools_have_their_properties() {
    for name in POOLS {
        let truth = told_by_kernel(name);
        let mut count = 0;
        for line in told(&golden(name), &["zpool", "get", "-Hp", "all", truth.pool()]).lines() {
            let [_, property, value, source] = columns(line)[..] else { panic!("{line}") };
            let theirs = truth.zpool_get(property).unwrap_or_else(|| panic!("{name}: {line}"));
            if !is_artifact(&POOL_ARTIFACTS, property) {
                assert_eq!((value, source), theirs, "{name}: {property}");
            }
            count += 1;
        }
        assert_eq!(count, truth.json["zpool_get"].as_object().unwrap().len(), "{name}");
    }
}

/// Rows of a listing in the truth.
fn rows(truth: &Truth, dataset: &str, owner: &str) -> Option<Vec<Vec<String>>> {
    let list = truth.json["space"][dataset][owner].as_array()?;
    let texts = list.iter().map(|row| {
        let cells = row.as_array().unwrap().iter();
        cells.map(|cell| cell.as_str().unwrap().to_string()).collect()
    });
    Some(texts.collect())
}

#[test]
fn users_groups_and_projects_use_what_they_use() {
    let (mut listings, mut quotas) = (0, 0);
    for name in POOLS {
        let (dir, truth) = (golden(name), told_by_kernel(name));
        for dataset in truth.json["space"].as_object().unwrap().keys() {
            for (verb, owner) in [
                (["userspace", "-Hnp"], "user"),
                (["groupspace", "-Hnp"], "group"),
                (["projectspace", "-Hp"], "project"),
            ] {
                let Some(theirs) = rows(&truth, dataset, owner) else { continue };
                // of an encrypted file system the accounts are, too
                if truth.zfs_get(dataset, "encryption").is_some_and(|v| v.0 != "off") {
                    continue;
                }
                let ours = told(&dir, &["zfs", verb[0], verb[1], dataset]);
                let ours: Vec<Vec<String>> = ours
                    .lines()
                    .map(|l| columns(l).into_iter().map(String::from).collect())
                    .collect();
                assert_eq!(ours, theirs, "{name}: {verb:?} {dataset}");
                listings += 1;
                for row in &ours {
                    // the same, asked for as a property
                    let property = |what: &str| {
                        let key = format!("{owner}{what}@{}", row[1]);
                        let words = ["zfs", "get", "-Hp", "-o", "value", &key, dataset];
                        told(&dir, &words).trim_end().to_string()
                    };
                    if row[3] != "0" && row[3] != "-" {
                        quotas += 1;
                        assert_eq!(property("used"), row[2], "{name}: {dataset} {row:?}");
                        assert_eq!(property("quota"), row[3], "{name}: {dataset} {row:?}");
                        assert_eq!(property("objused"), row[4], "{name}: {dataset} {row:?}");
                        assert_eq!(property("objquota"), row[5], "{name}: {dataset} {row:?}");
                    }
                }
            }
        }
    }
    assert!(listings >= 200 && quotas >= 6, "{listings} {quotas}");
}
