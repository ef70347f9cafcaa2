//! The memory of the server: never above its cap by more than what is not in the account, and little when nobody wants
//! anything of it (INV-5).

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use acceptance::{Server, assert_verified, thumper};
use client::{Client, Open, Options, Subject};
use rt::sync::Arc;
use testkit::{Ran, fresh_images, temp_dir, tool};

const MIB: u64 = 1 << 20;
/// What the server may take.
const CAP: u64 = 256 * MIB;
/// What its program, its threads and its allocator may take beside that. (It has promised 128 MiB; what one holder less in
/// the account makes of it is less than that.)
const BESIDE: u64 = 32 * MIB;
/// What of that may be in the account, beyond the cap: threads of connections take theirs unasked, 96 KiB each, of which
/// there are the more at once the slower the machine is.
const UNASKED: u64 = 16 * MIB;
/// What it may have half a minute after the load.
const FLOOR: u64 = 96 * MIB;
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(30);

const ROOT: Subject = Subject::ROOT;
const NEW: Open = Open { write: true, create: true, new: true, ..Open::READ };
const READ: Open = Open::READ;

/// Files, each with one who writes it and then reads it, all at once: a few large ones, and so many others that what is
/// under way for them is more than there is.
const LARGE: (u64, u64) = (6, 16 * MIB);
const OTHERS: (u64, u64) = (300, 3 * MIB / 2);
/// Small files of one directory, by so many at once.
const SMALL: (u64, u64) = (6, 800);

/// Bytes that no compression makes less, and that tell which file they are of, and where.
fn fill(bytes: &mut [u8], file: u64, offset: u64) {
    let mut at = (file << 40) + offset;
    for word in bytes.chunks_mut(8) {
        at += 8;
        let mixed = (at ^ (at >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&(mixed ^ (mixed >> 32)).to_le_bytes()[..word.len()]);
    }
}

fn size_of(number: u64) -> u64 {
    if number < LARGE.0 { LARGE.1 } else { OTHERS.1 }
}

fn write(client: &Arc<Client>, number: u64) {
    let name = format!("/file{number}");
    let file = client.open(&ROOT, name.as_bytes(), NEW, 0o644).unwrap();
    let size = size_of(number);
    let mut piece = vec![0; MIB as usize];
    for offset in (0..size).step_by(piece.len()) {
        let part = &mut piece[..MIB.min(size - offset) as usize];
        fill(part, number, offset);
        file.write(offset, part).unwrap();
    }
    file.close(number.is_multiple_of(50)).unwrap();
}

fn read(client: &Arc<Client>, number: u64) {
    let name = format!("/file{number}");
    let file = client.open(&ROOT, name.as_bytes(), READ, 0).unwrap();
    // Not in the steps in which it was written.
    let (mut seen, mut expected) = (vec![0; 900_000], vec![0; 900_000]);
    let mut offset = 0;
    loop {
        let got = file.read(offset, &mut seen).unwrap();
        if got == 0 {
            break;
        }
        fill(&mut expected[..got], number, offset);
        assert!(seen[..got] == expected[..got], "{name} from {offset} on");
        offset += got as u64;
    }
    assert_eq!(offset, size_of(number), "{name}");
    file.close(false).unwrap();
}

fn small(client: &Arc<Client>, series: u64) {
    let mut bytes = [0; 5000];
    for number in 0..SMALL.1 {
        let name = format!("/dir/a file with a name that is not short {series}.{number}");
        let file = client.open(&ROOT, name.as_bytes(), NEW, 0o644).unwrap();
        fill(&mut bytes, 1000 + series, number * 8192);
        file.write(0, &bytes).unwrap();
        file.close(false).unwrap();
    }
    for number in (0..SMALL.1).step_by(7) {
        let name = format!("/dir/a file with a name that is not short {series}.{number}");
        let file = client.open(&ROOT, name.as_bytes(), READ, 0).unwrap();
        let mut seen = [0; 5000];
        assert_eq!(file.read(0, &mut seen).unwrap(), seen.len());
        fill(&mut bytes, 1000 + series, number * 8192);
        assert_eq!(seen, bytes, "{name}");
    }
}

/// Everybody at once, over several sessions.
fn load(options: &Options) {
    let clients: Vec<_> = (0..20).map(|_| Client::connect(options.clone()).unwrap()).collect();
    clients[0].mkdir(&ROOT, b"/dir", 0o755, false).unwrap();
    let mut threads = Vec::new();
    for number in 0..LARGE.0 + OTHERS.0 {
        let client = clients[number as usize % clients.len()].clone();
        threads.push(rt::thread::spawn("file", move || {
            write(&client, number);
            read(&client, number);
        }));
    }
    for series in 0..SMALL.0 {
        let client = clients[series as usize % clients.len()].clone();
        threads.push(rt::thread::spawn("small", move || small(&client, series)));
    }
    threads.into_iter().for_each(rt::thread::JoinHandle::join);
    let (mut count, mut from) = (0, 0);
    loop {
        let (entries, next) = clients[0].list(&ROOT, b"/dir", from).unwrap();
        count += entries.len() as u64;
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(count, SMALL.0 * SMALL.1);
}

/// A line of /proc/PID/status, in bytes.
fn status(pid: u32, key: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// What is backed by no file, now and at most ever.
fn resident(pid: u32) -> (u64, u64) {
    let now = status(pid, "RssAnon:") + status(pid, "RssShmem:");
    // The program's text is read once and stays.
    (now, status(pid, "VmHWM:") - status(pid, "RssFile:"))
}

/// A number of `thumper top -j`.
fn told(state: &Path, key: &str) -> u64 {
    let text = Ran::of(thumper(state).args(["top", "-j"])).expect_ok().out;
    let from = text.find(&format!("\"{key}\":")).unwrap() + key.len() + 3;
    let digits: String = text[from..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn a_server_under_load_keeps_to_its_cap_and_is_small_when_idle() {
    let (images, aside) = (fresh_images(5, 640 << 20), temp_dir());
    let state = aside.path().join("pools");
    let cap = (CAP / MIB).to_string() + "M";
    let server = Server::start_with(&state, &["--memory", &cap]);
    let disks = images.disks();
    let mut words = vec!["zpool", "create", "tank", "raidz2"];
    words.extend(disks.iter().map(|disk| disk.to_str().unwrap()));
    drop(Ran::of(thumper(&state).args(&words)).expect_ok());
    assert_eq!(told(&state, "cap"), CAP);
    let begin = rt::time::now();
    load(&Options::new(server.socket(), "tank"));
    let took = begin.elapsed();
    let (now, peak) = resident(server.pid());
    let top = Ran::of(thumper(&state).arg("top")).expect_ok().out;
    let shown = format!("after {took:?}: {} MiB, at most {} MiB\n{top}", now / MIB, peak / MIB);
    println!("{shown}");
    assert!(peak <= CAP + BESIDE, "{shown}");
    // The account says so, too, and knows of most of it.
    let used_max = told(&state, "used_max");
    assert!(used_max <= CAP + UNASKED && used_max > CAP / 3, "{shown}");
    let begin = rt::time::now();
    while resident(server.pid()).0 > FLOOR {
        let top = || Ran::of(thumper(&state).arg("top")).expect_ok().out;
        assert!(begin.elapsed() < PATIENCE, "{} MiB\n{}", resident(server.pid()).0 / MIB, top());
        rt::time::sleep(Duration::from_millis(500));
    }
    println!("small after {:?}: {} MiB", begin.elapsed(), resident(server.pid()).0 / MIB);
    drop(server.stop());
    tool::zdb_content(images.path(), "tank");
    assert_verified(images.path(), "tank");
}
