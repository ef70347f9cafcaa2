//! Two listings of the same files, side by side: what differs, in words.

use std::collections::BTreeMap;

use crate::truth::{Entry, Kind, UNKNOWN_TIME};

/// What is compared besides path, kind, mode, owner, size of files, target, device numbers, content
/// and errors, which always are. A time that is [`UNKNOWN_TIME`] on either side equals any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compare {
    /// Object numbers.
    pub objects: bool,
    /// Link counts of directories and their sizes, which each file system counts its own way.
    pub directories: bool,
    /// Link counts of files.
    pub links: bool,
    /// Space used.
    pub blocks: bool,
    /// Block sizes, as stat tells them.
    pub block_size: bool,
    /// Times of last access.
    pub atime: bool,
    /// Times of the last change of content.
    pub mtime: bool,
    /// Times of the last change of anything.
    pub ctime: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// The segments of data between holes, exactly.
    pub holes: bool,
    /// Owner and group.
    pub owner: bool,
    /// Project ids and flags.
    pub flags: bool,
}

impl Compare {
    /// Everything: our view of a pool beside the kernel's.
    pub const ALL: Compare = Compare {
        objects: true,
        directories: true,
        links: true,
        blocks: true,
        block_size: true,
        atime: true,
        mtime: true,
        ctime: true,
        xattrs: true,
        holes: true,
        owner: true,
        flags: true,
    };

    /// What a copy to another file system keeps.
    pub const COPY: Compare = Compare {
        objects: false,
        directories: false,
        links: true,
        blocks: false,
        block_size: false,
        atime: false,
        mtime: true,
        ctime: false,
        xattrs: true,
        holes: false,
        owner: true,
        flags: false,
    };

    /// What a model knows of a file system after a workload.
    pub const MODEL: Compare = Compare { directories: true, ..Compare::COPY };
}

/// What differs between `expected` and `found`, one line each; empty if nothing does.
#[must_use]
pub fn differences(expected: &[Entry], found: &[Entry], compare: Compare) -> Vec<String> {
    let index = |list: &[Entry]| -> BTreeMap<Vec<u8>, Entry> {
        list.iter().map(|entry| (entry.path.clone(), entry.clone())).collect()
    };
    let (want, have) = (index(expected), index(found));
    let mut out = Vec::new();
    for (list, map, which) in [(expected, &want, "expected"), (found, &have, "found")] {
        if list.len() != map.len() {
            out.push(format!("{} paths are {which} twice", list.len() - map.len()));
        }
    }
    for path in want.keys().chain(have.keys().filter(|path| !want.contains_key(*path))) {
        let name = path.escape_ascii();
        match (want.get(path), have.get(path)) {
            (Some(a), Some(b)) => {
                out.extend(one(a, b, compare).map(|what| format!("{name}: {what}")));
            }
            (Some(_), None) => out.push(format!("{name}: missing")),
            _ => out.push(format!("{name}: should not be there")),
        }
    }
    out
}

/// Asserts that nothing differs.
///
/// # Panics
/// With the first differences, if something does.
#[track_caller]
pub fn assert_same(expected: &[Entry], found: &[Entry], compare: Compare) {
    let lines = differences(expected, found, compare);
    let shown = lines.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(lines.is_empty(), "{} differences (expected, found):\n{shown}", lines.len());
}

/// What differs between two entries of the same path.
fn one<'a>(a: &'a Entry, b: &'a Entry, compare: Compare) -> impl Iterator<Item = String> + use<> {
    let mut out = Vec::new();
    let mut check = |wanted: bool, what: &str, same: bool, seen: String| {
        if wanted && !same {
            out.push(format!("{what} {seen}"));
        }
    };
    macro_rules! same {
        ($wanted:expr, $what:literal, $field:ident) => {
            check($wanted, $what, a.$field == b.$field, format!("{:?}, {:?}", a.$field, b.$field))
        };
    }
    let dir = a.kind == Kind::Dir;
    same!(true, "kind", kind);
    check(a.kind != Kind::Link, "mode", a.mode == b.mode, format!("{:o}, {:o}", a.mode, b.mode));
    same!(compare.owner, "uid", uid);
    same!(compare.owner, "gid", gid);
    same!(!dir || compare.directories, "size", size);
    same!(if dir { compare.directories } else { compare.links }, "nlink", nlink);
    same!(true, "target", target);
    same!(true, "device", rdev);
    same!(true, "sha256", sha256);
    same!(true, "sha256 of data", sha256_of_data);
    same!(true, "error", error);
    same!(compare.objects, "object", object);
    same!(compare.blocks, "blocks", blocks);
    same!(compare.block_size, "block size", blksize);
    same!(compare.holes, "data", data);
    same!(compare.flags, "project", project);
    same!(compare.flags, "flags", xflags);
    for (wanted, what, left, right) in [
        (compare.atime, "atime", a.atime, b.atime),
        (compare.mtime, "mtime", a.mtime, b.mtime),
        (compare.ctime, "ctime", a.ctime, b.ctime),
    ] {
        let same = left == right || left == UNKNOWN_TIME || right == UNKNOWN_TIME;
        check(wanted, what, same, format!("{left:?}, {right:?}"));
    }
    let sorted = |entry: &Entry| {
        let mut list = entry.xattrs.clone();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    };
    let (left, right) = (sorted(a), sorted(b));
    check(compare.xattrs, "xattrs", left == right, format!("{left:?}, {right:?}"));
    out.into_iter()
}

/// Asserts that the files in `found` take no more space than what the model says was written into
/// them: each piece rounded to whole records, all of it `times` over (the parity of small records), and
/// 64 KiB for each file's own bookkeeping. That is, that holes are holes.
///
/// # Panics
/// With the first file that takes more.
#[track_caller]
pub fn assert_sparse(model: &[Entry], found: &[Entry], record_bytes: u64, times: u64) {
    let have: BTreeMap<&[u8], &Entry> = found.iter().map(|e| (e.path.as_slice(), e)).collect();
    for entry in model {
        let (Some(data), Some(there)) = (&entry.data, have.get(entry.path.as_slice())) else {
            continue;
        };
        let rounded = |(at, len): &(u64, u64)| {
            (at + len).next_multiple_of(record_bytes) - at / record_bytes * record_bytes
        };
        let most = data.iter().map(rounded).sum::<u64>() * times + (64 << 10);
        let used = there.blocks * 512;
        let name = entry.path.escape_ascii();
        assert!(used <= most, "{name}: takes {used} bytes, at most {most} were to be expected");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::truth::XattrValue;
    use std::slice::from_ref;

    /// Each kind of difference is seen, and named.
    #[test]
    fn planted_differences_are_found() {
        let plain = Entry { sha256: Some("a".into()), ..Entry::new(b"f".to_vec(), Kind::File) };
        type Change = (&'static str, fn(&mut Entry));
        let changes: [Change; 20] = [
            ("kind", |e| e.kind = Kind::Fifo),
            ("mode", |e| e.mode = 1),
            ("uid", |e| e.uid = 1),
            ("gid", |e| e.gid = 1),
            ("size", |e| e.size = 1),
            ("nlink", |e| e.nlink = 2),
            ("target", |e| e.target = Some(vec![])),
            ("device", |e| e.rdev = Some((1, 1))),
            ("sha256 ", |e| e.sha256 = None),
            ("sha256 of data", |e| e.sha256_of_data = Some(String::new())),
            ("error", |e| e.error = Some(String::new())),
            ("object", |e| e.object = 1),
            ("blocks", |e| e.blocks = 1),
            ("block size", |e| e.blksize = 1),
            ("data", |e| e.data = Some(vec![])),
            ("project", |e| e.project = Some(1)),
            ("flags", |e| e.xflags = Some(1)),
            ("mtime", |e| e.mtime = (1, 1)),
            ("xattrs", |e| e.xattrs.push((vec![], XattrValue::of(b"")))),
            ("missing", |e| e.path = b"g".to_vec()),
        ];
        let base = Entry { mtime: (0, 0), ..plain };
        for (what, change) in changes {
            let mut other = base.clone();
            change(&mut other);
            let lines = differences(from_ref(&base), &[other], Compare::ALL);
            assert!(
                lines.iter().any(|line| line.starts_with(&format!("f: {what}"))),
                "{what}: {lines:?}"
            );
        }
        assert_eq!(differences(from_ref(&base), from_ref(&base), Compare::ALL), [""; 0]);
        let twice = [base.clone(), base.clone()];
        assert_eq!(
            differences(&twice, from_ref(&base), Compare::ALL),
            ["1 paths are expected twice"]
        );
    }
}
