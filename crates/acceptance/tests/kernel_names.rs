//! Names beyond ASCII in file systems that ignore case or normalize, and ACLs: made by us, found by the
//! OpenZFS kernel under other spellings; and the other way round.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use acceptance::{SHAPES, Session, engine};
use fs::{Filesystem, NewObject, Who, make_filesystem, mode};
use pool::Stored;
use testkit::{Vm, tool, vm};

/// File systems: name, casesensitivity, normalization, and how else a name can be spelled there.
const KINDS: [(&str, u64, u64, &str); 4] = [
    ("insens", 1, 0, "name.swapcase()"),
    ("formC", 0, 0x50, "unicodedata.normalize('NFD', name)"),
    ("formKD", 0, 0x20, "unicodedata.normalize('NFKC', name)"),
    ("both", 1, 0x10, "unicodedata.normalize('NFC', name).swapcase()"),
];

/// An ACL that lets user 1001 write, as the kernel packs it.
const ACL: [u16; 22] = [
    2, 0, 1, 6, 0xffff, 0xffff, 2, 6, 1001, 0, 4, 4, 0xffff, 0xffff, 0x10, 6, 0xffff, 0xffff, 0x20,
    4, 0xffff, 0xffff,
];

/// Names whose letters have one other case each way, so that Python's case is OpenZFS's.
fn names() -> Vec<String> {
    let letters =
        ["\u{e9}", "\u{f1}o", "\u{17e}", "\u{434}\u{43e}", "\u{3b1}\u{3ac}", "\u{1ea5}", "z"];
    let mut names = Vec::new();
    for (i, letter) in letters.iter().cycle().take(120).enumerate() {
        names.push(format!("n{i}{letter}{}", letters[i / 7 % 7]));
    }
    // Too long for a micro ZAP: the directory becomes a fat one.
    names.push("\u{e5}".repeat(60));
    names
}

#[test]
fn names_and_acls_are_the_kernels() {
    if !vm::wanted("that the kernel finds names of ours by other spellings") {
        return;
    }
    let (images, mut session) = Session::create(&SHAPES[0], 128 << 10);
    let who = Who { uid: 7, gid: 8 };
    let file = NewObject::of(mode::FILE | 0o664, who);
    let mut script = String::from("set -e\nzpool import -d /d -o cachefile=none -f tank\n");
    for (name, case, form, spelled) in KINDS {
        let number = |name: &str, value| (name.to_string(), Stored::Number(value));
        let props = BTreeMap::from([
            number("casesensitivity", case),
            number("normalization", form),
            number("utf8only", u64::from(form != 0)),
            number("acltype", 1),
        ]);
        let dataset = format!("tank/{name}");
        session.pool().create_filesystem(&dataset, props, make_filesystem).unwrap();
        let fs = Filesystem::open(session.pool(), &dataset).unwrap();
        for name in names() {
            fs.create_with(fs.root(), name.as_bytes(), &file, name.as_bytes()).unwrap();
        }
        let again = fs.create_with(fs.root(), "N2\u{17d}\u{c9}".as_bytes(), &file, b"");
        assert_eq!(again.is_err(), case == 1, "{name}");
        let acl: Vec<u8> = ACL.iter().flat_map(|word| word.to_le_bytes()).collect();
        let first = fs.resolve(names()[0].as_bytes()).unwrap();
        fs.set_xattr(first, b"system.posix_acl_access", Some(&acl)).unwrap();
        script += &format!(
            "getfacl -n /tank/{name}/n0* | grep user:1001\npython3 - <<'X'\nimport os, unicodedata\nos.chdir('/tank/{name}')\nall = os.listdir('.')\n\
             for name in all:\n    other = {spelled}\n    same = os.stat(name).st_ino\n    \
             assert os.stat(other).st_ino == same, (name, other)\n    \
             text = open(other).read()\n    assert text in ('', name), (name, text)\n\
             for name in sorted(all)[:40]: os.unlink({spelled})\n\
             for i in range(30): open('k%d\\u00fc' % i, 'w').write('made')\n\
             print('{name}', len(all))\nX\n"
        );
    }
    session.close().unwrap();
    script += "zpool export tank\n";
    let ran = Vm::new(images.path()).run(&script).expect_ok();
    let count = |case: u64| names().len() + usize::from(case == 0);
    for (name, case, ..) in KINDS {
        assert!(ran.out.contains(&format!("{name} {}", count(case))), "{ran}");
    }
    assert_eq!(ran.out.matches("user:1001:rw-").count(), KINDS.len(), "{ran}");

    let session = Session::open(images.path(), engine::POOL, engine::POOL).unwrap();
    for (name, case, form, _) in KINDS {
        let fs = Filesystem::open(session.pool(), &format!("tank/{name}")).unwrap();
        let left = fs.read_dir(fs.root()).unwrap().len();
        assert_eq!(left, count(case) - 40 + 30, "{name}");
        for i in 0..30 {
            let spelled = match (case, form) {
                (1, 0) => format!("K{i}\u{dc}"),
                (1, _) => format!("K{i}U\u{308}"),
                _ => format!("k{i}u\u{308}"),
            };
            assert!(fs.resolve(spelled.as_bytes()).is_ok(), "{name}: {spelled}");
        }
    }
    drop(session);
    tool::zdb_content(images.path(), engine::POOL);
    tool::zdb_objects(images.path(), engine::POOL);
}
