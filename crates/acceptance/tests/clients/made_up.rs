//! Servers that are made up here: what a client does at moments that no real one would show at will.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use client::{Client, Open, Options};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use testkit::{TempDir, temp_dir};
use wire::pipe::{Lender, pipe};
use wire::trays::Trays;
use wire::{Answer, FILES, FILES_MAX, Failure, HEADER, Head, Inbox, Reply, Request, Stat, Way};

use crate::{NEW, READ, ROOT, errno};

/// A server that is made up here, and how a client gets to it.
pub(crate) fn made_up<T: Send + 'static>(
    serve: impl FnOnce(&UnixListener) -> T + Send + 'static,
) -> (TempDir, Options, rt::thread::JoinHandle<T>) {
    let aside = temp_dir();
    let socket = aside.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = rt::thread::spawn("server", move || serve(&listener));
    (aside, Options { lanes_max: 1, ..Options::new(&socket, "tank") }, server)
}

/// What such a server has beside a connection, and what of that is the client's.
pub(crate) fn beside() -> (Lender, Trays, [OwnedFd; FILES]) {
    let ((to_us, requests), (answers, from_us)) = (pipe().unwrap(), pipe().unwrap());
    let (trays, shared) = Trays::new().unwrap();
    (answers, trays, [requests.into(), to_us.into(), from_us.into(), shared])
}

/// The next client of such a server, and the end of how it has greeted.
fn greeted(listener: &UnixListener) -> (UnixStream, Vec<u8>) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut hello = [0; 12];
    stream.read_exact(&mut hello).unwrap();
    let mut rest = vec![0; usize::from(hello[8])];
    stream.read_exact(&mut rest).unwrap();
    (stream, rest)
}

/// What such a server does with its next client: greets it, with these files beside; and whether the client
/// has asked for any.
pub(crate) fn welcomed(listener: &UnixListener, files: &[OwnedFd]) -> (UnixStream, bool) {
    let (stream, rest) = greeted(listener);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    if !files.is_empty() {
        with.push(SendAncillaryMessage::ScmRights(&files));
    }
    let welcome = wire::encode(&Answer::Ok(Reply::Welcome([7; 16])), 0, Way::Behind).unwrap();
    sendmsg(&stream, &[IoSlice::new(&welcome)], &mut with, SendFlags::NOSIGNAL).unwrap();
    (stream, rest.last() == Some(&1))
}

pub(crate) fn hear(stream: &mut UnixStream) -> Request {
    hear_with_head(stream).1
}

fn hear_with_head(stream: &mut UnixStream) -> (Head, Request) {
    let mut head = [0; HEADER];
    stream.read_exact(&mut head).unwrap();
    let head = Head::read(head).unwrap();
    let mut part = vec![0; head.part];
    stream.read_exact(&mut part).unwrap();
    (head, wire::decode(&part).unwrap())
}

fn say(stream: &mut UnixStream, reply: Reply) {
    say_with(stream, reply, &[]);
}

/// The same, with these bulk bytes behind it.
pub(crate) fn say_with(stream: &mut UnixStream, reply: Reply, bytes: &[u8]) {
    let frame = wire::encode(&Answer::Ok(reply), bytes.len(), Way::Behind).unwrap();
    stream.write_all(&[&frame, bytes].concat()).unwrap();
}

/// Hears that a file is to be opened, and says that it is.
fn opens(stream: &mut UnixStream, handle: u64) {
    assert!(matches!(hear(stream), Request::Open { .. }));
    say(stream, opened(handle));
}

fn opened(handle: u64) -> Reply {
    Reply::Opened { handle, stat: Stat::default(), kept_since_ms: 1, whole: None }
}

/// A server that cannot give all files, as to a client that may open no more: it is asked for none then.
#[test]
fn who_does_not_get_all_pipes_goes_without() {
    let (_aside, options, server) = made_up(|listener| {
        let (_answers, _trays, theirs) = beside();
        [2, 0].map(|files| {
            let (mut stream, wanted) = welcomed(listener, &theirs[..files]);
            drop(stream.read_to_end(&mut Vec::new()));
            wanted
        })
    });
    drop(Client::connect(options).unwrap());
    assert_eq!(server.join(), [true, false]);
}

/// A server that dies, as its client sees it: what lies on its tray it has not heard, and the next one is asked; what it has
/// taken it may have done, and nothing is removed twice.
#[test]
fn what_lies_on_the_tray_of_the_dead_was_not_heard() {
    for taken in [false, true] {
        let (_aside, options, server) = made_up(move |listener| {
            let (_answers, trays, theirs) = beside();
            trays.look();
            let (mut stream, _) = welcomed(listener, &theirs);
            let mut inbox = Inbox::default();
            if taken {
                while trays.take(&mut inbox).is_none() {}
            } else {
                stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
                assert!(stream.read(&mut [0]).is_err(), "it did not come over the socket");
            }
            drop(stream);
            if !taken {
                let (mut stream, _) = welcomed(listener, &[]);
                assert!(matches!(hear(&mut stream), Request::Unlink { .. }));
                say(&mut stream, Reply::Done);
                drop(stream.read_to_end(&mut Vec::new()));
            }
        });
        let client = Client::connect(options).unwrap();
        let done = client.unlink(&ROOT, b"/file");
        match taken {
            true => assert_eq!(errno(done), 5),
            false => done.unwrap(),
        }
        drop(client);
        server.join();
    }
}

/// What nobody waits for is sent, also where the server looks: what is sent next would overtake it on the tray.
#[test]
fn what_is_told_and_what_is_asked_next_come_in_order() {
    let (_aside, options, server) = made_up(|listener| {
        let (_answers, trays, theirs) = beside();
        let (mut stream, _) = welcomed(listener, &theirs);
        assert!(matches!(hear(&mut stream), Request::Open { .. }));
        trays.look();
        say(&mut stream, opened(1));
        assert!(matches!(hear(&mut stream), Request::Close { .. }));
        assert!(matches!(hear(&mut stream), Request::Unlink { .. }));
        assert_eq!(trays.leave(&mut Inbox::default()), None);
        (0..2).for_each(|_| say(&mut stream, Reply::Done));
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let client = Client::connect(options).unwrap();
    drop(client.open(&ROOT, b"/file", READ, 0).unwrap());
    client.unlink(&ROOT, b"/file").unwrap();
    drop(client);
    server.join();
}

/// A connection breaks on which a file was let go of, and nobody has said that this was heard: it is said on the next.
#[test]
fn what_was_told_and_not_heard_is_told_again() {
    let (_aside, options, server) = made_up(|listener| {
        let (mut stream, _) = welcomed(listener, &[]);
        opens(&mut stream, 7);
        assert!(matches!(hear(&mut stream), Request::Close { handle: 7, .. }));
        drop(stream);
        let (mut stream, _) = welcomed(listener, &[]);
        let heard = hear(&mut stream);
        assert!(matches!(heard, Request::Close { handle: 7, .. }), "{heard:?}");
        say(&mut stream, Reply::Done);
        assert!(matches!(hear(&mut stream), Request::Stat { .. }));
        say(&mut stream, Reply::Stat(Stat::default()));
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let client = Client::connect(options).unwrap();
    drop(client.open(&ROOT, b"/file", READ, 0).unwrap());
    client.stat(&ROOT, b"/other", true).unwrap();
    drop(client);
    server.join();
}

/// A connection breaks, and somebody else is making the next one: who lets go of a file waits for it, since nobody else says so.
#[test]
fn who_lets_go_of_a_file_waits_for_who_connects() {
    for write in [false, true] {
        let (_aside, options, server) = made_up(move |listener| {
            let (mut stream, _) = welcomed(listener, &[]);
            opens(&mut stream, 7);
            drop(stream);
            // Somebody asks, and is not greeted yet.
            rt::time::sleep(Duration::from_millis(600));
            let (mut stream, _) = welcomed(listener, &[]);
            let mut closed = false;
            for _ in 0..2 {
                match hear(&mut stream) {
                    Request::Stat { .. } => say(&mut stream, Reply::Stat(Stat::default())),
                    heard => {
                        assert!(matches!(heard, Request::Close { handle: 7, .. }), "{heard:?}");
                        closed = true;
                        // Nobody waits for that: the client may have gone by then.
                        let done = wire::encode(&Answer::Ok(Reply::Done), 0, Way::Behind).unwrap();
                        drop(stream.write_all(&done));
                    }
                }
            }
            drop(stream.read_to_end(&mut Vec::new()));
            closed
        });
        let client = Client::connect(options).unwrap();
        let file = client.open(&ROOT, b"/file", Open { write, ..READ }, 0).unwrap();
        std::thread::scope(|scope| {
            rt::time::sleep(Duration::from_millis(100));
            scope.spawn(|| client.stat(&ROOT, b"/other", true).unwrap());
            rt::time::sleep(Duration::from_millis(200));
            drop(file);
        });
        drop(client);
        assert!(server.join(), "it is open for ever");
    }
}

/// A server that lends bytes, shuts the connection down and has others where they were: who had them before may believe them, and
/// who comes for them later must ask again.
#[test]
fn bytes_that_were_lent_are_believed_while_the_connection_is_there() {
    let (_aside, options, server) = made_up(|listener| {
        let lend = |stream: &mut UnixStream, answers: &Lender| {
            let Request::Read { length, .. } = hear(stream) else { return Vec::new() };
            let bytes = vec![1_u8; length as usize];
            assert_eq!(answers.lend(&[&bytes]).unwrap(), bytes.len());
            let frame = wire::encode(&Answer::Ok(Reply::Bytes), bytes.len(), Way::Pipe).unwrap();
            stream.write_all(&frame).unwrap();
            bytes
        };
        let (answers, _trays, theirs) = beside();
        let (mut stream, _) = welcomed(listener, &theirs);
        opens(&mut stream, 1);
        let mut lent = lend(&mut stream, &answers);
        assert!(!lent.is_empty());
        stream.shutdown(Shutdown::Both).unwrap();
        lent.fill(0);
        // The session goes on, and what is open in it.
        let (answers, _trays, theirs) = beside();
        let (mut stream, _) = welcomed(listener, &theirs);
        let mut all = vec![lent];
        // Until it closes the file.
        while all.last().is_some_and(|lent| !lent.is_empty()) {
            all.push(lend(&mut stream, &answers));
        }
    });
    let client = Client::connect(options).unwrap();
    let file = client.open(&ROOT, b"/file", READ, 0).unwrap();
    let mut buf = vec![7; 300_000];
    for time in ["first", "second"] {
        assert_eq!(file.read(0, &mut buf).unwrap(), buf.len());
        assert!(buf.iter().all(|byte| *byte == 1), "{time}");
        buf.fill(7);
    }
    drop((file, client));
    server.join();
}

/// What is too much for a tray lies in the bay beside it; what would be too much for that is not believed.
#[test]
fn bytes_lie_in_bays() {
    const LENGTH: usize = 40_000;
    let (_aside, options, server) = made_up(|listener| {
        for right in [false, true] {
            let (_answers, trays, theirs) = beside();
            let (mut stream, _) = welcomed(listener, &theirs);
            if !right {
                opens(&mut stream, 1);
            }
            assert!(matches!(hear(&mut stream), Request::Read { .. }));
            assert!(trays.fill(&[&vec![1; LENGTH]]));
            let length = if right { LENGTH } else { 100_000 };
            let frame = wire::encode(&Answer::Ok(Reply::Bytes), length, Way::Bay).unwrap();
            stream.write_all(&frame).unwrap();
            if right {
                let (head, write) = hear_with_head(&mut stream);
                assert!(matches!(write, Request::Write { offset: 5, .. }));
                assert_eq!((head.way, head.bulk), (Way::Bay, LENGTH));
                let mut bytes = vec![0; LENGTH];
                trays.empty(0, &mut bytes).unwrap();
                assert!(bytes == vec![3; LENGTH]);
                say(&mut stream, Reply::Done);
            }
            // Until it has gone.
            drop(stream.read_to_end(&mut Vec::new()));
        }
    });
    let client = Client::connect(options).unwrap();
    let file = client.open(&ROOT, b"/file", READ, 0).unwrap();
    let mut buf = vec![7; 200_000];
    assert_eq!(file.read(0, &mut buf).unwrap(), LENGTH, "it was asked again");
    assert!(buf[..LENGTH] == vec![1; LENGTH] && buf[LENGTH..].iter().all(|byte| *byte == 7));
    file.write(5, &vec![3; LENGTH]).unwrap();
    drop((file, client));
    server.join();
}

/// Of two writes that are under way and fail, the close tells of the first, whichever was the first to fail.
#[test]
fn of_two_that_fail_the_first_is_told() {
    let (_aside, options, server) = made_up(|listener| {
        let (mut first, _) = welcomed(listener, &[]);
        opens(&mut first, 1);
        let heard = |stream: &mut UnixStream, at: u64| {
            let (head, write) = hear_with_head(stream);
            assert!(matches!(write, Request::Write { offset, .. } if offset == at), "{write:?}");
            stream.read_exact(&mut vec![0; head.bulk]).unwrap();
        };
        heard(&mut first, 0);
        let (mut second, _) = welcomed(listener, &[]);
        heard(&mut second, 100);
        for (stream, errno, text) in [(&mut second, 5, "later"), (&mut first, 28, "first")] {
            let failed: Answer = Err(Failure { errno, text: text.into() });
            stream.write_all(&wire::encode(&failed, 0, Way::Behind).unwrap()).unwrap();
        }
        // Until they have gone.
        for mut stream in [first, second] {
            drop(stream.read_to_end(&mut Vec::new()));
        }
    });
    let client = Client::connect(Options { lanes_max: 2, ..options }).unwrap();
    let file = client.open(&ROOT, b"/file", NEW, 0o644).unwrap();
    for at in [0, 100] {
        assert!(file.begin(at, &[1; 100], false).unwrap(), "few ask");
    }
    assert_eq!(errno(file.sync()), 28);
    assert_eq!(errno(file.close(true)), 28);
    drop(client);
    server.join();
}

/// A server that was started anew, and a client that waits for none: it is there, so the next call is answered.
#[test]
fn who_waits_for_no_server_asks_the_one_that_came() {
    let (_aside, options, server) = made_up(|listener| {
        drop(welcomed(listener, &[]));
        let (mut stream, _) = greeted(listener);
        let unknown: Answer = Err(Failure { errno: 116, text: "there is no such session".into() });
        stream.write_all(&wire::encode(&unknown, 0, Way::Behind).unwrap()).unwrap();
        let (mut stream, _) = welcomed(listener, &[]);
        assert!(matches!(hear(&mut stream), Request::Stat { .. }));
        say(&mut stream, Reply::Stat(Stat::default()));
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let client = Client::connect(Options { patience: Duration::ZERO, ..options }).unwrap();
    client.stat(&ROOT, b"/file", true).unwrap();
    drop(client);
    server.join();
}

/// A server that takes its pools first takes connections, and greets nobody: it is waited for no longer than one that is away.
/// One that has greeted may take its time.
#[test]
fn who_is_not_greeted_does_not_wait_for_ever() {
    let (_aside, options, server) = made_up(|listener| {
        let (mut silent, _) = greeted(listener);
        silent.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        drop(silent.read(&mut [0]));
        drop(silent);
        let (mut slow, _) = welcomed(listener, &[]);
        assert!(matches!(hear(&mut slow), Request::Stat { .. }));
        rt::time::sleep(Duration::from_secs(2));
        say(&mut slow, Reply::Stat(Stat::default()));
        drop(slow.read_to_end(&mut Vec::new()));
    });
    let options = Options { patience: Duration::ZERO, ..options };
    let start = rt::time::now();
    assert_eq!(errno(Client::connect(options.clone())), 107);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let client = Client::connect(options).unwrap();
    client.stat(&ROOT, b"/file", true).unwrap();
    drop(client);
    server.join();
}
