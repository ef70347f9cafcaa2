//! Contents: up, down, in pieces, with checksums.

use std::fs;
use std::io::Write;
use std::process::Command;

use client::Open;
use testkit::noise;
use testkit::tool::rounds;

use crate::gate::{Gate, ROOT, Site, tool, until, xrdcp};

/// One large file and many small ones go up and come back as they were.
#[test]
fn what_goes_up_comes_down() {
    let (mebibytes, small) = (rounds(61, 4096), rounds(300, 2000) as usize);
    let site = Site::sized(rounds(256 << 20, 2 << 30));
    let gate = site.gate("gate", &site.osslib("pool=tank"));
    let from = site.path("large");
    let mut large = fs::File::create(&from).unwrap();
    for piece in 0..mebibytes {
        large.write_all(&noise(piece, 1 << 20)).unwrap();
    }
    large.write_all(b"x").unwrap();
    drop(large);
    let from = from.to_str().unwrap();
    xrdcp(&[from, &gate.url("/dir/large")]);
    let back = site.path("back");
    xrdcp(&[&gate.url("/dir/large"), back.to_str().unwrap()]);
    drop(tool("cmp", &[from, back.to_str().unwrap()], &[]).expect_ok());
    fs::remove_file(&back).unwrap();
    // Ours see the same, and whose it is.
    let client = site.client("tank");
    let stat = client.stat(&ROOT, b"/dir/large", true).unwrap();
    assert_eq!((stat.size, stat.uid, stat.mode), ((mebibytes << 20) + 1, 0, 0o100_644));

    for i in 0..small {
        drop(site.file(&format!("small/d{}/f{i}", i % 7), &noise(i as u64, i * 37)));
    }
    let from = site.path("small");
    drop(gate.xrdfs(&["mkdir", "/many"]).expect_ok());
    xrdcp(&["--recursive", "--parallel", "4", from.to_str().unwrap(), &gate.url("/many/")]);
    let came = site.path("came");
    fs::create_dir(&came).unwrap();
    let to = came.to_str().unwrap();
    xrdcp(&["--recursive", "--parallel", "4", &gate.url("/many/small"), to]);
    for i in 0..small {
        let bytes = fs::read(came.join(format!("small/d{}/f{i}", i % 7))).unwrap();
        assert!(bytes == noise(i as u64, i * 37), "f{i}");
    }
    // The longest name there can be hides no other.
    let longest = "n".repeat(255);
    for name in ["a", &longest, "z"] {
        let path = format!("/names/{name}");
        let how = Open { parents: true, ..Open::default() };
        client.put(&ROOT, path.as_bytes(), how, 0o644, b"", false).unwrap();
    }
    let listed = gate.xrdfs(&["ls", "/names"]).expect_ok().out;
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(gate.log().contains("serves the tree tank"), "{}", gate.log());
    drop((gate, client));
    site.end();
}

/// Writes half of a file, says so, and waits to be killed.
const HALF: &str = r#"
import sys, time
from XRootD import client
from XRootD.client.flags import OpenFlags
f = client.File()
status, _ = f.open(sys.argv[1], OpenFlags.NEW | OpenFlags.MAKEPATH)
assert status.ok, status.message
for at, part in (0, b'ha'), (2, b'lf'):
    assert f.write(part, at, 2)[0].ok
open(sys.argv[2], 'w').close()
time.sleep(100)
"#;

/// Writes once, says so, and waits to be killed.
const HELD: &str = r#"
import sys, time
from XRootD import client
from XRootD.client.flags import OpenFlags
f = client.File()
status, _ = f.open(sys.argv[1], OpenFlags.NEW)
assert status.ok, status.message
assert f.write(b'0123456789', 0, 10)[0].ok
open(sys.argv[2], 'w').close()
time.sleep(100)
"#;

/// With `ofs.persist auto` what was not closed is taken away, and what was closed stays, as its client wanted it.
#[test]
fn uploads_are_whole_or_gone() {
    let site = Site::new();
    let lines = format!("{}ofs.persist auto hold 1\n", site.osslib("pool=tank"));
    let gate = site.gate("gate", &lines);
    let client = site.client("tank");
    let from = site.file("data", &noise(1, 2_000_000));
    xrdcp(&["--cksum", "adler32", &from, &gate.url("/whole")]);
    let stat = client.stat(&ROOT, b"/whole", true).unwrap();
    assert_eq!((stat.size, stat.mode), (2_000_000, 0o100_644));
    let script = site.file("half.py", HALF.as_bytes());
    let half = |path: &str| {
        let sign = site.path("sign");
        let mut half = Command::new("/usr/bin/python3");
        half.args([&script, &gate.url(path), sign.to_str().unwrap()]);
        let mut half = half.spawn().unwrap();
        until("the upload begins", || sign.exists(), || gate.log());
        assert_eq!(client.stat(&ROOT, path.as_bytes(), true).unwrap().size, 4);
        half.kill().unwrap();
        half.wait().unwrap();
        fs::remove_file(sign).unwrap();
    };
    // By the time that XRootD takes this one away there is another one, which nobody has left half.
    half("/d/other");
    let new = Open { write: true, create: true, new: true, ..Open::READ };
    client.put(&ROOT, b"/d/whole", new, 0o644, b"whole", true).unwrap();
    client.rename(&ROOT, b"/d/whole", b"/d/other").unwrap();
    half("/d/half");
    let gone = || client.stat(&ROOT, b"/d/half", true).is_err();
    until("half a file stays", gone, || gate.log());
    assert_eq!(client.stat(&ROOT, b"/d/other", true).unwrap().size, 5);
    // Nothing of it is in what comes in its place, though it was not on its way yet.
    let (script, sign) = (site.file("held.py", HELD.as_bytes()), site.path("held"));
    let mut held = Command::new("/usr/bin/python3");
    let mut held =
        held.args([&script, &gate.url("/held"), sign.to_str().unwrap()]).spawn().unwrap();
    until("the upload begins", || sign.exists(), || gate.log());
    held.kill().unwrap();
    held.wait().unwrap();
    rt::time::sleep(std::time::Duration::from_millis(200));
    xrdcp(&["-f", &site.file("four", b"four"), &gate.url("/held")]);
    let mut bytes = [0; 20];
    let (count, _) = client.get(&ROOT, b"/held", &mut bytes).unwrap();
    assert_eq!(&bytes[..count], b"four");
    let back = site.path("back");
    xrdcp(&[&gate.url("/whole"), back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == noise(1, 2_000_000));
    drop((gate, client));
    site.end();
}

/// Opens a file by force that another client writes, and both close it.
const FORCED: &str = r#"
import sys
from XRootD import client
from XRootD.client.flags import OpenFlags
url = sys.argv[1]
one, other = client.File(), client.File()
assert one.open(url, OpenFlags.NEW | OpenFlags.UPDATE)[0].ok
how = OpenFlags.DELETE | OpenFlags.UPDATE | OpenFlags.FORCE
assert other.open(url.replace('root://', 'root://other@'), how)[0].ok
for at in range(20): assert one.write(bytes([at]) * (1 << 20), at << 20, 1 << 20)[0].ok
assert one.close()[0].ok and other.close()[0].ok
"#;

/// Who comes second gets a share in what is open, and what XRootD has made for it before is not opened again. Seen red: it stayed
/// open until the same thread opened another file, and what was removed meanwhile kept its room.
#[test]
fn what_is_opened_by_force_is_not_left_open() {
    let site = Site::new();
    let gate = site.gate("gate", &site.osslib("pool=tank"));
    let client = site.client("tank");
    let used = || {
        // What is removed is freed with a txg.
        drop(site.run(&["zfs", "set", "org.thumper:mark=on", "tank"]));
        client.space(b"/").unwrap().used
    };
    let before = used();
    let script = site.file("forced.py", FORCED.as_bytes());
    drop(tool("/usr/bin/python3", &[&script, &gate.url("/file")], &[]).expect_ok());
    assert!(used() > before + (15 << 20));
    drop(gate.xrdfs(&["rm", "/file"]).expect_ok());
    until("its room comes back", || used() < before + (5 << 20), || gate.log());
    drop((gate, client));
    site.end();
}

/// What the python client does: vectors, pages, pieces in any order.
const PIECES: &str = r#"
import sys, random
from XRootD import client
from XRootD.client.flags import OpenFlags
url, source = sys.argv[1:]
data = open(source, 'rb').read()
def ok(r): assert r[0].ok, r[0].message; return r[1]
rng = random.Random(5)
f = client.File()
ok(f.open(url, OpenFlags.NEW | OpenFlags.MAKEPATH))
parts = [(at, data[at:at + 70001]) for at in range(0, len(data), 70001)]
rng.shuffle(parts)
for at, part in parts: ok(f.write(part, at, len(part)))
ok(f.sync()); ok(f.close())
f = client.File(); ok(f.open(url))
assert ok(f.stat()).size == len(data)
for n in (1, 10, 1000):
    chunks = [(rng.randrange(len(data) - 3000), rng.randrange(1, 3000)) for _ in range(n)]
    got = ok(f.vector_read(chunks))
    assert len(got.chunks) == n
    for (at, size), chunk in zip(chunks, got.chunks):
        assert chunk.buffer == data[at:at + size], at
big = [(0, 1 << 20), (5, 1 << 20), (77, 1000), (len(data) - 2000000, 2000000)]
for (at, size), chunk in zip(big, ok(f.vector_read(big)).chunks):
    assert chunk.buffer == data[at:at + size], at
assert not f.vector_read([(0, 10), (len(data) - 5, 6)])[0].ok
assert ok(f.read(len(data) - 5, 100)) == data[-5:]
assert ok(f.read(len(data) + 5, 100)) == b''
ok(f.close())
f = client.File(); ok(f.open(url, OpenFlags.UPDATE))
ok(f.truncate(1000)); ok(f.write(b'x', 4999, 1)); ok(f.close())
f = client.File(); ok(f.open(url))
assert ok(f.read(0, 9999)) == data[:1000] + bytes(3999) + b'x'
ok(f.close())
"#;

#[test]
fn pieces_are_those_asked_for() {
    let site = Site::new();
    let gate = site.gate("gate", &site.osslib("pool=tank"));
    let from = site.file("data", &noise(2, 5_000_000));
    let script = site.file("pieces.py", PIECES.as_bytes());
    let url = gate.url("/new/pieces");
    drop(tool("/usr/bin/python3", &[&script, &url, &from], &[]).expect_ok());
    drop(gate);
    site.end();
}

fn checksum(gate: &Gate, path: &str) -> String {
    gate.xrdfs(&["query", "checksum", path]).expect_ok().out.trim().to_string()
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    b << 16 | a
}

/// What the plug-in has read so far, in bytes, as xrootd tells its administrator.
fn bytes_read(gate: &Gate) -> u64 {
    let told = gate.xrdfs(&["query", "stats", "a"]).expect_ok().out;
    let (_, rest) = told.split_once("<rbytes>").unwrap_or_else(|| panic!("{told}"));
    rest.split('<').next().unwrap().parse().unwrap()
}

/// Checksums are there when an upload ends, in the form that XRootD knows: neither it nor anybody reads a file for them.
/// They are right, and never those of other bytes.
#[test]
fn checksums_come_with_their_files() {
    let site = Site::new();
    let gate = site.gate("gate", &site.osslib("pool=tank"));
    let client = site.client("tank");
    let bytes = noise(3, 3_000_000);
    let from = site.file("data", &bytes);
    let url = gate.url("/sum");
    xrdcp(&[&from, &gate.url("/alone")]);
    let names: [&[u8]; 2] = [b"user.XrdCks.adler32", b"user.XrdCks.crc32c"];
    // Nobody has asked for them yet.
    assert_eq!(client.xattrs(&ROOT, b"/alone").unwrap(), names);
    xrdcp(&["--cksum", "adler32", &from, &url]);
    let right = format!("adler32 {:08x}", adler32(&bytes));
    assert_eq!(checksum(&gate, "/sum"), right);
    let crc = |path: &str| {
        let word = format!("{path}?cks.type=crc32c");
        gate.xrdfs(&["query", "checksum", &word]).expect_ok().out
    };
    let ours = tool("xrdcrc32c", &[&from], &[]).expect_ok().out;
    assert_eq!(crc("/sum").split_whitespace().nth(1), ours.split_whitespace().next());
    assert_eq!(bytes_read(&gate), 0);
    xrdcp(&["--cksum", "adler32", &url, site.path("back").to_str().unwrap()]);
    assert_eq!(bytes_read(&gate), bytes.len() as u64);
    let name = b"user.XrdCks.adler32";
    let kept = client.xattr(&ROOT, b"/sum", name).unwrap();
    assert_eq!((kept.len(), &kept[..8]), (96, &b"adler32\0"[..]));
    assert_eq!(kept[31..36], [&[4][..], &adler32(&bytes).to_be_bytes()].concat());
    // Nobody is believed who says something else of it, not even with the right time.
    let mut other = kept;
    other[32..36].copy_from_slice(b"\x01\x02\x03\x04");
    other[72..].fill(0);
    client.set_xattr(&ROOT, b"/sum", name, Some(&other)).unwrap();
    assert_eq!(checksum(&gate, "/sum"), right);
    // Written anew, in part, longer, shorter, under another name: in the same second or later.
    let bytes = noise(4, 3_000_000);
    let from = site.file("data", &bytes);
    xrdcp(&["-f", &from, &url]);
    assert_eq!(checksum(&gate, "/sum"), format!("adler32 {:08x}", adler32(&bytes)));
    let script = site.file("change.py", CHANGE.as_bytes());
    drop(tool("/usr/bin/python3", &[&script, &url], &[]).expect_ok());
    let mut bytes = bytes;
    bytes[1000..1007].copy_from_slice(b"changed");
    bytes.extend_from_slice(b"more");
    assert_eq!(checksum(&gate, "/sum"), format!("adler32 {:08x}", adler32(&bytes)));
    drop(gate.xrdfs(&["truncate", "/sum", "2000000"]).expect_ok());
    drop(gate.xrdfs(&["mv", "/sum", "/moved"]).expect_ok());
    let right = format!("adler32 {:08x}", adler32(&bytes[..2_000_000]));
    assert_eq!(checksum(&gate, "/moved"), right);
    // Of another algorithm XRootD makes it itself.
    let md5 = gate.xrdfs(&["query", "checksum", "/moved?cks.type=md5"]).expect_ok().out;
    let file = site.file("cut", &bytes[..2_000_000]);
    let ours = tool("md5sum", &[&file], &[]).expect_ok().out;
    assert_eq!(md5.split_whitespace().nth(1), ours.split_whitespace().next());
    drop((gate, client));
    site.end();
}

/// A change in the middle and one behind the end.
const CHANGE: &str = r#"
import sys
from XRootD import client
from XRootD.client.flags import OpenFlags
def ok(r): assert r[0].ok, r[0].message; return r[1]
f = client.File(); ok(f.open(sys.argv[1], OpenFlags.UPDATE))
ok(f.write(b'changed', 1000, 7)); ok(f.write(b'more', 3000000, 4)); ok(f.close())
"#;

/// Who overwrites a file needs no more room than there is when it is emptied; who brings more than that is told at once, and
/// what is there stays.
#[test]
fn a_file_makes_room_for_what_overwrites_it() {
    let site = Site::new();
    drop(site.run(&["zfs", "create", "-o", "quota=40M", "tank/narrow"]));
    let gate = site.gate("gate", &site.osslib("pool=tank"));
    let client = site.client("tank");
    let (first, second) = (noise(1, 25 << 20), noise(2, 25 << 20));
    xrdcp(&[&site.file("first", &first), &gate.url("/narrow/x")]);
    let more = site.file("more", &noise(3, 80 << 20));
    let ran = tool("xrdcp", &["-f", "--silent", &more, &gate.url("/narrow/x")], &[]);
    assert!(ran.status != 0 && ran.err.contains("[3009]"), "{ran}");
    assert_eq!(client.stat(&ROOT, b"/narrow/x", true).unwrap().size, 25 << 20);
    xrdcp(&["-f", &site.file("second", &second), &gate.url("/narrow/x")]);
    let back = site.path("back");
    xrdcp(&[&gate.url("/narrow/x"), back.to_str().unwrap()]);
    assert!(fs::read(&back).unwrap() == second);
    drop((gate, client));
    site.end();
}
