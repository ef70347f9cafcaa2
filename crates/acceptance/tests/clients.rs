//! Files of a served pool through the client library: right, for whom they are, and there when the server comes back.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use acceptance::engine::Session;
use acceptance::{Server, Stage, assert_verified, thumper};
use client::{Client, Open, Options, Subject};
use format::acl::{self, Ace, AceMask};
use format::label::DATA_AT;
use format::scan::Bookmark;
use format::znode::Pflags;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rt::sync::{Arc, Mutex};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{Uid, set_thread_uid};
use testkit::random::Rng;
use testkit::{Images, Ran, TempDir, fresh_images, temp_dir, tool};
use wire::pipe::{Lender, pipe};
use wire::trays::Trays;
use wire::{Answer, Entry, FILES, HEADER, Head, Hello, Inbox, MAGIC, Reply, Request, Stat, Way};

const ROOT: Subject = Subject::ROOT;
const READ: Open = Open::READ;
const CAPABILITIES: &[u8] = b"security.capability";
const NEW: Open = Open { write: true, create: true, new: true, ..READ };

/// A served pool: `tank`, and `tank/a`, `tank/b` for two organisations.
struct Site {
    images: Images,
    aside: TempDir,
    server: Option<Server>,
}

impl Site {
    fn new() -> Site {
        Site::with(&[])
    }

    /// With these words for the server.
    fn with(words: &[&str]) -> Site {
        let (images, aside) = (fresh_images(5, 128 << 20), temp_dir());
        let server = Some(Server::start_with(&aside.path().join("pools"), words));
        let site = Site { images, aside, server };
        let disks = site.images.disks();
        let mut words = vec!["zpool", "create", "tank", "raidz2"];
        words.extend(disks.iter().map(|disk| disk.to_str().unwrap()));
        site.run(&words);
        site.run(&["zfs", "create", "tank/a"]);
        site.run(&["zfs", "create", "tank/b"]);
        site
    }

    fn state(&self) -> PathBuf {
        self.aside.path().join("pools")
    }

    fn run(&self, words: &[&str]) {
        drop(Ran::of(thumper(&self.state()).args(words)).expect_ok());
    }

    fn client(&self, tree: &str) -> Arc<Client> {
        Client::connect(self.options(tree)).unwrap()
    }

    fn options(&self, tree: &str) -> Options {
        Options::new(self.server.as_ref().unwrap().socket(), tree)
    }

    fn restart(&mut self) {
        self.server.take().unwrap().kill();
        self.server = Some(Server::start(&self.state()));
    }

    fn restart_in_order(&mut self) {
        drop(self.server.take().unwrap().stop());
        self.server = Some(Server::start(&self.state()));
    }

    fn end(mut self) {
        drop(self.server.take().unwrap().stop());
        tool::zdb_content(self.images.path(), "tank");
        assert_verified(self.images.path(), "tank");
    }
}

fn noise(seed: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    Rng::of(seed, 3).fill(&mut bytes);
    bytes
}

fn who(uid: u32) -> Subject {
    Subject { uid, gid: uid, groups: Vec::new() }
}

fn errno<T>(result: client::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.errno)
}

/// Names and sizes of a directory.
fn names(client: &Client, path: &[u8]) -> BTreeMap<String, u64> {
    let (mut out, mut from) = (BTreeMap::new(), 0);
    loop {
        let (entries, next) = client.list(&ROOT, path, from).unwrap();
        for entry in entries {
            let name = String::from_utf8(entry.name).unwrap();
            assert!(out.insert(name, entry.stat.size).is_none());
        }
        match next {
            Some(next) => from = next,
            None => return out,
        }
    }
}

/// Does it as this user, with the server's permission or without.
fn as_user<T: Send + 'static>(user: u32, act: impl FnOnce() -> T + Send + 'static) -> T {
    let as_him = move || {
        // The thread's alone, and for good.
        set_thread_uid(Uid::from_raw(user)).unwrap();
        act()
    };
    rt::thread::spawn("somebody", as_him).join()
}

/// A connection that greets, as one of `session` or of a new one.
fn greeting(socket: &Path, session: Option<[u8; 16]>) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    let hello = Hello { tree: "tank".into(), session, beside: false };
    stream.write_all(&wire::greeting(&hello).unwrap()).unwrap();
    stream
}

/// The same, and what it was told.
fn greeted(socket: &Path, session: Option<[u8; 16]>) -> (UnixStream, Answer) {
    let mut stream = greeting(socket, session);
    let mut head = [0; HEADER];
    stream.read_exact(&mut head).unwrap();
    let mut part = vec![0; Head::read(head).unwrap().part];
    stream.read_exact(&mut part).unwrap();
    (stream, wire::decode(&part).unwrap())
}

#[test]
fn nobody_moves_files_but_who_was_named() {
    let site = Site::with(&["-u", "1001,1002"]);
    // The socket can be reached by anybody.
    std::fs::set_permissions(site.aside.path(), Permissions::from_mode(0o777)).unwrap();
    let connected_as = |user| {
        let options = site.options("tank");
        as_user(user, || Client::connect(options))
    };
    for user in [1003, 65534] {
        let refused = connected_as(user).err().unwrap();
        let why = format!("the server has no files for user {user}");
        assert_eq!((refused.errno, refused.text), (1, why));
    }
    for user in [0, 1001, 1002] {
        drop(connected_as(user).unwrap());
    }
    // Nor does one that was named go on with what is another's, should he come to know its number.
    let greeted_as = |user, session| {
        let socket = site.options("tank").socket;
        as_user(user, move || greeted(&socket, session))
    };
    let (_stays, welcome) = greeted_as(1001, None);
    let Ok(Reply::Welcome(number)) = welcome else { panic!("{welcome:?}") };
    for (user, goes) in [(1001, true), (1002, false), (0, false), (1003, false)] {
        let (_, answer) = greeted_as(user, Some(number));
        assert_eq!(answer.is_ok(), goes, "{user}: {answer:?}");
    }
}

/// So many of each kind may be there before they have said what they want, and so many connections of clients. Who is one too many
/// is told so, and gets a place once another has gone.
#[test]
fn places_are_counted() {
    let site = Site::with(&["-u", "1001"]);
    std::fs::set_permissions(site.aside.path(), Permissions::from_mode(0o777)).unwrap();
    let socket = site.options("tank").socket;
    // What is said to somebody until he is alone.
    let heard = |mut stream: UnixStream| {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = Vec::new();
        match stream.read_to_end(&mut bytes) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
            _ => bytes,
        }
    };
    for (user, most, of) in [(0, 64, "commands"), (1001, 64, "greetings"), (1003, 8, "strangers")] {
        let socket = socket.clone();
        let told = as_user(user, move || {
            let connect = |_| UnixStream::connect(&socket).unwrap();
            let _silent: Vec<_> = (0..most).map(connect).collect();
            heard(connect(most))
        });
        let why = format!("the server is busy with {most} {of}; try again later");
        assert!(told.ends_with(why.as_bytes()), "{of}: {}", told.escape_ascii());
    }
    const SESSIONS: usize = 256;
    const LANES: usize = 1024;
    let all = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: all, maximum: all }).unwrap();
    let mut lanes: Vec<_> = (0..SESSIONS).map(|_| greeted(&socket, None)).collect();
    let Ok(Reply::Welcome(number)) = lanes[0].1 else { panic!("{:?}", lanes[0].1) };
    let (stream, one_more) = greeted(&socket, None);
    assert_eq!(one_more.unwrap_err().text, "the server has 256 clients; try again later");
    assert_eq!(heard(stream), b"");
    lanes.extend((SESSIONS..LANES).map(|_| greeted(&socket, Some(number))));
    assert!(lanes.iter().all(|(_, answer)| answer.is_ok()));
    assert_eq!(heard(greeting(&socket, Some(number))), b"");
    lanes.truncate(SESSIONS / 2);
    let start = rt::time::now();
    while Client::connect(site.options("tank")).is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "their places are not free");
    }
    drop(lanes);
    site.end();
}

#[test]
fn files_are_made_read_changed_and_gone() {
    let site = Site::new();
    let client = site.client("tank");
    let bytes = noise(1, 3_456_789);
    let file = client.open(&ROOT, b"/dir/sub/file", Open { parents: true, ..NEW }, 0o640).unwrap();
    // In any order.
    let mut pieces: Vec<_> = bytes.chunks(70_001).enumerate().collect();
    pieces.reverse();
    for (number, piece) in pieces {
        file.write(number as u64 * 70_001, piece).unwrap();
    }
    let mut back = vec![0; bytes.len() + 1000];
    assert_eq!(file.read(0, &mut back).unwrap(), bytes.len());
    assert!(back[..bytes.len()] == bytes);
    let wanted = [(5u64, 10u32), (1_000_000, 500_000), (7, 0), (3_456_780, 9), (100, 1_200_000)];
    let mut all = vec![0; wanted.iter().map(|(_, len)| *len as usize).sum()];
    file.read_all(&wanted, &mut all).unwrap();
    let expected: Vec<u8> = wanted
        .iter()
        .flat_map(|(at, len)| &bytes[*at as usize..][..*len as usize])
        .copied()
        .collect();
    assert!(all == expected);
    assert_eq!(errno(file.read_all(&[(0, 1), (3_456_780, 10)], &mut [0; 11])), 29);
    file.truncate(1000).unwrap();
    assert_eq!(file.stat().unwrap().size, 1000);
    file.close(true).unwrap();

    assert_eq!(errno(client.open(&ROOT, b"/dir/sub/file", NEW, 0o640)), 17);
    let stat = client.stat(&ROOT, b"/dir/sub/file", true).unwrap();
    assert_eq!((stat.size, stat.mode, stat.links), (1000, 0o100_640, 1));
    client.mkdir(&ROOT, b"/x/y", 0o755, true).unwrap();
    assert_eq!(errno(client.mkdir(&ROOT, b"/x/y", 0o755, false)), 17);
    client.rename(&ROOT, b"/dir/sub/file", b"/x/y/moved").unwrap();
    assert_eq!(errno(client.rename(&ROOT, b"/x/y/moved", b"/a/moved")), 18, "another file system");
    assert_eq!(errno(client.rmdir(&ROOT, b"/x/y")), 39);
    client.chmod(&ROOT, b"/x/y/moved", 0o600).unwrap();
    client.set_times(&ROOT, b"/x/y/moved", Some((1, 2)), Some((-3, 4))).unwrap();
    let stat = client.stat(&ROOT, b"/x/y/moved", true).unwrap();
    assert_eq!((stat.mode, stat.atime, stat.mtime), (0o100_600, (1, 2), (-3, 4)));
    client.set_xattr(&ROOT, b"/x/y/moved", b"user.one", Some(b"1")).unwrap();
    assert_eq!(client.xattr(&ROOT, b"/x/y/moved", b"user.one").unwrap(), b"1");
    assert_eq!(client.xattrs(&ROOT, b"/x/y/moved").unwrap(), [b"user.one"]);
    client.set_xattr(&ROOT, b"/x/y/moved", b"user.one", None).unwrap();
    assert_eq!(errno(client.xattr(&ROOT, b"/x/y/moved", b"user.one")), 61);

    for i in 0..1000 {
        let name = format!("/x/many-{i}");
        client.open(&ROOT, name.as_bytes(), NEW, 0o644).unwrap().write(0, &vec![1; i]).unwrap();
    }
    let seen = names(&client, b"/x");
    assert_eq!(seen.len(), 1001);
    assert!((0..1000).all(|i| seen[&format!("many-{i}")] == i));
    // File systems are directories of the tree.
    let top: Vec<_> = names(&client, b"/").into_keys().collect();
    assert_eq!(top, ["a", "b", "dir", "x"]);
    assert_eq!(errno(client.rmdir(&ROOT, b"/a")), 1);

    // What has lost its name can still be used.
    let file = client.open(&ROOT, b"/x/many-7", Open { write: true, ..READ }, 0).unwrap();
    client.unlink(&ROOT, b"/x/many-7").unwrap();
    file.write(7, b"more").unwrap();
    let mut back = [0; 20];
    assert_eq!(file.read(0, &mut back).unwrap(), 11);
    assert_eq!(&back[..11], b"\x01\x01\x01\x01\x01\x01\x01more");
    drop(file);
    let space = client.space(b"/x").unwrap();
    assert!(
        space.used > 1 << 16 && space.free > 100 << 20 && space.total == space.used + space.free
    );
    drop(client);
    site.end();
}

#[test]
fn nobody_leaves_his_tree() {
    let site = Site::new();
    let all = site.client("tank");
    all.open(&ROOT, b"/secret", NEW, 0o644).unwrap().write(0, b"secret").unwrap();
    let inner = site.client("tank/a");
    inner.mkdir(&ROOT, b"/dir", 0o755, false).unwrap();
    for path in ["/../secret", "..", "/dir/../../secret", "dir/..", "/a\0b"] {
        assert_eq!(errno(inner.stat(&ROOT, path.as_bytes(), true)), 22, "{path:?}");
        assert_eq!(errno(inner.open(&ROOT, path.as_bytes(), NEW, 0o644)), 22, "{path:?}");
    }
    // Links that were put there by other means: through a mount, or the kernel.
    let links = [
        ("up", "../secret", 13),
        ("far", "dir/../../secret", 13),
        ("host", "/etc/passwd", 13),
        ("loop", "loop", 40),
        ("gone", "dir/nothing", 2),
        ("dot", "dir/./../dir", 0),
    ];
    let from = site.aside.path().join("links");
    std::fs::create_dir(&from).unwrap();
    for (name, target, _) in links {
        std::os::unix::fs::symlink(target, from.join(name)).unwrap();
    }
    site.run(&["put", "-r", from.to_str().unwrap(), "tank/a:/"]);
    for (name, _, expected) in links {
        // What is in a link is a matter of the directory that it is in.
        let target = format!("/links/{name}");
        let moved = format!("/{name}");
        inner.rename(&ROOT, target.as_bytes(), moved.as_bytes()).unwrap();
        assert_eq!(errno(inner.stat(&ROOT, moved.as_bytes(), true)), expected, "{name}");
        assert_eq!(inner.stat(&ROOT, moved.as_bytes(), false).unwrap().mode >> 12, 0o12);
    }
    assert_eq!(errno(inner.stat(&ROOT, &[b'x'; 300], true)), 2);
    assert_eq!(errno(inner.open(&ROOT, &[b'x'; 300], NEW, 0)), 36);
    assert_eq!(errno(inner.stat(&ROOT, &b"/x".repeat(3000), true)), 36);
    assert_eq!(errno(Client::connect(site.options("tank/none"))), 2);
    assert_eq!(errno(Client::connect(site.options("other"))), 6);
    drop((all, inner));
    site.end();
}

/// Two organisations in one pool: neither reads nor overfills the other.
#[test]
fn each_has_his_own() {
    let site = Site::new();
    let client = site.client("tank");
    for (fs, uid) in [("a", 1001), ("b", 1002)] {
        let dir = format!("/{fs}/own");
        client.mkdir(&ROOT, dir.as_bytes(), 0o700, false).unwrap();
        site.run(&["zfs", "set", "refquota=20M", &format!("tank/{fs}")]);
        // Handed over as its owner's.
        let of_root = client.stat(&ROOT, dir.as_bytes(), true).unwrap();
        assert_eq!((of_root.uid, of_root.mode), (0, 0o040_700));
        assert_eq!(errno(client.stat(&who(uid), format!("{dir}/x").as_bytes(), true)), 13);
        client.rmdir(&ROOT, dir.as_bytes()).unwrap();
        client.chmod(&ROOT, format!("/{fs}").as_bytes(), 0o1777).unwrap();
        client.mkdir(&who(uid), dir.as_bytes(), 0o700, false).unwrap();
        let file = format!("{dir}/file");
        let file = client.open(&who(uid), file.as_bytes(), NEW, 0o644).unwrap();
        file.write(0, &noise(uid.into(), 1 << 20)).unwrap();
        let stat = file.stat().unwrap();
        assert_eq!((stat.uid, stat.gid), (uid, uid));
    }
    let other = b"/a/own/file";
    assert_eq!(errno(client.open(&who(1002), other, READ, 0)), 13);
    assert_eq!(errno(client.stat(&who(1002), other, true)), 13);
    assert_eq!(errno(client.unlink(&who(1002), other)), 13);
    assert_eq!(errno(client.list(&who(1002), b"/a/own", 0)), 13);
    assert_eq!(errno(client.rename(&who(1002), b"/a/own", b"/a/stolen")), 13, "it is sticky");
    assert_eq!(errno(client.chmod(&who(1002), b"/a/own", 0o777)), 1);
    assert_eq!(errno(client.truncate(&who(1002), other, 0)), 13);
    // One fills his file system; the other does not notice.
    let full = client.open(&who(1001), b"/a/own/full", NEW, 0o644).unwrap();
    let filled = (0..64).map(|i| full.write(i << 20, &noise(i, 1 << 20))).find(Result::is_err);
    assert_eq!(errno(filled.unwrap()), 122);
    let file = client.open(&who(1002), b"/b/own/more", NEW, 0o644).unwrap();
    file.write(0, &noise(9, 5 << 20)).unwrap();
    file.close(true).unwrap();
    drop((full, client));
    site.end();
}

/// Each thing that somebody asks for is refused by itself, where no directory on the way refuses him before.
#[test]
fn each_thing_is_asked_about() {
    let site = Site::new();
    let client = site.client("tank");
    let (his, other) = (who(1001), who(1002));
    client.chmod(&ROOT, b"/", 0o1777).unwrap();
    let make = |path: &[u8], mode| {
        client.put(&his, path, NEW, mode, b"his own", true).unwrap();
    };
    client.mkdir(&his, b"/open", 0o755, false).unwrap();
    make(b"/open/secret", 0o600);
    make(b"/open/read", 0o644);
    make(b"/open/blind", 0o622);
    client.set_xattr(&his, b"/open/secret", b"user.x", Some(b"1")).unwrap();
    // In a directory that is not for him to write.
    assert_eq!(errno(client.open(&other, b"/open/new", NEW, 0o644)), 13);
    assert_eq!(errno(client.put(&other, b"/open/new", NEW, 0o644, b"x", false)), 13);
    assert_eq!(errno(client.mkdir(&other, b"/open/new", 0o755, false)), 13);
    assert_eq!(errno(client.unlink(&other, b"/open/secret")), 13);
    client.put(&other, b"/his", NEW, 0o644, b"x", false).unwrap();
    assert_eq!(errno(client.rename(&other, b"/his", b"/open/new")), 13);
    assert_eq!(errno(client.rename(&other, b"/his", b"/open/read")), 13);
    assert_eq!(errno(client.rename(&other, b"/open/read", b"/taken")), 13);
    // Where all may write, and each keeps what is his.
    make(b"/kept", 0o666);
    assert_eq!(errno(client.rename(&other, b"/his", b"/kept")), 13);
    assert_eq!(errno(client.unlink(&other, b"/kept")), 13);
    // A file that is not for him.
    let secret = b"/open/secret";
    assert_eq!(errno(client.open(&other, secret, READ, 0)), 13);
    assert_eq!(errno(client.get(&other, secret, &mut [0; 9])), 13);
    assert_eq!(errno(client.truncate(&other, secret, 0)), 13);
    assert_eq!(errno(client.xattr(&other, secret, b"user.x")), 13);
    assert_eq!(errno(client.xattrs(&other, secret)), 13);
    assert_eq!(errno(client.set_xattr(&other, secret, b"user.x", None)), 13);
    assert_eq!(errno(client.chmod(&other, b"/kept", 0o777)), 1);
    assert_eq!(errno(client.set_times(&other, b"/kept", None, Some((1, 0)))), 1);
    // Attributes that are the system's.
    for name in [&b"trusted.x"[..], b"security.capability", b"system.posix_acl_access"] {
        assert_eq!(errno(client.set_xattr(&his, secret, name, Some(b"x"))), 1);
    }
    // What is in a directory that he may not go through he does not learn.
    client.mkdir(&his, b"/closed", 0o766, false).unwrap();
    make(b"/closed/there", 0o666);
    for path in [&b"/closed/there"[..], b"/closed/not"] {
        assert_eq!(errno(client.stat(&other, path, true)), 13);
        assert_eq!(errno(client.mkdir(&other, path, 0o755, false)), 13);
        assert_eq!(errno(client.unlink(&other, path)), 13);
        assert_eq!(errno(client.rename(&other, path, b"/taken")), 13);
    }
    // What he has open to be read he does not write, whatever he asks of it, and the other way round.
    let open = client.open(&other, b"/open/read", READ, 0).unwrap();
    assert_eq!(errno(open.write(0, b"x")), 9);
    assert_eq!(errno(open.write_stable(0, b"x")), 9);
    assert_eq!(errno(open.truncate(0)), 9);
    let write = Open { write: true, ..Open::default() };
    let blind = client.open(&other, b"/open/blind", write, 0).unwrap();
    assert_eq!(errno(blind.read(0, &mut [0; 9])), 9);
    for path in [&secret[..], b"/open/read", b"/open/blind", b"/kept", b"/closed/there"] {
        let mut bytes = [0; 9];
        let (count, stat) = client.get(&ROOT, path, &mut bytes).unwrap();
        assert_eq!((&bytes[..count], stat.uid), (&b"his own"[..], 1001), "{}", path.escape_ascii());
    }
    drop((open, blind, client));
    site.end();
}

/// What a local file system does with set-id bits, and with directories whose group all in them have.
#[test]
fn groups_are_handed_down_and_programs_that_are_written_to_are_harmless() {
    let site = Site::new();
    let client = site.client("tank");
    let (root, of_group) = (&ROOT, Subject { gid: 70, groups: vec![80], ..who(1001) });
    let mode = |path: &str| {
        let stat = client.stat(root, path.as_bytes(), true).unwrap();
        format!("{} {:o}", stat.gid, stat.mode & 0o7777)
    };
    client.mkdir(&of_group, b"/a/shared", 0o777, false).unwrap_err();
    client.chmod(root, b"/a", 0o777).unwrap();
    client.mkdir(&of_group, b"/a/shared", 0o2777, false).unwrap();
    client.mkdir(&who(1002), b"/a/shared/dir", 0o755, false).unwrap();
    client.open(&who(1002), b"/a/shared/file", NEW, 0o2755).unwrap();
    client.open(&of_group, b"/a/shared/program", NEW, 0o6775).unwrap().write(0, b"x").unwrap();
    let made = ["/a/shared", "/a/shared/dir", "/a/shared/file", "/a/shared/program"].map(mode);
    assert_eq!(made, ["70 2777", "70 2755", "70 755", "70 775"]);
    client.chmod(&who(1002), b"/a/shared/file", 0o2755).unwrap();
    assert_eq!(mode("/a/shared/file"), "70 755", "of a group that he is not in");
    let program = client.open(root, b"/a/program", NEW, 0).unwrap();
    let held = {
        client.chmod(root, b"/a/program", 0o666).unwrap();
        client.open(&of_group, b"/a/program", Open { write: true, ..READ }, 0).unwrap()
    };
    let path = b"/a/program";
    let anew = Open { write: true, truncate: true, ..READ };
    let by_user: [&dyn Fn() -> client::Result<()>; 4] = [
        &|| held.write(0, b"other bytes"),
        &|| held.truncate(3),
        &|| client.truncate(&of_group, path, 2),
        &|| client.open(&of_group, path, anew, 0).map(drop),
    ];
    for (number, change) in by_user.iter().enumerate() {
        client.chmod(root, b"/a/program", 0o6777).unwrap();
        client.set_xattr(root, path, CAPABILITIES, Some(b"\x01\0\0\x02")).unwrap();
        program.write(0, b"root may").unwrap();
        assert_eq!(mode("/a/program"), "0 6777", "{number}");
        assert_eq!(errno(client.xattr(root, path, CAPABILITIES)), 0);
        change().unwrap();
        assert_eq!(mode("/a/program"), "0 777", "{number}");
        assert_eq!(errno(client.xattr(root, path, CAPABILITIES)), 61, "{number}");
    }
    // What only root may see.
    client.set_xattr(root, path, b"trusted.secret", Some(b"x")).unwrap();
    assert_eq!(client.xattr(root, path, b"trusted.secret").unwrap(), b"x");
    assert_eq!(client.xattrs(root, path).unwrap(), [b"trusted.secret"]);
    assert_eq!(errno(client.xattr(&of_group, path, b"trusted.secret")), 61);
    assert!(client.xattrs(&of_group, path).unwrap().is_empty());
    // What is above a directory is in it: who may not write there does not move it elsewhere.
    client.mkdir(&who(1002), b"/a/theirs", 0o755, false).unwrap();
    client.mkdir(&of_group, b"/a/into", 0o755, false).unwrap();
    assert_eq!(errno(client.rename(&of_group, b"/a/theirs", b"/a/into/x")), 13);
    client.rename(&of_group, b"/a/theirs", b"/a/renamed").unwrap();
    client.chmod(root, b"/a/renamed", 0o777).unwrap();
    client.rename(&of_group, b"/a/renamed", b"/a/into/x").unwrap();
    drop((program, held, client));
    site.end();
}

/// Names lead to what is there: a directory that is to be there is one, and what is replaced again and again is never
/// gone or stale.
#[test]
fn names_that_others_change_lead_somewhere() {
    let site = Site::new();
    let client = site.client("tank");
    let write = |path: &str, bytes: &[u8]| {
        let how = Open { write: true, create: true, ..READ };
        let file = client.open(&ROOT, path.as_bytes(), how, 0o644).unwrap();
        file.write(0, bytes).unwrap();
        file
    };
    let file = write("/file", b"1");
    // What is too long to be asked for is no trouble for who asks for something else: the session goes on.
    let nameless = write("/nameless", b"still there");
    client.unlink(&ROOT, b"/nameless").unwrap();
    assert_eq!(errno(client.stat(&ROOT, &vec![b'x'; 1 << 20], true)), 7);
    assert_eq!(nameless.read(0, &mut [0; 20]).unwrap(), 11);
    drop(nameless);
    assert!(file.stat().unwrap().allocated >= 512, "not one hole");
    for path in ["/file", "/file/x"] {
        let refused = errno(client.mkdir(&ROOT, path.as_bytes(), 0o755, true));
        assert!([17, 20].contains(&refused), "{path}: {refused}");
    }
    client.mkdir(&ROOT, b"/busy", 0o755, true).unwrap();
    // A list of them takes so long that something is renamed in the middle of it.
    (0..200).for_each(|i| drop(write(&format!("/busy/{i}"), b"")));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..testkit::rounds(2000, 10_000) {
                drop(write("/busy/new", i.to_string().as_bytes()));
                client.rename(&ROOT, b"/busy/new", b"/busy/file").unwrap();
            }
            done.store(true, Ordering::Release);
        });
        while client.stat(&ROOT, b"/busy/file", true).is_err() {}
        let mut looks = 0;
        while !done.load(Ordering::Acquire) {
            client.stat(&ROOT, b"/busy/file", true).unwrap();
            drop(client.open(&ROOT, b"/busy/file", READ, 0).unwrap());
            client.chmod(&ROOT, b"/busy/file", 0o644).unwrap();
            assert!(names(&client, b"/busy").contains_key("file"));
            looks += 1;
        }
        assert!(looks > 2, "{looks}");
    });
    drop((file, client));
    site.end();
}

/// What was written into a file system that was taken back or destroyed since is not stable, and nobody is told so.
#[test]
fn what_was_rolled_back_was_not_kept() {
    let site = Site::new();
    let client = site.client("tank");
    site.run(&["zfs", "snapshot", "tank/a@then"]);
    for command in
        [["zfs", "rollback", "tank/a@then"].as_slice(), &["zfs", "destroy", "-r", "tank/a"]]
    {
        let open = |name: &[u8]| client.open(&ROOT, name, NEW, 0o644).unwrap();
        let files = [open(b"/a/one"), open(b"/a/two"), open(b"/a/three")];
        for file in &files {
            file.write(0, &noise(7, 300_000)).unwrap();
        }
        files[2].sync().unwrap();
        site.run(command);
        let [synced, closed, written] = files;
        assert_eq!(errno(synced.sync()), 116, "{command:?}");
        assert_eq!(errno(closed.close(true)), 116, "{command:?}");
        assert_eq!(errno(written.write(0, b"more")), 116, "{command:?}");
        drop(written);
        assert_eq!(errno(client.stat(&ROOT, b"/a/one", true)), 2, "{command:?}");
    }
    drop(client);
    site.end();
}

/// The server dies in the middle of writes: what was synced is there, what was not is known to be in doubt, and
/// readers go on.
#[test]
fn the_server_dies_and_comes_back() {
    let mut site = Site::new();
    let client = site.client("tank");
    let bytes = noise(5, 2 << 20);
    let reader = client.open(&ROOT, b"/read", NEW, 0o644).unwrap();
    reader.write(0, &bytes).unwrap();
    reader.sync().unwrap();
    for round in 0..testkit::rounds(3, 20) {
        let (sure, unsure) = (format!("/sure-{round}"), format!("/unsure-{round}"));
        let kept = client.open(&ROOT, sure.as_bytes(), NEW, 0o644).unwrap();
        kept.write(0, &bytes[..500_000]).unwrap();
        kept.sync().unwrap();
        let lost = client.open(&ROOT, unsure.as_bytes(), NEW, 0o644).unwrap();
        lost.write(0, &bytes[..300_000]).unwrap();
        site.restart();
        let mut back = vec![0; bytes.len()];
        assert_eq!(reader.read(0, &mut back).unwrap(), bytes.len());
        assert!(back == bytes);
        assert_eq!(errno(lost.write(300_000, &bytes)), 5);
        assert_eq!(errno(lost.sync()), 5, "it is not forgotten");
        kept.write(500_000, &bytes[500_000..]).unwrap();
        kept.close(true).unwrap();
        let stat = client.stat(&ROOT, sure.as_bytes(), true).unwrap();
        assert_eq!(stat.size, bytes.len() as u64);
    }
    // Another file under the name is not the one that was open.
    site.run(&["rm", "tank:/read"]);
    let other = site.aside.path().join("other");
    std::fs::write(&other, noise(6, 4 << 20)).unwrap();
    site.run(&["put", other.to_str().unwrap(), "tank:/read"]);
    site.restart();
    for _ in 0..3 {
        assert_eq!(errno(reader.read(0, &mut [0; 10])), 116);
    }
    // Nor does it stay open for that.
    let used = || {
        // It ends with a txg, and so does the next.
        site.run(&["zfs", "set", "org.thumper:mark=on", "tank"]);
        client.space(b"/").unwrap().used
    };
    let before = used();
    client.unlink(&ROOT, b"/read").unwrap();
    assert!((0..50).any(|_| used() + (3 << 20) < before), "{before} {}", used());
    drop((reader, client));
    site.end();
}

/// Files that are put and got as a whole, and bytes that are written with their sync, or with their file's end.
#[test]
fn what_goes_in_one_message_is_what_several_would_do() {
    let mut site = Site::new();
    let client = site.client("tank");
    let put = |who: &Subject, path: &str, how, bytes: &[u8]| {
        client.put(who, path.as_bytes(), how, 0o640, bytes, true)
    };
    let get = |who: &Subject, path: &str, room: usize| {
        let mut buf = vec![0; room];
        let (count, stat) = client.get(who, path.as_bytes(), &mut buf)?;
        buf.truncate(count);
        Ok((buf, stat))
    };
    let any = Open::default();
    let sizes = [0, 1, 4096, 70_000, 1 << 20, (1 << 20) + 1, 3_000_001];
    for size in sizes {
        put(&ROOT, &format!("/of-{size}"), any, &noise(size as u64, size)).unwrap();
    }
    put(&ROOT, "/of-70000", any, b"shorter").unwrap();
    // What open would say, and no byte of what is there is touched.
    assert_eq!(errno(put(&ROOT, "/of-1", Open { new: true, ..any }, b"xyz")), 17);
    assert_eq!(errno(put(&ROOT, "/none/file", any, b"xyz")), 2);
    put(&ROOT, "/none/file", Open { parents: true, ..any }, b"xyz").unwrap();
    assert_eq!(errno(put(&ROOT, "/none", any, b"xyz")), 21);
    assert_eq!(errno(get(&ROOT, "/none", 10)), 21);
    assert_eq!(errno(get(&ROOT, "/nothing", 10)), 2);
    site.run(&["zfs", "set", "refquota=20M", "tank/a"]);
    client.chmod(&ROOT, b"/a", 0o777).unwrap();
    put(&who(1001), "/a/his", any, b"his").unwrap();
    let (bytes, stat) = get(&who(1001), "/a/his", 10).unwrap();
    assert_eq!((&bytes[..], stat.uid, stat.gid, stat.mode), (&b"his"[..], 1001, 1001, 0o100_640));
    assert_eq!(errno(put(&who(1002), "/a/his", any, b"other")), 13);
    assert_eq!(errno(get(&who(1002), "/a/his", 10)), 13);
    assert_eq!(get(&ROOT, "/a/his", 2).unwrap().0, b"hi");
    // Of so many groups that it is more than one message after all.
    let groups = (0..9000).chain([1001]).collect();
    let groups = Subject { groups, ..who(1003) };
    put(&groups, "/a/of-groups", any, b"of groups").unwrap();
    assert_eq!(get(&groups, "/a/his", 10).unwrap().0, b"his");
    let full = (0..40).map(|i| put(&who(1001), &format!("/a/{i}"), any, &noise(i, 1 << 20)));
    assert_eq!(full.map(errno).find(|errno| *errno != 0), Some(122));
    // With its sync, and with its end.
    let log = client.open(&ROOT, b"/log", NEW, 0o644).unwrap();
    let lines = noise(1, 2_500_000);
    log.write_stable(0, &lines[..100]).unwrap();
    log.write(100, &lines[100..200]).unwrap();
    log.write_stable(200, &lines[200..]).unwrap();
    let ended = client.open(&ROOT, b"/ended", NEW, 0o644).unwrap();
    ended.write(0, &lines[..10]).unwrap();
    ended.finish(10, &lines[10..], true).unwrap();
    let doubtful = client.open(&ROOT, b"/doubtful", NEW, 0o644).unwrap();
    doubtful.write_stable(0, &lines[..100]).unwrap();
    doubtful.write(100, &lines[100..200]).unwrap();
    site.restart();
    assert_eq!(errno(doubtful.write(200, b"more")), 5, "what came after the sync may be lost");
    let end = lines.len() as u64;
    log.write_stable(end, b"the end").unwrap();
    assert!(get(&ROOT, "/log", 3 << 20).unwrap().0 == [&lines[..], b"the end"].concat());
    assert!(get(&ROOT, "/ended", 3 << 20).unwrap().0 == lines);
    for size in sizes.into_iter().filter(|size| *size != 70_000) {
        let (bytes, stat) = get(&ROOT, &format!("/of-{size}"), size + 10).unwrap();
        assert!(bytes == noise(size as u64, size) && stat.size == size as u64, "{size}");
    }
    assert_eq!(get(&ROOT, "/of-70000", 100).unwrap().0, b"shorter");
    // Nothing of it stays open: what loses its name is gone.
    let used = || {
        site.run(&["zfs", "set", "org.thumper:mark=on", "tank"]);
        client.space(b"/").unwrap().used
    };
    drop(log);
    let ended = client.open(&ROOT, b"/ended-too", NEW, 0o644).unwrap();
    ended.finish(0, &lines, false).unwrap();
    put(&ROOT, "/put-too", any, &lines[..1 << 20]).unwrap();
    let before = used();
    for path in ["/ended-too", "/put-too"] {
        client.unlink(&ROOT, path.as_bytes()).unwrap();
    }
    assert!((0..50).any(|_| used() + (3 << 20) < before), "{before} {}", used());
    drop((doubtful, client));
    site.end();
}

/// A write that is begun is done before anything else is asked of its file, and on stable storage when that is closed.
#[test]
fn what_is_begun_is_done_before_anything_else() {
    let mut site = Site::new();
    let one_lane = || {
        let lanes_max = 1;
        Client::connect(Options { lanes_max, ..site.options("tank") }).unwrap()
    };
    for (name, client) in [("many", site.client("tank")), ("one", one_lane())] {
        let bytes = noise(3, 64 << 10);
        let open = |i: usize| client.open(&ROOT, format!("/{name}{i}").as_bytes(), NEW, 0o644);
        for i in 0..60 {
            let bytes = &bytes[..1 + i * 1000];
            let file = open(i).unwrap();
            assert!(file.begin(0, bytes, i % 4 != 2).unwrap(), "{i}: few ask");
            // Where there is one connection alone, the next file needs it.
            let next = open(i + 1000).unwrap();
            let mut back = vec![0; bytes.len() + 1];
            match i % 6 {
                0 => assert_eq!(file.stat().unwrap().size, bytes.len() as u64),
                1 => assert!(
                    file.read(0, &mut back).unwrap() == bytes.len() && back.starts_with(bytes)
                ),
                2 => file.truncate(bytes.len() as u64).unwrap(),
                3 => file.write(0, &bytes[..1]).unwrap(),
                4 => file.sync().unwrap(),
                _ => assert!(!file.begin(0, &[], true).unwrap(), "nothing is nothing to begin"),
            }
            if i % 2 == 0 {
                assert!(file.begin(0, bytes, i % 4 != 2).unwrap());
            }
            file.close(true).unwrap();
            // Nobody need close it for that.
            assert!(next.begin(0, bytes, i % 2 == 0).unwrap());
            drop(next);
            assert_eq!(
                client.get(&ROOT, format!("/{name}{}", i + 1000).as_bytes(), &mut back).unwrap().0,
                bytes.len()
            );
        }
    }
    // By several at once, in one file: each is done and counts, whoever is asked first what became of it.
    let (client, bytes) = (site.client("tank"), noise(4, 1 << 20));
    let file = client.open(&ROOT, b"/shared", NEW, 0o644).unwrap();
    let write = |first: usize| {
        for at in (first * 4096..bytes.len()).step_by(4 * 4096) {
            let piece = &bytes[at..at + 4096];
            if !file.begin(at as u64, piece, first.is_multiple_of(2)).unwrap() {
                file.write(at as u64, piece).unwrap();
            }
        }
    };
    let write = &write;
    std::thread::scope(|scope| (0..4).for_each(|first| drop(scope.spawn(move || write(first)))));
    file.close(true).unwrap();
    // Each as likely behind the last one, where two may be under way, as somewhere in it, where the order is all.
    let mut rng = Rng::new(5);
    let (mixed, mut wanted, mut at) =
        (client.open(&ROOT, b"/mixed", NEW, 0o644).unwrap(), vec![], 0);
    for number in 0..400u64 {
        let piece = noise(number, 1 + rng.below(100_000) as usize);
        at = if rng.below(2) == 0 { at } else { rng.below(1 + wanted.len() as u64) as usize };
        assert!(mixed.begin(at as u64, &piece, rng.below(8) == 0).unwrap(), "{number}: few ask");
        wanted.resize(wanted.len().max(at + piece.len()), 0);
        wanted[at..][..piece.len()].copy_from_slice(&piece);
        at += piece.len();
    }
    let mut back = vec![0; wanted.len() + 1];
    assert_eq!(mixed.read(0, &mut back).unwrap(), wanted.len());
    assert!(back.starts_with(&wanted));
    mixed.close(true).unwrap();
    // What cannot be done is told by what comes next, and by the close.
    site.run(&["zfs", "set", "refquota=8M", "tank/a"]);
    let client = site.client("tank");
    let full = client.open(&ROOT, b"/a/full", NEW, 0o644).unwrap();
    while full.write(full.stat().unwrap().size, &noise(1, 1 << 20)).is_ok() {}
    let begins = full.begin(0, &noise(2, 4096), true).unwrap();
    let more = client.open(&ROOT, b"/a/more", NEW, 0o644).unwrap();
    assert!(begins && more.begin(0, &noise(1, 1 << 20), false).unwrap());
    assert_eq!(errno(more.stat().map(drop)), 122);
    assert_eq!(errno(more.sync()), 122);
    assert_eq!(errno(more.close(true)), 122);
    let kept = client.open(&ROOT, b"/kept", NEW, 0o644).unwrap();
    kept.write_stable(0, b"kept").unwrap();
    // Two of them are under way at once, where one follows the other.
    let other = site.client("tank");
    let both = other.open(&ROOT, b"/both", NEW, 0o644).unwrap();
    let begin = |part: u64| assert!(both.begin(part << 16, &noise(part, 1 << 16), false).unwrap());
    (0..2).for_each(begin);
    both.sync().unwrap();
    // By a server that is stopped, and comes to nothing any more.
    let pid = site.server.as_ref().unwrap().pid().to_string();
    drop(Ran::of(Command::new("kill").args(["-STOP", &pid])).expect_ok());
    assert!(kept.begin(4, b" and begun", true).unwrap());
    let at_once = std::thread::scope(|scope| {
        let begun = scope.spawn(|| (2..4).for_each(begin));
        let at_once = (0..200).any(|_| {
            rt::time::sleep(Duration::from_millis(10));
            begun.is_finished()
        });
        site.restart();
        at_once
    });
    assert!(at_once, "the second waited for the first");
    kept.close(true).unwrap();
    both.close(true).unwrap();
    let all = [("many", 60), ("one", 60)];
    let mut back = vec![0; 64 << 10];
    for (name, count) in all {
        for i in 0..count {
            let path = format!("/{name}{i}");
            let got = client.get(&ROOT, path.as_bytes(), &mut back).unwrap().0;
            assert!(got == 1 + i * 1000 && back[..got] == noise(3, 64 << 10)[..got], "{path}");
        }
    }
    let got = client.get(&ROOT, b"/kept", &mut back).unwrap().0;
    assert_eq!(&back[..got], b"kept and begun");
    let mut all = vec![0; 5 << 16];
    assert_eq!(client.get(&ROOT, b"/both", &mut all).unwrap().0, 4 << 16);
    assert!((0..4).all(|part| all[(part as usize) << 16..][..1 << 16] == noise(part, 1 << 16)));
    let mut back = vec![0; 1 << 20];
    assert_eq!(client.get(&ROOT, b"/shared", &mut back).unwrap().0, 1 << 20);
    assert!(back == bytes, "all that was begun is there");
    drop((full, client));
    site.end();
}

/// A server that is stopped in order has put on disk what it had taken: who writes goes on with the next one, and
/// nobody syncs. If one of them dies, what was not synced is in doubt again, for good.
#[test]
fn who_writes_goes_on_when_the_server_is_stopped_in_order() {
    const PIECE: usize = 10_000;
    let mut site = Site::new();
    let client = site.client("tank");
    let bytes = noise(12, 40 << 20);
    let file = client.open(&ROOT, b"/written", NEW, 0o644).unwrap();
    let (written, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for (number, piece) in bytes.chunks(PIECE).enumerate() {
                file.write((number * PIECE) as u64, piece).unwrap();
                written.fetch_add(1, Ordering::Relaxed);
                if enough.load(Ordering::Relaxed) {
                    return;
                }
                rt::time::sleep(Duration::from_micros(500));
            }
        });
        // Who asks by a path is told by the next one, and not that the pool is none of this one's.
        for _ in 0..2 {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    client.stat(&ROOT, b"/written", true).unwrap();
                    drop(client.open(&ROOT, b"/written", READ, 0).unwrap());
                }
            });
        }
        for _ in 0..4 {
            let before = written.load(Ordering::Relaxed);
            while written.load(Ordering::Relaxed) < before + 50 && !writer.is_finished() {
                rt::time::sleep(Duration::from_millis(5));
            }
            site.restart_in_order();
        }
        enough.store(true, Ordering::Relaxed);
    });
    let mut back = vec![0; written.load(Ordering::Relaxed) as usize * PIECE];
    assert_eq!(file.read(0, &mut back).unwrap(), back.len());
    assert!(back == bytes[..back.len()]);
    site.restart();
    assert_eq!(errno(file.write(0, &bytes)), 5);
    site.restart_in_order();
    assert_eq!(errno(file.sync()), 5, "it is not forgotten");
    // For a server that has gone nobody waits to close what is open.
    let open: Vec<_> = (0..5)
        .map(|_| client.open(&ROOT, b"/written", Open { write: true, ..READ }, 0).unwrap())
        .collect();
    site.server.take().unwrap().kill();
    let start = rt::time::now();
    drop((open, file));
    assert!(start.elapsed() < Duration::from_secs(2));
    site.server = Some(Server::start(&site.state()));
    drop(client);
    site.end();
}

/// What lies between a client and its server, as a connection that breaks does.
struct Between {
    socket: PathBuf,
    ways: Arc<Mutex<Vec<[UnixStream; 2]>>>,
    is_full: Arc<AtomicBool>,
    /// Bytes that a client may still send.
    left: Arc<AtomicU64>,
}

impl Between {
    fn new(site: &Site) -> Between {
        let socket = site.aside.path().join("between");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = site.options("tank").socket;
        let (ways, is_full) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let between = Between { socket, ways, is_full, left };
        let (ways, is_full, left) =
            (between.ways.clone(), between.is_full.clone(), between.left.clone());
        drop(rt::thread::spawn("between", move || {
            while let Ok((theirs, _)) = listener.accept() {
                if is_full.load(Ordering::Relaxed) {
                    continue;
                }
                let Ok(ours) = UnixStream::connect(&server) else { continue };
                let ends = || [theirs.try_clone().unwrap(), ours.try_clone().unwrap()];
                ways.lock().push(ends());
                let [from, to] = ends();
                let left = left.clone();
                drop(rt::thread::spawn("there", move || pass(from, to, &left)));
                let back = move || pass(ours, theirs, &AtomicU64::new(u64::MAX));
                drop(rt::thread::spawn("back", back));
            }
        }));
        between
    }

    fn options(&self, lanes_max: usize) -> Options {
        Options { socket: self.socket.clone(), lanes_max, ..Options::new("", "tank") }
    }

    fn cut(&self, way: usize) {
        self.ways.lock()[way].iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }
}

/// Passes on what comes, until it is enough.
fn pass(mut from: UnixStream, mut to: UnixStream, left: &AtomicU64) {
    let mut buf = vec![0; 32 << 10];
    while let Ok(count @ 1..) = from.read(&mut buf) {
        let before = left.load(Ordering::Relaxed);
        if before < count as u64 || to.write_all(&buf[..count]).is_err() {
            break;
        }
        left.fetch_sub(count as u64, Ordering::Relaxed);
    }
    drop((from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both)));
}

/// One connection of several breaks: what is open stays open, though it has no name any more.
#[test]
fn one_connection_that_breaks_is_not_the_end_of_what_is_open() {
    let site = Site::new();
    let between = Between::new(&site);
    let client = Client::connect(between.options(4)).unwrap();
    let file = client.open(&ROOT, b"/nameless", NEW, 0o644).unwrap();
    file.write(0, b"whatever happens").unwrap();
    client.unlink(&ROOT, b"/nameless").unwrap();
    let all_at_once = || {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| client.list(&ROOT, b"/", 0).unwrap());
            }
        });
    };
    while between.ways.lock().len() < 3 {
        all_at_once();
    }
    for way in 0..2 {
        between.cut(way);
        let mut back = [0; 16];
        assert_eq!(file.read(0, &mut back).unwrap(), 16);
        assert_eq!(&back, b"whatever happens");
        file.write(0, b"whatever ").unwrap();
    }
    // Who lets go of a file is heard, too, whichever connection is the next: its digests are kept with the last close.
    for from_last in 1..4 {
        (0..10).for_each(|_| all_at_once());
        let path = format!("/closed-{from_last}");
        let how = Open { digests: true, ..NEW };
        let closed = client.open(&ROOT, path.as_bytes(), how, 0o644).unwrap();
        closed.write(0, b"whatever happens").unwrap();
        let ways = between.ways.lock().len();
        between.cut(ways - from_last);
        drop(closed);
        let kept = client.xattrs(&ROOT, path.as_bytes()).unwrap();
        assert_eq!(kept.len(), 2, "it is still open");
    }
    // Now there is no room for another: those that are there do all of it.
    between.is_full.store(true, Ordering::Relaxed);
    let start = rt::time::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| drop(client.list(&ROOT, b"/", 0).unwrap())));
        }
    });
    assert!(start.elapsed() < Duration::from_secs(8), "nobody waits for a server that is there");
    // Who writes a file, and is cut off in it, is not told that somebody else has made it.
    between.is_full.store(false, Ordering::Relaxed);
    between.left.store(600_000, Ordering::Relaxed);
    let put = client.put(&ROOT, b"/put", NEW, 0o644, &noise(1, 1 << 20), false);
    assert_eq!(errno(put), 5);
    between.left.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(client.stat(&ROOT, b"/put", true).unwrap().size, 0);
    drop((file, client));
    site.end();
}

/// A server that is made up here, and how a client gets to it.
fn made_up<T: Send + 'static>(
    serve: impl FnOnce(&UnixListener) -> T + Send + 'static,
) -> (TempDir, Options, rt::thread::JoinHandle<T>) {
    let aside = temp_dir();
    let socket = aside.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = rt::thread::spawn("server", move || serve(&listener));
    (aside, Options { lanes_max: 1, ..Options::new(&socket, "tank") }, server)
}

/// What such a server has beside a connection, and what of that is the client's.
fn beside() -> (Lender, Trays, [OwnedFd; FILES]) {
    let ((to_us, requests), (answers, from_us)) = (pipe().unwrap(), pipe().unwrap());
    let (trays, shared) = Trays::new().unwrap();
    (answers, trays, [requests.into(), to_us.into(), from_us.into(), shared])
}

/// What such a server does with its next client: greets it, with these files beside; and whether the client
/// has asked for any.
fn welcomed(listener: &UnixListener, files: &[OwnedFd]) -> (UnixStream, bool) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut hello = [0; 12];
    stream.read_exact(&mut hello).unwrap();
    let mut rest = vec![0; usize::from(hello[8])];
    stream.read_exact(&mut rest).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut with = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    if !files.is_empty() {
        with.push(SendAncillaryMessage::ScmRights(&files));
    }
    let welcome = wire::encode(&Answer::Ok(Reply::Welcome([7; 16])), 0, Way::Behind).unwrap();
    sendmsg(&stream, &[IoSlice::new(&welcome)], &mut with, SendFlags::NOSIGNAL).unwrap();
    (stream, rest.last() == Some(&1))
}

fn hear(stream: &mut UnixStream) -> Request {
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
    stream.write_all(&wire::encode(&Answer::Ok(reply), 0, Way::Behind).unwrap()).unwrap();
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
        say(&mut stream, Reply::Opened { handle: 1, stat: Stat::default(), kept_since_ms: 1 });
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
        assert!(matches!(hear(&mut stream), Request::Open { .. }));
        say(&mut stream, Reply::Opened { handle: 7, stat: Stat::default(), kept_since_ms: 1 });
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
            assert!(matches!(hear(&mut stream), Request::Open { .. }));
            say(&mut stream, Reply::Opened { handle: 7, stat: Stat::default(), kept_since_ms: 1 });
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
        assert!(matches!(hear(&mut stream), Request::Open { .. }));
        let (stat, kept_since_ms) = (Stat::default(), 1);
        say(&mut stream, Reply::Opened { handle: 1, stat, kept_since_ms });
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
                assert!(matches!(hear(&mut stream), Request::Open { .. }));
                let (stat, kept_since_ms) = (Stat::default(), 1);
                say(&mut stream, Reply::Opened { handle: 1, stat, kept_since_ms });
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

/// What the server keeps open of data sets is of the present, and in nobody's way.
#[test]
fn data_sets_come_and_go() {
    let site = Site::new();
    let client = site.client("tank");
    let here = |path: &[u8]| errno(client.stat(&ROOT, path, true));
    // What a file takes when it is on disk, which a snapshot waits for.
    let record = |path: &[u8], snapshot: &str| {
        let file = client.open(&ROOT, path, NEW, 0o644).unwrap();
        file.write(0, &noise(1, 600_000)).unwrap();
        site.run(&["zfs", "snapshot", snapshot]);
        file.stat().unwrap().allocated
    };
    for round in 0..3 {
        assert_eq!([here(b"/a"), here(b"/c"), here(b"/a/x")], [0, 2, 2], "{round}");
        site.run(&["zfs", "create", "tank/c"]);
        site.run(&["zfs", "create", "tank/a/x"]);
        assert_eq!([here(b"/c"), here(b"/a/x")], [0; 2], "{round}");
        assert!(names(&client, b"/").contains_key("c"));
        record(b"/c/f", "tank/c@1");
        site.run(&["zfs", "rename", "tank/c", "tank/d"]);
        assert_eq!([here(b"/c"), here(b"/c/f"), here(b"/d/f")], [2, 2, 0], "{round}");
        // Records of 128 KiB leave much of the last one empty, those of 16 KiB little.
        let large = record(b"/d/large", "tank/d@2");
        site.run(&["zfs", "set", "recordsize=16K", "tank/d"]);
        let small = record(b"/d/small", "tank/d@3");
        assert!(small + 32_768 < large, "{small} {large}");
        site.run(&["zfs", "set", "readonly=on", "tank/d"]);
        assert_eq!(errno(client.open(&ROOT, b"/d/no", NEW, 0o644)), 30, "{round}");
        site.run(&["zfs", "destroy", "-r", "tank/d"]);
        site.run(&["zfs", "destroy", "tank/a/x"]);
        assert_eq!([here(b"/d"), here(b"/d/f"), here(b"/a/x")], [2; 3], "{round}");
    }
    site.run(&["zpool", "export", "tank"]);
    // It is no file of which a client is told that it is gone.
    assert_eq!(here(b"/a"), 6);
    site.run(&["zpool", "import", "-d", site.images.path().to_str().unwrap(), "tank"]);
    assert_eq!(here(b"/a"), 0);
    drop(client);
    site.end();
}

/// File systems whose beginning is lost are directories that nobody can enter, and nothing beside them is gone for that.
#[test]
fn what_is_beside_a_damaged_file_system_is_listed() {
    let stage = Stage::new(1, 256 << 20);
    drop(stage.ok("zpool create tank $D/d00"));
    for name in ["a", "headless", "ruined", "z"] {
        drop(stage.ok(&format!("zfs create tank/{name}")));
    }
    std::fs::write(stage.aside("file"), b"beside them").unwrap();
    drop(stage.ok("put file tank:/file"));
    drop(stage.ok("zpool export tank"));
    let mut session = Session::open(stage.images.path(), "tank", "tank").unwrap();
    let pool = session.pool().clone();
    // The block that an object set begins with, and that of its first objects.
    let lost = [("tank/headless", -1), ("tank/ruined", 0)].map(|(name, level)| {
        let objset = pool.dataset(name).unwrap().object;
        let at = Bookmark { objset, object: 0, level, block: 0 };
        pool.store().parts(&pool.pointer_at(at).unwrap().unwrap()).unwrap()
    });
    drop(pool);
    session.close().unwrap();
    let disk = std::fs::File::options().write(true).open(stage.images.disk(0)).unwrap();
    for part in lost.iter().flatten() {
        for copy in part.copies() {
            disk.write_all_at(&noise(2, part.size()), DATA_AT + copy.offset).unwrap();
        }
    }
    let server = Server::start(&stage.aside("pools"));
    // It says that it can only be read.
    drop(stage.run("zpool import -d $D tank").expect_ok());
    let client = Client::connect(Options::new(server.socket(), "tank")).unwrap();
    for subject in [ROOT, who(1000)] {
        let (mut found, next) = client.list(&subject, b"/", 0).unwrap();
        let rest = client.list(&subject, b"/", next.expect("file systems come last")).unwrap();
        assert!(rest.1.is_none());
        found.extend(rest.0);
        let kind = |entry: &Entry| {
            let is_dir = entry.stat.mode & 0o170_000 == 0o040_000;
            format!("{}{}", String::from_utf8_lossy(&entry.name), if is_dir { "/" } else { "" })
        };
        let found: Vec<_> = found.iter().map(kind).collect();
        assert_eq!(found, ["file", "a/", "headless/", "ruined/", "z/"]);
    }
    for path in [&b"/headless"[..], b"/ruined"] {
        assert_eq!(errno(client.stat(&ROOT, path, true)), 5, "{path:?}");
    }
    assert_eq!(errno(client.list(&ROOT, b"/headless", 0)), 5);
    drop((client, server.stop()));
}

/// What somebody was told is written, and that may be lost, nobody goes on with unawares.
#[test]
fn what_a_server_may_have_lost_is_not_gone_on_with() {
    const ON: Open = Open { write: true, unbroken: true, ..READ };
    const ANEW: Open = Open { truncate: true, ..ON };
    let mut site = Site::new();
    let client = site.client("tank");
    let open = |path: &[u8], how| client.open(&ROOT, path, how, 0o644);
    for path in [&b"/old"[..], b"/replayed", b"/emptied", b"/again"] {
        let file = open(path, NEW).unwrap();
        file.write(0, &noise(1, 300_000)).unwrap();
        file.close(true).unwrap();
    }
    let replayed = open(b"/replayed", ON).unwrap();
    replayed.write(0, &noise(3, 1000)).unwrap();
    replayed.sync().unwrap();
    replayed.write(1000, &noise(4, 1000)).unwrap();
    // The log is written from here on. That somebody is about to write is in it each time, not only the first.
    drop(open(b"/again", ON).unwrap());
    let again = open(b"/again", ON).unwrap();
    let stamped = client.stat(&ROOT, b"/again", true).unwrap().ctime;
    let emptied = open(b"/emptied", Open { write: true, truncate: true, ..READ }).unwrap();
    let old = open(b"/old", ANEW).unwrap();
    old.write(0, &noise(2, 100_000)).unwrap();
    site.restart();
    assert_eq!(errno(emptied.write(0, b"x")), 5, "that it was emptied is lost");
    drop((old, replayed, emptied, again));
    assert!(client.stat(&ROOT, b"/again", true).unwrap().ctime >= stamped);
    let left = client.stat(&ROOT, b"/old", true).unwrap().size;
    assert!(left <= 100_000, "what was there is not what was written: {left}");
    for path in [&b"/old"[..], b"/replayed", b"/emptied"] {
        assert_eq!(errno(open(path, ON)), 5);
        assert_eq!(errno(open(path, Open { write: true, ..READ })), 0, "who knows what he does");
        assert_eq!(errno(open(path, READ)), 0);
    }
    open(b"/old", ANEW).unwrap().close(true).unwrap();
    client.chmod(&ROOT, b"/replayed", 0o600).unwrap();
    let new = open(b"/new", NEW).unwrap();
    for path in [&b"/old"[..], b"/replayed", b"/new"] {
        assert_eq!(errno(open(path, ON)), 0);
    }
    drop((new, client));
    site.end();
}

/// What a local file system keeps for owners, and for who may go through a directory.
#[test]
fn what_may_be_written_is_not_owned() {
    let site = Site::new();
    let client = site.client("tank");
    let of_group = Subject { groups: vec![70], ..who(1001) };
    let mode = |path: &[u8]| client.stat(&ROOT, path, true).unwrap().mode & 0o7777;
    // Bits of a directory are its owner's, whoever may write in it.
    client.mkdir(&Subject { gid: 70, ..ROOT }, b"/shared", 0o2775, false).unwrap();
    assert_eq!(errno(client.truncate(&of_group, b"/shared", 0)), 21);
    assert_eq!(mode(b"/shared"), 0o2775);
    // So are attributes of one where names are their owners'.
    client.mkdir(&ROOT, b"/open", 0o1777, false).unwrap();
    let set = |who: &Subject, path: &[u8]| client.set_xattr(who, path, b"user.x", Some(b"1"));
    assert_eq!(errno(set(&who(1001), b"/open")), 1);
    set(&ROOT, b"/open").unwrap();
    set(&of_group, b"/shared").unwrap();
    // Who may read names only is told names only.
    client.mkdir(&ROOT, b"/names", 0o744, false).unwrap();
    client.open(&ROOT, b"/names/file", NEW, 0o644).unwrap().write(0, b"bytes").unwrap();
    let listed = |who: &Subject| client.list(who, b"/names", 0).unwrap().0.remove(0);
    assert_eq!(errno(client.stat(&who(1001), b"/names/file", true)), 13);
    assert_eq!(listed(&ROOT).stat.size, 5);
    let Stat { size, uid, mode, mtime, .. } = listed(&who(1001)).stat;
    assert_eq!((size, uid, mode, mtime), (0, 0, 0o100_000, (0, 0)));
    drop(client);
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

#[test]
fn names_that_nobody_could_use_are_refused() {
    let site = Site::new();
    let client = site.client("tank");
    // Through a mount it would be hidden behind the way to the snapshots.
    client.mkdir(&ROOT, b"/dir/.zfs", 0o755, true).unwrap();
    for fs in ["", "/a"] {
        let at = |name: &str| format!("{fs}/{name}").into_bytes();
        client.mkdir(&ROOT, &at("d"), 0o755, false).unwrap();
        assert_eq!(errno(client.mkdir(&ROOT, &at(".zfs"), 0o755, false)), 17);
        assert_eq!(errno(client.open(&ROOT, &at(".zfs"), NEW, 0o644)), 17);
        assert_eq!(errno(client.rename(&ROOT, &at("d"), &at(".zfs"))), 17);
    }
    let path = b"/dir";
    let long = [&b"user."[..], &[b'x'; 251]].concat();
    // One that is large stands in a directory of its own, one that is small in a list.
    let large = [7; 40_000];
    for (name, value, expected) in [
        (&long[..], &large[..], 34),
        (&long, b"small", 34),
        (b"", b"small", 22),
        (b"user.a\0b", b"small", 22),
        (b"user.a\0b", &large, 22),
        (&long[..255], &large, 0),
    ] {
        let set = client.set_xattr(&ROOT, path, name, Some(value));
        assert_eq!(errno(set), expected, "{}", name.escape_ascii());
    }
    assert_eq!(client.xattrs(&ROOT, path).unwrap(), [&long[..255]]);
    drop(client);
    site.end();
}

/// A pool from elsewhere has lists of who may do what, which mean nothing here and stay.
#[test]
fn who_opens_a_file_to_change_it_leaves_its_list() {
    let mut site = Site::new();
    let client = site.client("tank");
    client.open(&ROOT, b"/file", NEW, 0o640).unwrap().close(true).unwrap();
    drop(client);
    drop(site.server.take().unwrap().stop());
    let open = || Session::open(site.images.path(), "tank", "tank").unwrap();
    let mut session = open();
    let number = session.filesystem().resolve(b"/file").unwrap();
    let mut list = Vec::new();
    let give = |attrs: &mut fs::Attrs| {
        let count = attrs.acl_count.unwrap();
        let mut aces = acl::decode(attrs.aces.as_ref().unwrap(), count).unwrap();
        let (kind, flags, mask) = (acl::ALLOW, 0, AceMask::READ);
        aces.insert(0, Ace { kind, flags, mask, fuid: Some(1001), objects: None });
        list = acl::encode(&aces).unwrap();
        (attrs.acl_count, attrs.aces) = (Some(count + 1), Some(list.clone()));
        attrs.flags &= !Pflags::ACL_TRIVIAL;
    };
    session.filesystem().change_attrs(number, give).unwrap();
    session.close().unwrap();
    site.server = Some(Server::start(&site.state()));
    let client = site.client("tank");
    // It was changed before the pool was opened.
    client.set_times(&ROOT, b"/file", Some((1, 2)), None).unwrap();
    let on = Open { write: true, unbroken: true, ..READ };
    // The second time it is in the log.
    for _ in 0..2 {
        let before = client.stat(&ROOT, b"/file", true).unwrap();
        let now = *client.open(&ROOT, b"/file", on, 0).unwrap().opened();
        assert!(now.ctime > before.ctime && now.atime == before.atime);
    }
    site.restart();
    assert_eq!(client.stat(&ROOT, b"/file", true).unwrap().atime, (1, 2));
    drop(client);
    drop(site.server.take().unwrap().stop());
    let mut session = Session::open(site.images.path(), "tank", "tank").unwrap();
    assert!(session.filesystem().attrs(number).unwrap().aces == Some(list));
    session.close().unwrap();
}
