//! What is read again and again is sent by XRootD from where the server has it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use client::Open;
use testkit::noise;

use crate::gate::{Gate, ROOT, Site, curl, tool, until};

const SCRIPT: &[u8] = include_bytes!("sent.py");
const PYTHON: &str = "/usr/bin/python3";
/// Bytes of a file.
const SIZE: usize = (3 << 20) + 77_000;

/// What is leased, and what was at most, in bytes.
fn leased(site: &Site) -> (u64, u64) {
    let told = site.run(&["top", "-j"]);
    let of = |key: &str| -> u64 {
        let leases = told.split("\"leases\":{").nth(1).unwrap();
        let from = leases.split(&format!("\"{key}\":")).nth(1).unwrap();
        from.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    (of("bytes"), of("bytes_max"))
}

/// All that was written is on disk now.
fn on_disk(site: &Site, snapshot: &str) {
    drop(site.run(&["zfs", "snapshot", snapshot]));
}

/// Runs readers of `/file`, which has `size` bytes, to their end.
fn readers(gate: &Gate, script: &str, what: &str, size: usize, number: &str) {
    let (url, size) = (gate.url("/file"), size.to_string());
    drop(tool(PYTHON, &[script, what, &url, &size, number], &[]).expect_ok());
}

#[test]
fn what_is_read_often_is_sent_from_where_it_lies() {
    let site = Site::new();
    let gate = site.gate("gate", &site.osslib("pool=tank"));
    let script = site.file("sent.py", SCRIPT);
    let client = site.client("tank");
    let how = Open { write: true, create: true, ..Open::READ };
    client.put(&ROOT, b"/file", how, 0o644, &vec![1; SIZE], true).unwrap();
    on_disk(&site, "tank@first");
    readers(&gate, &script, "reads", SIZE, "4");
    let (_, most) = leased(&site);
    assert!(most >= 1 << 20, "nothing was sent so: {most}\n{}", gate.log());
    // It is counted as what is read is.
    let told = gate.xrdfs(&["query", "stats", "a"]).expect_ok().out;
    assert!(told.contains(&format!("<rbytes>{}<", 4 * 12 * SIZE)), "{told}");
    // It is written over while readers are at it, and on disk in between.
    std::thread::scope(|scope| {
        let following = scope.spawn(|| readers(&gate, &script, "follows", SIZE, "25"));
        let file = client.open(&ROOT, b"/file", how, 0).unwrap();
        for version in 2..=25 {
            file.write(0, &vec![version; SIZE]).unwrap();
            on_disk(&site, &format!("tank@{version}"));
            rt::time::sleep(Duration::from_millis(200));
        }
        following.join().unwrap();
    });
    // Over HTTP, too: all of it, and parts.
    let bytes = noise(5, SIZE);
    client.put(&ROOT, b"/noise", how, 0o644, &bytes, true).unwrap();
    on_disk(&site, "tank@noise");
    for _ in 0..5 {
        let (status, came) = curl(&site, &[&gate.http("/noise")]);
        assert_eq!(status, "200");
        assert!(came == bytes);
        for (from, to) in [(0, 131_071), (131_072, 200_000), (5, 3_000_000)] {
            let range = format!("{from}-{to}");
            let (status, came) = curl(&site, &["-r", &range, &gate.http("/noise")]);
            assert_eq!(status, "206");
            assert!(came == bytes[from..=to], "{range}");
        }
    }
    drop((gate, client));
    site.end();
}

/// A client. It goes with the test.
struct Reader(Child);

impl Drop for Reader {
    fn drop(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}

/// XRootD dies while it sends.
#[test]
fn what_a_dead_xrootd_was_sending_is_given_back() {
    let site = Site::new();
    let mut gate = site.gate("gate", &site.osslib("pool=tank"));
    let script = site.file("sent.py", SCRIPT);
    let client = site.client("tank");
    let how = Open { write: true, create: true, ..Open::READ };
    client.put(&ROOT, b"/file", how, 0o644, &vec![9; SIZE], true).unwrap();
    on_disk(&site, "tank@all");
    let (url, size) = (gate.url("/file"), SIZE.to_string());
    let mut reader = Command::new(PYTHON);
    reader.args([&script, "reads", &url, &size, "100000"]).stdin(Stdio::null());
    let reader = Reader(reader.spawn().unwrap());
    let held = || leased(&site).0;
    until("something is sent", || held() > 0, || gate.log());
    gate.kill();
    drop(reader);
    until("it is given back", || held() == 0, || site.run(&["top"]));
    gate.start_again();
    readers(&gate, &script, "reads", SIZE, "1");
    drop((gate, client));
    site.end();
}
