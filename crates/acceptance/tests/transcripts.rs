//! What OpenZFS refused, played to the program on disks: it refuses the same, in the same words and with
//! the same status, and what is refused touches no disk. Each scenario is played twice: to commands that open
//! the pools themselves, and to a server that holds them.
//!
//! The scenarios lie beside their transcripts (`crates/cli/tests/transcripts`), which the OpenZFS
//! kernel and its tools wrote.

#![allow(clippy::unwrap_used)]

use acceptance::transcript::{Played, cases, text, undated};

/// Answers that say what is missing: `SHORTCOMINGS.md` says so, too.
const NOT_YET: [&str; 5] = [
    "not there yet",
    "cannot be made yet",
    "cannot be set yet",
    "not destroyed yet",
    "but not made",
];

/// What is answered otherwise: the scenario, a part of the command, the start of our answer, the reason.
const OTHERWISE: &[(&str, &str, &str, &str)] = &[
    (
        "create-inuse",
        "pool5 $D/d5",
        "invalid vdev",
        "OpenZFS asks what only devices hold, not files",
    ),
    ("lifecycle", "list tank nosuch", "cannot open 'nosuch'", "what is not there is a failure"),
    ("lifecycle", "-o bogus=1", "property 'bogus' is not", "what is not done is a failure"),
    (
        "lifecycle",
        "import -d $D tank log",
        "cannot import 'tank': name",
        "names are looked at first",
    ),
    ("lifecycle", "-Df tank", "cannot import 'tank': no such", "it is destroyed no more"),
    ("lifecycle", " tank", "cannot open 'tank': no such pool", "it had a cache device: not made"),
    (
        "lifecycle",
        "import -d $D tank",
        "cannot import 'tank': no such",
        "it had a cache device: not made",
    ),
    ("lifecycle", "-o version=28", "cannot create 'tank': property", "old versions are not made"),
    (
        "hurt",
        "import -d $D tank",
        "cannot import 'tank': pool was previously",
        "another host and time",
    ),
    (
        "hurt",
        "import -d $D tank",
        "cannot import 'tank': one or more",
        "a whole mirror is away: told so",
    ),
    ("hurt", " tank", "cannot open 'tank': no such pool", "it had a cache device: not made"),
    ("hurt", " tank", "cannot import 'tank': no such pool", "it had a cache device: not made"),
    (
        "hurt",
        "-o readonly=on tank",
        "cannot import 'tank': pool was previously",
        "another host and time",
    ),
    ("hurt", "-a", "cannot import 'tank': a pool with", "the advice holds there, too"),
    ("branches", "destroy tank/a@one", "cannot destroy 'tank/a@one': snap", "clones go by name"),
    ("branches", "-r tank/a", "cannot destroy 'tank/a': filesystem has dep", "clones go by name"),
    ("branches", "-rnv tank/a", "cannot destroy 'tank/a': filesystem has", "clones go by name"),
    ("dataset", "{1..8200}", "cannot create 'tank/user2'", "OpenZFS calls it an internal error"),
    ("dataset", "small_blocks=3K", "cannot set", "OpenZFS looks for special devices first"),
    ("dataset", " -h", "", "help is given, on standard output"),
    ("dataset", " --help", "", "help is given, on standard output"),
    ("space", " -h", "", "help is given, on standard output"),
    ("iostat", " -h", "", "help is given, on standard output"),
    ("iostat", " --help", "", "help is given, on standard output"),
];

/// What prints something else though it goes through: the scenario, a part of the command, the reason.
const PRINTS_OTHERWISE: &[(&str, &str, &str)] = &[
    ("branches", "destroy -Rnv", "clones go by name"),
    ("branches", "holds ", "at another time"),
    ("props", "get -o name,value size,free,allocated", "other space is used"),
    ("props", "get cap,alloc,frag", "other space is used"),
    ("props", "list -v", "other space is used"),
    ("props", "list -Hv", "other space is used"),
    ("props", "dedupratio,fragmentation -H", "other space is used"),
];

/// Lines of properties, or of the history, that tell of this pool and no other, by a word in them.
const LINES_OTHERWISE: &[(&str, &str)] = &[
    ("guid", "random"),
    ("load_guid", "random"),
    ("allocated", "other space is used"),
    ("free", "other space is used"),
    ("fragmentation", "other space is used"),
    ("cachefile", "the list of pools is kept elsewhere"),
    ("feature@log_spacemap", "active as soon as the kernel writes"),
    ("feature@empty_bpobj", "the kernel makes the root file system before it enables features"),
    (
        "feature@extensible_dataset",
        "the kernel makes the root file system before it enables features",
    ),
    (
        "feature@userobj_accounting",
        "the kernel makes the root file system before it enables features",
    ),
    ("feature@project_quota", "the kernel makes the root file system before it enables features"),
    ("cachefile=/x", "noted with the pool it is about"),
    ("dedupditto=200", "nothing is set"),
];

/// What of an output is compared: without times, and without what is another pool's.
fn comparable(output: &str) -> Vec<String> {
    let other = |word: &str| LINES_OTHERWISE.iter().any(|(otherwise, _)| word == *otherwise);
    let same = |line: &&str| !line.split_whitespace().any(other);
    output.trim_end().lines().filter(same).map(|line| undated(line).to_string()).collect()
}

/// What is refused in part, or taken back after it was done: disks are written to.
const TOUCHED: [&str; 10] = [
    "export tank nosuch",
    "import -d $D -a",
    "-O quota=1 ",
    "-o quota=1",
    "-o reservation=10G",
    "-o refreservation=10G",
    "tank/a tank/nosuch",
    "userquota@70010=5M quota=1K",
    "quota=60M reservation=10G",
    "reservation=10G quota=70M",
];

/// What of a table of numbers is compared: which values there are, and where they end. Other numbers were counted,
/// and other space is used.
fn shape(output: &str) -> Vec<String> {
    let is_value = |word: &str| {
        let start = |c: char| c.is_ascii_digit() || c == '-';
        word.starts_with(start) && !word.starts_with("--")
    };
    let line = |line: &str| {
        // `-T u` and `-T d`
        let dated = line.len() == "Wed May  1 00:00:31 UTC 2024".len() && line.contains(" UTC 20");
        if dated || line.parse::<u64>().is_ok_and(|time| time > 1_700_000_000) {
            return format!("a time of {} characters", line.len());
        }
        // The name may be a number, and that of a step in time is one.
        let (mut shape, mut first) = (String::new(), true);
        for part in line.split_inclusive([' ', '\t']) {
            let word = part.trim_end();
            let stands = if first && word.len() < 15 { word } else { "#" };
            let value = is_value(word) && (!first || word.len() >= 15);
            match value {
                true if line.contains('\t') => shape += &part.replace(word, "#"),
                // What stands at the right of its column: the blanks before it are its own.
                true => {
                    shape +=
                        &format!("{}{}", " ".repeat(word.len() - 1), part.replace(word, stands));
                }
                false => shape += part,
            }
            first = first && word.is_empty();
        }
        shape
    };
    output.lines().map(line).collect()
}

/// Plays a scenario; with `outputs` what is printed by what goes through is compared, too. What we
/// answer otherwise without saying so in [`OTHERWISE`], and how many refusals were compared.
fn play(stage: &Played, name: &str, outputs: bool) -> (Vec<String>, usize) {
    let mut cases = cases(name).into_iter();
    let (mut wrong, mut refusals) = (Vec::new(), 0);
    for line in text(name, "scenario").lines() {
        if line == "% reset" {
            let reset = "for p in $(zpool list -Ho name); do zpool destroy -f $p; done";
            let _reset = stage.bash(reset).expect_ok();
        } else if let Some(script) = line.strip_prefix("% ") {
            let ran = stage.bash(script);
            if !ran.ok() {
                wrong.push(format!("PREPARATION {ran}"));
            }
        } else if let Some(script) = line.strip_prefix("$ ") {
            let case = cases.next().unwrap();
            assert_eq!(case.command, script, "{name}: record it anew");
            let before = stage.traces();
            let ran = stage.bash(script);
            let may_touch = TOUCHED.iter().any(|part| script.contains(part));
            if !ran.ok() && !may_touch && before != stage.traces() {
                wrong.push(format!("DISKS WERE TOUCHED BY {ran}"));
            }
            if case.status == 0 && ran.ok() {
                let same = |theirs: &str, ours: &str| match name {
                    "iostat" => shape(theirs) == shape(ours),
                    _ => comparable(theirs) == comparable(ours),
                };
                let told = same(&case.out, &ran.out) && case.err == ran.err;
                let known = |(scenario, part, _): &&(&str, &str, &str)| {
                    *scenario == name && script.contains(part)
                };
                if outputs && !told && !PRINTS_OTHERWISE.iter().any(|line| known(&line)) {
                    wrong.push(format!("$ {script}\n{}{}--\n{ran}", case.out, case.err));
                }
                continue;
            }
            refusals += 1;
            // usage follows some messages, and is compared elsewhere
            let said =
                |text: &str| text.split("usage:").next().unwrap_or_default().trim_end().to_string();
            let same = (ran.status, said(&ran.err)) == (case.status, said(&case.err));
            let excused = |(scenario, part, ours, _): &&(&str, &str, &str, &str)| {
                *scenario == name && script.contains(part) && ran.err.starts_with(ours)
            };
            let not_yet = NOT_YET.iter().any(|part| ran.err.contains(part));
            if !same && !not_yet && !OTHERWISE.iter().any(|line| excused(&line)) {
                let theirs = format!("{}={}", said(&case.err), case.status);
                wrong.push(format!("$ {script}\n{theirs}\n--\n{}={}", said(&ran.err), ran.status));
            }
        }
    }
    (wrong, refusals)
}

fn assert_played(name: &str, refusals_min: usize) {
    let outputs = matches!(name, "space" | "props" | "branches" | "bookmarks" | "diff" | "iostat");
    for (how, stage) in [("alone", Played::new as fn(&str) -> Played), ("served", Played::served)] {
        let (wrong, refusals) = play(&stage(name), name, outputs);
        let count = wrong.len();
        assert!(wrong.is_empty(), "{how}, {count} of {refusals}:\n{}", wrong.join("\n\n"));
        assert!(refusals >= refusals_min, "{how}: {refusals}");
    }
}

#[test]
fn layouts_names_and_properties() {
    assert_played("create-errors", 50);
}

#[test]
fn devices_in_use() {
    assert_played("create-inuse", 10);
}

#[test]
fn pools() {
    assert_played("lifecycle", 30);
}

#[test]
fn data_sets() {
    assert_played("dataset", 80);
}

#[test]
fn snapshots_and_clones() {
    assert_played("branches", 60);
}

#[test]
fn bookmarks() {
    assert_played("bookmarks", 20);
}

#[test]
fn differences() {
    assert_played("diff", 20);
}

#[test]
fn missing_and_damaged_disks() {
    assert_played("hurt", 5);
}

#[test]
fn space_quotas_and_inheriting() {
    assert_played("space", 60);
}

#[test]
fn what_pools_do() {
    assert_played("iostat", 25);
}

#[test]
fn properties_of_pools() {
    assert_played("props", 40);
}
