//! The server: it holds the pools, commands reach it, and nobody else does.
//!
//! That what is typed is answered as ever, held or not, is shown by `transcripts`.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use acceptance::{Server, assert_verified, thumper, thumper_path};
use testkit::random::Rng;
use testkit::{Images, Ran, TempDir, fresh_images, temp_dir, tool};

/// A pool of five disks, and a list of pools that only this test knows.
struct Site {
    images: Images,
    aside: TempDir,
}

impl Site {
    fn new() -> Site {
        Site { images: fresh_images(5, 128 << 20), aside: temp_dir() }
    }

    fn state(&self) -> PathBuf {
        self.aside.path().join("pools")
    }

    fn try_run(&self, words: &[&str]) -> Ran {
        Ran::of(thumper(&self.state()).args(words).current_dir(self.aside.path()))
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> String {
        self.try_run(words).expect_ok().out
    }

    fn create(&self) {
        let disks = self.images.disks();
        let mut words = vec!["zpool", "create", "tank", "raidz2"];
        words.extend(disks.iter().map(|disk| disk.to_str().unwrap()));
        drop(self.run(&words));
    }

    /// A file of noise beside the pool.
    fn noise(&self, name: &str, seed: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        Rng::of(seed, 1).fill(&mut bytes);
        fs::write(self.aside.path().join(name), &bytes).unwrap();
        bytes
    }

    fn cat(&self, place: &str) -> Vec<u8> {
        let output = thumper(&self.state()).args(["cat", place]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    fn is_held(&self) -> bool {
        // Whoever holds a pool has locked its disks.
        let disk = fs::File::open(&self.images.disks()[0]).unwrap();
        let lock = rustix::fs::FlockOperation::NonBlockingLockShared;
        rustix::fs::flock(&disk, lock).is_err()
    }
}

#[test]
fn pools_are_held_from_their_creation_to_their_export() {
    let site = Site::new();
    let server = Server::start(&site.state());
    site.create();
    assert!(site.is_held());
    // Where the command was typed is where its words lead.
    let bytes = site.noise("file", 1, 3_000_000);
    drop(site.run(&["put", "file", "tank:/there"]));
    assert!(site.cat("tank:/there") == bytes);
    drop(site.run(&["get", "tank:/there", "back"]));
    assert!(fs::read(site.aside.path().join("back")).unwrap() == bytes);
    // A pool that changes under it is nothing for the judge.
    let ran = site.try_run(&["verify", "tank"]);
    assert!(ran.status == 3 && ran.err.contains("it is served"), "{ran}");
    drop(site.run(&["zpool", "export", "tank"]));
    assert!(!site.is_held());
    let dir = site.images.path().to_str().unwrap();
    drop(site.run(&["zpool", "import", "-d", dir, "tank"]));
    assert!(site.is_held() && site.cat("tank:/there") == bytes);
    let log = server.stop();
    assert!(log.contains("pool 'tank' is closed"), "{log}");
    // Without a server each command is its own again.
    assert!(!site.is_held() && site.cat("tank:/there") == bytes);
    let server = Server::start(&site.state());
    // It answers once it has looked for its pools; who ends it before that does not wait for them.
    assert!(site.run(&["zpool", "list", "-H"]).starts_with("tank\t"));
    let log = server.stop();
    assert!(log.contains("pool 'tank' is served") && log.contains("is closed"), "{log}");
    tool::zdb_content(site.images.path(), "tank");
    assert_verified(site.images.path(), "tank");
}

/// Seen red: nobody looked for it again before the next start, and each command opened it for itself.
#[test]
fn a_pool_whose_disks_come_late_is_served_then() {
    let site = Site::new();
    site.create();
    let disks = site.images.disks();
    let aside = |disk: &Path| disk.with_extension("away");
    disks[..3].iter().for_each(|disk| fs::rename(disk, aside(disk)).unwrap());
    let server = Server::start(&site.state());
    // It answers once it has looked for its pools.
    assert_ne!(site.try_run(&["ls", "tank:/"]).status, 0);
    disks[..3].iter().for_each(|disk| fs::rename(aside(disk), disk).unwrap());
    let start = rt::time::now();
    let has_come = || server.said().contains("has come and is served");
    while !has_come() && start.elapsed() < Duration::from_secs(30) {
        rt::time::sleep(Duration::from_millis(50));
    }
    assert!(has_come() && site.is_held());
    let log = server.stop();
    assert!(log.contains("is not served") && log.contains("is closed"), "{log}");
}

#[test]
fn there_is_one_server_and_a_dead_one_is_no_hindrance() {
    let site = Site::new();
    let server = Server::start(&site.state());
    site.create();
    let ran = site.try_run(&["serve"]);
    assert!(ran.status == 1 && ran.err.contains("a server is running already"), "{ran}");
    server.kill();
    // Its socket is still there, and nobody behind it.
    assert!(site.run(&["zpool", "list", "-H"]).starts_with("tank\t"));
    let server = Server::start(&site.state());
    drop(site.run(&["zfs", "create", "tank/more"]));
    assert!(site.is_held());
    drop(server.stop());
}

/// Seen red: the file was gone, with a socket in its place.
#[test]
fn what_is_no_socket_is_not_taken_for_one() {
    let site = Site::new();
    drop(site.noise("letter", 1, 100));
    let (letter, link) = (site.aside.path().join("letter"), site.aside.path().join("link"));
    std::os::unix::fs::symlink(&letter, &link).unwrap();
    let kept = fs::read(&letter).unwrap();
    for name in ["letter", "link"] {
        // Should it come to listen, it ends.
        let mut command = std::process::Command::new(tool::program("timeout", "coreutils"));
        command.arg("10").arg(thumper_path()).args(["serve", "-s", name]);
        command.env("THUMPER_STATE", site.state());
        let ran = Ran::of(command.current_dir(site.aside.path()));
        let told = ran.err.contains("cannot listen at '") && ran.err.contains("File exists");
        assert!(ran.status == 1 && told, "{ran}");
    }
    assert!(fs::read(&letter).unwrap() == kept && link.is_symlink());
}

/// Killed at any time, it has on disk what its commands had acknowledged.
#[test]
fn what_was_acknowledged_outlives_the_server() {
    let site = Site::new();
    let mut server = Server::start(&site.state());
    site.create();
    let mut rng = Rng::of(7, 7);
    let mut kept: Vec<(String, Vec<u8>)> = Vec::new();
    for turn in 0..testkit::rounds(6, 40) {
        for i in 0..3 {
            let name = format!("f{turn}-{i}");
            let bytes = site.noise(&name, turn * 10 + i, 1 + rng.index(400_000));
            drop(site.run(&["put", &name, &format!("tank:/{name}")]));
            kept.push((format!("tank:/{name}"), bytes));
        }
        // One more is under way when the server dies.
        drop(site.noise("late", 1, 30_000_000));
        let late = format!("tank:/late{turn}");
        let mut put = thumper(&site.state())
            .args(["put", "late", &late])
            .current_dir(site.aside.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        rt::time::sleep(Duration::from_millis(rng.below(60)));
        server.kill();
        // Its word is that the server has gone, or that it was done before.
        let _ = put.wait().unwrap();
        assert_verified(site.images.path(), "tank");
        server = Server::start(&site.state());
        for (place, bytes) in &kept {
            assert!(site.cat(place) == *bytes, "{place} after kill {turn}");
        }
        // If it is there, whole or not: the next ones need the room.
        drop(site.try_run(&["rm", &late]));
    }
    drop(server.stop());
}

#[test]
fn nobody_else_commands_it() {
    let site = Site::new();
    let server = Server::start(&site.state());
    site.create();
    // Anybody can come to the socket, and read the program.
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    open(site.aside.path());
    let program = site.aside.path().join("thumper");
    fs::copy(thumper_path(), &program).unwrap();
    open(&program);
    let command_of = |program: &Path| {
        let mut command = std::process::Command::new(program);
        command.env("THUMPER_SOCKET", server.socket()).env("THUMPER_STATE", "/nonexistent/x");
        command.uid(65534).gid(65534).current_dir("/");
        command
    };
    let ran = Ran::of(command_of(&program).args(["zpool", "destroy", "tank"]));
    assert!(ran.status == 1, "{ran}");
    assert!(ran.err.contains("the server takes no commands of user 65534"), "{ran}");
    // Nobody has found anything wrong with it.
    let ran = Ran::of(command_of(&program).args(["verify", "tank"]));
    assert!(ran.status == 3 && ran.err.contains("takes no commands"), "{ran}");
    assert!(site.run(&["zpool", "list", "-H"]).starts_with("tank\t"));
    drop(server.stop());
}

/// What comes over a connection that was shut for writing after `bytes`.
fn answer_to(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // Refused early, it may not take all of it.
    drop(stream.write_all(bytes));
    drop(stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    answer
}

#[test]
fn whatever_comes_over_the_socket_is_answered_and_forgotten() {
    let site = Site::new();
    let server = Server::start(&site.state());
    site.create();
    let begin = |length: u32| [&b"THUMPER\x01"[..], &length.to_le_bytes()].concat();
    let cases = [
        (vec![], "ends before it begins"),
        (b"THUMP".to_vec(), "ends before it begins"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "not a command for thumper"),
        (b"THUMPER\x09\0\0\0\0".to_vec(), "version 9"),
        (begin(u32::MAX), "the most is"),
        (begin(100), "0 files came with it"),
        ([begin(3), b"\0a\0".to_vec()].concat(), "0 files came with it"),
    ];
    for (bytes, why) in cases {
        let answer = answer_to(&server, &bytes);
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.first() == Some(&1) && text.contains(why), "{bytes:?}: {text}");
    }
    let mut rng = Rng::of(3, 9);
    for _ in 0..testkit::rounds(300, 5000) {
        let mut bytes = begin(rng.below(64) as u32);
        let tail = rng.index(80);
        bytes.resize(bytes.len() + tail, 0);
        let (at, much) = (rng.index(bytes.len()), 1 + rng.index(8));
        for place in at..(at + much).min(bytes.len()) {
            bytes[place] = rng.below(256) as u8;
        }
        assert_eq!(answer_to(&server, &bytes).first(), Some(&1), "{bytes:?}");
    }
    assert!(site.run(&["zpool", "list", "-H"]).starts_with("tank\t"));
    drop(server.stop());
}

/// Who says nothing takes a place for a while, and no more of them than there are; others are told so.
#[test]
fn who_says_nothing_is_let_go() {
    let site = Site::new();
    let server = Server::start(&site.state());
    site.create();
    let silent: Vec<_> = (0..64).map(|_| UnixStream::connect(server.socket()).unwrap()).collect();
    let start = rt::time::now();
    let told = |ran: &Ran| ran.status == 1 && ran.err.contains("busy with 64 commands");
    let first = site.try_run(&["zpool", "list", "-H"]);
    assert!(told(&first), "{first}");
    while told(&site.try_run(&["zpool", "list", "-H"])) {
        assert!(start.elapsed() < Duration::from_secs(30), "they keep their places");
        rt::time::sleep(Duration::from_millis(200));
    }
    drop(silent);
    drop(server.stop());
}

/// Commands of all kinds at once; who goes away in the middle disturbs nobody.
#[test]
fn many_commands_at_once() {
    let site = Site::new();
    let server = Server::start(&site.state());
    site.create();
    let big = site.noise("big", 1, 20_000_000);
    drop(site.run(&["put", "big", "tank:/big"]));
    std::thread::scope(|scope| {
        for worker in 0..8u64 {
            let (site, big) = (&site, &big);
            scope.spawn(move || {
                let fs = format!("tank/w{worker}");
                drop(site.run(&["zfs", "create", &fs]));
                for i in 0..4 {
                    let name = format!("w{worker}-{i}");
                    let bytes = site.noise(&name, worker * 100 + i, 200_000);
                    drop(site.run(&["put", &name, &format!("{fs}:/{name}")]));
                    drop(site.run(&["zfs", "snapshot", &format!("{fs}@s{i}")]));
                    drop(site.run(&["zfs", "list", "-t", "all", "-r", "tank"]));
                    drop(site.run(&["zpool", "status", "tank"]));
                    assert!(site.cat(&format!("{fs}@s{i}:/{name}")) == bytes);
                    let mut reader = thumper(&site.state());
                    let reader = reader.args(["cat", "tank:/big"]).stdout(Stdio::piped());
                    let mut reader = reader.stderr(Stdio::null()).spawn().unwrap();
                    let mut some = vec![0; 100_000];
                    reader.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
                    assert!(some == big[..some.len()]);
                    reader.kill().unwrap();
                    reader.wait().unwrap();
                }
                drop(site.run(&["zfs", "destroy", "-r", &fs]));
            });
        }
    });
    assert_eq!(site.run(&["zfs", "list", "-Ht", "all"]).lines().count(), 1);
    drop(server.stop());
    tool::zdb_content(site.images.path(), "tank");
    assert_verified(site.images.path(), "tank");
}
