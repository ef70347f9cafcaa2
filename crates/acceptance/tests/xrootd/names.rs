//! Names: the list that xrdfs can do, beside XRootD's own storage layer over a directory.

use std::fs;

use testkit::Ran;

use crate::gate::{Gate, Site, hand_over, tool};

/// What is asked, one after the other: a word `@x` is the address of `/x` and `%x` a file of the host.
const LIST: &[&str] = &[
    "xrdcp %s @a/b/s",
    "xrdcp %s @a/b/s",
    "xrdcp -f %s @a/b/s",
    "xrdcp --cksum adler32:print %s @a/b/s2",
    "xrdcp %empty @a/empty",
    "xrdcp @a/none %none",
    "mkdir /m",
    "mkdir /m",
    "mkdir -p /m/n/o/p",
    "mkdir -p /m/n/o/p",
    "mkdir /q/r",
    "ls /",
    "ls -R /",
    "ls /none",
    "ls /a/b/s",
    "stat /a/empty",
    "stat /none",
    "mv /a/b/s /a/b/t",
    "mv /a/b/t /none/t",
    "mv /a/b/t /a/b/s2",
    "mv /m/n /m/nn",
    "rm /a/b/none",
    "rmdir /m",
    "rmdir /a/b/s2",
    "rmdir /m/nn/o/p",
    "truncate /a/b/s2 500",
    "truncate /a/none 500",
    "cat /a/b/s2",
    "tail -c 10 /a/b/s2",
    "chmod /a/b/s2 rw-r-----",
    "chmod /a/none rw-r-----",
    "stat /a/b/s2",
    "query checksum /a/b/s2",
    "query checksum /a/b/s2?cks.type=crc32c",
    "xattr /a/b/s2 set k=v",
    "xattr /a/b/s2 set k2=other",
    "xattr /a/b/s2 get k",
    "xattr /a/b/s2 del k",
    "xattr /a/b/s2 del k",
    "xattr /a/b/s2 get k",
    "xattr /a/b/s2 list",
    "ls /../..",
    "stat /a/../../etc",
    "mkdir /a/../../x",
    "rm /a/b/s2",
    "ls /a/b",
];

/// What may differ: numbers and times of files, owners, and the permissions that the server's own user has.
fn alike(ran: &Ran, gate: &Gate) -> String {
    let all = format!("{}\n{}{}", ran.status, ran.out, ran.err).replace('\0', "");
    let all = all.replace(&gate.port.to_string(), "PORT");
    let differs = ["Id:", "MTime:", "CTime:", "ATime:", "Owner:", "Group:", "Flags:"];
    let lines = all.lines().filter(|line| !differs.iter().any(|word| line.starts_with(word)));
    lines.collect::<Vec<_>>().join("\n")
}

fn in_order(lines: &str) -> String {
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn ask(site: &Site, gate: &Gate, line: &str) -> Ran {
    let mut words: Vec<String> = line.split_whitespace().map(String::from).collect();
    for word in &mut words {
        if let Some(path) = word.strip_prefix('@') {
            *word = gate.url(&format!("/{path}"));
        } else if let Some(name) = word.strip_prefix('%') {
            *word = site.path(name).to_str().unwrap().into();
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[0] {
        "xrdcp" => tool("xrdcp", &[&["--silent"], &words[1..]].concat(), &[]),
        _ => gate.xrdfs(&words),
    }
}

#[test]
fn names_are_as_over_a_directory() {
    let site = Site::new();
    let ours = site.gate("ours", &site.osslib("pool=tank"));
    let plain = site.path("plain");
    fs::create_dir(&plain).unwrap();
    hand_over(&plain);
    let theirs = site.gate("theirs", &format!("oss.localroot {}\n", plain.display()));
    drop(site.file("s", &[b'x'; 1000]));
    drop(site.file("empty", b""));
    let mut differ = Vec::new();
    for line in LIST {
        let (a, b) = (ask(&site, &ours, line), ask(&site, &theirs, line));
        let (mut said, mut due) = (alike(&a, &ours), alike(&b, &theirs));
        if line.starts_with("ls -R") {
            // It asks for several directories at once, and prints what comes first.
            (said, due) = (in_order(&said), in_order(&due));
        }
        if said != due {
            differ.push(format!("{line}\nours: {a}\ntheirs: {b}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));

    // Space, which a directory has otherwise: ours is the pool's, in bytes and MiB. A txg may change it meanwhile.
    let client = site.client("tank");
    let (space, said) = (0..10)
        .find_map(|_| {
            let space = client.space(b"/").unwrap();
            let ask = |words: &[&str]| ours.xrdfs(words).expect_ok().out;
            let asked = [&["query", "space", "/"][..], &["spaceinfo", "/"], &["statvfs", "/"]];
            let said = asked.map(ask);
            (client.space(b"/").unwrap() == space).then_some((space, said))
        })
        .expect("nobody writes to it");
    let expected = [
        format!("oss.cgroup=public&oss.space={}&", space.total),
        format!("{}\n", space.total),
        format!("Size of largest RW space (MB):      {}", space.free >> 20),
    ];
    for (said, expected) in said.iter().zip(&expected) {
        assert!(said.contains(expected), "{said}\n{expected}");
    }
    let said = ours.xrdfs(&["ls", "-l", "/a"]).expect_ok().out;
    assert!(said.contains("-rw-r--r-- root root 0 ") && said.contains(" /a/empty"), "{said}");
    drop((ours, theirs));
    site.end();
}

/// Nothing that is asked leads out of the tree.
#[test]
fn paths_lead_nowhere_else() {
    let site = Site::new();
    drop(site.run(&["zfs", "create", "tank/a"]));
    drop(site.run(&["put", &site.file("secret", b"secret"), "tank:/secret"]));
    let gate = site.gate("gate", &site.osslib("tree=tank/a"));
    let from = site.file("plain", b"plain");
    for path in ["/../secret", "/./../secret", "/x/../../secret", "//..//secret", "/..", "/x/.."] {
        assert_ne!(gate.xrdfs(&["stat", path]).status, 0, "{path}");
        assert_ne!(gate.xrdfs(&["rm", path]).status, 0, "{path}");
        assert_ne!(gate.xrdfs(&["mkdir", path]).status, 0, "{path}");
        assert_ne!(tool("xrdcp", &["--silent", "-f", &from, &gate.url(path)], &[]).status, 0);
        for web in [path.to_string(), path.replace('.', "%2e"), path.replace('/', "%2f")] {
            let (status, body) = crate::gate::curl(&site, &[&gate.http(&web)]);
            assert!(!status.starts_with('2') && body != b"secret", "{web}: {status}");
        }
    }
    // Odd names are names.
    for name in ["a b", "tab\there", "ümlaut", "new\nline", "quo\"te'", "-x", "...", "\u{1}\u{7f}"]
    {
        let path = format!("/odd/{name}");
        drop(gate.xrdfs(&["mkdir", "-p", &path]));
    }
    let long = format!("/{}", "x".repeat(300));
    assert_ne!(gate.xrdfs(&["mkdir", &long]).status, 0);
    assert_ne!(gate.xrdfs(&["stat", &"/x".repeat(2500)]).status, 0);
    let listed = site.run(&["ls", "tank/a:/odd"]);
    for name in ["a b", "ümlaut", "...", "-x"] {
        assert!(listed.contains(name), "{name}: {listed}");
    }
    // A link out of the tree, put there by other means.
    let links = site.path("links");
    fs::create_dir(&links).unwrap();
    std::os::unix::fs::symlink("../../secret", links.join("up")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", links.join("host")).unwrap();
    drop(site.run(&["put", "-r", links.to_str().unwrap(), "tank/a:/"]));
    for link in ["/links/up", "/links/host"] {
        assert_ne!(gate.xrdfs(&["cat", link]).status, 0, "{link}");
    }
    assert_eq!(site.run(&["cat", "tank:/secret"]), "secret");
    drop(gate);
    site.end();
}

/// Words that make no sense keep xrootd from starting, and say why.
#[test]
fn what_is_wrong_in_the_configuration_is_said() {
    let site = Site::new();
    let said = Gate::refuses(&site, "none", &site.osslib("lanes=4"));
    assert!(said.contains("pool=POOL or tree=POOL/FS is missing"), "{said}");
    let said = Gate::refuses(&site, "odd", &site.osslib("pool=tank stable=maybe"));
    assert!(said.contains("'stable=maybe' is not known"), "{said}");
    let map = site.file("map", b"# names\nunix * 65534 65534\nsss alice 1001\n");
    let said = Gate::refuses(&site, "map1", &site.osslib(&format!("pool=tank map={map}")));
    assert!(said.contains("map:3: PROTOCOL NAME UID GID is expected"), "{said}");
    site.end();
}
