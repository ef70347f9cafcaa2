//! Those who come to the server to do harm, or do it by being slow: on both planes of its socket, and at the listener
//! for metrics. Who reads and writes meanwhile is not disturbed.

#![allow(clippy::unwrap_used)]

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use acceptance::{Server, assert_verified, thumper};
use client::{Client, Open, Options, Subject};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use testkit::random::Rng;
use testkit::{Ran, free_port, fresh_images, temp_dir};
use wire::{Answer, FILES_MAX, HEADER, Hello, MAGIC, Reply, Request, Way};

const MIB: u64 = 1 << 20;
/// What the server may take, and what it may have beside that (`memory.rs`).
const CAP: u64 = 192 * MIB;
const BESIDE: u64 = 48 * MIB;
/// How long a call of an honest client may take while others keep all memory for writes that they can: until those are
/// cut off, and what a busy machine makes of that.
const DISTURBED: Duration = Duration::from_secs(25);
/// How soon those are.
const CUT_WITHIN: Duration = Duration::from_secs(25);
/// How long who does not read what he was lent keeps it: half a minute, and what a busy machine makes of that.
const KEEPS_FOR: Duration = Duration::from_secs(45);
/// Connections that send a message byte by byte; their memory would be more than there is for writes.
const TRICKLING: usize = 70;
/// So many of them have memory, at least.
const CUT_FIRST: usize = 25;

const ROOT: Subject = Subject::ROOT;
const NEW: Open = Open { write: true, create: true, ..Open::READ };

/// What an honest client does, over and over: it writes, compares what it reads, and syncs.
#[derive(Default)]
struct Honest {
    done: AtomicBool,
    rounds: AtomicU64,
    longest_ms: AtomicU64,
}

impl Honest {
    fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
        let start = rt::time::now();
        let value = call();
        self.longest_ms.fetch_max(start.elapsed().as_millis() as u64, Ordering::AcqRel);
        value
    }

    fn go_on(&self, client: &Arc<Client>, number: u64) {
        let mut bytes = vec![0; 600_000];
        let mut back = bytes.clone();
        let path = format!("/honest{number}");
        let file = self.timed(|| client.open(&ROOT, path.as_bytes(), NEW, 0o644).unwrap());
        while !self.done.load(Ordering::Acquire) {
            let round = self.rounds.fetch_add(1, Ordering::AcqRel);
            Rng::of(number, round).fill(&mut bytes);
            let offset = round % 5 * 100_000;
            self.timed(|| file.write(offset, &bytes).unwrap());
            let got = self.timed(|| file.read(offset, &mut back).unwrap());
            assert!(got == bytes.len() && back == bytes, "{path} in round {round}");
            if round.is_multiple_of(16) {
                self.timed(|| file.sync().unwrap());
            }
        }
        file.close(true).unwrap();
    }
}

/// Tells the honest ones to end when it is dropped. Also where something fails: whoever waits for them would wait for ever.
struct Ends<'a>(&'a Honest);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Release);
    }
}

/// A connection to the plane of files that has greeted.
fn greeted(socket: &Path) -> UnixStream {
    greeted_with(socket, false).0
}

/// The same, with its pipes, if it wants them.
fn greeted_with(socket: &Path, beside: bool) -> (UnixStream, Vec<OwnedFd>) {
    let mut stream = UnixStream::connect(socket).unwrap();
    let hello = Hello { tree: "tank".into(), session: None, beside };
    stream.write_all(&wire::greeting(&hello).unwrap()).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut with = RecvAncillaryBuffer::new(&mut space);
    let mut head = [0; HEADER];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    recvmsg(&stream, &mut [IoSliceMut::new(&mut head)], &mut with, flags).unwrap();
    let pipes = with.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect(),
        _ => Vec::new(),
    });
    let pipes: Vec<OwnedFd> = pipes.collect();
    assert_eq!(pipes.len(), if beside { FILES_MAX } else { 0 });
    assert!(matches!(answer_behind(&mut stream, head), Some(Reply::Welcome(_))));
    (stream, pipes)
}

fn answer(stream: &mut UnixStream) -> Option<Reply> {
    let mut head = [0; HEADER];
    stream.read_exact(&mut head).ok()?;
    answer_behind(stream, head)
}

fn answer_behind(stream: &mut UnixStream, head: [u8; HEADER]) -> Option<Reply> {
    let mut part = vec![0; wire::Head::read(head).unwrap().part];
    stream.read_exact(&mut part).ok()?;
    wire::decode::<Answer>(&part).unwrap().ok()
}

/// One that has announced a write of a megabyte to a file that it has opened, whichever way.
fn announced(socket: &Path, way: Way) -> (UnixStream, Vec<OwnedFd>) {
    let (mut stream, pipes) = greeted_with(socket, way != Way::Behind);
    let open = Request::Open { who: ROOT, path: b"/theirs".to_vec(), how: NEW, mode: 0o644 };
    stream.write_all(&wire::encode(&open, 0, Way::Behind).unwrap()).unwrap();
    let Some(Reply::Opened { handle, .. }) = answer(&mut stream) else { panic!("a file") };
    let write = Request::Write { handle, offset: 0, stable: false, close: false };
    stream.write_all(&wire::encode(&write, MIB as usize, way).unwrap()).unwrap();
    (stream, pipes)
}

/// Has written a file, reads of it and takes no answer: all that it was lent stays in its pipe.
fn never_reads(socket: &Path, path: &str) -> (UnixStream, Vec<OwnedFd>) {
    let (mut stream, pipes) = greeted_with(socket, true);
    let how = Open { read: true, ..NEW };
    let open = Request::Open { who: ROOT, path: path.into(), how, mode: 0o644 };
    stream.write_all(&wire::encode(&open, 0, Way::Behind).unwrap()).unwrap();
    let Some(Reply::Opened { handle, .. }) = answer(&mut stream) else { panic!("a file") };
    let bytes = vec![5; MIB as usize];
    let write = wire::encode(
        &Request::Write { handle, offset: 0, stable: false, close: false },
        bytes.len(),
        Way::Behind,
    )
    .unwrap();
    stream.write_all(&[write, bytes].concat()).unwrap();
    assert!(matches!(answer(&mut stream), Some(Reply::Done)));
    let read = Request::Read { handle, offset: 0, length: MIB as u32 };
    stream.write_all(&wire::encode(&read, 0, Way::Behind).unwrap()).unwrap();
    assert!(matches!(answer(&mut stream), Some(Reply::Bytes)));
    (stream, pipes)
}

/// Feeds them byte by byte until those were cut off that had memory first. (Nobody waits for that of the others then, so
/// they have more time, which is not waited for here.)
fn trickle(mut streams: Vec<(UnixStream, Vec<OwnedFd>)>) {
    let start = rt::time::now();
    while streams.len() > TRICKLING - CUT_FIRST {
        assert!(start.elapsed() < CUT_WITHIN, "{} of them go on", streams.len());
        streams.retain_mut(|(stream, pipes)| match &pipes[..] {
            [_, requests, ..] => {
                let went = rustix::io::write(requests, b"x").is_ok();
                // The server may have shut it down.
                went && !is_shut(stream)
            }
            _ => stream.write_all(b"x").is_ok(),
        });
        rt::time::sleep(Duration::from_millis(100));
    }
}

fn is_shut(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    poll(&mut fds, Some(&Timespec::default())) == Ok(1)
}

/// Says something over a connection, and hears what there is to hear of it.
fn say(mut stream: impl Read + Write, bytes: &[u8], end: impl FnOnce()) {
    drop(stream.write_all(bytes));
    end();
    drop(stream.read_to_end(&mut Vec::new()));
}

/// What is no message, on either plane.
fn malformed() -> Vec<Vec<u8>> {
    let frame = |part: u32, bulk: u32, bytes: &[u8]| {
        let hello = [&MAGIC[..], &[7, 0, 0, 0], b"\x04tank\0\0"].concat();
        [&hello[..], &part.to_le_bytes(), &bulk.to_le_bytes(), bytes].concat()
    };
    let write = wire::encode(
        &Request::Write { handle: 1, offset: u64::MAX, stable: false, close: false },
        0,
        Way::Behind,
    )
    .unwrap();
    let part = write[HEADER..].to_vec();
    vec![
        b"THUMDAT\x63\0\0\0\0".to_vec(),
        [&MAGIC[..], &u32::MAX.to_le_bytes()].concat(),
        [&MAGIC[..], &[7, 0, 0, 0], b"\x7ftank\0\0"].concat(),
        [&MAGIC[..], &[7, 0, 0, 0], b"\x04ta"].concat(),
        frame(u32::MAX, 0, b""),
        frame(0, u32::MAX, b""),
        frame(256 << 10, 0, &[0xff; 256 << 10]),
        frame(256 << 10, 1 << 20, &[0; 4096]),
        frame(part.len() as u32, 1 << 20, &part),
        frame(part.len() as u32, 5, &[&part[..], b"12345"].concat()),
        frame(part.len() as u32, 5 | 1 << 30, &part),
        frame(part.len() as u32, 5 | 2 << 30, &part),
        frame(part.len() as u32, 5 | 3 << 30, &part),
        frame(0, 7, b"1234567"),
        frame(3, 0, &[4]),
        b"THUMPER\x01\xff\xff\xff\xff".to_vec(),
        b"THUMPER\x02\x03\0\0\0\0a\0".to_vec(),
        vec![0; 100_000],
    ]
}

fn attack(socket: &Path, port: u16) {
    for bytes in malformed() {
        let stream = UnixStream::connect(socket).unwrap();
        let other = stream.try_clone().unwrap();
        say(stream, &bytes, || drop(other.shutdown(Shutdown::Write)));
    }
    // More than a bay has.
    let (mut stream, _files) = announced(socket, Way::Bay);
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap_or(0), 0, "it ends");
    // Bytes one by one, on both planes.
    for bytes in [&malformed()[9], &b"THUMPER\x01\x03\0\0\0\0a\0".to_vec()] {
        let mut stream = UnixStream::connect(socket).unwrap();
        for byte in bytes {
            drop(stream.write_all(&[*byte]));
        }
    }
    // Half a frame, and half a greeting, then silence; those of the metrics say nothing at all.
    let mut silent = Vec::new();
    for number in 0..40 {
        let mut stream =
            if number % 2 == 0 { greeted(socket) } else { UnixStream::connect(socket).unwrap() };
        drop(stream.write_all(&[9, 0, 0]));
        silent.push(stream);
    }
    let http: Vec<_> =
        (0..64).filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok()).collect();
    // Thousands that come and go.
    for number in 0..testkit::rounds(3000, 30_000) {
        let Ok(mut stream) = UnixStream::connect(socket) else { continue };
        if number % 3 == 0 {
            drop(stream.write_all(&MAGIC));
        }
        if number % 4 == 0 {
            drop(
                TcpStream::connect(("127.0.0.1", port))
                    .map(|mut s| s.write_all(b"GET /\0\r\n\r\n")),
            );
        }
    }
    drop((silent, http));
}

fn status(pid: u32, key: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

#[test]
fn nobody_is_disturbed_by_those_who_mean_harm() {
    let (images, aside) = (fresh_images(5, 256 << 20), temp_dir());
    let state = aside.path().join("pools");
    let port = free_port();
    let cap = (CAP / MIB).to_string() + "M";
    let server =
        Server::start_with(&state, &["--memory", &cap, "--listen-metrics", &port.to_string()]);
    let disks = images.disks();
    let mut words = vec!["zpool", "create", "tank", "raidz2"];
    words.extend(disks.iter().map(|disk| disk.to_str().unwrap()));
    drop(Ran::of(thumper(&state).args(&words)).expect_ok());

    let honest = Honest::default();
    let socket = server.socket();
    let client = Client::connect(Options::new(&socket, "tank")).unwrap();
    std::thread::scope(|scope| {
        let ends = Ends(&honest);
        for number in 0..3 {
            let (honest, client) = (&honest, &client);
            scope.spawn(move || honest.go_on(client, number));
        }
        // Those who come later wait for the memory that the slow ones keep.
        let idle: Vec<_> = (0..8).map(|n| never_reads(&socket, &format!("/idle{n}"))).collect();
        let begun = rt::time::now();
        let slow: Vec<_> =
            (0..TRICKLING).map(|n| announced(&socket, [Way::Pipe, Way::Behind][n % 2])).collect();
        let slow = scope.spawn(|| trickle(slow));
        let attacks = scope.spawn(|| attack(&socket, port));
        let ended = [slow.join(), attacks.join()];
        // Once more, with nobody in the way.
        let rounds = honest.rounds.load(Ordering::Acquire);
        let start = rt::time::now();
        while honest.rounds.load(Ordering::Acquire) < rounds + 9 {
            if start.elapsed() > DISTURBED {
                break;
            }
            rt::time::sleep(Duration::from_millis(10));
        }
        drop(ends);
        assert!(honest.rounds.load(Ordering::Acquire) >= rounds + 9, "the honest ones stand still");
        ended.into_iter().for_each(|ended| ended.unwrap());
        while !idle.iter().all(|(stream, _)| is_shut(stream)) {
            assert!(begun.elapsed() < KEEPS_FOR, "they keep what they were lent");
            rt::time::sleep(Duration::from_millis(100));
        }
    });
    let longest = Duration::from_millis(honest.longest_ms.load(Ordering::Acquire));
    let rounds = honest.rounds.load(Ordering::Acquire);
    let peak = status(server.pid(), "VmHWM:") - status(server.pid(), "RssFile:");
    println!("{rounds} rounds, the longest call {longest:?}, at most {} MiB", peak / MIB);
    assert!(longest < DISTURBED, "{longest:?}");
    assert!(peak <= CAP + BESIDE, "{} MiB", peak / MIB);
    // Commands, and whoever wants metrics, are served as ever, once those have gone who took their places.
    let start = rt::time::now();
    while Ran::of(thumper(&state).args(["zpool", "list", "-H"])).status != 0 {
        assert!(start.elapsed() < DISTURBED, "no command is taken");
        rt::time::sleep(Duration::from_millis(200));
    }
    let metrics = loop {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        drop(stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n"));
        let mut text = String::new();
        drop(stream.read_to_string(&mut text));
        if text.starts_with("HTTP/1.1 200") {
            break text;
        }
        assert!(start.elapsed() < DISTURBED, "no metrics: {text}");
        rt::time::sleep(Duration::from_millis(200));
    };
    assert!(metrics.contains("thumper_pool_state{"), "{metrics}");
    drop(client);
    let log = server.stop();
    assert!(!log.contains("panicked"), "{log}");
    assert!(log.contains("a message was not at its end"), "{log}");
    assert_verified(images.path(), "tank");
}
