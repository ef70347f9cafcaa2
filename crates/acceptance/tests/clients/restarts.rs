//! Servers that die, are stopped or restarted, and connections that break.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use acceptance::Server;
use client::{Client, Open, Options};
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use rt::sync::{Arc, Mutex};
use testkit::noise;

use crate::{NEW, READ, ROOT, Site, errno};

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

/// The numbers of objects that were lost with a server are given to others, in the same txgs: a client that had such a file open
/// does not go on in another file of its name. Seen red: it read what was in there, and wrote over it.
#[test]
fn what_is_made_in_the_place_of_a_lost_file_is_another_one() {
    let mut site = Site::new();
    let mut met = 0;
    for round in 0..5 {
        let path = format!("/file-{round}");
        let make = |client: &Arc<Client>| client.open(&ROOT, path.as_bytes(), NEW, 0o644);
        let client = site.client("tank");
        let lost = make(&client).unwrap();
        let reader = client.open(&ROOT, path.as_bytes(), READ, 0).unwrap();
        site.restart();
        // Unless a txg has come to its end in between.
        let Ok(other) = make(&site.client("tank")) else { continue };
        met += u32::from(other.opened().object == lost.opened().object);
        other.write_stable(0, b"other").unwrap();
        let mut bytes = [0; 9];
        assert_eq!(errno(reader.read(0, &mut bytes)), 116, "{round}");
        assert_eq!(errno(lost.write(0, b"lost!")), 116, "{round}");
        assert_eq!(other.read(0, &mut bytes).unwrap(), 5);
        assert_eq!(&bytes[..5], b"other");
    }
    assert!(met > 0, "each had a number of its own");
    site.end();
}

/// Sets this when it is dropped. Also where something fails: whoever waits for it would wait for ever.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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
        let _enough = Sets(&enough);
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

/// A txg in which nothing changes has no uberblock. Seen red: a pool that had nothing to write when it was closed was taken
/// for one that somebody else had changed since.
#[test]
fn who_writes_goes_on_where_there_was_nothing_to_write_at_the_end() {
    let mut site = Site::new();
    let client = site.client("tank");
    let file = client.open(&ROOT, b"/written", NEW, 0o644).unwrap();
    file.write(0, &noise(1, 10_000)).unwrap();
    (0..3).for_each(|_| site.restart_in_order());
    file.write(10_000, &noise(2, 10_000)).unwrap();
    file.close(true).unwrap();
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

/// XRootD tells its clients that bytes are written which are under way yet. If it dies and the server does not, nobody goes on
/// with what it had open unawares.
#[test]
fn what_a_client_may_have_lost_is_not_gone_on_with() {
    const ON: Open = Open { write: true, unbroken: true, ..READ };
    let site = Site::new();
    let client = site.client("tank");
    let open = |path: &[u8], how| client.open(&ROOT, path, how, 0o644);
    let between = Between::new(&site);
    let gone = Client::connect(between.options(4)).unwrap();
    let new = Open { unbroken: true, ..NEW };
    for path in [&b"/left"[..], b"/touched", b"/anew", b"/closed"] {
        let file = gone.open(&ROOT, path, new, 0o644).unwrap();
        file.write(0, &noise(1, 300_000)).unwrap();
        if path == b"/closed" {
            file.close(true).unwrap();
        } else {
            std::mem::forget(file);
        }
    }
    assert_eq!(errno(open(b"/left", ON)), 0, "its client is there");
    let ways = between.ways.lock().len();
    (0..ways).for_each(|way| between.cut(way));
    let start = rt::time::now();
    while errno(open(b"/anew", ON)) == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "nobody has noticed that it is gone");
        rt::time::sleep(Duration::from_millis(50));
    }
    client.chmod(&ROOT, b"/touched", 0o600).unwrap();
    open(b"/anew", Open { truncate: true, ..ON }).unwrap().close(true).unwrap();
    let errnos =
        [&b"/left"[..], b"/touched", b"/anew", b"/closed"].map(|path| errno(open(path, ON)));
    assert_eq!(errnos, [5, 0, 0, 0]);
    assert_eq!(errno(open(b"/left", READ)), 0);
    drop(client);
    site.end();
}

/// Nor where the server was restarted in order in between: the next one knows it, too, of what was opened anew.
#[test]
fn what_was_opened_anew_is_not_gone_on_with_either() {
    const ON: Open = Open { write: true, unbroken: true, ..READ };
    let mut site = Site::new();
    let between = Between::new(&site);
    let gone = Client::connect(between.options(4)).unwrap();
    let how = Open { unbroken: true, ..NEW };
    let file = gone.open(&ROOT, b"/left", how, 0o644).unwrap();
    file.write(0, &noise(1, 300_000)).unwrap();
    site.restart_in_order();
    file.write(300_000, &noise(2, 1000)).unwrap();
    std::mem::forget(file);
    let ways = between.ways.lock().len();
    (0..ways).for_each(|way| between.cut(way));
    let client = site.client("tank");
    let start = rt::time::now();
    while errno(client.open(&ROOT, b"/left", ON, 0o644)) == 0 {
        assert!(start.elapsed() < Duration::from_secs(5), "it is gone on with");
        rt::time::sleep(Duration::from_millis(20));
    }
    assert_eq!(errno(client.open(&ROOT, b"/left", ON, 0o644)), 5);
    drop(client);
    site.end();
}
