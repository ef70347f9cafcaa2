//! What users get wrong, and what goes wrong around them, end to end: a message that names the thing and
//! says what to do, the exit status of OpenZFS or coreutils, nothing lost.
//!
//! The words of `zpool` and `zfs` are held to OpenZFS's in `transcripts`; here is what those do not cover.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use acceptance::Stage;
use device::WriteFile;
use testkit::data::{Data, Look};
use testkit::tool::{program, zdb_content};
use testkit::{Compare, Ran, assert_same, host, poolaudit};

/// A mirror of two with a few files in it, and the files.
fn small() -> (Stage, PathBuf) {
    let stage = Stage::new(2, 64 << 20);
    let _made = stage.ok("zpool create -o ashift=12 tank mirror $D/d00 $D/d01");
    let mut load = testkit::workload::Workload::new(5);
    load.mkdir(b"dir");
    load.file(b"dir/a", Look::Root, 300_000);
    load.file(b"b", Look::Noise, 5000);
    let planted = stage.plant("files", &load.ops);
    let _put = stage.ok("put -r files tank:/files");
    let _made = stage.ok("zfs create tank/fs");
    (stage, planted)
}

/// The pool is clean to all judges, and the files are in it.
#[track_caller]
fn assert_there(stage: &Stage, planted: &Path, back: &str) {
    let judged = stage.ok("verify tank");
    assert!(judged.out.contains("clean"), "{judged}");
    let _got = stage.ok(&format!("get -r tank:/files {back}"));
    assert_same(&host::list(planted), &host::list(&stage.aside(back)), Compare::COPY);
    zdb_content(stage.images.path(), "tank");
    drop(poolaudit(stage.images.path(), "tank").expect_ok());
}

fn noise(path: &Path, seed: u64, size: u64) {
    fs::write(path, Data { look: Look::Noise, seed, size }.bytes()).unwrap();
}

#[test]
fn what_is_not_there_and_what_is_there_already() {
    let (stage, planted) = small();
    noise(&stage.aside("one"), 1, 1000);
    let no_file = "No such file or directory";
    for (words, status, message) in [
        // pools, data sets, snapshots
        ("ls nosuch:/", 2, "cannot open 'nosuch': no such pool\n".to_string()),
        ("ls tank/nosuch:/", 2, "cannot open 'tank/nosuch': dataset does not exist\n".into()),
        ("ls tank@nosuch:/", 2, "cannot open 'tank@nosuch': dataset does not exist\n".into()),
        ("cat nosuch:/a", 1, "cannot open 'nosuch': no such pool\n".into()),
        ("get tank/nosuch:/a x", 1, "cannot open 'tank/nosuch': dataset does not exist\n".into()),
        ("put one nosuch:/", 1, "cannot open 'nosuch': no such pool\n".into()),
        ("put one tank/nosuch:/", 1, "cannot open 'tank/nosuch': dataset does not exist\n".into()),
        ("mkdir nosuch:/a", 1, "cannot open 'nosuch': no such pool\n".into()),
        ("mv nosuch:/a nosuch:/b", 1, "cannot open 'nosuch': no such pool\n".into()),
        ("rm nosuch:/a", 1, "cannot open 'nosuch': no such pool\n".into()),
        ("verify nosuch", 3, "cannot open 'nosuch': no such pool\n".into()),
        ("verify -d $D nosuch", 3, "cannot open 'nosuch': no such pool\n".into()),
        // paths
        ("ls tank:/x", 2, format!("cannot access 'tank:/x': {no_file}\n")),
        ("ls tank:/files/b/c", 2, "cannot access 'tank:/files/b/c': Not a directory\n".into()),
        ("cat tank:/x", 1, format!("cannot read 'tank:/x': {no_file}\n")),
        ("cat tank:/files", 1, "cannot read 'tank:/files': Is a directory\n".into()),
        ("get tank:/x y", 1, format!("cannot access 'tank:/x': {no_file}\n")),
        ("get tank:/files/b nosuch/y", 1, format!("cannot write 'nosuch/y': {no_file}\n")),
        (
            "get tank:/files y",
            1,
            "cannot fetch 'tank:/files': it is a directory (-r not given)".into(),
        ),
        ("put nosuch tank:/", 1, format!("cannot read 'nosuch': {no_file}\n")),
        ("put one tank:/x/y", 1, format!("cannot write to 'tank:/x/y': {no_file}\n")),
        ("put files tank:/", 1, "cannot store 'files': it is a directory (-r not given)\n".into()),
        (
            "put one one tank:/files/b",
            1,
            "cannot write to 'tank:/files/b': Not a directory\n".into(),
        ),
        ("mkdir tank:/x/y", 1, format!("cannot create directory 'tank:/x/y': {no_file}\n")),
        ("mv tank:/x tank:/y", 1, format!("cannot move 'tank:/x': {no_file}\n")),
        (
            "mv tank:/files tank/fs:/y",
            1,
            "cannot move 'tank:/files': it is in another data set".into(),
        ),
        ("rm tank:/x", 1, format!("cannot remove 'tank:/x': {no_file}\n")),
        ("rm tank:/files", 1, "cannot remove 'tank:/files': Is a directory\n".into()),
        // what is there already
        ("mkdir tank:/files", 1, "cannot create directory 'tank:/files': File exists\n".into()),
        (
            "mkdir -p tank:/files/b",
            1,
            "cannot create directory 'tank:/files/b': File exists\n".into(),
        ),
        (
            "mkdir -p tank:/files/b/c",
            1,
            "cannot create directory 'tank:/files/b/c': Not a directory\n".into(),
        ),
        ("put -r files tank:/files/b", 1, "cannot store 'files': Not a directory\n".into()),
        (
            "put one tank:/files/b/c",
            1,
            "cannot write to 'tank:/files/b/c': Not a directory\n".into(),
        ),
        (
            "mv tank:/files tank:/files/dir",
            1,
            "cannot move 'tank:/files': Invalid argument: a directory".into(),
        ),
        (
            "mv tank:/files/dir tank:/files/b",
            1,
            "cannot move 'tank:/files/dir': Not a directory\n".into(),
        ),
        // a snapshot cannot be written to, nor the root taken away
        ("put one tank@x:/", 1, "cannot open 'tank@x': dataset does not exist\n".into()),
        ("rm -r tank:/", 1, "cannot remove 'tank:/': ".into()),
    ] {
        let _said = stage.refused(words, status, &message);
    }
    // a tree onto a file of the host, and a file onto a directory of the pool
    fs::write(stage.aside("file"), "mine").unwrap();
    let _said = stage.refused("get -r tank:/files file", 1, "cannot write 'file': File exists\n");
    assert_eq!(fs::read(stage.aside("file")).unwrap(), b"mine");
    fs::create_dir(stage.aside("into")).unwrap();
    noise(&stage.aside("into/dir"), 2, 100);
    let said = "cannot store 'into/dir': Is a directory\n";
    let _said = stage.refused("put into/dir tank:/files", 1, said);
    // several at once: what can be done is, and the status says that something was not
    let _said = stage.refused("put one nosuch tank:/", 1, "cannot read 'nosuch': ");
    assert!(!stage.ok("cat tank:/one").out.is_empty());
    assert_there(&stage, &planted, "back");
}

#[test]
fn more_disks_gone_than_parity_covers() {
    let stage = Stage::new(3, 64 << 20);
    let _made = stage.ok("zpool create tank raidz $D/d00 $D/d01 $D/d02");
    noise(&stage.aside("one"), 1, 100_000);
    let _put = stage.ok("put one tank:/");
    let _away = stage.ok("zpool export tank");
    let aside = [1, 2].map(|i| (stage.images.disk(i), stage.aside(&format!("away{i}"))));
    aside.iter().for_each(|(disk, away)| fs::rename(disk, away).unwrap());
    let found = stage.ok("zpool import -d $D").out;
    for i in 0..3 {
        let path = stage.images.disk(i).display().to_string();
        let line = found.lines().find(|line| line.contains(&path));
        let line = line.unwrap_or_else(|| panic!("{path} is not named in: {found}"));
        assert_eq!(line.contains("UNAVAIL"), i > 0, "{found}");
    }
    assert!(found.contains("insufficient replicas"), "{found}");
    let unavailable = "one or more devices is currently unavailable";
    for (words, status, message) in [
        ("zpool import -d $D tank", 1, format!("cannot import 'tank': {unavailable}")),
        ("zpool import -f -d $D tank", 1, format!("cannot import 'tank': {unavailable}")),
        ("ls -d $D tank:/", 2, format!("cannot open 'tank': {unavailable}")),
        ("cat -d $D tank:/one", 1, format!("cannot open 'tank': {unavailable}")),
        ("put -d $D one tank:/two", 1, format!("cannot open 'tank': {unavailable}")),
        ("zpool status -d $D tank", 1, format!("cannot open 'tank': {unavailable}")),
    ] {
        let _said = stage.refused(words, status, &message);
    }
    let judged = stage.run("verify -d $D tank");
    assert!(judged.status == 2 && judged.out.contains("DATA LOST"), "{judged}");
    aside.iter().for_each(|(disk, away)| fs::rename(away, disk).unwrap());
    let _back = stage.ok("zpool import -d $D tank");
    let _got = stage.ok("get tank:/one back");
    assert_eq!(fs::read(stage.aside("one")).unwrap(), fs::read(stage.aside("back")).unwrap());
}

#[test]
fn disks_held_by_another_process() {
    let (stage, planted) = small();
    noise(&stage.aside("one"), 1, 1000);
    let held = WriteFile::open(stage.images.disk(1)).unwrap();
    let said = "cannot open 'tank': pool is in use by another process";
    let _said = stage.refused("put one tank:/", 1, said);
    let _said = stage.refused("mkdir tank:/new", 1, said);
    let said = "cannot export 'tank': pool is in use by another process";
    let _said = stage.refused("zpool export tank", 1, said);
    let said = "cannot destroy 'tank': pool is in use by another process";
    let _said = stage.refused("zpool destroy tank", 1, said);
    let said = "cannot set property for 'tank/fs': pool is in use by another process";
    let _said = stage.refused("zfs set atime=off tank/fs", 1, said);
    // readers are let in
    let _got = stage.ok("cat tank:/files/b");
    drop(held);
    // a new pool on a disk that somebody holds
    let (free, busy) = (stage.aside("free"), stage.aside("busy"));
    for path in [&free, &busy] {
        File::create(path).unwrap().set_len(64 << 20).unwrap();
    }
    let held = WriteFile::open(&busy).unwrap();
    let said = "cannot open '$A/busy': Device or resource busy: another process holds it\n";
    let _said = stage.refused("zpool create -f pond mirror $A/free $A/busy", 1, said);
    drop(held);
    assert_eq!(fs::read(&free).unwrap(), vec![0; 64 << 20], "nothing was written");
    let _made = stage.ok("zpool create pond mirror $A/free $A/busy");
    assert_there(&stage, &planted, "back");
}

#[test]
fn disks_that_hold_something_else() {
    let stage = Stage::new(3, 64 << 20);
    let makers: [(&str, &str, &[&str], &str); 2] = [
        ("mkfs.ext4", "e2fsprogs", &["-q", "-F"], "ext2, ext3 or ext4"),
        ("mkswap", "util-linux", &["-q"], "swap"),
    ];
    for (i, (tool, package, args, kind)) in makers.into_iter().enumerate() {
        let disk = stage.images.disk(i);
        drop(Ran::of(Command::new(program(tool, package)).args(args).arg(&disk)).expect_ok());
        let before = fs::read(&disk).unwrap();
        let said = format!(
            "invalid vdev specification\nuse '-f' to override the following errors:\n\
             $D/d0{i} contains a filesystem of type '{kind}'\n"
        );
        let _said = stage.refused(&format!("zpool create tank $D/d0{i}"), 1, &said);
        assert!(fs::read(&disk).unwrap() == before, "{tool}: overwritten");
    }
    // xfs by its superblock's magic number: its maker is not needed for that
    let xfs = File::options().write(true).open(stage.images.disk(2)).unwrap();
    xfs.write_all_at(b"XFSB\0\0\x10\0", 0).unwrap();
    let said = "invalid vdev specification\nuse '-f' to override the following errors:\n\
                $D/d00 contains a filesystem of type 'ext2, ext3 or ext4'\n\
                $D/d02 contains a filesystem of type 'xfs'\n";
    let _said = stage.refused("zpool create tank mirror $D/d00 $D/d02", 1, said);
    let _made = stage.ok("zpool create -f tank mirror $D/d00 $D/d02");
    let _away = stage.ok("zpool export tank");
    zdb_content(stage.images.path(), "tank");

    // a pool that was let go, one that nobody knows of, one that is remembered
    let said = "invalid vdev specification\nuse '-f' to override the following errors:\n\
                $D/d00 is part of exported pool 'tank'\n";
    let _said = stage.refused("zpool create pond $D/d00", 1, said);
    let _back = stage.ok("zpool import -d $D tank");
    let said = "invalid vdev specification\nthe following errors must be manually repaired:\n\
                $D/d00 is part of active pool 'tank'\n";
    let _said = stage.refused("zpool create -f pond $D/d00", 1, said);
    fs::remove_file(stage.aside("pools")).unwrap();
    let said = "invalid vdev specification\nuse '-f' to override the following errors:\n\
                $D/d00 is part of potentially active pool 'tank'\n";
    let _said = stage.refused("zpool create pond $D/d00", 1, said);
    zdb_content(stage.images.path(), "tank");
}

#[test]
fn a_pool_that_is_full_loses_nothing() {
    let (stage, planted) = small();
    fs::create_dir(stage.aside("many")).unwrap();
    (0..40).for_each(|i| noise(&stage.aside(&format!("many/f{i:02}")), 100 + i, 3_000_000));
    let said = stage.run("put -r many tank:/many");
    assert_eq!(said.status, 1, "{said}");
    let lines: Vec<&str> = said.err.lines().collect();
    assert!(!lines.is_empty() && lines.len() <= 41, "{said}");
    for line in &lines {
        let known = line.starts_with("cannot store 'many/f");
        assert!(known && line.ends_with(": No space left on device"), "{said}");
    }
    // what was put before is there, and of the rest each file is its beginning
    assert_there(&stage, &planted, "back1");
    let _got = stage.ok("get -r tank:/many part");
    let mut whole = 0;
    for entry in fs::read_dir(stage.aside("part")).unwrap() {
        let (found, name) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
        let (found, source) = (fs::read(found).unwrap(), stage.aside("many").join(name));
        let source = fs::read(source).unwrap();
        assert!(source.starts_with(&found));
        whole += usize::from(source.len() == found.len());
    }
    assert!((5..20).contains(&whole), "{whole} of 3 MB went into some 26 MB, the slop left free");
    // a full pool can be looked at, and what is removed makes room
    let _listed = stage.ok("zfs list -p");
    let said = stage.run("mkdir tank:/more");
    assert!(said.ok() || said.err.contains("No space left"), "{said}");
    let _gone = stage.ok("rm -r tank:/many");
    noise(&stage.aside("new"), 7, 20_000_000);
    let _put = stage.ok("put new tank:/new");
    let _got = stage.ok("get tank:/new again");
    assert!(fs::read(stage.aside("new")).unwrap() == fs::read(stage.aside("again")).unwrap());
    assert_there(&stage, &planted, "back2");
}

#[test]
fn a_quota_is_told_as_such() {
    let (stage, planted) = small();
    let _set = stage.ok("zfs set quota=5M tank/fs");
    noise(&stage.aside("big"), 3, 20_000_000);
    let said = "cannot store 'big': Disk quota exceeded\n";
    let _said = stage.refused("put big tank/fs:/", 1, said);
    let _gone = stage.ok("rm tank/fs:/big");
    noise(&stage.aside("fits"), 4, 1_000_000);
    let _put = stage.ok("put fits tank/fs:/");
    assert_there(&stage, &planted, "back");
}

/// A file system in memory on a directory, taken away with it.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(&self.0).status());
    }
}

#[test]
fn a_destination_that_is_full() {
    let (stage, planted) = small();
    let _put = stage.ok("put files/dir/a tank:/zz");
    let dir = stage.aside("full");
    fs::create_dir(&dir).unwrap();
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN, only root may mount: that a full destination of `get` is told");
        return;
    }
    let mount = ["-t", "tmpfs", "-o", "size=200k", "none"];
    drop(Ran::of(Command::new("mount").args(mount).arg(&dir)).expect_ok());
    let mounted = Mounted(dir);
    let said = "cannot write 'full/files/dir/a': No space left on device\n";
    let said = stage.refused("get -r tank:/files full", 1, said);
    // what came after it fits, and is there
    let (b, got) = (fs::read(planted.join("b")).unwrap(), fs::read(mounted.0.join("files/b")));
    assert!(got.is_ok_and(|got| got == b), "{said}");
    drop(mounted);
    assert_there(&stage, &planted, "back");
}
