//! ZAPs that the OpenZFS kernel wrote, against what OpenZFS's own tools list in them.
//!
//! `data/zap/NAME.zap.zst` is the block size (u64) and the blocks of one object, `NAME.txt.zst` one
//! line per entry, `name=int,int,...`, with bytes other than printable ASCII as `%xx`. Those of
//! [`ZDB_ORDER`] are in the order in which zdb lists them.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use format::FormatError;
use format::zap::{Entry, FatFlags, Kind, Reader};

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

fn unpack(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/zap").join(file);
    zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap()
}

fn blocks(name: &str) -> Vec<Vec<u8>> {
    let bytes = unpack(&format!("{name}.zap.zst"));
    let (size, data) = bytes.split_first_chunk::<8>().unwrap();
    data.chunks_exact(u64::from_le_bytes(*size) as usize).map(<[u8]>::to_vec).collect()
}

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
                format::zap::Key::Words(&words)
            } else {
                format::zap::Key::Name(&entry.name)
            };
            assert_eq!(zap.lookup(key).unwrap().as_ref(), Some(&entry.value), "{name}");
        }
        assert_eq!(zap.lookup("no such name").unwrap(), None);
        assert_eq!(zap.lookup("").unwrap(), None);
    }
}
