//! Bytes that a client sends from where the server has them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use acceptance::thumper;
use client::{Client, File, Lease, Options};
use rt::sync::Arc;
use rt::time::{now, sleep};
use rustix::fs::fstat;
use rustix::io::{Errno, pread, pwrite};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use testkit::{Ran, free_port, noise};

use crate::{NEW, READ, ROOT, Site};

const LENGTH: usize = 1 << 20;

/// Leases all of a file, which is read before as often as it takes.
fn leased(file: &File) -> Lease {
    let mut bytes = vec![0; LENGTH];
    for _ in 0..5 {
        if let Some(lease) = file.lend(0, LENGTH, 9).unwrap() {
            return lease;
        }
        assert_eq!(file.read(0, &mut bytes).unwrap(), LENGTH);
    }
    panic!("it was read five times, and is nowhere to be sent from");
}

/// What is sent by who has the lease.
fn sent(lease: &Lease) -> Vec<u8> {
    let mut all = Vec::new();
    for (offset, length) in lease.places() {
        let mut piece = vec![0; *length as usize];
        assert_eq!(pread(lease.as_fd(), &mut piece, *offset).unwrap(), piece.len());
        all.extend(piece);
    }
    all
}

#[test]
fn what_is_leased_stays_as_it_was_and_is_never_stale() {
    let mut site = Site::new();
    let client = site.client("tank");
    let (first, second, third) = (noise(1, LENGTH), noise(2, LENGTH), noise(3, LENGTH));
    let file = client.open(&ROOT, b"/file", NEW, 0o644).unwrap();
    file.write(0, &first).unwrap();
    assert!(file.lend(0, LENGTH, 9).unwrap().is_none(), "it is on no disk yet");
    site.run(&["zfs", "snapshot", "tank@1"]);
    assert!(file.lend(0, LENGTH, 9).unwrap().is_none(), "nobody has read it");
    let lease = leased(&file);
    assert!(sent(&lease) == first);
    // Parts of it, and none that is not there.
    let part = file.lend(100_000, 300_000, 9).unwrap().unwrap();
    assert!(sent(&part) == first[100_000..400_000]);
    assert!(file.lend(1, LENGTH, 9).unwrap().is_none(), "it ends before");
    assert!(file.lend(u64::MAX, 2, 9).unwrap().is_none());
    assert!(file.lend(0, LENGTH, 7).unwrap().is_none(), "eight records are eight pieces");
    assert!(file.lend(0, LENGTH + 1, 9).unwrap().is_none(), "more than one answer may have");
    assert_eq!(pwrite(&lease, b"ours", 0), Err(Errno::BADF), "it is to be read");
    // Whatever becomes of the file.
    file.write(0, &second).unwrap();
    assert!(file.lend(0, LENGTH, 9).unwrap().is_none(), "what it was is not what it is");
    site.run(&["zfs", "snapshot", "tank@2"]);
    assert!(sent(&leased(&file)) == second && sent(&lease) == first);
    client.unlink(&ROOT, b"/file").unwrap();
    drop(file);
    site.run(&["zfs", "destroy", "tank@1,2"]);
    let other = client.open(&ROOT, b"/other", NEW, 0o644).unwrap();
    other.write(0, &third).unwrap();
    site.run(&["zfs", "snapshot", "tank@3"]);
    assert!(sent(&leased(&other)) == third);
    drop(other);
    site.run(&["zpool", "export", "tank"]);
    assert!(sent(&lease) == first && sent(&part) == first[100_000..400_000], "no pool is needed");
    site.run(&["zpool", "import", "-d", site.images.path().to_str().unwrap(), "tank"]);
    // What is leased no more goes back to the system.
    let shelf = lease.as_fd().try_clone_to_owned().unwrap();
    assert!(fstat(&shelf).unwrap().st_blocks > 0);
    drop((lease, part));
    let other = client.open(&ROOT, b"/other", READ, 0).unwrap();
    assert!(other.lend(0, LENGTH, 9).unwrap().is_none(), "it was read before the export");
    assert_eq!(fstat(&shelf).unwrap().st_blocks, 0);
    // And what a server has lent that died: nobody writes there any more.
    let lease = leased(&other);
    site.restart();
    assert!(sent(&lease) == third);
    assert!(other.lend(0, LENGTH, 9).unwrap().is_none(), "the new one has not read it");
    drop(lease);
    assert!(sent(&leased(&other)) == third);
    drop((other, client));
    site.end();
}

/// What is leased by clients, in bytes.
fn leased_bytes(site: &Site) -> u64 {
    let told = Ran::of(thumper(&site.state()).args(["top", "-j"])).expect_ok().out;
    let leases = told.split("\"leases\":{\"bytes\":").nth(1).unwrap();
    leases.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// A new file, of which the client had a lease.
fn once_leased(site: &Site, client: &Arc<Client>) -> File {
    let file = client.open(&ROOT, b"/file", NEW, 0o644).unwrap();
    file.write(0, &noise(1, LENGTH)).unwrap();
    site.run(&["zfs", "snapshot", "tank@1"]);
    drop(leased(&file));
    file
}

#[test]
fn who_has_gone_leaves_nothing_leased() {
    let site = Site::new();
    let client = site.client("tank");
    let file = once_leased(&site, &client);
    drop((file, client));
    assert_eq!(leased_bytes(&site), 0);
    site.end();
}

#[test]
fn who_has_closed_leaves_nothing_leased() {
    let site = Site::new();
    let client = site.client("tank");
    let file = once_leased(&site, &client);
    let other = client.open(&ROOT, b"/file", READ, 0).unwrap();
    drop(file);
    // Nobody waits until the server has heard it.
    let start = now();
    while leased_bytes(&site) > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "it was not told");
        sleep(Duration::from_millis(20));
    }
    drop((other, client));
    site.end();
}

/// What clients have read so far, in bytes, as the server tells whoever watches it.
pub(crate) fn read_bytes(port: u16) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let count = text.lines().find_map(|l| l.strip_prefix("thumper_client_read_bytes_total "));
    count.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

#[test]
fn what_is_leased_is_counted_as_read() {
    let port = free_port();
    let site = Site::with(&["--listen-metrics", &port.to_string()]);
    let client = site.client("tank");
    let file = once_leased(&site, &client);
    let before = read_bytes(port);
    drop(file.lend(0, LENGTH, 9).unwrap().unwrap());
    drop(file.lend(100_000, 300_000, 9).unwrap().unwrap());
    assert_eq!(read_bytes(port) - before, (LENGTH + 300_000) as u64);
    // Who gets none has read nothing yet.
    assert!(file.lend(0, LENGTH, 7).unwrap().is_none());
    assert_eq!(read_bytes(port) - before, (LENGTH + 300_000) as u64);
    drop((file, client));
    site.end();
}

/// Cuts all connections that this process has to a server.
fn cut(socket: &Path) {
    let ours = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let number = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let Ok(fd) = pidfd_getfd(&ours, number, PidfdGetfdFlags::empty()) else { continue };
        let stream = UnixStream::from(fd);
        if stream.peer_addr().is_ok_and(|peer| peer.as_pathname() == Some(socket)) {
            stream.shutdown(Shutdown::Both).unwrap();
        }
    }
}

/// The session is over, and the next question has no answer, since the file has gone with it: what was to be told with that is
/// told with the next. Seen red: the server kept it for as long as the client's process lived.
#[test]
fn what_could_not_be_told_is_told_later() {
    let site = Site::new();
    let socket = site.server.as_ref().unwrap().socket();
    let client = Client::connect(Options { lanes_max: 1, ..site.options("tank") }).unwrap();
    let file = once_leased(&site, &client);
    client.unlink(&ROOT, b"/file").unwrap();
    let start = now();
    while file.stat().is_ok() {
        assert!(start.elapsed() < Duration::from_secs(20), "the session goes on");
        cut(&socket);
        // It is joined anew if that has not been seen yet.
        sleep(Duration::from_millis(50));
    }
    assert!(file.lend(0, LENGTH, 9).is_err());
    assert_eq!(leased_bytes(&site), LENGTH as u64);
    let other = client.open(&ROOT, b"/other", NEW, 0o644).unwrap();
    assert!(other.lend(0, 1, 1).unwrap().is_none());
    assert_eq!(leased_bytes(&site), 0);
    drop((file, other, client));
    site.end();
}
