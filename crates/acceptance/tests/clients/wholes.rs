//! Small files that are read as they are opened.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use client::{Client, File, Open};
use rt::Rng;
use rt::buf::Shelf;
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rt::time::{now, sleep};
use testkit::{free_port, noise};
use wire::{Mark, Reply, Request, Stat};

use crate::leases::read_bytes;
use crate::made_up::{beside, hear, made_up, say_with, welcomed};
use crate::{NEW, READ, ROOT, Site};

const SOON: Open = Open { soon: true, ..READ };
/// For how long what came with an opening is used.
const USED_FOR: Duration = Duration::from_millis(100);
const SIZE: usize = 3000;

/// Answers until nobody asks: each opening with so many bytes of 1, each read with one byte of 2. Before the answer to an opening
/// whose path ends with a `!` the count has moved on, as where somebody changes the file meanwhile.
fn serve(mut stream: UnixStream, shelf: &Shelf) {
    loop {
        match hear(&mut stream) {
            Request::Open { path, how, .. } => {
                let Mark { place, count } = mark(shelf);
                if path.ends_with(b"!") {
                    shelf.note_change(7);
                }
                let whole = how.soon.then_some(Mark { place, count });
                let length = if how.soon { SIZE } else { 0 };
                let (stat, kept_since_ms) = (Stat::default(), 1);
                let opened = Reply::Opened { handle: 1, stat, kept_since_ms, whole };
                say_with(&mut stream, opened, &vec![1; length]);
            }
            Request::Read { .. } => say_with(&mut stream, Reply::Bytes, &[2]),
            Request::Close { .. } => say_with(&mut stream, Reply::Done, &[]),
            // The last that is asked.
            Request::Unlink { .. } => return say_with(&mut stream, Reply::Done, &[]),
            other => panic!("{other:?}"),
        }
    }
}

fn mark(shelf: &Shelf) -> Mark {
    let mark = shelf.mark(7);
    Mark { place: mark.place, count: mark.count }
}

/// What is read of a file, or `None` if that took too long for what came with the opening to be used.
fn read_at(client: &Arc<Client>, path: &[u8], how: Open, offsets: &[u64]) -> Option<Vec<Vec<u8>>> {
    let (start, mut out) = (now(), Vec::new());
    let file = client.open(&ROOT, path, how, 0).unwrap();
    for offset in offsets {
        let mut buf = vec![9; 2000];
        let count = file.read(*offset, &mut buf).unwrap();
        assert!(buf[count..].iter().all(|byte| *byte == 9));
        buf.truncate(count);
        out.push(buf);
    }
    (start.elapsed() < USED_FOR).then_some(out)
}

#[test]
fn what_came_with_the_opening_is_used_while_it_is_right() {
    let (_aside, options, server) = made_up(|listener| {
        let shelf = Shelf::new().unwrap();
        let (_answers, _trays, theirs) = beside();
        let shared = shelf.reader().try_clone_to_owned().unwrap();
        let files: Vec<OwnedFd> = theirs.into_iter().chain([shared]).collect();
        serve(welcomed(listener, &files).0, &shelf);
    });
    let client = Client::connect(options).unwrap();
    let in_time = |path: &[u8], how, offsets: &[u64]| {
        let found = (0..20).find_map(|_| read_at(&client, path, how, offsets));
        found.expect("once in twenty times it is fast enough")
    };
    let (given, asked) = (|length| vec![1; length], || vec![2; 1]);
    // Once, to its end, however it is read until then.
    let offsets = [0, 5, 2500, 0];
    let wanted = vec![given(2000), given(2000), given(500), asked()];
    assert_eq!(in_time(b"/file", SOON, &offsets), wanted);
    assert_eq!(in_time(b"/file", SOON, &[SIZE as u64, 0]), vec![vec![], asked()]);
    assert_eq!(in_time(b"/file", SOON, &[u64::MAX, 0]), vec![vec![], asked()]);
    // Not where somebody has changed it, nor for who did not say that he reads it at once.
    assert_eq!(in_time(b"/changed!", SOON, &[0, 0]), vec![asked(), asked()]);
    assert_eq!(in_time(b"/file", READ, &[0]), vec![asked()]);
    // Nor for ever.
    let file = client.open(&ROOT, b"/file", SOON, 0).unwrap();
    sleep(USED_FOR);
    let mut buf = [0; 2];
    assert_eq!((file.read(0, &mut buf).unwrap(), buf), (1, [2, 0]));
    // There is room for some, and again when they are gone.
    for _ in 0..2 {
        let files: Vec<File> =
            (0..80).map(|_| client.open(&ROOT, b"/file", SOON, 0).unwrap()).collect();
        let read = |file: &File| (file.read(0, &mut [0; 2]).unwrap() == 2) as usize;
        let given: usize = files.iter().rev().map(read).sum();
        assert!(given <= 64, "{given}");
        drop(files);
        assert_eq!(in_time(b"/file", SOON, &[0]), vec![vec![1; 2000]]);
    }
    client.unlink(&ROOT, b"/file").unwrap();
    drop((file, client));
    server.join();
}

/// Without the shelf nobody could see that it is still so.
#[test]
fn who_sees_no_shelf_asks() {
    let (_aside, options, server) = made_up(|listener| {
        let (_answers, _trays, theirs) = beside();
        serve(welcomed(listener, &theirs).0, &Shelf::new().unwrap());
    });
    let client = Client::connect(options).unwrap();
    assert_eq!(read_at(&client, b"/file", SOON, &[0]).unwrap_or(vec![vec![2]]), vec![vec![2]]);
    client.unlink(&ROOT, b"/file").unwrap();
    drop(client);
    server.join();
}

/// A server gives all of what is small, to who only reads, and counts it as read.
#[test]
fn what_is_small_comes_with_its_opening_and_is_counted() {
    const LEAST_LARGE: usize = 64 << 10;
    let port = free_port();
    let site = Site::with(&["--listen-metrics", &port.to_string()]);
    let client = site.client("tank");
    for length in [0, 1, LEAST_LARGE - 1, LEAST_LARGE] {
        let (path, bytes) = (format!("/{length}").into_bytes(), noise(1, length));
        client.put(&ROOT, &path, NEW, 0o644, &bytes, false).unwrap();
        let given = |how| {
            let before = read_bytes(port);
            let file = client.open(&ROOT, &path, how, 0).unwrap();
            (file, read_bytes(port) - before)
        };
        let (file, count) = given(SOON);
        let wanted = if length < LEAST_LARGE { length } else { 0 };
        assert_eq!(count, wanted as u64, "of {length}");
        let mut buf = vec![0; LEAST_LARGE + 1];
        assert_eq!(file.read(0, &mut buf).unwrap(), length);
        assert!(buf[..length] == bytes);
        assert_eq!(given(READ).1 + given(Open { write: true, ..SOON }).1, 0, "of {length}");
    }
    drop(client);
    site.end();
}

/// Says that it is over when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// However somebody else changes a small file: who reads after that sees it, also if he has opened it before.
#[test]
fn what_came_with_the_opening_is_never_stale() {
    const LONGEST: usize = 40_000;
    let site = Site::new();
    let (reader, writer) = (site.client("tank"), site.client("tank"));
    let file = writer.open(&ROOT, b"/file", NEW, 0o644).unwrap();
    file.write(0, &[0; 8]).unwrap();
    let (told, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut between = 0;
    std::thread::scope(|scope| {
        // A version is its number, again and again; some are longer than others.
        let writing = scope.spawn(|| {
            let mut rng = Rng::new(3);
            for version in 1u64.. {
                let count = 1 + rng.below(LONGEST as u64 / 8) as usize;
                let bytes = version.to_le_bytes().repeat(count);
                match rng.below(3) {
                    0 => file.write_stable(0, &bytes).unwrap(),
                    _ => file.write(0, &bytes).unwrap(),
                }
                file.truncate(bytes.len() as u64).unwrap();
                told.store(version, Ordering::Release);
                if is_over.load(Ordering::Acquire) {
                    break;
                }
                sleep(Duration::from_micros(rng.below(3000)));
            }
        });
        // Also if this fails: the writer is waited for.
        let end = End(&is_over);
        let (mut rng, mut buf) = (Rng::new(4), vec![0; LONGEST + 8]);
        for turn in 0..1500 {
            let before = told.load(Ordering::Acquire);
            let opened = reader.open(&ROOT, b"/file", SOON, 0).unwrap();
            if turn % 2 == 0 {
                sleep(Duration::from_micros(rng.below(4000)));
            }
            let least = told.load(Ordering::Acquire);
            between += u64::from(least > before);
            let count = opened.read(0, &mut buf).unwrap();
            let first = u64::from_le_bytes(buf[..8].try_into().unwrap());
            assert!(first >= least, "turn {turn}: {first} of {count} bytes, and {least} was told");
        }
        drop(end);
        writing.join().unwrap();
    });
    assert!(between > 100, "{between} changes came in between");
    drop((file, reader, writer));
    site.end();
}
