//! The pool's server dies in the middle of uploads: what was acknowledged is there, and xrootd goes on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use client::Open;
use rt::sync::atomic::{AtomicUsize, Ordering};
use testkit::noise;

use crate::gate::{ROOT, Site, tool, until, xrdcp};

/// Files that are uploaded from one death of the server to the next, about.
const APART: usize = 8;

#[test]
fn what_was_closed_is_there() {
    let mut site = Site::new();
    let mut gate = site.gate("gate", &site.osslib("pool=tank"));
    let size = |i: usize| 1000 + i * 4001;
    let deaths = testkit::rounds(4, 20) as usize;
    let files = (deaths + 1) * APART;
    let names: Vec<String> =
        (0..files).map(|i| site.file(&format!("up/{i}"), &noise(i as u64, size(i)))).collect();
    let large = site.file("large", &noise(99, 48 << 20));
    let done = AtomicUsize::new(0);
    let (small, one) = std::thread::scope(|scope| {
        let small = scope.spawn(|| {
            let mut acknowledged = Vec::new();
            for (i, from) in names.iter().enumerate() {
                let ran = tool("xrdcp", &["--silent", from, &gate.url(&format!("/up/{i}"))], &[]);
                if ran.ok() {
                    acknowledged.push(i);
                }
                done.store(i, Ordering::Release);
            }
            acknowledged
        });
        let url = gate.url("/large");
        let large = &large;
        let one = scope.spawn(move || tool("xrdcp", &["--silent", large, &url], &[]).ok());
        for death in 1..=deaths {
            while done.load(Ordering::Acquire) < death * APART - 3 {
                rt::time::sleep(Duration::from_millis(5));
            }
            site.restart();
        }
        (small.join().unwrap(), one.join().unwrap())
    });
    // A death costs two files at most.
    assert!(small.len() >= files - 2 * deaths, "{small:?}");
    assert!(gate.is_up());
    site.restart();
    let back = site.path("back");
    let fetch = |path: &str| {
        xrdcp(&["-f", &gate.url(path), back.to_str().unwrap()]);
        fs::read(&back).unwrap()
    };
    for i in &small {
        assert!(fetch(&format!("/up/{i}")) == noise(*i as u64, size(*i)), "{i}");
    }
    if one {
        assert!(fetch("/large") == noise(99, 48 << 20));
    }
    xrdcp(&["-f", &large, &gate.url("/large")]);
    assert!(fetch("/large") == noise(99, 48 << 20));
    drop(gate);
    site.end();
}

/// The client finds its connection gone, comes again when all is up, and sends what it was not told of.
#[test]
fn an_upload_that_goes_on_after_a_boot_is_not_acknowledged() {
    let mut site = Site::new();
    let mut gate = site.gate("gate", &site.osslib("pool=tank"));
    let bytes = noise(1, 160 << 20);
    let from = site.file("from", &bytes);
    let url = gate.url("/large");
    let upload = std::thread::scope(|scope| {
        let upload = scope.spawn(|| {
            let slowly = ["--silent", "--xrate", "32m", &from, &url];
            tool("xrdcp", &slowly, &[("XRD_CONNECTIONWINDOW", "5")])
        });
        let client = site.client("tank");
        let there = |mib: u64| {
            let size = client.stat(&ROOT, b"/large", false).map_or(0, |stat| stat.size);
            size >= mib << 20
        };
        until("the upload begins", || there(16), || gate.log());
        // The file survives, and some of it: the first to ask for that has to wait for a txg.
        let how = Open { write: true, create: true, ..Open::READ };
        client.open(&ROOT, b"/other", how, 0o644).unwrap().sync().unwrap();
        until("the upload goes on", || there(64), || gate.log());
        drop(client);
        gate.kill();
        site.restart();
        gate.start_again();
        upload.join().unwrap()
    });
    assert!(!upload.ok(), "it cannot be whole");
    let log = gate.log();
    assert!(log.contains("Unable to open /large; input/output error"), "{log}");
    let back = site.path("back");
    xrdcp(&["-f", &from, &url]);
    xrdcp(&["-f", &url, back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == bytes);
    drop(gate);
    site.end();
}

/// Writes and syncs two files, and writes more to one; says so, and closes both when it may.
const SYNCED: &str = r#"
import os, sys, time
from XRootD import client
from XRootD.client.flags import OpenFlags
url, sign = sys.argv[1:]
def synced(name):
    f = client.File()
    assert f.open(url + name, OpenFlags.NEW)[0].ok
    assert f.write(b'synced', 0, 6)[0].ok and f.sync()[0].ok
    return f
all, more = synced('/all'), synced('/more')
assert more.write(b'more', 6, 4)[0].ok
open(sign, 'w').close()
while os.path.exists(sign): time.sleep(0.02)
print(*(f.close()[0].ok for f in (all, more)))
"#;

/// What was synced needs no server to be closed. Where the server is away for longer than a close waits, nobody knows what
/// became of the rest: nothing is taken away when it is back.
#[test]
fn what_was_synced_stays_whatever_becomes_of_its_close() {
    let mut site = Site::new();
    let gate = site.gate("gate", &site.osslib("pool=tank patience=3"));
    let (script, sign) = (site.file("synced.py", SYNCED.as_bytes()), site.path("sign"));
    let (url, at) = (gate.url(""), sign.to_str().unwrap());
    let words = [script.as_str(), &url, at];
    let told = std::thread::scope(|scope| {
        let closed = scope.spawn(|| tool("/usr/bin/python3", &words, &[]));
        until("both are synced", || sign.exists() || closed.is_finished(), || gate.log());
        site.kill();
        fs::remove_file(&sign).unwrap();
        // So long that the close has given up, and whoever comes after it waits still.
        rt::time::sleep(Duration::from_millis(4500));
        site.start();
        closed.join().unwrap().expect_ok().out
    });
    let client = site.client("tank");
    for path in ["/all", "/more"] {
        let stat = client.stat(&ROOT, path.as_bytes(), true);
        assert!(stat.is_ok_and(|stat| stat.size >= 6), "{path} is not there any more: {told}");
    }
    assert_eq!(told, "True False\n", "{}", gate.log());
    drop((gate, client));
    site.end();
}

/// Writes, says so, and closes when it may.
const WRITTEN: &str = r#"
import os, sys, time
from XRootD import client
from XRootD.client.flags import OpenFlags
url, sign = sys.argv[1:]
f = client.File()
assert f.open(url, OpenFlags.NEW)[0].ok
for at in 0, 4:
    assert f.write(b'more', at, 4)[0].ok
open(sign, 'w').close()
while os.path.exists(sign): time.sleep(0.02)
print(f.close()[0].ok)
"#;

/// An upload that is lost with the server, and whose client comes to its end when somebody else has written the file anew by
/// another door: that stays.
#[test]
fn an_upload_that_fails_takes_nothing_away_that_was_written_after_it() {
    let mut site = Site::new();
    let gate = site.gate("gate", &site.osslib("pool=tank"));
    let client = site.client("tank");
    let script = site.file("written.py", WRITTEN.as_bytes());
    for is_written_anew in [false, true] {
        let (url, sign) = (gate.url("/file"), site.path("sign"));
        let words = [script.as_str(), &url, sign.to_str().unwrap()];
        let told = std::thread::scope(|scope| {
            let closed = scope.spawn(|| tool("/usr/bin/python3", &words, &[]));
            until("it is written", || sign.exists() || closed.is_finished(), || gate.log());
            // The file is there when the server comes back.
            drop(site.run(&["zfs", "set", "org.thumper:mark=on", "tank"]));
            site.restart();
            if is_written_anew {
                rt::time::sleep(Duration::from_secs(7));
                let how = Open { write: true, create: true, ..Open::READ };
                client.put(&ROOT, b"/file", how, 0o644, &[7; 4096], true).unwrap();
            }
            fs::remove_file(&sign).unwrap();
            closed.join().unwrap().expect_ok().out
        });
        assert_eq!(told, "False\n", "{}", gate.log());
        let left = client.stat(&ROOT, b"/file", true).ok().map(|stat| stat.size);
        assert_eq!(left, is_written_anew.then_some(4096), "{}", gate.log());
    }
    drop((gate, client));
    site.end();
}

/// The pool's server takes connections and greets nobody yet, as it takes its pools, or hangs: each client waits as long as the
/// site says, whoever waits beside it. Seen red: the second waited twice as long, the third three times.
#[test]
fn who_waits_for_a_silent_server_does_not_wait_for_others_who_do() {
    let site = Site::new();
    let silent = site.path("silent");
    let _listener = UnixListener::bind(&silent).unwrap();
    fs::set_permissions(&silent, fs::Permissions::from_mode(0o666)).unwrap();
    let words = site.osslib("pool=tank patience=3");
    let here = site.socket();
    let gate = site.gate("gate", &words.replace(here.to_str().unwrap(), silent.to_str().unwrap()));
    let ask = || {
        let start = rt::time::now();
        let ran = gate.xrdfs(&["stat", "/file"]);
        assert!(ran.status != 0, "{ran}");
        start.elapsed()
    };
    let longest = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).max().unwrap()
    });
    assert!(longest < Duration::from_secs(15), "{longest:?}: {}", gate.log());
    drop(gate);
    site.end();
}
