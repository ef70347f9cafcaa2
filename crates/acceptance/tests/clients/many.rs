//! Many at once: threads, connections, open files; who of them runs first; and messages that are none.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use acceptance::thumper;
use client::{Client, Open, Options};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicU64, Ordering};
use testkit::random::Rng;
use testkit::{Ran, noise, tool};
use wire::{Answer, HEADER, Head, MAGIC, Reply, Request, Way};

use crate::{NEW, READ, ROOT, Site, errno, names};

/// Who reads much, and goes on at once, holds nothing of it while he waits for more: all of the memory would be held so.
#[test]
fn readers_that_take_all_memory_come_to_their_end() {
    const RECORD: usize = 1 << 20;
    let site = Site::with(&["--memory", "64M"]);
    site.run(&["zfs", "set", "recordsize=1M", "tank"]);
    let client = Client::connect(Options { lanes_max: 64, ..site.options("tank") }).unwrap();
    let bytes = noise(7, 8 * RECORD);
    let file = client.open(&ROOT, b"/read", NEW, 0o644).unwrap();
    file.write(0, &bytes).unwrap();
    file.close(true).unwrap();
    let done = Arc::new(AtomicU64::new(0));
    for reader in 0..48 {
        let (client, done, bytes) = (client.clone(), done.clone(), bytes.clone());
        drop(rt::thread::spawn("reader", move || {
            let file = client.open(&ROOT, b"/read", READ, 0).unwrap();
            let mut back = vec![0; RECORD];
            for turn in 0..40 {
                let at = (reader + turn) % 8 * RECORD;
                assert_eq!(file.read(at as u64, &mut back).unwrap(), RECORD);
                assert!(back == bytes[at..][..RECORD]);
            }
            done.fetch_add(1, Ordering::AcqRel);
        }));
    }
    let start = rt::time::now();
    while done.load(Ordering::Acquire) < 48 {
        assert!(start.elapsed() < Duration::from_secs(60), "{done:?} of 48 have read all");
        rt::time::sleep(Duration::from_millis(20));
    }
    drop(client);
    site.end();
}

/// A connection that has a file open.
fn one_who_opens(site: &Site, path: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(site.server.as_ref().unwrap().socket()).unwrap();
    stream.write_all(&[&MAGIC[..], &[7, 0, 0, 0], b"\x04tank\0\0"].concat()).unwrap();
    let open = Request::Open { who: ROOT, path: path.into(), how: READ, mode: 0 };
    let answer = |stream: &mut UnixStream| -> Reply {
        let mut head = [0; HEADER];
        stream.read_exact(&mut head).unwrap();
        let mut part = vec![0; Head::read(head).unwrap().part];
        stream.read_exact(&mut part).unwrap();
        wire::decode::<Answer>(&part).unwrap().unwrap()
    };
    assert!(matches!(answer(&mut stream), Reply::Welcome(_)));
    stream.write_all(&wire::encode(&open, 0, Way::Behind).unwrap()).unwrap();
    assert!(matches!(answer(&mut stream), Reply::Opened { .. }));
    stream
}

/// Many threads on few connections; a client that dies leaves nothing behind that keeps the pool.
#[test]
fn many_at_once_and_one_who_dies() {
    let site = Site::new();
    let client = site.client("tank");
    std::thread::scope(|scope| {
        for worker in 0..40u64 {
            let client = &client;
            scope.spawn(move || {
                let bytes = noise(worker, 400_000);
                let path = format!("/w{worker}");
                let file = client.open(&ROOT, path.as_bytes(), NEW, 0o644).unwrap();
                let mut rng = Rng::of(worker, 1);
                let mut order: Vec<usize> = (0..10).collect();
                while !order.is_empty() {
                    let piece = order.swap_remove(rng.index(order.len())) * 40_000;
                    file.write(piece as u64, &bytes[piece..][..40_000]).unwrap();
                }
                file.sync().unwrap();
                let mut back = vec![0; bytes.len()];
                for _ in 0..5 {
                    let (at, len) = (rng.index(300_000), 1 + rng.index(100_000));
                    assert_eq!(file.read(at as u64, &mut back[..len]).unwrap(), len);
                    assert!(back[..len] == bytes[at..][..len]);
                }
            });
        }
    });
    let file = client.open(&ROOT, b"/w1", READ, 0).unwrap();
    let busy = Ran::of(thumper(&site.state()).args(["zpool", "export", "tank"]));
    assert!(busy.status == 1 && busy.err.contains("pool is busy"), "{busy}");
    drop((file, client));
    // Its connection ends, and nobody says anything more of what was open.
    drop(one_who_opens(&site, b"/w2"));
    let client = site.client("tank");
    assert_eq!(names(&client, b"/").len(), 42);
    site.run(&["zpool", "export", "tank"]);
    assert_eq!(errno(client.stat(&ROOT, b"/w1", true)), 6);
    tool::zdb_content(site.images.path(), "tank");
}

/// Bytes that are no messages end their own connection, and nobody else's.
#[test]
fn hostile_messages_disturb_nobody() {
    let site = Site::new();
    let client = site.client("tank");
    let file = client.open(&ROOT, b"/file", NEW, 0o644).unwrap();
    let mut rng = Rng::of(11, 2);
    let hello = [&MAGIC[..], &[7, 0, 0, 0], b"\x04tank\0\0"].concat();
    for round in 0..testkit::rounds(300, 5000) {
        let mut stream = UnixStream::connect(site.server.as_ref().unwrap().socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = hello.clone();
        for _ in 0..1 + rng.index(4) {
            let (part, bulk) = (rng.below(64) as u32, rng.below(3) as u32 * 7);
            bytes.extend_from_slice(&part.to_le_bytes());
            bytes.extend_from_slice(&bulk.to_le_bytes());
            // A request that may be one: a small number first.
            let mut body = noise(round * 7 + u64::from(part), (part + bulk) as usize);
            if let Some(first) = body.first_mut() {
                *first %= 24;
            }
            bytes.extend_from_slice(&body);
        }
        for _ in 0..rng.index(3) {
            let at = rng.index(bytes.len());
            bytes[at] = rng.below(256) as u8;
        }
        drop(stream.write_all(&bytes));
        drop(stream.shutdown(Shutdown::Write));
        drop(stream.read_to_end(&mut Vec::new()));
    }
    file.write(0, b"still here").unwrap();
    let mut back = [0; 10];
    assert_eq!(file.read(0, &mut back).unwrap(), 10);
    drop((file, client));
    site.end();
}

/// As for open(2): who has too many files open has nothing made or emptied.
#[test]
fn who_can_open_no_more_files_loses_none() {
    let site = Site::new();
    let client = site.client("tank");
    client.put(&ROOT, b"/file", NEW, 0o644, b"bytes", false).unwrap();
    let open = |path: &[u8], how| client.open(&ROOT, path, how, 0o644);
    let files: Vec<_> = (0..1 << 16).map(|_| open(b"/file", READ).unwrap()).collect();
    let anew = Open { write: true, truncate: true, ..READ };
    assert_eq!((errno(open(b"/file", anew)), errno(open(b"/new", NEW))), (24, 24));
    assert_eq!(client.stat(&ROOT, b"/file", true).unwrap().size, 5);
    assert_eq!(errno(client.stat(&ROOT, b"/new", true)), 2);
    drop(files);
    open(b"/file", anew).unwrap();
    drop(client);
    site.end();
}

/// A connection's thread does not drive out who has woken it (`docs/decisions/0022-looking.md`).
#[test]
fn who_asks_goes_on_before_who_serves_him() {
    const BATCH: &str = "3";
    let site = Site::new();
    let client = site.client("tank");
    client.open(&ROOT, b"/file", NEW, 0o644).unwrap().close(true).unwrap();
    let tasks = format!("/proc/{}/task", site.server.as_ref().unwrap().pid());
    let stats = std::fs::read_dir(tasks).unwrap().filter_map(|task| {
        // Some of them end meanwhile.
        std::fs::read_to_string(task.unwrap().path().join("stat")).ok()
    });
    // The policy is the 39th word behind the name, which is in brackets.
    let policies: Vec<String> = stats
        .filter_map(|stat| {
            let (name, words) = stat.rsplit_once(')')?;
            let policy = words.split_whitespace().nth(38)?;
            name.ends_with("(connection").then(|| policy.to_string())
        })
        .collect();
    assert!(policies.iter().any(|policy| policy == BATCH), "{policies:?}");
    drop(client);
    site.end();
}
