//! Who is who: identities that XRootD has found out, owners, permissions and quotas.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use client::{Open, Subject};
use testkit::{Ran, noise};

use crate::gate::{Gate, ROOT, Site, hand_over, tool, until};

/// The server's keytab with a key for each user, and one for each of them with his own alone.
pub(crate) fn keytab(site: &Site, users: &[&str]) -> String {
    let path = site.path("server.keytab");
    let path = path.to_str().unwrap();
    for user in users {
        let words = ["-k", user, "-u", user, "-g", user, "add", path];
        drop(tool("xrdsssadmin", &words, &[]).expect_ok());
    }
    let all = fs::read_to_string(path).unwrap();
    for user in users {
        let mine = all.lines().find(|line| line.contains(&format!(" u:{user} "))).unwrap();
        let path = site.file(&format!("{user}.keytab"), mine.as_bytes());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    hand_over(Path::new(path));
    path.into()
}

pub(crate) fn as_user(site: &Site, user: &str, program: &str, words: &[&str]) -> Ran {
    let key = site.path(&format!("{user}.keytab"));
    let mine = [("XrdSecSSSKT", key.to_str().unwrap()), ("XrdSecPROTOCOL", "sss")];
    tool(program, words, &mine)
}

/// The lines of an xrootd whose users have keys, and are who `table` says.
fn lines_of(site: &Site, users: &[&str], table: &str) -> String {
    let server = keytab(site, users);
    let map = site.file("users", table.as_bytes());
    format!(
        "{}{}xrootd.seclib libXrdSec.so\nsec.protocol sss -s {server}\nsec.protbind * only sss\n",
        site.osslib(&format!("pool=tank map={map}")),
        site.authority()
    )
}

fn fs_as(site: &Site, gate: &Gate, user: &str, words: &[&str]) -> Ran {
    let server = format!("root://localhost:{}", gate.port);
    as_user(site, user, "xrdfs", &[&[server.as_str()], words].concat())
}

/// Two organisations: what each stores is its own, neither reads the other's, and a full one leaves the other room.
#[test]
fn each_has_his_own() {
    let site = Site::new();
    let client = site.client("tank");
    for (fs, uid) in [("a", 1001), ("b", 1002)] {
        drop(site.run(&["zfs", "create", &format!("tank/{fs}")]));
        drop(site.run(&["zfs", "set", "refquota=20M", &format!("tank/{fs}")]));
        let top = format!("/{fs}");
        client.chmod(&ROOT, top.as_bytes(), 0o1777).unwrap();
        let subject = Subject { uid, gid: uid, groups: Vec::new() };
        client.mkdir(&subject, format!("{top}/own").as_bytes(), 0o700, false).unwrap();
    }
    // Who is mallory by another protocol is nobody by this one.
    let table = "# who is who\nsss alice 1001 1001\nsss bob 1002 1002 1003\n\
                 unix mallory 1001 1001\ngsi * 1001 1001\n";
    let lines = lines_of(&site, &["alice", "bob", "mallory"], table);
    let gate = site.gate("gate", &lines);
    let data = site.file("data", &noise(1, 5 << 20));
    let copy = |user: &str, from: &str, to: &str| {
        as_user(&site, user, "xrdcp", &["--silent", "-f", from, to])
    };
    drop(copy("alice", &data, &gate.url("/a/own/x")).expect_ok());
    drop(copy("bob", &data, &gate.url("/b/own/x")).expect_ok());
    let stat = client.stat(&ROOT, b"/a/own/x", true).unwrap();
    assert_eq!((stat.uid, stat.gid), (1001, 1001));
    let stat = client.stat(&ROOT, b"/b/own/x", true).unwrap();
    assert_eq!((stat.uid, stat.gid), (1002, 1002));

    // What is not his.
    let back = site.path("back");
    let back = back.to_str().unwrap();
    let refused = |ran: Ran| {
        assert!(ran.status != 0 && ran.err.contains("[3010]"), "{ran}");
    };
    refused(copy("bob", &gate.url("/a/own/x"), back));
    refused(copy("bob", &data, &gate.url("/a/own/x")));
    refused(copy("bob", &data, &gate.url("/a/own/y")));
    for words in [
        &["stat", "/a/own/x"][..],
        &["ls", "/a/own"],
        &["rm", "/a/own/x"],
        &["rmdir", "/a/own"],
        &["mv", "/a/own", "/a/stolen"],
        &["truncate", "/a/own/x", "0"],
        &["chmod", "/a/own", "rwxrwxrwx"],
        &["mkdir", "/a/own/d"],
    ] {
        refused(fs_as(&site, &gate, "bob", words));
    }
    // XRootD takes away what it could not open, where uploads shall be whole or gone: not what is another's. Who may
    // write what is another's may do so there, too.
    let posc = site.gate("posc", &format!("{lines}ofs.persist auto hold 1\n"));
    refused(copy("bob", &data, &posc.url("/a/own/x")));
    assert_eq!(client.stat(&ROOT, b"/a/own/x", true).unwrap().size, 5 << 20);
    client.chmod(&ROOT, b"/a", 0o755).unwrap();
    let of_both = Subject { uid: 0, gid: 1003, groups: Vec::new() };
    let new = Open { write: true, create: true, new: true, ..Open::READ };
    client.open(&of_both, b"/a/shared", new, 0o664).unwrap().close(true).unwrap();
    client.open(&of_both, b"/a/blind", new, 0o620).unwrap().close(true).unwrap();
    for path in ["/a/shared", "/a/blind"] {
        drop(copy("bob", &data, &posc.url(path)).expect_ok());
        assert_eq!(client.stat(&ROOT, path.as_bytes(), true).unwrap().size, 5 << 20, "{path}");
    }
    client.chmod(&ROOT, b"/a", 0o1777).unwrap();
    drop(posc);

    // Whom the table does not know may do nothing, and neither may who has no key.
    refused(fs_as(&site, &gate, "mallory", &["stat", "/"]));
    assert_ne!(gate.xrdfs(&["stat", "/"]).status, 0);
    assert_eq!(fs_as(&site, &gate, "alice", &["stat", "/a/own/x"]).status, 0);

    // One fills what is his; the other does not notice.
    let more = site.file("more", &noise(2, 30 << 20));
    let full = copy("alice", &more, &gate.url("/a/own/more"));
    assert!(full.status != 0, "{full}");
    assert!(full.err.contains("[3009]") || full.err.contains("[3021]"), "{full}");
    drop(copy("bob", &data, &gate.url("/b/own/more")).expect_ok());
    drop(copy("alice", &gate.url("/a/own/x"), back).expect_ok());
    assert!(fs::read(back).unwrap() == noise(1, 5 << 20));
    drop((gate, client));
    site.end();
}

/// What XRootD's own rules of paths forbid stays so where permissions would allow it, and the other way round.
#[test]
fn both_rules_and_permissions_must_allow() {
    let site = Site::new();
    let client = site.client("tank");
    let lines = lines_of(&site, &["alice", "bob"], "sss alice 1001 1001\nsss bob 1002 1002\n");
    let rules = site.file("rules", b"u alice /free a /look lr\nu bob /free a\n");
    let lines = lines.replace("ofs.authlib ", "ofs.authlib ++ ") + &format!("acc.authdb {rules}\n");
    for dir in [b"/free", b"/look"] {
        client.mkdir(&ROOT, dir, 0o777, false).unwrap();
        client.chmod(&ROOT, dir, 0o777).unwrap();
    }
    let alice = Subject { uid: 1001, gid: 1001, groups: Vec::new() };
    client.mkdir(&alice, b"/free/alices", 0o700, false).unwrap();
    let new = Open { write: true, create: true, new: true, ..Open::READ };
    client.open(&ROOT, b"/look/x", new, 0o666).unwrap().close(true).unwrap();
    let gate = site.gate("gate", &lines);
    let data = site.file("data", b"some");
    let copy = |user: &str, from: &str, to: &str| {
        as_user(&site, user, "xrdcp", &["--silent", "-f", from, to]).status == 0
    };
    let back = site.path("back");
    let back = back.to_str().unwrap();
    assert!(copy("alice", &data, &gate.url("/free/a")) && copy("bob", &data, &gate.url("/free/b")));
    assert!(copy("alice", &gate.url("/look/x"), back), "both allow it");
    // The rules do not.
    assert!(!copy("bob", &gate.url("/look/x"), back));
    for path in ["/look/x", "/look/y"] {
        assert!(!copy("alice", &data, &gate.url(path)), "{path}");
    }
    // Permissions do not.
    assert!(copy("alice", &data, &gate.url("/free/alices/x")));
    assert!(!copy("bob", &gate.url("/free/alices/x"), back));
    assert_eq!(client.stat(&ROOT, b"/look/x", true).unwrap().size, 0);
    drop((gate, client));
    site.end();
}

/// Opens a file, says so by making another, and holds it until that is gone.
const HOLD: &str = r#"
import os, sys, time
from XRootD import client
from XRootD.client.flags import OpenFlags
url, sign = sys.argv[1:]
f = client.File()
status, _ = f.open(url, OpenFlags.READ)
assert status.ok, status.message
assert f.read(0, 4)[1] == b'alic'
open(sign, 'w').close()
while os.path.exists(sign): time.sleep(0.02)
f.close()
"#;

/// XRootD has one open file for all who read it: whoever comes second is asked for his permission, too. So is
/// whoever asks for a checksum or an attribute.
#[test]
fn what_one_holds_open_is_not_open_to_others() {
    let site = Site::new();
    let client = site.client("tank");
    let table = "sss alice 1001 1001\nsss bob 1002 1002\n";
    let lines = lines_of(&site, &["alice", "bob", "carol"], table);
    let gate = site.gate("gate", &lines);
    client.chmod(&ROOT, b"/", 0o1777).unwrap();
    let data = site.file("data", b"alice's own");
    drop(as_user(&site, "alice", "xrdcp", &["--silent", &data, &gate.url("/own")]).expect_ok());
    client.chmod(&ROOT, b"/own", 0o600).unwrap();
    let (hold, sign) = (site.file("hold.py", HOLD.as_bytes()), site.path("sign"));
    let (url, at) = (gate.url("/own"), sign.to_str().unwrap());
    let words = [hold.as_str(), &url, at];
    std::thread::scope(|scope| {
        let alice = scope.spawn(|| as_user(&site, "alice", "/usr/bin/python3", &words));
        while !sign.exists() {
            assert!(!alice.is_finished(), "{}", alice.join().unwrap());
            rt::time::sleep(Duration::from_millis(10));
        }
        let back = site.path("back");
        let words = ["-f", url.as_str(), back.to_str().unwrap()];
        let bob = as_user(&site, "bob", "xrdcp", &words);
        let again = as_user(&site, "alice", "xrdcp", &words);
        // What has lost its name by another door is open still.
        client.rename(&ROOT, b"/own", b"/away").unwrap();
        let nameless = as_user(&site, "bob", "xrdcp", &words);
        client.rename(&ROOT, b"/away", b"/own").unwrap();
        fs::remove_file(&sign).unwrap();
        drop((alice.join().unwrap().expect_ok(), again.expect_ok()));
        for ran in [bob, nameless] {
            assert!(ran.status != 0 && ran.err.contains("[3010]"), "{ran}");
        }
    });
    // What XRootD does not tell the storage system of: for whom attributes are.
    drop(fs_as(&site, &gate, "alice", &["xattr", "/own", "set", "k=v"]).expect_ok());
    for words in [&["get", "k"][..], &["set", "k=w"], &["del", "k"], &["list"]] {
        let ran = fs_as(&site, &gate, "bob", &[&["xattr", "/own"], words].concat());
        assert!(ran.status != 0 || !ran.out.contains("k="), "{words:?}: {ran}");
    }
    let ran = fs_as(&site, &gate, "alice", &["xattr", "/own", "get", "k"]).expect_ok();
    assert!(ran.out.contains("k=\"v\""), "{ran}");
    client
        .mkdir(&Subject { uid: 1001, gid: 1001, groups: Vec::new() }, b"/dir", 0o700, false)
        .unwrap();
    drop(fs_as(&site, &gate, "alice", &["xattr", "/dir", "set", "k=v"]).expect_ok());
    assert_ne!(fs_as(&site, &gate, "bob", &["xattr", "/dir", "set", "k=w"]).status, 0);
    client.mkdir(&ROOT, b"/dir/under", 0o777, false).unwrap();
    client.rename(&ROOT, b"/own", b"/dir/own").unwrap();
    assert_ne!(fs_as(&site, &gate, "bob", &["query", "checksum", "/dir/own"]).status, 0);
    drop(fs_as(&site, &gate, "alice", &["query", "checksum", "/dir/own"]).expect_ok());
    // Nor is it told to who may see that it is there, and no more.
    client.chmod(&ROOT, b"/dir", 0o755).unwrap();
    drop(fs_as(&site, &gate, "bob", &["stat", "/dir/own"]).expect_ok());
    for kind in ["/dir/own", "/dir/own?cks.type=md5"] {
        assert_ne!(fs_as(&site, &gate, "bob", &["query", "checksum", kind]).status, 0, "{kind}");
        drop(fs_as(&site, &gate, "alice", &["query", "checksum", kind]).expect_ok());
    }

    // The table is read again when it has changed, and only if it makes sense.
    assert_ne!(fs_as(&site, &gate, "carol", &["stat", "/"]).status, 0);
    drop(site.file("users", format!("{table}sss carol 1003 1003\n").as_bytes()));
    let comes_in = || fs_as(&site, &gate, "carol", &["stat", "/"]).ok();
    until("carol is not let in", comes_in, || gate.log());
    drop(site.file("users", b"sss carol\n"));
    let said =
        || gate.log().contains("users:1: PROTOCOL NAME UID GID is expected; the table stays");
    until("a wrong table is passed over", || comes_in() && said(), || gate.log());
    // Somebody is writing it: half a number is another one.
    drop(site.file("users", b"sss carol 1003 100"));
    let said = || gate.log().contains("users:1: the line has no end; the table stays");
    until("half a table is passed over", || comes_in() && said(), || gate.log());
    drop(site.file("users", table.as_bytes()));
    until("carol is still let in", || !comes_in(), || gate.log());
    drop((gate, client));

    // Without the lines that ask for each, a table lets in nobody.
    let lines = lines.replace(&site.authority(), "");
    let gate = site.gate("unguarded", &lines);
    let ran = fs_as(&site, &gate, "alice", &["stat", "/"]);
    assert!(ran.status != 0 && gate.log().contains("map= needs the lines"), "{ran}{}", gate.log());
    drop(gate);
    site.end();
}

/// Opens a file to change it, though others have it open: then it could be read, too.
const UPDATE: &str = r#"
import sys
from XRootD import client
from XRootD.client.flags import OpenFlags
f = client.File()
url, how = sys.argv[1:]
status, _ = f.open(url, getattr(OpenFlags, how) | OpenFlags.FORCE)
print(status.ok)
"#;

/// The same, held; then gives another file its name, and asks for the attributes of what is open.
const SWAP: &str = r#"
import sys
from XRootD import client
from XRootD.client.flags import OpenFlags
server, mine, theirs = sys.argv[1:]
f = client.File()
assert f.open(server + mine, OpenFlags.UPDATE)[0].ok
assert f.list_xattr()[0].ok
assert client.FileSystem(server).mv(theirs, mine)[0].ok
print(f.list_xattr()[0].ok)
f.close()
"#;

/// XRootD's open files are anybody's who comes next, and their attributes those of their names.
#[test]
fn who_has_a_file_open_gets_no_more_than_is_his() {
    let site = Site::new();
    let client = site.client("tank");
    let lines = lines_of(&site, &["alice", "bob"], "sss alice 1001 1001\nsss bob 1002 1002\n");
    let gate = site.gate("gate", &lines);
    client.chmod(&ROOT, b"/", 0o777).unwrap();
    let data = site.file("data", b"alice's own");
    for (user, path) in [("alice", "/drop"), ("alice", "/theirs"), ("bob", "/mine")] {
        drop(as_user(&site, user, "xrdcp", &["--silent", &data, &gate.url(path)]).expect_ok());
    }
    client.chmod(&ROOT, b"/drop", 0o622).unwrap();
    drop(fs_as(&site, &gate, "alice", &["xattr", "/theirs", "set", "k=v"]).expect_ok());
    client.chmod(&ROOT, b"/theirs", 0o600).unwrap();
    let (hold, sign) = (HOLD.replace("READ", "UPDATE"), site.path("sign"));
    let (hold, url) = (site.file("hold.py", hold.as_bytes()), gate.url("/drop"));
    let words = [hold.as_str(), &url, sign.to_str().unwrap()];
    let update = site.file("update.py", UPDATE.as_bytes());
    let bob = |words: &[&str]| as_user(&site, "bob", "/usr/bin/python3", words);
    assert_eq!(bob(&[&update, &url, "UPDATE"]).expect_ok().out, "False\n");
    std::thread::scope(|scope| {
        let alice = scope.spawn(|| as_user(&site, "alice", "/usr/bin/python3", &words));
        while !sign.exists() {
            assert!(!alice.is_finished(), "{}", alice.join().unwrap());
            rt::time::sleep(Duration::from_millis(10));
        }
        let beside = ["UPDATE", "DELETE"].map(|how| bob(&[&update, &url, how]).out);
        fs::remove_file(&sign).unwrap();
        drop(alice.join().unwrap().expect_ok());
        assert_eq!(beside, ["False\n"; 2]);
    });
    assert_eq!(client.stat(&ROOT, b"/drop", true).unwrap().size, 11);
    // Nobody has it open now, so it can be overwritten.
    assert_eq!(bob(&[&update, &url, "DELETE"]).expect_ok().out, "True\n");
    let swap = site.file("swap.py", SWAP.as_bytes());
    let server = format!("root://localhost:{}/", gate.port);
    assert_eq!(bob(&[&swap, &server, "/mine", "/theirs"]).expect_ok().out, "False\n");
    let ran = fs_as(&site, &gate, "alice", &["xattr", "/mine", "get", "k"]).expect_ok();
    assert!(ran.out.contains("k=\"v\""), "{ran}");
    drop((gate, client));
    site.end();
}

/// XRootD's protocol by hand, to be gone on with: for what no client program can be asked for. A path, and that of a sign
/// between the script and who has begun it.
const RAW: &str = r#"
import os, socket, struct, sys
port, path, sign = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3]
s = socket.create_connection(('localhost', port))
def answer():
    head = s.recv(8, socket.MSG_WAITALL)
    _, status, length = struct.unpack('>HHI', head)
    return status, s.recv(length, socket.MSG_WAITALL) if length else b''
def ask(number, words, data=b'', more=b''):
    assert len(words) == 16
    s.sendall(struct.pack('>HH', 0, number) + words + struct.pack('>I', len(data)) + data + more)
    return answer()
def well(status, body):
    assert status == 0, (status, body)
    return body
s.sendall(struct.pack('>5I', 0, 0, 0, 4, 2012))
answer()
ask(3007, struct.pack('>I8s4B', 1, b'someone', 0, 0, 5, 0))
def opened(how):
    return well(*ask(3010, struct.pack('>HH12x', 0, how), path))[:4]
"#;

/// Asks for an attribute of what it has open, until the sign is taken away, and tells what it saw.
const ATTRIBUTE: &str = r#"
handle = opened(0x10)
open(sign, 'w').close()
seen = set()
while os.path.exists(sign):
    status, values = ask(3020, handle + b'\1\1' + bytes(10), b'\0\0\0k\0')
    seen.update(value for value in (b'mine', b'theirs') if value in values)
print(seen)
"#;

/// The name of what one has open comes to be another's file in the moment between the question whether he may see the
/// attributes of what has the name, and the one for them.
#[test]
fn attributes_of_what_is_open_are_asked_for_by_who_has_it_open() {
    const FILES: usize = 300;
    let site = Site::new();
    let client = site.client("tank");
    let map = site.file("users", b"host * 1001 1001\n");
    let lines = site.osslib(&format!("pool=tank map={map}")) + &site.authority();
    let gate = site.gate("gate", &lines);
    client.chmod(&ROOT, b"/", 0o777).unwrap();
    let new = Open { write: true, create: true, new: true, ..Open::READ };
    let make = |uid: u32, value: &str, path: &str| {
        let owner = Subject { uid, gid: uid, groups: Vec::new() };
        client.open(&owner, path.as_bytes(), new, 0o600).unwrap().close(false).unwrap();
        // XRootD keeps those of clients so.
        let (name, value) = (b"user.U.k", Some(value.as_bytes()));
        client.set_xattr(&ROOT, path.as_bytes(), name, value).unwrap();
    };
    make(1001, "mine", "/name");
    for i in 0..FILES {
        make(1002, "theirs", &format!("/theirs{i}"));
        make(1001, "mine", &format!("/mine{i}"));
    }
    let (script, sign) =
        (site.file("attribute.py", [RAW, ATTRIBUTE].concat().as_bytes()), site.path("sign"));
    let (port, at) = (gate.port.to_string(), sign.to_str().unwrap());
    let words = [script.as_str(), &port, "/name", at];
    let seen = std::thread::scope(|scope| {
        let asked = scope.spawn(|| tool("/usr/bin/python3", &words, &[]));
        until("it is open", || sign.exists() || asked.is_finished(), || gate.log());
        for i in 0..FILES {
            for whose in ["theirs", "mine"] {
                rt::time::sleep(Duration::from_millis(1));
                client.rename(&ROOT, format!("/{whose}{i}").as_bytes(), b"/name").unwrap();
            }
        }
        fs::remove_file(&sign).unwrap();
        asked.join().unwrap().expect_ok().out
    });
    assert_eq!(seen, "{b'mine'}\n");
    drop((gate, client));
    site.end();
}

/// XRootD's client is told that it may not where nobody can be asked; the log says why, once.
#[test]
fn why_nobody_may_is_in_the_log() {
    let mut site = Site::new();
    let lines = lines_of(&site, &["alice"], "sss alice 1001 1001\n");
    let lines = lines.replace(" map=", " patience=1 map=");
    let gate = site.gate("gate", &lines);
    drop(fs_as(&site, &gate, "alice", &["stat", "/"]).expect_ok());
    site.kill();
    for _ in 0..2 {
        assert_ne!(fs_as(&site, &gate, "alice", &["stat", "/"]).status, 0);
    }
    let log = gate.log();
    let why = "cannot ask by whom / may be used, so nobody is let in: no server at '";
    assert_eq!(log.matches(why).count(), 1, "{log}");
    site.start();
    drop(fs_as(&site, &gate, "alice", &["stat", "/"]).expect_ok());
    drop(gate);
    site.end();
}

/// Opens a file to change it, and begins a checkpoint: XRootD keeps what is overwritten, to put it back. Is killed with it.
const CHECKPOINT: &str = r#"
handle = opened(0x20)
well(*ask(3012, handle + bytes(11) + b'\0'))
write = struct.pack('>HH4sQ4xI', 0, 3019, handle, 0, 4)
well(*ask(3012, handle + bytes(11) + b'\4', write, b'more'))
open(sign, 'w').close()
s.recv(1)
"#;

/// What XRootD has begun for a client it ends for nobody, by a name that may be another's by then.
#[test]
fn what_xrootd_restores_by_itself_is_nobodys() {
    let site = Site::new();
    let client = site.client("tank");
    let map = site.file("users", b"host * 1001 1001\n");
    let words = format!("pool=tank map={map}");
    let lines = format!("{}{}ofs.chkpnt enable\n", site.osslib(&words), site.authority());
    let mut gate = site.gate("gate", &lines);
    client.chmod(&ROOT, b"/", 0o777).unwrap();
    let (new, of) = (Open { write: true, create: true, new: true, ..Open::READ }, |uid| Subject {
        uid,
        gid: uid,
        groups: Vec::new(),
    });
    let make = |path: &[u8], uid, bytes: &[u8]| {
        let file = client.open(&of(uid), path, new, 0o644).unwrap();
        file.finish(0, bytes, true).unwrap();
    };
    make(b"/mine", 1001, b"mine");
    make(b"/theirs", 1002, b"what is theirs");
    let (program, sign) =
        (site.file("checkpoint.py", [RAW, CHECKPOINT].concat().as_bytes()), site.path("sign"));
    let (port, at) = (gate.port.to_string(), sign.to_str().unwrap());
    std::thread::scope(|scope| {
        let words = [program.as_str(), &port, "/mine", at];
        let asked = scope.spawn(move || tool("/usr/bin/python3", &words, &[]));
        while !sign.exists() {
            assert!(!asked.is_finished(), "{}", asked.join().unwrap());
            rt::time::sleep(Duration::from_millis(10));
        }
        gate.kill();
    });
    client.rename(&of(1001), b"/theirs", b"/mine").unwrap();
    gate.start_again();
    let (mut bytes, before) = ([0; 20], b"what is theirs");
    let (count, stat) = client.get(&ROOT, b"/mine", &mut bytes).unwrap();
    assert_eq!(
        (bytes[..count].escape_ascii().to_string(), stat.mode),
        (before.escape_ascii().to_string(), 0o100_644)
    );
    drop((gate, client));
    site.end();
}
