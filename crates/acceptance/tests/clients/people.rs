//! Who may do what, and what is whose.

use std::fs::Permissions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use acceptance::Server;
use acceptance::engine::Session;
use client::{Client, Open, Subject};
use format::acl::{self, Ace, AceMask};
use format::znode::Pflags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{Uid, set_thread_uid};
use testkit::noise;
use wire::{Reply, Stat};

use crate::{CAPABILITIES, NEW, READ, ROOT, Site, errno, greeted, greeting, who};

/// Does it as this user, with the server's permission or without.
fn as_user<T: Send + 'static>(user: u32, act: impl FnOnce() -> T + Send + 'static) -> T {
    let as_him = move || {
        // The thread's alone, and for good.
        set_thread_uid(Uid::from_raw(user)).unwrap();
        act()
    };
    rt::thread::spawn("somebody", as_him).join()
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
    assert_eq!(errno(inner.stat(&ROOT, &[b'x'; 300], true)), 36);
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
