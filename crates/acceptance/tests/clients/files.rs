//! What is done to files and names, and data sets that come and go below them.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use acceptance::engine::Session;
use acceptance::{Server, Stage};
use client::{Client, Open, Options, Subject};
use format::label::DATA_AT;
use format::scan::Bookmark;
use rt::sync::atomic::{AtomicBool, Ordering};
use testkit::noise;
use testkit::random::Rng;
use wire::Entry;

use crate::{NEW, READ, ROOT, Site, errno, names, who};

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
    site.server.as_ref().unwrap().freeze();
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
        (b"user.", b"small", 22),
        (b"user.b", &[7; 65_537], 7),
        (b"user.b", &[7; 65_536], 0),
    ] {
        let set = client.set_xattr(&ROOT, path, name, Some(value));
        assert_eq!(errno(set), expected, "{}", name.escape_ascii());
    }
    assert_eq!(client.xattrs(&ROOT, path).unwrap(), [&b"user.b"[..], &long[..255]]);
    // A name that nothing can have is told as such, and not as one that is not there.
    let long = [&b"/dir/"[..], &[b'x'; 256]].concat();
    let inside = [&long[..], b"/y"].concat();
    for path in [&long[..], &inside] {
        for done in [
            client.open(&ROOT, path, NEW, 0o644).map(drop),
            client.open(&ROOT, path, READ, 0).map(drop),
            client.stat(&ROOT, path, true).map(drop),
            client.unlink(&ROOT, path),
            client.rmdir(&ROOT, path),
            client.rename(&ROOT, path, b"/z"),
            client.rename(&ROOT, b"/d", path),
        ] {
            assert_eq!(errno(done), 36, "{}", path.escape_ascii());
        }
    }
    drop(client);
    site.end();
}

/// Who reads on and on has what is to come read before he asks; what somebody else writes meanwhile he sees all the same.
#[test]
fn who_reads_on_sees_what_others_have_written_meanwhile() {
    const PIECE: usize = 256 << 10;
    let site = Site::new();
    let (reader, writer) = (site.client("tank"), site.client("tank"));
    let mut data = noise(8, 16 * PIECE);
    let written = writer.open(&ROOT, b"/file", NEW, 0o644).unwrap();
    written.write(0, &data).unwrap();
    // On disk, and in no memory.
    site.run(&["zfs", "snapshot", "tank@1"]);
    let read = reader.open(&ROOT, b"/file", READ, 0).unwrap();
    let (mut rng, mut back) = (Rng::new(9), vec![0; PIECE]);
    for turn in 0..20 {
        for at in (0..data.len()).step_by(PIECE) {
            assert_eq!(read.read(at as u64, &mut back).unwrap(), PIECE);
            assert!(back == data[at..][..PIECE], "turn {turn}: bytes from {at} on");
            if rng.below(6) > 0 {
                continue;
            }
            let there = (at + PIECE + rng.below(2 * PIECE as u64) as usize) % (data.len() - 5000);
            let new = noise(turn * 1000 + at as u64, 5000);
            written.write(there as u64, &new).unwrap();
            data[there..][..5000].copy_from_slice(&new);
            if rng.below(2) == 0 {
                let snapshot = format!("tank@{turn}.{at}");
                site.run(&["zfs", "snapshot", &snapshot]);
            }
        }
    }
    drop((read, written, reader, writer));
    site.end();
}
