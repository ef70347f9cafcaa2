//! The pool's server dies in the middle of uploads: what was acknowledged is there, and xrootd goes on.

use std::fs;
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
