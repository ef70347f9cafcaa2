//! What a pool says of its devices: figures that are those of its clients, intervals that end, slow disks by name.
//!
//! The form of `zpool iostat` is shown by `transcripts`, and by `cli`'s `iostat`.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use ::fs::{Filesystem, NewObject, Who, make_filesystem, mode};
use acceptance::{Server, thumper};
use device::queue::{LeafQueue, Options};
use device::sim::{Fault, Kind, On, SimSet};
use device::{Device, WriteDevice};
use format::scan::ScanFunction;
use pool::slow::{LOOK, News};
use pool::{Joined, NewLeaf, NewPool, NewTop, OpenOptions, Pool, ScanAnswer, ScanStep};
use rt::sync::Arc;
use testkit::random::Rng;
use testkit::{Images, Ran, TempDir, free_port, fresh_images, temp_dir};

/// Bytes that a client moves: labels and metadata of a few txgs, some 1.5 MB on three disks, are less than 1 % of it.
const MOVED: u64 = 160 << 20;

struct Site {
    images: Images,
    aside: TempDir,
}

impl Site {
    fn new(disks: usize) -> Site {
        Site { images: fresh_images(disks, 512 << 20), aside: temp_dir() }
    }

    fn state(&self) -> PathBuf {
        self.aside.path().join("pools")
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> String {
        let mut command = thumper(&self.state());
        Ran::of(command.args(words).current_dir(self.aside.path())).expect_ok().out
    }

    fn create(&self, kind: &[&str]) {
        let disks = self.images.disks();
        let mut words = vec!["zpool", "create", "tank"];
        words.extend(kind);
        words.extend(disks.iter().map(|disk| disk.to_str().unwrap()));
        drop(self.run(&words));
    }

    /// Bytes read and written so far: by the pool, then by each vdev.
    fn counted(&self) -> Vec<(u64, u64)> {
        let json = self.run(&["zpool", "iostat", "-vj", "--json-int", "tank"]);
        let of = |key: &str| -> Vec<u64> {
            let key = format!("\"{key}\": ");
            let parts = json.split(&key).skip(1);
            let number =
                |part: &str| part.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
            parts.map(|part| number(part).unwrap()).collect()
        };
        of("read_bytes").into_iter().zip(of("write_bytes")).collect()
    }
}

#[track_caller]
fn assert_near(what: &str, counted: u64, moved: u64) {
    let near = moved..=moved + moved / 100;
    assert!(near.contains(&counted), "{what}: {counted} bytes were counted, {moved} were moved");
}

/// What a client stores and fetches is what is counted, with its parity or its copies, to 1 %; on each disk its part.
#[test]
fn sums_are_what_clients_moved() {
    let shapes: [(&[&str], usize, u64, u64, u64); 3] = [
        // The kind, how many disks, halves of what is moved: written in all, by each disk, and read in all.
        (&[], 1, 2, 2, 2),
        (&["mirror"], 2, 4, 2, 2),
        (&["raidz1"], 3, 3, 1, 2),
    ];
    for (kind, disks, written, each, read) in shapes {
        let site = Site::new(disks);
        let server = Server::start(&site.state());
        site.create(kind);
        let mut bytes = vec![0; MOVED as usize];
        Rng::of(disks as u64, 1).fill(&mut bytes);
        fs::write(site.aside.path().join("file"), &bytes).unwrap();
        let before = site.counted();
        drop(site.run(&["put", "file", "tank:/file"]));
        let after = site.counted();
        assert_eq!(after.len(), 1 + disks + usize::from(disks > 1));
        let what = format!("{kind:?}");
        assert_near(&what, after[0].1 - before[0].1, MOVED * written / 2);
        for disk in after.len() - disks..after.len() {
            assert_near(&what, after[disk].1 - before[disk].1, MOVED * each / 2);
        }
        let sum: u64 = after[after.len() - disks..].iter().map(|(_, written)| written).sum();
        assert_eq!(after[0].1, sum, "a pool's figures are the sums of its disks'");
        // What is in memory is not read again: the server starts anew.
        drop(server.stop());
        let server = Server::start(&site.state());
        let before = site.counted()[0].0;
        drop(site.run(&["get", "tank:/file", "back"]));
        assert_near(&what, site.counted()[0].0 - before, MOVED * read / 2);
        drop(server.stop());
    }
}

/// Waits until a server, whose metrics are to be had at this port, runs no command.
#[track_caller]
fn none_runs(port: u16) {
    let start = rt::time::now();
    loop {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics).unwrap();
        let running = metrics.lines().find(|line| line.starts_with("thumper_commands_running "));
        if running == Some("thumper_commands_running 0") {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{running:?}");
        rt::time::sleep(Duration::from_millis(20));
    }
}

/// A command that waits for its next turn ends when whoever typed it has gone, and when the server is to end.
#[test]
fn who_waits_holds_up_nobody() {
    let site = Site::new(1);
    let port = free_port();
    let server = Server::start_with(&site.state(), &["--listen-metrics", &port.to_string()]);
    site.create(&[]);
    let waits = || {
        let mut command = thumper(&site.state());
        let command = command.args(["zpool", "iostat", "tank", "1000"]).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        // The first report is there at once.
        let mut some = [0; 100];
        child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
        child
    };
    for _ in 0..10 {
        let mut gone = waits();
        gone.kill().unwrap();
        gone.wait().unwrap();
    }
    none_runs(port);
    let mut there = waits();
    let start = rt::time::now();
    let log = server.stop();
    assert!(start.elapsed() < Duration::from_secs(5), "{log}");
    // Of the commands that went away nothing is said; the one who looked whether the server is there did.
    assert!(log.matches("broke off").count() <= 1, "{log}");
    assert_eq!(there.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    there.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "the server ends\n");
}

/// A pool on ten simulated disks, each of which takes 2 ms for everything, one of them longer.
fn ten_disks(slow: Option<(usize, Duration)>) -> (SimSet, Arc<Pool>) {
    let set = SimSet::new(10, 64 << 20);
    let leaf = |disk: device::sim::SimDisk| {
        let path = format!("/sim/{}", disk.name()).into_bytes();
        let queue = LeafQueue::new(disk, Options::threads(4), rt::BufPool::new(1 << 20));
        let device: Arc<dyn WriteDevice> = Arc::new(queue);
        NewLeaf { path, is_disk: true, device }
    };
    let pool = Pool::create(NewPool {
        name: "tank".into(),
        tops: vec![NewTop {
            joined: Joined::Raidz(2),
            leaves: set.disks().into_iter().map(leaf).collect(),
            is_log: false,
        }],
        spares: vec![],
        ashift: 12,
        features: pool::Feature::ALL.to_vec(),
        pool_props: BTreeMap::new(),
        props: BTreeMap::new(),
        make: make_filesystem,
        command: "zpool create tank".into(),
        options: OpenOptions {
            workers: 2,
            host_id: 1,
            host_name: "a".into(),
            new_name: None,
            memory: None,
        },
    });
    for (number, disk) in set.disks().iter().enumerate() {
        let longer = slow.filter(|(slow, _)| *slow == number).map(|(_, time)| time);
        let time = longer.unwrap_or(Duration::from_millis(2));
        let _lifted = disk.inject(Fault::new(Kind::Slow(time), On::All));
    }
    (set, pool.unwrap())
}

/// Writes while the disks are looked at in turn; what was found, and at which look.
fn found_under_load(pool: &Arc<Pool>, looks: Range<u32>) -> Vec<(u32, News)> {
    let files = Filesystem::open(pool, "tank").unwrap();
    let mut found = Vec::new();
    for look in looks {
        for file in 0..6 {
            let name = format!("{look}-{file}");
            let (dir, name) = files.resolve_parent(name.as_bytes()).unwrap();
            let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
            let object = files.create(dir, name, &new).unwrap();
            let mut bytes = vec![0; 100_000];
            Rng::of(look.into(), file).fill(&mut bytes);
            files.write(object, 0, &bytes).unwrap();
            pool.sync().unwrap();
        }
        found.extend(pool.look_for_slow().into_iter().map(|news| (look, news)));
    }
    found
}

/// One of ten disks takes five times as long as the others: it is named within a minute of looks, and it alone, and sits
/// out.
#[test]
fn one_of_ten_slow_disks_is_named() {
    let (_set, pool) = ten_disks(Some((3, Duration::from_millis(10))));
    let in_time = (60 - LOOK.as_secs()) / LOOK.as_secs();
    let found = found_under_load(&pool, 0..in_time as u32);
    let [.., (_, News::Slow(slow))] = &found[..] else { panic!("nothing was found: {found:?}") };
    let named: Vec<_> = pool.slow().iter().map(|slow| slow.guid).collect();
    assert_eq!(named, [pool.meters()[3].guid], "{found:?}");
    assert!(slow.time >= 3 * slow.siblings, "{slow:?}");
    assert!(found.len() == 1, "{found:?}");
    assert!(pool.slow()[0].sits_out, "it is read from as before");
}

/// A disk that lacks a part of everything is filled: it is given large writes, which take long, beside others that have
/// small ones. Nobody calls it slow for that, nor for what it did when it has everything.
#[test]
fn a_disk_that_is_filled_is_not_called_slow() {
    let (set, pool) = ten_disks(None);
    let leaf = pool.meters()[3].guid;
    pool.offline(leaf, false, false).unwrap();
    let files = Filesystem::open(&pool, "tank").unwrap();
    let mut bytes = vec![0; 1 << 20];
    for file in 0..40 {
        let name = format!("large-{file}");
        let (dir, name) = files.resolve_parent(name.as_bytes()).unwrap();
        let new = NewObject::of(mode::FILE | 0o644, Who { uid: 0, gid: 0 });
        let object = files.create(dir, name, &new).unwrap();
        Rng::of(file, 3).fill(&mut bytes);
        files.write(object, 0, &bytes).unwrap();
    }
    pool.sync().unwrap();
    pool.online(leaf, None).unwrap();
    assert_eq!(pool.scan_start(ScanFunction::Resilver).unwrap(), ScanAnswer::Done);
    let filled = set.disk(3);
    let take = |millis, on| {
        let _lifted = filled.inject(Fault::new(Kind::Slow(Duration::from_millis(millis)), on));
    };
    filled.heal();
    take(10, On::Writes);
    take(2, On::All);
    let mut looks = 0;
    while pool.scan_step_within(2 << 20).unwrap() == ScanStep::More {
        let found = found_under_load(&pool, looks..looks + 1);
        assert!(found.is_empty(), "look {looks}: {found:?}");
        looks += 1;
    }
    filled.heal();
    take(2, On::All);
    assert!(looks > 12, "{looks} looks say nothing");
    let found = found_under_load(&pool, looks..looks + 12);
    assert!(found.is_empty() && !pool.needs_resilver(), "{found:?}");
}

#[test]
fn none_of_ten_healthy_disks_is_named() {
    for _ in 0..testkit::rounds(1, 10) {
        let (_set, pool) = ten_disks(None);
        let found = found_under_load(&pool, 0..24);
        assert!(found.is_empty(), "{found:?}");
        let busy = pool.meters().iter().map(|leaf| leaf.meters.writes().0).min().unwrap();
        assert!(busy > 24 * 11, "{busy} writes say nothing");
    }
}
