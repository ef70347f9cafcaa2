//! `thumper dump` against zdb: the same facts about labels, uberblocks, configs, objects, blocks,
//! ZAPs and space maps, on pools that the kernel wrote and on one of ours; and what it does when
//! its input is damaged or hostile.

#![allow(clippy::unwrap_used)]

mod facts;
mod hostile;

use std::ffi::OsStr;
use std::path::Path;

use acceptance::{SHAPES, Session, engine, program};
use facts::difference;
use testkit::workload::acceptance as workload;
use testkit::{Images, Ran, golden, golden_copy, temp_dir, tool};

/// `thumper -d DIR dump WORDS`.
fn dump(dir: &Path, words: &[&str]) -> Ran {
    let state = temp_dir();
    let mut command = program::thumper(&state.path().join("state"));
    Ran::of(command.arg("-d").arg(dir).arg("dump").args(words))
}

/// `zdb -e -p DIR WORDS`, in the same time zone.
fn zdb(dir: &Path, words: &[&str]) -> String {
    let place = [OsStr::new("-e"), "-p".as_ref(), dir.as_ref()];
    let mut command = tool::zdb_command();
    let words = words.iter().map(OsStr::new);
    Ran::of(command.env("TZ", "UTC").args(place).args(words)).out
}

#[track_caller]
fn same(zdb: &facts::Facts, ours: &facts::Facts, least: usize, what: &str) {
    let differs = difference(zdb, ours);
    assert!(differs.is_empty(), "{what}: {differs}");
    assert!(ours.len() >= least, "{what}: only {} facts were compared", ours.len());
}

/// Everything that both print of a pool: at least so many facts.
#[track_caller]
fn agrees(dir: &Path, pool: &str, least: usize) {
    let ours = dump(dir, &["-ddddd", pool]).expect_ok();
    let theirs = zdb(dir, &["-P", "-dddddd", pool]);
    let (theirs, ours) = (facts::objects(&theirs), facts::objects(&ours.out));
    same(&theirs, &ours, least, &format!("{pool}: objects"));
    let ours = dump(dir, &["-mmm", pool]).expect_ok();
    let theirs = zdb(dir, &["-P", "-mmmmmm", pool]);
    let (theirs, ours) = (facts::metaslabs(&theirs), facts::metaslabs(&ours.out));
    same(&theirs, &ours, 20, &format!("{pool}: metaslabs"));
    // The config and the uberblock come out word for word.
    let ours = dump(dir, &["-uC", pool]).expect_ok();
    for theirs in [zdb(dir, &["-C", pool]), zdb(dir, &["-uuuu", pool])] {
        // The uberblock of a checkpoint, which zdb prints too, is an entry of the MOS directory.
        let newest = theirs.lines().take_while(|line| !line.starts_with("Checkpointed"));
        for line in newest.filter(|line| line.starts_with(['\t', ' '])) {
            let line = line.trim_end();
            assert!(ours.out.lines().any(|l| l.trim_end() == line), "{pool}: {line}\n{ours}");
        }
    }
}

/// The labels of a device, line by line.
#[track_caller]
fn labels_agree(device: &Path) {
    let state = temp_dir();
    let ours =
        Ran::of(program::thumper(&state.path().join("state")).args(["dump", "-lu"]).arg(device));
    let theirs = Ran::of(tool::zdb_command().env("TZ", "UTC").arg("-lu").arg(device));
    let (ours, theirs) = (facts::labels(&ours.out), facts::labels(&theirs.out));
    assert!(theirs.len() > 20, "{}: {theirs:?}", device.display());
    for (line, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(ours, theirs, "{} line {line}", device.display());
    }
    assert_eq!(ours.len(), theirs.len(), "{}", device.display());
}

macro_rules! golden_pools {
    ($($test:ident: $name:expr, $pool:expr, $least:expr;)*) => {$(
        #[test]
        fn $test() {
            agrees(&golden($name), $pool, $least);
        }
    )*};
}

golden_pools! {
    single_disk: "single", "single", 10_000;
    mirror_with_snapshots_and_clones: "mir", "mir", 8_000;
    raidz2_with_encryption_and_volumes: "rz2", "rz2", 3_000;
    two_vdevs_log_and_special: "wide", "wide", 1_000;
    removed_vdev_and_checkpoint: "features", "features", 2_500;
    no_features: "nofeat", "nofeat", 100;
    hurt_disks: "hurt", "hurt", 500;
}

#[test]
fn a_pool_of_ours() {
    let (images, mut session) = Session::create(&SHAPES[2], 128 << 10);
    session.run(&workload(3).ops);
    session.close().unwrap();
    agrees(images.path(), engine::POOL, 5_000);
    labels_agree(&images.disk(0));
}

#[test]
fn labels_of_golden_pools() {
    for (name, disk) in [("single", "d00"), ("rz1", "d03"), ("wide", "d11"), ("features", "d06")] {
        labels_agree(&golden(name).join(disk));
    }
}

#[test]
fn damaged_labels_are_told_one_by_one() {
    use std::os::unix::fs::FileExt;
    let images = golden_copy("single");
    let disk = std::fs::OpenOptions::new().write(true).open(images.disk(0)).unwrap();
    // The config of label 1, and one slot of the ring of label 0 (slots of 4 KiB).
    disk.write_all_at(b"noise", (256 << 10) + (16 << 10) + 100).unwrap();
    disk.write_all_at(b"noise", (128 << 10) + 6 * 4096 + 50).unwrap();
    let path = images.disk(0);
    let ran = dump(images.path(), &["-lu", path.to_str().unwrap()]);
    assert_eq!(ran.status, 1, "{ran}");
    let line = |start: &str| ran.out.lines().find(|l| l.starts_with(start)).unwrap_or_default();
    assert!(line("label 0").contains("config ok; bootenv ok;"), "{ran}");
    assert!(line("label 0").contains("1 slots damaged"), "{ran}");
    assert!(line("label 1").contains("config embedded checksum: the block says"), "{ran}");
    assert!(ran.out.contains("    labels = 0 2 3\n"), "{ran}");
    assert!(ran.out.contains("        labels = 1 2 3\n"), "{ran}");
}

#[test]
fn one_object_in_full_with_its_path() {
    let dir = golden("single");
    let theirs = zdb(&dir, &["-P", "-dddddd", "single/", "11"]);
    let ours = dump(&dir, &["single/", "11"]).expect_ok();
    let object = |said: &str| {
        let mut facts = facts::objects(said);
        facts.retain(|fact, _| fact.contains(" object 11: "));
        facts
    };
    same(&object(&theirs), &object(&ours.out), 20, "single/ 11");
    let path = |said: &str| said.lines().find(|l| l.starts_with("\tpath")).map(str::to_string);
    assert_eq!(path(&theirs), path(&ours.out));
    assert_eq!(path(&ours.out).as_deref(), Some("\tpath\t/sizes/rand1M+1"));
}

#[test]
fn a_block_by_its_place_is_checked_and_decompressed() {
    let dir = golden("rz1");
    // The root pointer of a data set, as it is printed, says how to read the block.
    let list = dump(&dir, &["-d", "rz1/c_lz4"]).expect_ok();
    let words: Vec<&str> = list.out.split_whitespace().collect();
    let after = |start: &str| words.iter().find_map(|word| word.strip_prefix(start)).unwrap();
    let dva = after("DVA[0]=<").trim_end_matches('>');
    let (place, _) = dva.rsplit_once(':').unwrap();
    let (lsize, psize) = after("size=").split_once('/').unwrap();
    let (lsize, psize) = (lsize.trim_end_matches('L'), psize.trim_end_matches('P'));
    let compress = if words.contains(&"lz4") { "lz4," } else { "" };
    let kind = if words.contains(&"sha256") { "sha256" } else { "fletcher4" };
    let checksum = after("cksum=");
    let good = format!("{place}:{lsize}/{psize}:{compress}{kind}={checksum}");
    let ran = dump(&dir, &["-b", "rz1", &good]).expect_ok();
    assert!(ran.out.contains("checksum = ok"), "{ran}");
    assert!(ran.out.lines().count() > 32, "{ran}");
    // Of another checksum the block is not there, from no combination of columns.
    let last = checksum.chars().next_back().unwrap();
    let other = if last == '0' { '1' } else { '0' };
    let bad = format!("{}{other}", good.strip_suffix(last).unwrap());
    let ran = dump(&dir, &["-b", "rz1", &bad]);
    assert!(ran.status == 1 && ran.out.contains("cannot read"), "{ran}");
}

#[test]
fn json_says_the_same() {
    let dir = golden("mir");
    let ran = dump(&dir, &["-ddddd", "-j", "mir"]).expect_ok();
    let text = dump(&dir, &["-ddddd", "mir"]).expect_ok();
    let count = |kind: &str| {
        let start = format!("\"kind\":\"{kind}\"");
        ran.out.lines().filter(|line| line.contains(&start)).count()
    };
    let is_dnode = |line: &&str| line.starts_with("\tdnode maxblkid");
    assert_eq!(count("dnode"), text.out.lines().filter(is_dnode).count());
    let is_entry =
        |line: &&str| line.starts_with("\t\t") && line.ends_with(')') && line.contains("(type: ");
    let entries =
        ran.out.lines().filter(|l| l.contains("\"kind\":\"entry\"") && l.contains("\"type\":"));
    assert_eq!(entries.count(), text.out.lines().filter(is_entry).count());
    assert!(ran.out.lines().all(|l| l.starts_with('{') && l.ends_with('}')), "a line is no object");
}

#[test]
fn pools_with_disks_away_are_told() {
    let images = Images::copy_of(&golden("rz2"));
    let whole = dump(images.path(), &["-ddddd", "rz2"]).expect_ok();
    let some = images.without(&[1, 7]);
    let ran = dump(some.path(), &["-ddddd", "rz2"]).expect_ok();
    assert!(ran.out == whole.out, "what is printed differs with two disks away");
    let overview = dump(some.path(), &["rz2"]).expect_ok();
    assert_eq!(overview.out.matches("state=missing").count(), 2, "{overview}");
    // Beyond redundancy something cannot be read, and is named; the labels are still told.
    let few = images.without(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let ran = dump(few.path(), &["rz2"]);
    assert!(ran.status == 1 && ran.out.contains("cannot read"), "{ran}");
    let disk = few.disk(0);
    drop(dump(few.path(), &["-l", disk.to_str().unwrap()]).expect_ok());
}

#[test]
fn what_is_not_there_is_named() {
    let dir = golden("single");
    for (words, message) in [
        (&["nosuch"][..], "cannot open 'nosuch': no such pool"),
        (
            &["single/nosuch"],
            "cannot read single/nosuch: 'nosuch' in 'single/nosuch' does not exist",
        ),
        (&["single@nosuch"], "cannot read single@nosuch: snapshot 'nosuch' does not exist"),
        (&["single", "99999"], "cannot read object 99999: does not exist"),
        (&["-t", "1", "single"], "no uberblock of txg 1 or before"),
        (&["-b", "single", "7:0:1000"], "cannot read 7:0:1000"),
        (&["-l", "/nosuch"], "cannot read /nosuch"),
    ] {
        let ran = dump(&dir, words);
        assert_eq!(ran.status, 1, "{ran}");
        assert!(format!("{}{}", ran.out, ran.err).contains(message), "{ran}");
    }
}
