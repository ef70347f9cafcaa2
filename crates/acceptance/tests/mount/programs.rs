//! Programs that people run, in a mounted file system: fio, rsync, git, SQLite, cargo.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::random::Rng;
use testkit::{Compare, Ran, assert_same, host, rounds, tool};

use crate::served::{judged, run_in, serve, stage, wanted};

#[test]
fn fio_reads_what_it_wrote() {
    if !wanted("fio in a mount") {
        return;
    }
    let stage = stage(4 << 30, "-O compression=lz4");
    let served = serve(&stage, "tank", "mnt");
    let size = format!("--size={}M", rounds(24, 512));
    for (name, engine, how, block) in [
        ("sequential", "psync", "write", "1M"),
        ("random", "psync", "randwrite", "4k"),
        ("mixed", "psync", "randrw", "16k"),
        ("mapped", "mmap", "randwrite", "4k"),
        ("direct", "psync", "randrw", "64k"),
    ] {
        let mut words = vec![
            format!("--name={name}"),
            format!("--ioengine={engine}"),
            format!("--rw={how}"),
            format!("--bs={block}"),
            size.clone(),
        ];
        words.extend(
            ["--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--numjobs=2", "--thread"]
                .map(String::from),
        );
        if name == "direct" {
            words.push("--direct=1".into());
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = run_in(&served.dir, "fio", "fio", &words);
        assert!(ran.out.contains("err= 0"), "{ran}");
        // There is no room for all of them together.
        for job in 0..2 {
            fs::remove_file(served.dir.join(format!("{name}.{job}.0"))).unwrap();
        }
    }
    served.unmount(&stage);
    judged(&stage);
}

/// A tree with all that rsync keeps: owners, links, attributes, holes.
fn plant(dir: &Path, files: u64) {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    let mut rng = Rng::new(3);
    for i in 0..files {
        let parent = dir.join(format!("d{}/s{}", i % 17, i % 5));
        fs::create_dir_all(&parent).unwrap();
        let path = parent.join(format!("file {i}"));
        let mut data = vec![0; rng.index(20_000)];
        rng.fill(&mut data);
        fs::write(&path, data).unwrap();
        if i % 7 == 0 {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            chown(&path, Some(1000), Some(100)).unwrap();
        }
        if i % 11 == 0 {
            fs::hard_link(&path, parent.join(format!("link {i}"))).unwrap();
            symlink(format!("file {i}"), parent.join(format!("symlink {i}"))).unwrap();
        }
        if i % 13 == 0 {
            let none = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, "user.note", &[i as u8; 40], none).unwrap();
        }
    }
}

#[test]
fn rsync_there_and_back() {
    if !wanted("rsync in a mount") {
        return;
    }
    let stage = stage(4 << 30, "-O xattr=sa -O acltype=posix");
    let (from, back) = (stage.aside("from"), stage.aside("back"));
    fs::create_dir(&from).unwrap();
    plant(&from, rounds(600, 20_000));
    let served = serve(&stage, "tank", "mnt");
    let sync = |from: &Path, to: &Path, more: &[&str]| {
        let words = [&["-aHAX", "--numeric-ids", "--modify-window=-1"], more].concat();
        let mut rsync = Command::new(tool::program("rsync", "rsync"));
        rsync.args(words).arg(format!("{}/", from.display())).arg(format!("{}/", to.display()));
        Ran::of(&mut rsync).expect_ok()
    };
    let there = served.at("there");
    let _ran = sync(&from, &there, &[]);
    // Nothing is left to be done, by sums.
    let again = sync(&from, &there, &["-i", "-n", "--checksum"]);
    assert_eq!(again.out, "", "{again}");
    assert_same(&host::list(&from), &host::list(&there), Compare::COPY);
    let _ran = sync(&there, &back, &[]);
    assert_same(&host::list(&from), &host::list(&back), Compare::COPY);
    served.unmount(&stage);
    judged(&stage);
}

#[test]
fn git_clones_and_collects() {
    if !wanted("git in a mount") {
        return;
    }
    let stage = stage(4 << 30, "-O compression=lz4");
    let served = serve(&stage, "tank", "mnt");
    // A repository with a history of its own.
    let first = served.at("first");
    fs::create_dir(&first).unwrap();
    let git = |dir: &Path, words: &[&str]| {
        let who = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "safe.directory=*"];
        run_in(dir, "git", "git", &[&who, words].concat())
    };
    let _ran = git(&first, &["init", "-q"]);
    let mut rng = Rng::new(8);
    for commit in 0..rounds(6, 100) {
        for _ in 0..20 {
            let path = first.join(format!("dir{}/file{}", rng.below(8), rng.below(40)));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut data = vec![0; rng.index(8000)];
            rng.fill(&mut data);
            fs::write(path, data).unwrap();
        }
        let _ran = git(&first, &["add", "-A"]);
        let _ran = git(&first, &["commit", "-q", "-m", &format!("change {commit}")]);
    }
    let _ran = git(&served.dir, &["clone", "-q", "--no-local", "first", "second"]);
    let second = served.at("second");
    let _ran = git(&second, &["gc", "-q", "--prune=now"]);
    let _ran = git(&second, &["fsck", "--full", "--strict"]);
    let _ran = git(&second, &["repack", "-q", "-a", "-d", "-f"]);
    let heads = [&first, &second].map(|dir| git(dir, &["rev-parse", "HEAD^{tree}"]).out);
    assert_eq!(heads[0], heads[1]);
    assert_eq!(git(&second, &["status", "--porcelain"]).out, "");
    // This project's own repository, if it is one: as it is, in the long rounds with more of its history.
    let ours = testkit::paths::repository();
    let depth = if rounds(0, 1) == 0 { "--depth=1" } else { "--depth=1000" };
    if ours.join(".git").exists() {
        let ours = ours.display().to_string();
        let _ran = git(
            &served.dir,
            &["clone", "-q", "--no-local", depth, &format!("file://{ours}"), "ours"],
        );
        let _ran = git(&served.at("ours"), &["fsck", "--full"]);
        assert_eq!(git(&served.at("ours"), &["status", "--porcelain"]).out, "");
    }
    served.unmount(&stage);
    judged(&stage);
}

#[test]
fn sqlite_under_load() {
    if !wanted("SQLite in a mount") {
        return;
    }
    let stage = stage(2 << 30, "");
    let served = serve(&stage, "tank", "mnt");
    for (file, journal) in [("wal.db", "WAL"), ("delete.db", "DELETE"), ("mapped.db", "TRUNCATE")] {
        let sql = |text: &str| {
            let ran = run_in(
                &served.dir,
                "sqlite3",
                "sqlite3",
                &["-bail", "-cmd", ".timeout 60000", file, text],
            );
            assert!(ran.err.is_empty(), "{ran}");
            ran.out
        };
        let mapped = if file == "mapped.db" { 1 << 26 } else { 0 };
        let made = sql(&format!(
            "PRAGMA journal_mode={journal}; CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB);"
        ));
        assert_eq!(made.trim().to_uppercase(), journal);
        let rows = rounds(300, 5000);
        rt_scope(4, |writer| {
            let text = format!(
                "PRAGMA mmap_size={mapped}; PRAGMA synchronous=NORMAL; \
                 BEGIN IMMEDIATE; \
                 WITH RECURSIVE c(x) AS (VALUES(1) UNION ALL SELECT x+1 FROM c WHERE x<{rows}) \
                 INSERT INTO t(b) SELECT randomblob(100 + x % 900) FROM c; COMMIT; \
                 BEGIN IMMEDIATE; UPDATE t SET b = randomblob(50) WHERE a % 7 = {writer}; COMMIT; \
                 BEGIN IMMEDIATE; DELETE FROM t WHERE a % 11 = {writer}; ROLLBACK;"
            );
            sql(&text);
        });
        let _ran = sql("VACUUM;");
        assert_eq!(
            sql("PRAGMA integrity_check; SELECT count(*) FROM t;"),
            format!("ok\n{}\n", rows * 4)
        );
    }
    served.unmount(&stage);
    judged(&stage);
}

/// Does `each` in so many threads.
fn rt_scope(count: u64, each: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|i| {
                scope.spawn({
                    let each = &each;
                    move || each(i)
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn a_crate_is_unpacked_and_built() {
    if !wanted("a build in a mount") {
        return;
    }
    let stage = stage(4 << 30, "-O compression=lz4");
    let source = stage.aside("source/small");
    fs::create_dir_all(source.join("src")).unwrap();
    fs::create_dir_all(source.join("dep/src")).unwrap();
    let manifest = "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
                    [dependencies]\ndep = { path = \"dep\" }\n[workspace]\n";
    fs::write(source.join("Cargo.toml"), manifest).unwrap();
    let dep = "[package]\nname = \"dep\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    fs::write(source.join("dep/Cargo.toml"), dep).unwrap();
    fs::write(source.join("dep/src/lib.rs"), "pub fn sum(n: u64) -> u64 { (1..=n).sum() }\n")
        .unwrap();
    fs::write(source.join("src/main.rs"), "fn main() { println!(\"{}\", dep::sum(100)); }\n")
        .unwrap();
    let archive = stage.aside("small.tar").display().to_string();
    let _ran = run_in(&stage.aside("source"), "tar", "tar", &["-cf", &archive, "small"]);
    let served = serve(&stage, "tank", "mnt");
    let _ran = run_in(&served.dir, "tar", "tar", &["-xpf", &archive]);
    let cargo = |words: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(words).args(["--offline", "--quiet"]).current_dir(served.at("small"));
        cargo.env("CARGO_TARGET_DIR", served.at("small/target")).env_remove("RUSTFLAGS");
        Ran::of(&mut cargo).expect_ok()
    };
    assert_eq!(cargo(&["run"]).out, "5050\n");
    // Times are told as cargo needs them: nothing is to be done again, then what was changed.
    let _ran = cargo(&["build"]);
    fs::write(served.at("small/dep/src/lib.rs"), "pub fn sum(n: u64) -> u64 { n }\n").unwrap();
    assert_eq!(cargo(&["run"]).out, "100\n");
    served.unmount(&stage);
    judged(&stage);
}
