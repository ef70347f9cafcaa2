//! ZAPs that the OpenZFS kernel wrote, against what OpenZFS's own tools list in them.
//!
//! `data/zap/NAME.zap.zst` is the block size (u64) and the blocks of one object, `NAME.txt.zst` one
//! line per entry, `name=int,int,...`, with bytes other than printable ASCII as `%xx`. Those of
//! [`ZDB_ORDER`] are in the order in which zdb lists them.

use format::FormatError;
use format::zap::{Cursor, Entry, FatFlags, Key, Kind, Reader, check};

use crate::{blocks, unpack};

const ALL: &[&str] = &[
    "bookmarks",
    "crypto-key",
    "ddt",
    "ddt-statistics",
    "feature-descriptions",
    "micro-both-case-and-form",
    "micro-directory",
    "micro-features",
    "micro-mixed-case",
    "object-directory",
    "properties",
    "rz1-directory",
    "sa-layouts",
    "single-directory-240",
    "single-directory-long-names",
];
const ZDB_ORDER: &[&str] =
    &["feature-descriptions", "micro-features", "object-directory", "properties", "rz1-directory"];

fn line(entry: &Entry, flags: u64) -> String {
    let name = if flags & FatFlags::UINT64_KEY != 0 {
        entry.words().iter().flat_map(|w| w.to_le_bytes()).collect()
    } else {
        entry.name.clone()
    };
    let printed = name.iter().map(|&b| match b {
        b'%' | 0..=32 | 127.. => format!("%{b:02x}"),
        _ => char::from(b).to_string(),
    });
    let ints: Vec<_> = entry.value.ints().iter().map(u64::to_string).collect();
    format!("{}={}", printed.collect::<String>(), ints.join(","))
}

#[test]
fn every_entry_is_listed_and_found() {
    for name in ALL {
        let blocks = blocks(name);
        let read = |blkid: u64| Ok::<_, FormatError>(blocks[blkid as usize].as_slice());
        let mut zap = Reader::open(read).unwrap();
        assert_eq!(zap.kind() == Kind::Micro, name.starts_with("micro"), "{name}");
        let entries: Vec<_> = zap.entries().collect::<Result<_, _>>().unwrap();
        assert_eq!(zap.count().unwrap(), entries.len() as u64, "{name}");
        let mut lines: Vec<_> = entries.iter().map(|e| line(e, zap.flags())).collect();
        let text = String::from_utf8(unpack(&format!("{name}.txt.zst"))).unwrap();
        let mut want: Vec<_> = text.lines().collect();
        if !ZDB_ORDER.contains(name) {
            lines.sort_unstable();
            want.sort_unstable();
        }
        assert_eq!(lines, want, "{name}");
        for entry in &entries {
            let words = entry.words();
            let key = if zap.flags() & FatFlags::UINT64_KEY != 0 {
                Key::Words(&words)
            } else {
                Key::Name(&entry.name)
            };
            assert_eq!(zap.lookup(key).unwrap().as_ref(), Some(&entry.value), "{name}");
        }
        // A listing goes on after any entry.
        for (i, entry) in entries.iter().enumerate().step_by(7) {
            let cookie = Cursor::after(entry).to_cookie(zap.flags());
            let rest = zap.entries_from(Cursor::from_cookie(cookie, zap.flags()));
            let rest: Vec<_> = rest.take(9).collect::<Result<_, _>>().unwrap();
            assert_eq!(rest, entries[i + 1..entries.len().min(i + 10)], "{name}");
        }
        assert_eq!(zap.entries_from(Cursor::END).count(), 0);
        assert_eq!(zap.lookup("no such name").unwrap(), None);
        assert_eq!(zap.lookup("").unwrap(), None);
    }
}

#[test]
fn the_judge_finds_nothing_wrong() {
    for name in ALL {
        let blocks = blocks(name);
        let read = |blkid: u64| Ok::<_, FormatError>(blocks[blkid as usize].as_slice());
        assert_eq!(check(read, blocks.len() as u64 - 1), [], "{name}");
    }
}
