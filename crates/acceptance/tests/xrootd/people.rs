//! Who is who: identities that XRootD has found out, owners, permissions and quotas.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use client::Subject;
use testkit::Ran;

use crate::gate::{Gate, ROOT, Site, hand_over, noise, tool};

/// The server's keytab with a key for each user, and one for each of them with his own alone.
fn keytab(site: &Site, users: &[&str]) -> String {
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

fn as_user(site: &Site, user: &str, program: &str, words: &[&str]) -> Ran {
    let key = site.path(&format!("{user}.keytab"));
    let mine = [("XrdSecSSSKT", key.to_str().unwrap()), ("XrdSecPROTOCOL", "sss")];
    tool(program, words, &mine)
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
    let server = keytab(&site, &["alice", "bob", "mallory"]);
    let map = site.file("users", b"# who is who\nsss alice 1001 1001\nsss bob 1002 1002 1003\n");
    for (fs, uid) in [("a", 1001), ("b", 1002)] {
        drop(site.run(&["zfs", "create", &format!("tank/{fs}")]));
        drop(site.run(&["zfs", "set", "refquota=20M", &format!("tank/{fs}")]));
        let top = format!("/{fs}");
        client.chmod(&ROOT, top.as_bytes(), 0o1777).unwrap();
        let subject = Subject { uid, gid: uid, groups: Vec::new() };
        client.mkdir(&subject, format!("{top}/own").as_bytes(), 0o700, false).unwrap();
    }
    let lines = format!(
        "{}xrootd.seclib libXrdSec.so\nsec.protocol sss -s {server}\nsec.protbind * only sss\n",
        site.osslib(&format!("pool=tank map={map}"))
    );
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
