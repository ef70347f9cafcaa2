//! What OpenZFS says of pools that its kernel wrote, said of them by `thumper`: line by line.
//!
//! The truth was recorded of a read-only import, under which the kernel says a few things that
//! are not so of the pool itself; each of those is named here with its reason.

use std::path::Path;
use std::process::Command;

use testkit::{golden, truth};
use verbs::props::Prop;

const POOLS: [&str; 5] = ["single", "mir", "rz1", "rz2", "hurt"];
/// With it the one that has lost a vdev by `zpool remove`, and has a checkpoint.
const ALL: [&str; 6] = ["single", "mir", "rz1", "rz2", "hurt", "features"];

/// Runs `thumper -d DIR WORDS`; what it printed.
fn thumper(dir: &Path, words: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thumper"));
    command.arg("-d").arg(dir).args(words.split(' '));
    command.env("TZ", "UTC").env("THUMPER_STATE", "/nonexistent/pools");
    let output = command.output().expect("thumper starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.is_empty(), "{words}: {error}");
    String::from_utf8(output.stdout).expect("names in golden pools are UTF-8")
}

/// Compares line by line; says which line differs.
fn assert_lines(what: &str, ours: &str, theirs: &str) {
    for (number, (our, their)) in ours.lines().zip(theirs.lines()).enumerate() {
        assert_eq!(our, their, "{what}, line {}", number + 1);
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{what}");
}

#[test]
fn data_sets_are_listed() {
    for name in POOLS {
        let columns = "name,type,creation,used,available,referenced,usedbysnapshots,\
                       usedbydataset,usedbychildren,usedbyrefreservation,written,logicalused,\
                       logicalreferenced,compressratio,refcompressratio,quota,reservation,\
                       refquota,refreservation,volsize,guid,createtxg,objsetid,origin,userrefs";
        let ours = thumper(&golden(name), &format!("zfs list -t all -Hp -o {columns}"));
        assert_lines(name, &ours, truth(name).command("zfs list"));
    }
}

#[test]
fn every_property_has_its_value_and_source() {
    // No key is loaded here, so what is in an encrypted file system is not seen.
    let hidden = [Prop::Version, Prop::Utf8only, Prop::Normalization, Prop::Casesensitivity];
    for name in POOLS {
        let (dir, truth) = (golden(name), truth(name));
        let ours = thumper(&dir, &format!("zfs get -Hp -r -t all all {}", truth.pool()));
        let mut count = 0;
        for line in ours.lines() {
            let words: Vec<_> = line.split('\t').collect();
            let [dataset, property, value, source] = words[..] else { panic!("{line}") };
            count += 1;
            // Keys were loaded, and file systems mounted, when the truth was recorded.
            if property == "keystatus" || property == "mounted" {
                continue;
            }
            let theirs = truth.zfs_get(dataset, property);
            assert_eq!(Some((value, source)), theirs, "{name}: {dataset} {property}");
        }
        let mut expected = 0;
        for line in truth.command("zfs list").lines() {
            let dataset = line.split('\t').next().unwrap();
            let user = ["org.thumper:note"];
            let all = Prop::all().map(|prop| prop.name()).chain(user);
            let has = |property: &&str| truth.zfs_get(dataset, property).is_some();
            let there: Vec<_> = all.filter(has).collect();
            let secret = truth.zfs_get(dataset, "encryption").is_some_and(|v| v.0 != "off");
            let volume = truth.zfs_get(dataset, "volsize").is_some();
            let lost = if secret && !volume { hidden.len() } else { 0 };
            expected += there.len() - lost;
        }
        assert_eq!(count, expected, "{name}");
    }
}

#[test]
fn pools_tell_their_properties() {
    // A read-only import loads no metaslabs, so it has no space; it has a load guid of its own
    // and no cache file.
    let artifacts =
        ["capacity", "free", "allocated", "fragmentation", "readonly", "load_guid", "cachefile"];
    for name in ALL {
        let (dir, truth) = (golden(name), truth(name));
        let mut count = 0;
        for line in thumper(&dir, &format!("zpool get -Hp all {}", truth.pool())).lines() {
            let words: Vec<_> = line.split('\t').collect();
            let [_, property, value, source] = words[..] else { panic!("{line}") };
            count += 1;
            let theirs = truth.zpool_get(property).unwrap_or_else(|| panic!("{property}"));
            if !artifacts.contains(&property) {
                assert_eq!((value, source), theirs, "{name}: {property}");
            }
        }
        assert_eq!(count, 62, "{name}");
    }
}

#[test]
fn pools_tell_their_state() {
    for name in ALL {
        let (dir, truth) = (golden(name), truth(name));
        let here = |text: String| {
            let path = dir.display().to_string();
            // Columns are as wide as the longest path: of the same pool elsewhere, as it is.
            text.replace(&path, "/d").split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let ours = here(thumper(&dir, &format!("zpool status -Pvs {}", truth.pool())));
        let theirs = here(truth.command("zpool status -Pvs").into());
        assert_eq!(ours, theirs, "{name}");
        // Space is not there in a read-only import: names, sizes, states and what a checkpoint holds are compared.
        let fixed = |text: &str| -> Vec<String> {
            let columns = |line: &str| {
                let words: Vec<_> = line.split_whitespace().collect();
                let state = words.iter().rev().find(|w| w.starts_with(char::is_alphabetic));
                // OpenZFS knows no size of a device that it does not open.
                let size = if state == Some(&"FAULTED") { "-" } else { words[1] };
                format!("{} {size} {} {}", words[0], words[4], state.unwrap_or(&"-"))
            };
            text.lines().filter(|line| !line.is_empty()).map(columns).collect()
        };
        let ours = thumper(&dir, "zpool list -vHp").replace(&dir.display().to_string(), "/d");
        assert_eq!(fixed(&ours), fixed(truth.command("zpool list -vHp")), "{name}");
    }
}

#[test]
fn history_is_told_word_for_word() {
    for name in POOLS {
        let (dir, truth) = (golden(name), truth(name));
        let ours = thumper(&dir, &format!("zpool history -il {}", truth.pool()));
        assert_lines(name, &ours, truth.command("zpool history -il"));
    }
}
