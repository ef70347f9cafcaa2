//! A site sets up its storage, as a site of GridPP wrote in its report: two pools of 17 and 16 disks
//! as raidz2 with a spare each, eleven file systems with reservations and quotas.
//!
//! What our program answers is what OpenZFS answered, but for the space that metadata takes; and of
//! the pools that come of it the kernel says, on a read-only import, what we say.

#![allow(clippy::unwrap_used)]

use acceptance::transcript::{Played, cases, text, undated};
use testkit::{Ran, Vm, tool, vm};

/// Properties of pools that a read-only import tells otherwise.
const POOL_ARTIFACTS: [(&str, &str); 7] = [
    ("capacity", "a read-only import loads no metaslabs"),
    ("free", "a read-only import loads no metaslabs"),
    ("allocated", "a read-only import loads no metaslabs"),
    ("fragmentation", "a read-only import loads no metaslabs"),
    ("readonly", "it is imported so"),
    ("load_guid", "random for each import"),
    ("cachefile", "none is wanted"),
];

/// Bytes of metadata by which a pool of ours may differ from one of the kernel's.
const METADATA_BYTES: f64 = 512.0 * 1024.0;

/// The bytes of a size as people read it, if a word is one.
fn size(word: &str) -> Option<f64> {
    let (number, unit) = word.split_at(word.len().checked_sub(1)?);
    let power = ["B", "K", "M", "G"].iter().position(|known| *known == unit)?;
    Some(number.parse::<f64>().ok()? * 1024f64.powi(power as i32))
}

/// Do two lines say the same, but for times, random numbers, and a little metadata in sizes?
fn same_line(ours: &str, theirs: &str) -> bool {
    if theirs.starts_with("     id: ") {
        return ours.starts_with("     id: ");
    }
    let (ours, theirs) = (undated(ours), undated(theirs));
    let (our_words, their_words) = (ours.split(' '), theirs.split(' '));
    let same_word = |(our, their): (&str, &str)| match (size(our), size(their)) {
        // rounded to three digits
        (Some(our), Some(their)) => (our - their).abs() <= METADATA_BYTES + their / 200.0,
        _ => our == their,
    };
    // as long, and in the same columns
    ours.len() == theirs.len()
        && our_words.clone().count() == their_words.clone().count()
        && our_words.zip(their_words).all(same_word)
}

/// Reports of pools that were found, in the order of their names: OpenZFS has none.
fn in_order(output: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = output.split("   pool: ").collect();
    parts.sort_unstable();
    parts.iter().flat_map(|part| part.trim_end().lines()).collect()
}

/// Types the site's commands; the stage with the pools that came of it, still imported.
fn set_up() -> Played {
    let stage = Played::new("gridpp");
    let mut cases = cases("gridpp").into_iter();
    for line in text("gridpp", "scenario").lines() {
        if let Some(script) = line.strip_prefix("% ") {
            drop(stage.bash(script).expect_ok());
        } else if let Some(script) = line.strip_prefix("$ ") {
            let case = cases.next().unwrap();
            assert_eq!(case.command, script, "record it anew");
            let ran = stage.bash(script).expect_ok();
            assert_eq!(ran.err, case.err, "{ran}");
            let (ours, theirs) = match script.starts_with("zpool import -d $D") {
                true => (in_order(&ran.out), in_order(&case.out)),
                false => (ran.out.lines().collect(), case.out.lines().collect()),
            };
            assert_eq!(ours.len(), theirs.len(), "{ran}\n{}", case.out);
            for (our, their) in ours.into_iter().zip(theirs) {
                assert!(same_line(our, their), "{script}\n{our}\n{their}");
            }
        }
    }
    stage
}

#[test]
fn lines_differ_by_what_they_may() {
    for (ours, theirs, same) in [
        ("tank   213K  1.61G", "tank   175K  1.61G", true),
        ("tank   213K  1.61G", "tank  2.13M  1.61G", false),
        ("tank   213K  1.61G", "tank   213K  1.71G", false),
        ("tank   213K  1.61G", "tank  213K  1.61G", false),
        ("2024-05-01.00:01:05 zfs set a=1 t", "2026-05-01.00:01:05 zfs set a=1 t", true),
        ("2024-05-01.00:01:05 zfs set a=1 t", "2026-05-01.00:01:05 zfs set a=2 t", false),
        ("     id: 17", "     id: 123", true),
    ] {
        assert_eq!(same_line(ours, theirs), same, "{ours} {theirs}");
    }
}

#[test]
fn a_site_sets_up_its_storage() {
    let stage = set_up();
    drop(stage.bash("zpool export -a").expect_ok());
    for pool in ["tank-2TB", "tank-8TB"] {
        tool::zdb_content(&stage.dir, pool);
    }
    if !vm::wanted("that the kernel says of the pools of a site what we say") {
        return;
    }
    const CUT: &str = "---- cut ----";
    let asked = ["zfs list -p", "zfs list -Hp -o space", "zfs get -Hp all", "zpool get -Hp all"];
    let mut script = String::from("set -e\n");
    for pool in ["tank-2TB", "tank-8TB"] {
        script += &format!("zpool import -N -o readonly=on -o cachefile=none -d /d {pool}\n");
    }
    asked.iter().for_each(|command| script += &format!("{command}\necho '{CUT}'\n"));
    let told = Vm::new(&stage.dir).run(&script).expect_ok();
    let mut told = told.out.split(CUT);
    for command in asked {
        let theirs: Vec<&str> = told.next().unwrap().trim_start_matches('\n').lines().collect();
        let (program, words) = command.split_once(' ').unwrap();
        let words = words.replace("-Hp all", "-Hp all tank-2TB tank-8TB");
        let words = if program == "zpool" { words } else { command[4..].to_string() };
        let ours: Ran = stage.bash(&format!("{program} -d $D {words}")).expect_ok();
        let ours: Vec<&str> = ours.out.lines().collect();
        assert_eq!(ours.len(), theirs.len(), "{command}: {ours:#?} {theirs:#?}");
        let mut seen = 0;
        for (our, their) in ours.into_iter().zip(theirs) {
            let artifact =
                POOL_ARTIFACTS.iter().any(|(name, _)| their.split('\t').nth(1) == Some(name));
            if program == "zfs" || !artifact {
                assert_eq!(our, their, "{command}");
                seen += 1;
            }
        }
        assert!(seen >= 13, "{command}: {seen}");
    }
}
