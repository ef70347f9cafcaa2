//! Any bytes as a server's answers: the client library comes to an end with a value or an error, has no more memory than
//! it asked for, and what it gives as read was in an answer.
#![no_main]

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use client::{Client, Open, Options, Subject};
use libfuzzer_sys::fuzz_target;
use rt::sync::{Arc, Mutex};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, send, sendmsg};
use wire::pipe::{Reader, pipe};
use wire::trays::Trays;
use wire::{Cores, FILES, HEADER, Head, Inbox, Look, Reply, Way};

const ROOT: Subject = Subject::ROOT;

/// What the server says: answers, each a length in front, bulk bytes of a number, and how it goes on.
type Script = Arc<Mutex<Vec<u8>>>;

static SERVED: Mutex<Option<(std::path::PathBuf, Script)>> = Mutex::new(None);

/// Takes a message from a client, whatever it is, from the socket or the tray; what comes beside it from the pipe or the bay.
fn hear(
    stream: &mut UnixStream,
    requests: &Reader,
    trays: &Trays,
    looks: bool,
    inbox: &mut Inbox,
) -> Option<()> {
    if looks {
        let _ = Look::default().over(&*stream, Some(trays), inbox, Cores::Enough);
    }
    let mut head = [0; HEADER];
    inbox.take(stream, &mut head).ok()?;
    let Head { part, bulk, way } = Head::read(head).expect("the client is honest");
    inbox.take(stream, &mut vec![0; part + if way == Way::Behind { bulk } else { 0 }]).ok()?;
    if way == Way::Bay {
        trays.empty(0, &mut vec![0; bulk]).expect("the client is honest");
    }
    let mut left = if way == Way::Pipe { bulk } else { 0 };
    while left > 0 {
        match requests.read(&mut vec![0; left]) {
            Ok(0) => return None,
            Ok(count) => left -= count,
            // The rest is lent when there is room for it.
            Err(_) => rt::thread::yield_now(),
        }
    }
    Some(())
}

/// Says something, with the client's ends of the pipes and the memory of the trays.
fn send_with(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> usize {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    with.push(SendAncillaryMessage::ScmRights(files));
    sendmsg(stream, &[IoSlice::new(bytes)], &mut with, SendFlags::NOSIGNAL).unwrap_or(0)
}

/// Answers a connection as the script has it; each takes what is left of it.
fn serve(mut stream: UnixStream, script: &Script) -> Option<()> {
    let mut hello = [0; 12];
    stream.read_exact(&mut hello).ok()?;
    let length = u32::from_le_bytes([hello[8], hello[9], hello[10], hello[11]]);
    stream.read_exact(&mut vec![0; length as usize]).ok()?;
    let welcome =
        wire::encode(&wire::Answer::Ok(Reply::Welcome([7; 16])), 0, Way::Behind).expect("short");
    let ((to_us, requests), (answers, from_us)) = (pipe().ok()?, pipe().ok()?);
    let (trays, shared) = Trays::new().ok()?;
    let mut theirs = Some((to_us, from_us, shared));
    let (mut first, mut inbox) = (true, Inbox::default());
    loop {
        let (said, is_whole, lent, how) = {
            let mut script = script.lock();
            if script.len() < 2 {
                return None;
            }
            let (how, length) = (script[0], usize::from(script[1]).min(script.len() - 2));
            let part: Vec<u8> = script.drain(..2 + length).skip(2).collect();
            let bulk = vec![how; usize::from(how & 31) * 1000];
            let way = match how & 32 != 0 {
                true if how & 16 != 0 => Way::Bay,
                true => Way::Pipe,
                false => Way::Behind,
            };
            let head = Head { part: part.len(), bulk: bulk.len(), way }.bytes().to_vec();
            match how >> 6 {
                // As it is, which may be the beginning of something.
                0 => (part, false, Vec::new(), how),
                // What it says first is mostly right.
                1 if first => (welcome.clone(), true, Vec::new(), how),
                _ if way == Way::Behind => ([head, part, bulk].concat(), true, Vec::new(), how),
                _ => ([head, part].concat(), true, bulk, how),
            }
        };
        if !lent.is_empty() {
            drop(answers.lend(&[&lent]));
            let _ = trays.fill(&[&lent]);
        }
        // The client must live without this, in a program that has not provided for its end either.
        let mut rest = &said[..];
        if let Some((to_us, from_us, shared)) = theirs.take() {
            let files = [requests.as_fd(), to_us.as_fd(), from_us.as_fd(), shared.as_fd()];
            rest = &rest[send_with(&stream, rest, &files)..];
        } else if how & 64 != 0 && trays.put(&[rest]) {
            rest = &[];
        }
        while !rest.is_empty() {
            rest = &rest[send(&stream, rest, SendFlags::NOSIGNAL).ok()?..];
        }
        if !is_whole {
            return None;
        }
        first = false;
        hear(&mut stream, &requests, &trays, how & 16 != 0, &mut inbox)?;
    }
}

fn begin() -> (std::path::PathBuf, Script) {
    let dir = std::env::temp_dir().join(format!("fuzz-answers-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let socket = dir.join("socket");
    drop(std::fs::remove_file(&socket));
    let listener = UnixListener::bind(&socket).expect("a socket");
    let script = Script::default();
    let said = script.clone();
    drop(rt::thread::spawn("server", move || {
        for stream in listener.incoming().flatten() {
            let _ = serve(stream, &said);
        }
    }));
    (socket, script)
}

fuzz_target!(|bytes: &[u8]| {
    let mut served = SERVED.lock();
    let (socket, script) = served.get_or_insert_with(begin);
    *script.lock() = bytes.to_vec();
    let options =
        Options { lanes_max: 1, patience: Duration::ZERO, ..Options::new(&*socket, "tank") };
    let Ok(client) = Client::connect(options) else { return };
    let how = Open { read: true, write: true, create: true, ..Open::default() };
    if let Ok(file) = client.open(&ROOT, b"file", how, 0o644) {
        let mut buf = vec![0xaa; 70_000];
        if let Ok(got) = file.read(5, &mut buf) {
            assert!(got <= buf.len() && buf[got..].iter().all(|byte| *byte == 0xaa));
        }
        drop(file.write(0, &[1; 5000]));
        drop(file.write(0, &[1; 70_000]));
        drop(file.read_all(&[(0, 1000), (5000, 1000)], &mut buf[..2000]));
        drop(file.stat());
        drop(file.sync());
        drop(file.close(true));
    }
    if let Ok((entries, _)) = client.list(&ROOT, b"", 0) {
        assert!(entries.len() < 1 << 16);
    }
    drop(client.stat(&ROOT, b"file", true));
    drop(client.xattr(&ROOT, b"file", b"user.x"));
    drop(client.xattrs(&ROOT, b"file"));
    drop(client.space(b""));
    drop(client.rename(&ROOT, b"a", b"b"));
});
