//! Third-party copies by root://: a server fetches another's file at a client's word.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use client::{Client, Open, Stat, Subject};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{Ran, noise};

use crate::gate::{Gate, ROOT, Site, hand_over, tool, until, xrdcp};
use crate::people::{as_user, keytab};

/// A client does not wait for a server that is gone.
const HASTE: [(&str, &str); 3] =
    [("XRD_CONNECTIONWINDOW", "2"), ("XRD_CONNECTIONRETRY", "1"), ("XRD_STREAMERRORWINDOW", "1")];

const NEW: Open = Open { write: true, create: true, new: true, ..Open::READ };

fn between(words: &[&str], from: &str, to: &str) -> Ran {
    tool("xrdcp", &[&["--tpc", "only"], words, &[from, to]].concat(), &HASTE)
}

#[test]
fn files_go_from_server_to_server() {
    let (here, there) = (Site::new(), Site::new());
    let lines =
        |site: &Site| format!("{}{}", site.osslib("pool=tank"), site.copier("cksum adler32", ""));
    let (one, two) = (there.gate("one", &lines(&there)), here.gate("two", &lines(&here)));
    let back = here.path("back");
    for (name, size) in [("/large", 40_000_001), ("/empty", 0), ("/d/e/small", 1000)] {
        let bytes = noise(size as u64, size);
        let from = there.file("data", &bytes);
        xrdcp(&[&from, &one.url(name)]);
        let words = ["--cksum", "adler32"];
        drop(between(&words, &one.url(name), &two.number(name)).expect_ok());
        xrdcp(&["-f", &two.url(name), back.to_str().unwrap()]);
        assert!(fs::read(&back).unwrap() == bytes, "{name}");
    }
    // Its digests were made while it came.
    let digest = here.client("tank").xattr(&ROOT, b"/large", b"user.XrdCks.crc32c").unwrap();
    let due = there.client("tank").xattr(&ROOT, b"/large", b"user.XrdCks.crc32c").unwrap();
    assert_eq!(digest[31..36], due[31..36]);
    // What is there stays, unless the client says otherwise; the other way round it goes, too.
    let small = one.url("/d/e/small");
    let kept = between(&[], &small, &two.number("/large"));
    assert!(kept.status != 0 && kept.err.contains("file exists"), "{kept}");
    drop(between(&["-f"], &small, &two.number("/large")).expect_ok());
    drop(between(&["-f"], &two.url("/large"), &one.number("/large")).expect_ok());
    xrdcp(&["-f", &one.url("/large"), back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == noise(1000, 1000));
    assert_eq!((one.tickets(), two.tickets()), (0, 0));
    // What came must be what it should be.
    drop(two);
    let due = here.copier("cksum adler32:00000001", "");
    let two = here.gate("strict", &format!("{}{due}", here.osslib("pool=tank")));
    let ran = between(&[], &small, &two.number("/spoiled"));
    assert!(ran.status != 0 && ran.err.contains(" here and 00000001 there"), "{ran}");
    assert!(here.client("tank").stat(&ROOT, b"/spoiled", true).is_err());
    drop((one, two));
    here.end();
    there.end();
}

/// Whoever asks for a copy owns it, and none goes where he may not write.
#[test]
fn copies_are_of_who_asked() {
    let site = Site::new();
    let server = keytab(&site, &["alice", "bob", "copier"]);
    hand_over(&site.path("copier.keytab"));
    let map = site.file("users", b"sss alice 1001 1001\nsss bob 1002 1002\n");
    let client = site.client("tank");
    for tree in ["from", "to"] {
        drop(site.run(&["zfs", "create", &format!("tank/{tree}")]));
        for (uid, name) in [(1001, "alice"), (1002, "bob")] {
            let own = Subject { uid, gid: uid, groups: Vec::new() };
            client.chmod(&ROOT, format!("/{tree}").as_bytes(), 0o1777).unwrap();
            client.mkdir(&own, format!("/{tree}/{name}").as_bytes(), 0o700, false).unwrap();
        }
    }
    let env = format!("/usr/bin/env XrdSecSSSKT={}", site.path("copier.keytab").display());
    let open = |name: &str| {
        let lines = format!(
            "{}{}{}xrootd.seclib libXrdSec.so\nsec.protocol sss -s {server}\nsec.protbind * only sss\n",
            site.osslib(&format!("tree=tank/{name} map={map}")),
            site.authority(),
            site.copier("", &env)
        );
        site.gate(name, &lines)
    };
    let (from, to) = (open("from"), open("to"));
    let bytes = noise(7, 3_000_000);
    let data = site.file("data", &bytes);
    drop(as_user(&site, "alice", "xrdcp", &["--silent", &data, &from.url("/alice/x")]).expect_ok());
    let copy = |who: &str, source: &str, target: &str| {
        let words = ["--tpc", "only", "--cksum", "adler32", &from.url(source), &to.number(target)];
        as_user(&site, who, "xrdcp", &words)
    };
    drop(copy("alice", "/alice/x", "/alice/x").expect_ok());
    let stat = client.stat(&ROOT, b"/to/alice/x", true).unwrap();
    assert_eq!((stat.uid, stat.gid, stat.size), (1001, 1001, 3_000_000));
    let back = site.path("back");
    let words = ["--silent", &to.url("/alice/x"), back.to_str().unwrap()];
    drop(as_user(&site, "alice", "xrdcp", &words).expect_ok());
    assert!(fs::read(&back).unwrap() == bytes);
    for (who, source, target) in [
        ("bob", "/alice/x", "/bob/x"),
        ("alice", "/alice/x", "/bob/x"),
        ("bob", "/alice/x", "/alice/y"),
    ] {
        let ran = copy(who, source, target);
        assert!(ran.status != 0 && ran.err.contains("[3010]"), "{ran}");
        assert!(client.stat(&ROOT, format!("/to{target}").as_bytes(), true).is_err(), "{target}");
    }
    // A quota that is met on the way.
    drop(site.run(&["zfs", "set", "userquota@1001=4M", "tank/to"]));
    let more = site.file("more", &noise(8, 24 << 20));
    drop(as_user(&site, "alice", "xrdcp", &["--silent", &more, &from.url("/alice/m")]).expect_ok());
    let ran = copy("alice", "/alice/m", "/alice/m");
    assert!(ran.status != 0 && ran.err.contains("[3021]"), "{ran}");
    assert!(ran.err.contains("writing /alice/m: "), "{ran}");
    assert!(client.stat(&ROOT, b"/to/alice/m", true).is_err());
    // A client cannot have a ticket written, wherever he says.
    let other = site.path("other");
    fs::create_dir(&other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o777)).unwrap();
    let ticket = other.join("ticket");
    let url = to.url(&format!("/alice/z?tpc.reproxy={}", ticket.display()));
    drop(as_user(&site, "alice", "xrdcp", &["--silent", &map, &url]).expect_ok());
    assert!(!ticket.exists());
    assert_eq!((from.tickets(), to.tickets()), (0, 0));
    drop((from, to, client));
    site.end();
}

fn size(client: &Client, path: &str) -> Option<u64> {
    client.stat(&ROOT, path.as_bytes(), true).ok().map(|stat| stat.size)
}

/// A copy under way ends with its source, its client or its servers, and nothing of it stays.
#[test]
fn copies_that_fail_leave_nothing() {
    let mut site = Site::new();
    for tree in ["from", "to"] {
        drop(site.run(&["zfs", "create", &format!("tank/{tree}")]));
    }
    let open = |site: &Site, name: &str, tree: &str| {
        let words = site.osslib(&format!("tree=tank/{tree}"));
        site.gate(name, &format!("{words}{}", site.copier("", "")))
    };
    let client = site.client("tank");
    let all = 160 << 20;
    let data = site.file("data", &noise(9, all));
    let mut from = open(&site, "from", "from");
    xrdcp(&[&data, &from.url("/x")]);
    let mut to = open(&site, "to", "to");
    // What goes away: the source's server, the client, the server of the copy, the pool's.
    for what in ["source", "client", "server", "pool"] {
        let target = format!("/{what}");
        let at = format!("/to{target}");
        let mut words = vec!["60", "xrdcp", "--tpc", "only"];
        let (source, url) = (from.url("/x"), to.number(&target));
        words.extend([source.as_str(), &url]);
        let mut copy = Command::new("timeout");
        copy.args(&words).envs(HASTE).stdout(Stdio::null());
        let mut copy = copy.stderr(Stdio::piped()).spawn().unwrap();
        while size(&client, &at).unwrap_or(0) == 0 {
            assert!(copy.try_wait().unwrap().is_none(), "{what}: it ended: {}", to.log());
            rt::time::sleep(Duration::from_millis(1));
        }
        match what {
            "source" => from = reopened(from, || open(&site, "from2", "from")),
            "server" => to = reopened(to, || open(&site, "to2", "to")),
            "pool" => {
                // What is there by now is on disk, and comes back; what comes after it is lost.
                from.signal(Signal::STOP);
                drop(site.run(&["zfs", "set", "org.thumper:mark=on", "tank"]));
                let kept = size(&client, &at).unwrap();
                from.signal(Signal::CONT);
                let more = || size(&client, &at).is_some_and(|size| size > kept + (8 << 20));
                while !more() {
                    assert!(copy.try_wait().unwrap().is_none(), "it ended: {}", to.log());
                    rt::time::sleep(Duration::from_millis(1));
                }
                from.signal(Signal::STOP);
                site.restart();
                from.signal(Signal::CONT);
            }
            _ => {
                kill_process(Pid::from_child(&copy), Signal::TERM).unwrap();
            }
        }
        let said = copy.wait_with_output().unwrap();
        assert!(!said.status.success(), "{what}");
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        until(what, || size(&client, &at).is_none(), || to.log());
        if what == "source" {
            assert!(said.contains("reading xroot://"), "{said}");
        }
        // It can be done again, as soon as the server has closed what it has taken away.
        let ran = (0..100)
            .map(|_| between(&[], &from.url("/x"), &to.number(&target)))
            .find(|ran| !ran.err.contains("already opened by 1 writer"));
        let ran = ran.unwrap().expect_ok();
        assert_eq!(size(&client, &at), Some(all as u64), "{ran}");
        client.unlink(&ROOT, at.as_bytes()).unwrap();
        assert_eq!(to.tickets(), 0, "{what}");
    }
    // A copy program of its own, with what xrootd does not say: it says what is wrong.
    let program = site.path("thumper-xrdtpc");
    let ran = tool(program.to_str().unwrap(), &["root://localhost//x", "/x"], &[]);
    assert!(ran.status == 22 && ran.err.contains("XRD_CPTARGET is not set"), "{ran}");
    drop((from, to, client));
    site.end();
}

/// What the plug-in leaves for a copy to `/to`.
fn ticket(site: &Site, stat: &Stat) -> PathBuf {
    let Stat { device, object, generation, .. } = stat;
    let (ticket, socket) = (site.path("ticket"), site.socket());
    let socket = socket.display();
    let words = format!("{socket} tank /to {device} {object} {generation} 1 0 0 ");
    fs::write(&ticket, words.replace(' ', "\0")).unwrap();
    ticket
}

/// A copy program whose xrootd has ended: its file is taken away at once, and not any more when somebody has written it anew.
#[test]
fn a_copy_that_outlives_its_server_takes_nothing_of_others_away() {
    let site = Site::new();
    let client = site.client("tank");
    let from = site.gate("from", &site.osslib("pool=tank"));
    xrdcp(&[&site.file("data", &noise(1, 160 << 20)), &from.url("/x")]);
    let source = from.url("/x");
    let program = site.path("thumper-xrdtpc");
    for is_written_anew in [true, false] {
        let stat = client.open(&ROOT, b"/to", NEW, 0o644).unwrap().stat().unwrap();
        let ticket = ticket(&site, &stat);
        // In place of xrootd: it ends when there is nothing more to read.
        let mut server = Command::new("sh");
        server.args(["-c", "\"$0\" \"$1\" /to >/dev/null & echo $!; read _"]);
        server.arg(&program).arg(&source).env("XRD_CPTARGET", &ticket);
        server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let mut copier = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut copier).unwrap();
        let copier = Pid::from_raw(copier.trim().parse().unwrap()).unwrap();
        let start = rt::time::now();
        while size(&client, "/to") == Some(0) {
            assert!(start.elapsed() < Duration::from_secs(60), "no copy begins: {}", from.log());
            rt::time::sleep(Duration::from_millis(1));
        }
        // Who is asked hangs, and where the file is written anew who reads, too, with nothing under way.
        from.signal(Signal::STOP);
        if is_written_anew {
            rt::time::sleep(Duration::from_millis(500));
            kill_process(copier, Signal::STOP).unwrap();
        }
        drop(server.stdin.take());
        server.wait().unwrap();
        if is_written_anew {
            client.put(&ROOT, b"/to", Open { new: false, ..NEW }, 0o644, &[7; 4096], true).unwrap();
            kill_process(copier, Signal::CONT).unwrap();
        }
        // Its words end with it.
        let start = rt::time::now();
        let mut said = String::new();
        server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("xrootd has ended"), "{said}");
        assert!(start.elapsed() < Duration::from_secs(10), "it waits for who does not answer");
        assert_eq!(size(&client, "/to"), is_written_anew.then_some(4096));
        assert!(!ticket.exists());
        from.signal(Signal::CONT);
        if is_written_anew {
            client.unlink(&ROOT, b"/to").unwrap();
        }
    }
    drop((from, client));
    site.end();
}

/// A copy program that finds the pool not there yet, when it would take its file away, leaves that to the plug-in.
#[test]
fn a_copy_that_cannot_be_taken_away_keeps_its_ticket() {
    let mut site = Site::new();
    let client = site.client("tank");
    let from = site.gate("from", &site.osslib("pool=tank"));
    xrdcp(&[&site.file("data", &noise(1, 160 << 20)), &from.url("/x")]);
    let stat = client.open(&ROOT, b"/to", NEW, 0o644).unwrap().stat().unwrap();
    let ticket = ticket(&site, &stat);
    let mut copier = Command::new(site.path("thumper-xrdtpc"));
    copier.args([&from.url("/x"), "/to"]).env("XRD_CPTARGET", &ticket).stdout(Stdio::null());
    let copier = copier.stderr(Stdio::piped()).spawn().unwrap();
    until("the copy begins", || size(&client, "/to") != Some(0), || from.log());
    from.signal(Signal::STOP);
    site.kill();
    site.hide_disks(true);
    site.start();
    from.signal(Signal::CONT);
    let said = copier.wait_with_output().unwrap();
    assert!(!said.status.success() && ticket.exists(), "{said:?}");
    site.kill();
    site.hide_disks(false);
    site.start();
    drop((from, client));
    site.end();
}

/// Kills one, and has another in its place.
fn reopened(gate: Gate, open: impl Fn() -> Gate) -> Gate {
    drop(gate);
    open()
}
