//! The pool's server dies in the middle of uploads: what was acknowledged is there, and xrootd goes on.

use std::fs;
use std::time::Duration;

use rt::sync::atomic::{AtomicUsize, Ordering};

use crate::gate::{Site, noise, tool, xrdcp};

const FILES: usize = 40;

#[test]
fn what_was_closed_is_there() {
    let mut site = Site::new();
    let mut gate = site.gate("gate", &site.osslib("pool=tank"));
    let size = |i: usize| 1000 + i * 4001;
    let names: Vec<String> =
        (0..FILES).map(|i| site.file(&format!("up/{i}"), &noise(i as u64, size(i)))).collect();
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
        for after in [5, 12, 20, 28] {
            while done.load(Ordering::Acquire) < after {
                rt::time::sleep(Duration::from_millis(5));
            }
            site.restart();
        }
        (small.join().unwrap(), one.join().unwrap())
    });
    // Four deaths cost a few files at most.
    assert!(small.len() >= FILES - 8, "{small:?}");
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
