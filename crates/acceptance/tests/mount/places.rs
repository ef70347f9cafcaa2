//! A server that mounts file systems where their properties say: `places.transcript` is what OpenZFS answered, with
//! `$T` for a directory of the test.
//!
//! Seen red: without the unmounting before a rename, with what was unmounted by hand mounted again by `set`.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use acceptance::mounts::Tidy;
use acceptance::{Server, Stage};
use client::{Client, Open, Options, Subject};
use rt::sync::atomic::{AtomicBool, Ordering};
use testkit::Ran;

use crate::served::{cover, judged, uncover, wanted};

/// A pool with file systems of every kind, on `$A/t`, and its server.
fn site() -> (Stage, Tidy, Server) {
    let stage = Stage::new(1, 256 << 20);
    let tidy = Tidy(stage.aside("t").parent().unwrap().into());
    let server = Server::start_with(&stage.aside("pools"), &["--mount"]);
    for words in [
        "zpool create -o ashift=12 -m $A/t tank $D/d00",
        "zfs create tank/a",
        "zfs create tank/a/b",
        "zfs create -o mountpoint=none tank/none",
        "zfs create -o mountpoint=legacy tank/leg",
        "zfs create -o canmount=off tank/off",
        "zfs create -o canmount=noauto tank/no",
        "zfs create -V 1M tank/vol",
        "zfs snapshot tank/a@s",
    ] {
        drop(stage.ok(words));
    }
    (stage, tidy, server)
}

/// One command with what it answered.
struct Asked<'a> {
    command: &'a str,
    answer: Vec<&'a str>,
    status: i32,
}

/// The commands of the transcript; a line `cd DIR` is a command without an answer.
fn transcript(text: &str) -> Vec<Asked<'_>> {
    let mut all: Vec<Asked<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ").or(line.strip_prefix("cd ")) {
            all.push(Asked { command, answer: Vec::new(), status: -1 });
        } else if let (Some(status), Some(asked)) = (line.strip_prefix("= "), all.last_mut()) {
            asked.status = status.parse().unwrap();
        } else if let Some(asked) = all.last_mut() {
            asked.answer.push(line);
        }
    }
    all
}

#[test]
fn file_systems_are_mounted_as_openzfs_mounts_them() {
    if !wanted("file systems are mounted as OpenZFS mounts them") {
        return;
    }
    let (stage, _tidy, server) = site();
    let top = stage.aside("").display().to_string();
    let top = top.trim_end_matches('/');
    let text = include_str!("places.transcript").replace("$T", top);
    // Somebody whose working directory it would be.
    let mut inside = None;
    for (number, asked) in transcript(&text).iter().enumerate() {
        let Asked { command, answer, status } = asked;
        if command.starts_with('/') {
            inside = (*command != "/").then(|| File::open(command).unwrap());
            continue;
        }
        let ran = match command.strip_prefix("ls ") {
            Some(words) => Ran::of(Command::new("ls").args(words.split(' '))),
            None => stage.run(command),
        };
        let said = format!("{}{}", ran.out, ran.err);
        let place = format!("command {number}, `{command}`: {said}");
        assert_eq!(ran.status, *status, "{place}");
        if !command.starts_with("ls ") {
            assert_eq!(said.lines().collect::<Vec<_>>(), *answer, "{place}");
        }
    }
    drop(inside);
    drop(server.stop());
    judged(&stage);
}

#[test]
fn files_of_a_served_pool_are_where_its_file_systems_are() {
    if !wanted("files of a served pool are where its file systems are") {
        return;
    }
    let (stage, _tidy, server) = site();
    let (top, below) = (stage.aside("t"), stage.aside("t/a/b"));
    std::fs::write(below.join("file"), "through the mount").unwrap();
    std::fs::write(top.join("above"), "of the root").unwrap();
    assert_eq!(stage.ok("cat tank/a/b:/file").out, "through the mount");
    assert_eq!(stage.ok("zfs get -Ho value mounted tank/a/b").out.trim(), "yes");
    assert_eq!(stage.ok("zfs get -Ho value mounted tank/no").out.trim(), "no");
    let options = |path: &Path| {
        let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let on = format!(" {} ", path.display());
        list.lines().find(|line| line.contains(&on)).unwrap().to_string()
    };
    drop(stage.ok("zfs set readonly=on tank/a"));
    assert!(options(&below).contains(" ro,"), "{}", options(&below));
    assert!(std::fs::write(below.join("file"), "no").is_err());
    drop(stage.ok("zfs inherit readonly tank/a"));
    // What a rollback takes back is not in the mount either.
    drop(stage.ok("zfs snapshot tank/a/b@then"));
    std::fs::write(below.join("file"), "later").unwrap();
    drop(stage.ok("zfs rollback tank/a/b@then"));
    assert_eq!(std::fs::read_to_string(below.join("file")).unwrap(), "through the mount");
    drop(stage.ok("zfs clone tank/a/b@then tank/fork"));
    assert!(top.join("fork/file").exists());
    // A clone goes with its snapshot, and what is mounted inside keeps no rollback.
    drop(stage.ok("zfs snapshot tank/a@then"));
    drop(stage.ok("zfs rollback tank/a@then"));
    assert!(below.join("file").exists());
    drop(stage.ok("zfs destroy -R tank/a/b@then"));
    assert!(!top.join("fork").exists());

    // Names and places need not nest alike; one directory is for one.
    let inner = stage.aside("t/by/inner");
    drop(stage.ok("zfs create -o mountpoint=$A/t/by tank/zz"));
    drop(stage.ok(&format!("zfs create -o mountpoint={} tank/aa", inner.display())));
    let ran = stage.run("zfs create -o mountpoint=$A/t/by tank/twice");
    assert!(ran.status == 1 && ran.err.contains("'tank/zz' is mounted on"), "{ran}");
    drop(stage.ok("zfs destroy tank/twice"));
    drop(stage.ok("zfs unmount -a"));
    drop(stage.ok("zfs mount -a"));
    assert_eq!(stage.ok("zfs get -Ho value mounted tank/aa").out.trim(), "yes");

    // What clients of the server do is seen a second later.
    assert!(!below.join("moved").exists());
    drop(stage.ok("mv tank/a/b:/file tank/a/b:/moved"));
    rt::time::sleep(Duration::from_millis(1500));
    assert!(below.join("moved").exists() && !below.join("file").exists());

    // After a kill the mounts are dead; the next server brings them back.
    std::fs::write(below.join("kept"), "kept").unwrap();
    File::open(below.join("kept")).unwrap().sync_all().unwrap();
    server.kill();
    assert!(File::open(below.join("kept")).is_err());
    let server = Server::start_with(&stage.aside("pools"), &["--mount"]);
    // It answers when it has mounted all.
    assert!(stage.ok("zfs mount").out.contains("tank/a/b "));
    assert_eq!(std::fs::read_to_string(below.join("kept")).unwrap(), "kept");
    drop(stage.ok("zpool export tank"));
    // The one was made for it, the other was named.
    assert!(!below.exists() && top.read_dir().unwrap().next().is_none());
    drop(stage.ok("zpool import -N -d $D tank"));
    assert_eq!(stage.ok("zfs mount").out, "");
    drop(stage.ok("zfs mount -a"));
    assert!(below.join("kept").exists());
    drop(server.stop());
    assert!(!below.join("kept").exists());
    judged(&stage);
}

/// The line of the list of mounts for a directory, options and all.
fn mounted(path: &Path) -> String {
    let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let on = format!(" {} ", path.display());
    list.lines().rfind(|line| line.contains(&on)).unwrap().to_string()
}

/// Seen red: the first of them was refused, as somebody was inside.
#[test]
fn what_keeps_its_place_is_not_unmounted_for_its_properties() {
    if !wanted("properties that say nothing of its place do not unmount what is in use") {
        return;
    }
    let (stage, _tidy, server) = site();
    let below = stage.aside("t/a/b");
    let (file, program) = (below.join("file"), below.join("program"));
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let number = |line: String| line.split(' ').next().unwrap().to_string();
    let before = number(mounted(&below));
    let inside = File::open(&below).unwrap();
    let runs = || Command::new(&program).status().is_ok_and(|status| status.success());
    for words in ["atime=off", "relatime=on", "acltype=posix", "canmount=noauto", "canmount=on"] {
        drop(stage.ok(&format!("zfs set {words} tank/a")));
    }
    drop(stage.ok("zfs set readonly=on exec=off setuid=off devices=off tank/a"));
    let now = mounted(&below);
    assert!(["ro", "noexec", "nosuid", "nodev"].iter().all(|flag| now.contains(flag)), "{now}");
    assert_eq!(std::fs::write(&file, "no").unwrap_err().raw_os_error(), Some(30));
    assert!(!runs());
    for name in ["readonly", "exec", "setuid", "devices"] {
        drop(stage.ok(&format!("zfs inherit {name} tank/a")));
    }
    let now = mounted(&below);
    assert!(["ro,", "noexec", "nosuid", "nodev"].iter().all(|flag| !now.contains(flag)), "{now}");
    std::fs::write(&file, "yes").unwrap();
    assert!(runs());

    // Somebody who could write into a file cannot any more.
    let open = File::options().write(true).open(&file).unwrap();
    drop(stage.ok("zfs set readonly=on exec=off tank/a/b"));
    assert!(std::os::unix::fs::FileExt::write_at(&open, b"no", 0).is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "yes");
    assert!(mounted(&below).contains("noexec"));
    assert_eq!(number(mounted(&below)), before);
    drop((open, inside));
    drop(server.stop());
}

/// Seen red: somebody in what has a place of its own stopped the move of what is above it by its name.
#[test]
fn what_has_a_place_of_its_own_stays_when_others_move() {
    if !wanted("what has a place of its own stays when what is above it moves") {
        return;
    }
    let (stage, _tidy, server) = site();
    drop(stage.ok("zfs create -o mountpoint=$A/t/own tank/a/own"));
    drop(stage.ok("zfs create tank/a/own/below"));
    drop(stage.ok("zfs create -o mountpoint=$A/t/a/inner tank/a/inner"));
    let own = stage.aside("t/own/below");
    std::fs::write(own.join("file"), "here").unwrap();
    let inside = File::open(own.join("file")).unwrap();
    let number = || mounted(&own).split(' ').next().unwrap().to_string();
    let before = number();
    let at = |name: &str| {
        let list = stage.ok("zfs mount").out;
        let line = list.lines().find(|line| line.split(' ').next() == Some(name));
        line.map(|line| line.rsplit('/').next().unwrap().to_string())
    };
    for (words, a) in [
        ("zfs set mountpoint=$A/t/moved tank/a", Some("moved")),
        ("zfs set canmount=off tank/a", None),
        ("zfs set canmount=on tank/a", None),
        ("zfs mount tank/a", Some("moved")),
    ] {
        if words == "zfs mount tank/a" {
            // It would be mounted over what is inside.
            drop(stage.ok("zfs unmount tank/a/b"));
        }
        drop(stage.ok(words));
        assert_eq!(at("tank/a").as_deref(), a, "{words}");
        // What lay inside of what has moved is where it belongs, too.
        assert_eq!(at("tank/a/inner").as_deref(), Some("inner"), "{words}");
        assert_eq!((number(), at("tank/a/own/below").as_deref()), (before.clone(), Some("below")));
    }
    // Seen red: it did not obey what came with the other's new place.
    drop(stage.ok("zfs set exec=off mountpoint=$A/t/again tank/a"));
    assert!(mounted(&own).contains("noexec"));
    // With `-r` it has no place of its own any more, and who is inside says no.
    let ran = stage.run("zfs inherit -r mountpoint tank/a");
    assert!(ran.status == 1 && ran.err.contains("pool or dataset is busy"), "{ran}");
    drop(inside);
    drop(stage.ok("zfs inherit -r mountpoint tank/a"));
    assert_eq!(std::fs::read_to_string(stage.aside("t/a/own/below/file")).unwrap(), "here");
    drop(server.stop());
}

/// Seen red: the new mount went with the last open file of the old one.
#[test]
fn what_is_mounted_after_a_lazy_unmount_stays() {
    if !wanted("the end of a mount that was unmounted lazily leaves alone what is in its place") {
        return;
    }
    let (stage, _tidy, server) = site();
    let below = stage.aside("t/a/b");
    let inside = File::open(&below).unwrap();
    drop(stage.ok("zfs unmount -f tank/a/b"));
    drop(stage.ok("zfs mount tank/a/b"));
    drop(inside);
    rt::time::sleep(Duration::from_millis(500));
    assert_eq!(stage.ok("zfs get -Ho value mounted tank/a/b").out.trim(), "yes");
    std::fs::write(below.join("file"), "there").unwrap();
    assert_eq!(stage.ok("cat tank/a/b:/file").out, "there");
    drop(server.stop());
}

/// Seen red: what somebody else had mounted over it was unmounted; that the kernel obeyed no property was not told.
#[test]
fn what_others_have_mounted_over_it_stays() {
    if !wanted("a server leaves alone what is mounted over its mounts") {
        return;
    }
    let (stage, _tidy, server) = site();
    let below = stage.aside("t/a/b");
    cover(&below);
    for words in ["zfs unmount tank/a/b", "zfs unmount -f tank/a/b", "zfs rename tank/a/b tank/a/c"]
    {
        let ran = stage.run(words);
        assert!(ran.status == 1 && ran.err.contains("pool or dataset is busy"), "{ran}");
    }
    let ran = stage.run("zfs set exec=off tank/a");
    let told = "property may be set but unable to remount filesystem\n";
    assert!(ran.status == 1 && ran.err.starts_with("cannot remount 'tank/a/b'"), "{ran}");
    assert!(ran.err.ends_with(told) && !mounted(&below).contains("noexec"), "{ran}");
    assert!(mounted(&stage.aside("t/a")).contains("noexec"));
    uncover(&below);
    drop(stage.ok("zfs set exec=off tank/a"));
    assert!(mounted(&below).contains("noexec"));
    drop(stage.ok("zfs unmount tank/a/b"));
    drop(server.stop());
}

/// Seen red: it was removed, and with it what its owner had said of it.
#[test]
fn directories_that_were_named_are_not_removed() {
    if !wanted("directories of the administrator stay when nothing is mounted on them any more") {
        return;
    }
    let (stage, _tidy, server) = site();
    let own = stage.aside("own");
    let theirs = std::fs::Permissions::from_mode(0o750);
    std::fs::create_dir(&own).unwrap();
    std::fs::set_permissions(&own, theirs).unwrap();
    std::os::unix::fs::chown(&own, Some(1234), None).unwrap();
    for words in ["set mountpoint=legacy tank/own", "destroy -r tank/own"] {
        drop(stage.run("zfs create tank/own"));
        drop(stage.ok("zfs set mountpoint=$A/own tank/own"));
        drop(stage.ok("zfs create tank/own/below"));
        assert!(own.join("below").exists());
        drop(stage.ok(&format!("zfs {words}")));
        // What is below has its place from above, and was made by us.
        assert!(std::fs::read_dir(&own).unwrap().next().is_none(), "{words}");
        let meta = own.metadata().unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o7777), (1234, 0o750), "{words}");
        drop(stage.run("zfs destroy -r tank/own"));
    }
    drop(server.stop());
}

/// Seen red: refused in spite of the words.
#[test]
fn who_is_inside_stops_a_rename_or_rollback_unless_it_is_forced() {
    if !wanted("renames and rollbacks can be forced") {
        return;
    }
    let (stage, _tidy, server) = site();
    let number = |path: &Path| mounted(path).split(' ').next().unwrap().to_string();
    let busy = |words: &str| {
        let ran = stage.run(words);
        assert!(ran.status == 1 && ran.err.contains("pool or dataset is busy"), "{ran}");
    };
    let (old, new) = (stage.aside("t/a/b"), stage.aside("t/c/b"));
    std::fs::write(old.join("file"), "first").unwrap();
    let inside = File::open(&old).unwrap();
    busy("zfs rename tank/a tank/c");
    drop(stage.ok("zfs rename -f tank/a tank/c"));
    assert!(new.join("file").exists() && !old.exists());
    // Who was there stays where he was.
    assert!(std::fs::metadata(format!("/proc/self/fd/{}/file", inside.as_raw_fd())).is_ok());
    drop(inside);

    // It has another name, and no other place.
    let (inside, before) = (File::open(&new).unwrap(), number(&new));
    drop(stage.ok("zfs create tank/cc"));
    drop(stage.ok("zfs rename -u tank/c tank/d"));
    assert_eq!((number(&new), stage.aside("t/d").exists()), (before, false));
    let list = stage.ok("zfs mount").out;
    let is_there = |line: &str| line.starts_with("tank/d/b ") && line.ends_with("/t/c/b");
    assert!(list.lines().any(is_there) && !list.contains("tank/c "), "{list}");
    assert!(list.contains("tank/cc "), "{list}");
    drop(stage.ok("zfs snapshot tank/d/b@one"));
    assert!(new.join(".zfs/snapshot/one/file").exists());
    std::fs::write(new.join("file"), "second").unwrap();
    drop(inside);
    drop(stage.ok("zfs unmount tank/d"));
    drop(stage.ok("zfs mount -a"));
    let new = stage.aside("t/d/b");
    assert_eq!(std::fs::read_to_string(new.join("file")).unwrap(), "second");

    let inside = File::options().write(true).open(new.join("file")).unwrap();
    busy("zfs rollback tank/d/b@one");
    drop(stage.ok("zfs rollback -f tank/d/b@one"));
    assert_eq!(std::fs::read_to_string(new.join("file")).unwrap(), "first");
    assert!(std::os::unix::fs::FileExt::write_at(&inside, b"late", 0).is_err());
    drop(inside);

    // Clones that go are unmounted, and nobody else is.
    drop(stage.ok("zfs snapshot tank/d/b@two"));
    drop(stage.ok("zfs clone tank/d/b@two tank/fork"));
    let (fork, above) = (stage.aside("t/fork"), stage.aside("t/d"));
    let inside = (File::open(&fork).unwrap(), File::open(&above).unwrap());
    let before = number(&above);
    busy("zfs rollback -R tank/d/b@one");
    drop(stage.ok("zfs rollback -R -f tank/d/b@one"));
    assert_eq!((number(&above), fork.exists()), (before, false));
    assert_eq!(std::fs::read_to_string(new.join("file")).unwrap(), "first");
    drop(inside);
    drop(server.stop());
}

/// Seen red: the first of them was refused, for who was in what stays.
#[test]
fn what_goes_is_unmounted_and_nobody_else() {
    if !wanted("a destroy unmounts what goes with it and nothing else") {
        return;
    }
    let (stage, _tidy, server) = site();
    let number = |path: &Path| mounted(path).split(' ').next().unwrap().to_string();
    for words in ["snapshot tank/a/b@one", "clone tank/a/b@one tank/fork", "create tank/fork/below"]
    {
        drop(stage.ok(&format!("zfs {words}")));
    }
    let (above, fork) = (stage.aside("t/a"), stage.aside("t/fork"));
    let inside = File::open(&above).unwrap();
    let before = number(&above);
    // Nothing is unmounted for what cannot be done.
    let kept = number(&fork);
    for words in ["destroy tank/fork", "destroy -r tank/a/b", "destroy tank/a/b@one"] {
        assert_eq!(stage.run(&format!("zfs {words}")).status, 1, "{words}");
    }
    assert_eq!((number(&above), number(&fork)), (before.clone(), kept));
    // Who is in what goes stops it.
    let below = File::open(fork.join("below")).unwrap();
    let ran = stage.run("zfs destroy -R tank/a/b");
    assert!(ran.status == 1 && ran.err.contains("fork/below': pool or dataset is busy"), "{ran}");
    drop(below);
    drop(stage.ok("zfs destroy -R tank/a/b"));
    let gone = [stage.aside("t/a/b"), fork].map(|dir| dir.exists());
    assert_eq!((number(&above), gone), (before, [false; 2]));
    drop(inside);
    drop(server.stop());
    judged(&stage);
}

#[test]
fn what_others_make_meanwhile_is_opened_as_what_it_is() {
    if !wanted("what others make meanwhile is opened as what it is") {
        return;
    }
    let (stage, _tidy, server) = site();
    let client = Client::connect(Options::new(server.socket(), "tank/a/b")).unwrap();
    let dir = stage.aside("t/a/b");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    let made = |name: &str, mode| {
        let path = dir.join(name);
        // From here on the kernel remembers for a while that there is no such name.
        assert!(!path.exists());
        let how = Open { write: true, create: true, new: true, ..Open::READ };
        let file = client.open(&Subject::ROOT, name.as_bytes(), how, mode).unwrap();
        file.write(0, b"of somebody else").unwrap();
        file.close(true).unwrap();
        path
    };
    for round in 0..3 {
        let path = made(&format!("cut-{round}"), 0o644);
        std::fs::write(&path, "short").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "short");
        let path = made(&format!("secret-{round}"), 0o600);
        let mut by_nobody = Command::new("setpriv");
        by_nobody
            .args(["--reuid=65534", "--clear-groups", "sh", "-c", "echo mine >> $0"])
            .arg(&path);
        let ran = Ran::of(&mut by_nobody);
        assert!(ran.status != 0 && ran.err.contains("Permission denied"), "{ran}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of somebody else");
    }
    // A file that is not on disk yet is not empty for that.
    let path = dir.join("fresh");
    std::fs::write(&path, vec![1; 100_000]).unwrap();
    assert!(path.metadata().unwrap().blocks() > 0);
    drop((server.stop(), client));
    judged(&stage);
}

#[test]
fn snapshots_in_a_mount_are_those_of_their_names_now() {
    if !wanted("snapshots in a mount are those of their names now") {
        return;
    }
    let (stage, _tidy, server) = site();
    let dir = stage.aside("t/a/b");
    let seen = |name: &str| {
        let path = dir.join(".zfs/snapshot").join(name).join("file");
        std::fs::read_to_string(path).map_err(|e| e.raw_os_error().unwrap())
    };
    // As long as the kernel takes names for right.
    let later = || rt::time::sleep(Duration::from_millis(1100));
    let snapshot = |text: &str| {
        std::fs::write(dir.join("file"), text).unwrap();
        drop(stage.ok("zfs snapshot tank/a/b@one"));
    };
    snapshot("first");
    assert_eq!(seen("one").unwrap(), "first");
    drop(stage.ok("zfs rename tank/a/b@one tank/a/b@old"));
    snapshot("second");
    later();
    assert_eq!([seen("one"), seen("old")], [Ok("second".into()), Ok("first".into())]);
    drop(stage.ok("zfs destroy tank/a/b@one"));
    later();
    assert_eq!([seen("one"), seen("old")], [Err(2), Ok("first".into())]);
    snapshot("third");
    later();
    assert_eq!([seen("one"), seen("old")], [Ok("third".into()), Ok("first".into())]);
    drop(server.stop());
    judged(&stage);
}

/// Seen red: a directory was not known by another way to it, nor was it told that what could not be mounted was made.
#[test]
fn places_are_named_as_openzfs_names_them() {
    if !wanted("places are named as OpenZFS names them") {
        return;
    }
    let (stage, _tidy, server) = site();
    let (real, link, file) = (stage.aside("t/real"), stage.aside("t/link"), stage.aside("t/file"));
    drop(stage.ok("zfs create -o mountpoint=$A/t/real tank/real"));
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let _nothing = stage.ok(&format!("zfs unmount {}", link.display()));
    assert_eq!(stage.ok("zfs get -Ho value mounted tank/real").out.trim(), "no");
    let ran = stage.run(&format!("zfs unmount {}", link.display()));
    let why = format!("cannot unmount '{}': not a mountpoint\n", link.display());
    assert_eq!((ran.status, ran.err), (1, why));
    std::fs::write(&file, "").unwrap();
    let made = "filesystem successfully created, but not mounted\n";
    let below = file.join("below").display().to_string();
    for words in [
        format!("zfs create -o mountpoint={below} tank/made"),
        format!("zfs clone -o mountpoint={below} tank/a@s tank/cloned"),
    ] {
        let ran = stage.run(&words);
        let why = format!("cannot mount '{below}': failed to create mountpoint: Not a directory\n");
        assert_eq!((ran.status, ran.err), (1, why + made));
    }
    assert_eq!(stage.ok("zfs list -Ho name tank/made tank/cloned").out, "tank/cloned\ntank/made\n");
    drop(server.stop());
}

/// Seen red, with `mount -a`: what was inside was mounted first, and the other over it.
#[test]
fn what_is_inside_of_another_pool_s_is_mounted_after_it() {
    if !wanted("what is inside of another pool's is mounted after it") {
        return;
    }
    let stage = Stage::new(2, 128 << 20);
    let _tidy = Tidy(stage.aside("t"));
    let start = || Server::start_with(&stage.aside("pools"), &["--mount"]);
    let server = start();
    drop(stage.ok("zpool create -m $A/t outer $D/d00"));
    drop(stage.ok("zpool create -m $A/t/inside inner $D/d01"));
    let file = stage.aside("t/inside/file");
    std::fs::write(&file, "of the inner one").unwrap();
    drop(stage.ok("zfs unmount -a"));
    assert!(!file.exists());
    drop(stage.ok("zfs mount -a"));
    assert!(file.exists());
    drop(server.stop());
    let server = start();
    let _answered = stage.ok("zfs mount");
    assert!(file.exists());
    drop(server.stop());
}

/// Seen red: the file kept its space after it was removed, as long as the server ran.
#[test]
fn what_was_open_when_a_mount_is_cut_off_is_not_kept() {
    if !wanted("what was open when a mount is cut off is not kept") {
        return;
    }
    let (stage, _tidy, server) = site();
    let dir = stage.aside("t/a/b");
    let path = dir.join("big");
    let noise: Vec<u8> =
        (0..4u32 << 20).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    std::fs::write(&path, &noise).unwrap();
    let file = File::open(&path).unwrap();
    let referenced = || {
        drop(stage.ok("zfs snapshot tank/a/b@now"));
        drop(stage.ok("zfs destroy tank/a/b@now"));
        let out = stage.ok("zfs get -Hpo value referenced tank/a/b").out;
        out.trim().parse::<u64>().unwrap()
    };
    assert!(referenced() > 4 << 20);
    // It says that it is busy, and has broken off the connection by then.
    drop(Ran::of(Command::new("umount").arg("-f").arg(&dir)));
    drop(file);
    let start = rt::time::now();
    while stage.ok("zfs get -Ho value mounted tank/a/b").out.trim() == "yes" {
        assert!(start.elapsed() < Duration::from_secs(20), "it is still mounted");
        rt::time::sleep(Duration::from_millis(50));
    }
    drop(stage.ok("zfs mount tank/a/b"));
    assert!(std::fs::read(&path).unwrap() == noise);
    std::fs::remove_file(&path).unwrap();
    assert!((0..20).any(|_| referenced() < 1 << 20), "{}", referenced());
    drop(server.stop());
    judged(&stage);
}

/// Seen red: the list was empty, or could not be read, when a snapshot was destroyed meanwhile.
#[test]
fn snapshots_that_come_and_go_hide_no_others() {
    if !wanted("snapshots that come and go hide no others") {
        return;
    }
    let (stage, _tidy, server) = site();
    let dir = stage.aside("t/a/.zfs/snapshot");
    drop(stage.ok("zfs snapshot tank/a@t"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..40 {
                drop(stage.ok("zfs snapshot tank/a@u"));
                drop(stage.ok("zfs destroy tank/a@u"));
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let names: Vec<_> = dir.read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
            let stays = |name: &str| names.iter().any(|there| there == name);
            if !(stays("s") && stays("t")) {
                done.store(true, Ordering::Release);
                panic!("{names:?}");
            }
        }
    });
    drop(server.stop());
}

#[test]
fn who_mounts_nothing_says_who_does() {
    let stage = Stage::new(1, 128 << 20);
    drop(stage.ok("zpool create tank $D/d00"));
    let ran = stage.run("zfs mount tank");
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains("thumper serve --mount"), "{}", ran.err);
    assert_eq!(stage.ok("zfs mount").out, "");
}

/// What came by one door is seen by the other: contents of a file that was read before, and times before 1970. What a mount
/// knew is no matter of anybody's when it has ended: what is removed then is gone.
#[test]
fn what_others_change_is_read_as_it_is() {
    if !wanted("what others change is read as it is") {
        return;
    }
    let (stage, _tidy, server) = site();
    let client = Client::connect(Options::new(server.socket(), "tank/a/b")).unwrap();
    let dir = stage.aside("t/a/b");
    let path = dir.join("file");
    std::fs::write(&path, vec![1; 300_000]).unwrap();
    for round in 2..5 {
        assert!(std::fs::read(&path).unwrap() == vec![round - 1; 300_000], "{round}");
        let how = Open { write: true, ..Open::READ };
        let file = client.open(&Subject::ROOT, b"file", how, 0).unwrap();
        file.write(0, &vec![round; 300_000]).unwrap();
        file.close(true).unwrap();
        // As long as the kernel takes attributes for right.
        rt::time::sleep(Duration::from_millis(1100));
    }
    assert!(std::fs::read(&path).unwrap() == vec![4; 300_000]);
    for (asked, (secs, nanos)) in [("-0.5", (-1, 500_000_000)), ("-86400", (-86_400, 0))] {
        drop(
            Ran::of(Command::new("touch").args(["-d", &format!("@{asked}")]).arg(&path))
                .expect_ok(),
        );
        let stat = client.stat(&Subject::ROOT, b"file", true).unwrap();
        assert_eq!(stat.mtime, (secs, nanos), "{asked}");
        let meta = path.metadata().unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (secs, i64::from(nanos)), "{asked}");
    }
    // A directory that the kernel knew until the mount ended.
    std::fs::create_dir(dir.join("known")).unwrap();
    let names = || (0..2000).map(|i| format!("known/{i:060}").into_bytes());
    for name in names() {
        client.put(&Subject::ROOT, &name, Open::default(), 0o644, b"", false).unwrap();
    }
    names().for_each(|name| client.unlink(&Subject::ROOT, &name).unwrap());
    let space = || {
        drop(stage.ok("zfs snapshot tank/a/b@now"));
        drop(stage.ok("zfs destroy tank/a/b@now"));
        stage.ok("zfs get -Hpo value referenced tank/a/b").out
    };
    let with = space();
    drop(stage.ok("zfs unmount tank/a/b"));
    client.rmdir(&Subject::ROOT, b"known").unwrap();
    let is_gone = || space().trim().parse::<u64>().unwrap() < with.trim().parse().unwrap();
    assert!((0..20).any(|_| is_gone()), "{with}");
    drop((server.stop(), client));
    judged(&stage);
}
