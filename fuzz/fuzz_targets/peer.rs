//! Any bytes at the server's socket, with or without files beside them: the connection comes to its end, keeps no
//! place, and a client beside it is served.
#![no_main]

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use fuzz::{Lane, Site};
use libfuzzer_sys::fuzz_target;
use rt::sync::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use wire::{Reply, Request};

static SERVED: Mutex<Option<(Site, Lane, std::fs::File)>> = Mutex::new(None);

/// Sends the first bytes with so many files beside them; how many have gone.
fn send_with(stream: &UnixStream, bytes: &[u8], files: usize, null: &std::fs::File) -> usize {
    let files = vec![null.as_fd(); files];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(7))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(stream, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL).unwrap_or(bytes.len())
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, bytes)) = bytes.split_first() else { return };
    let mut served = SERVED.lock();
    let (site, honest, null) = served.get_or_insert_with(|| {
        let site = Site::new();
        let lane = Lane::new(site.connect(), "tank/ours");
        // A directory, and something to print to: what a command needs, in one.
        let null = std::fs::File::open("/").expect("a directory");
        (site, lane, null)
    });
    let (mut ours, theirs) = UnixStream::pair().expect("a connection");
    let server = site.server.clone();
    let answered = rt::thread::spawn("connection", move || drop(server.converse(&theirs)));
    let mut reader = ours.try_clone().expect("a descriptor");
    // Who does not take his answers is not what this is about.
    let taken = rt::thread::spawn("reader", move || drop(reader.read_to_end(&mut Vec::new())));
    let files = usize::from(first & 7);
    let sent = match files {
        0 => 0,
        files => send_with(&ours, bytes, files, null),
    };
    drop(ours.write_all(&bytes[sent..]));
    drop(ours.shutdown(Shutdown::Write));
    answered.join();
    taken.join();
    assert_eq!(site.server.busy(), (0, 1), "it keeps no place");
    let stat = Request::Stat { who: wire::Subject::ROOT, path: Vec::new(), follow: true };
    assert!(matches!(honest.ask(&stat, &[]), (Ok(Reply::Stat(_)), _)));
});
