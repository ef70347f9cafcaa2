//! Pools that the OpenZFS kernel wrote, read through `fs` and compared with what the kernel says
//! is in them: every name, attribute, link, extended attribute and sha256.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use acceptance::engine;
use fs::{Filesystem, mode};
use pool::{Devices, OpenOptions, Pool};
use rt::Workers;
use rt::sync::Arc;
use sha2::{Digest, Sha256};
use testkit::rounds;
use testkit::truth::{Entry, Truth, XattrValue};
use vdev::import;

fn options() -> OpenOptions {
    OpenOptions { workers: 2, host_id: 1, host_name: "test".into(), new_name: None }
}

/// Opens a pool on what is in `places`: directories, or single disks.
fn open(places: &[PathBuf], name: &str) -> Arc<Pool> {
    let scan = import::scan(places).unwrap();
    let found = scan.choose(name).unwrap();
    let tree = Arc::new(found.open_tree().unwrap());
    Pool::open(Devices::ReadOnly(tree), &found.uberblocks, &options()).unwrap()
}

fn sha256(fs: &Filesystem, number: u64, segments: Option<&[(u64, u64)]>) -> String {
    let (object, attrs) = fs.open_object(number).unwrap();
    let mut hash = Sha256::new();
    let mut buf = vec![0; 1 << 20];
    let whole = [(0, attrs.size)];
    for (start, len) in segments.unwrap_or(&whole) {
        let mut at = *start;
        while at < start + len {
            let part = (start + len - at).min(buf.len() as u64) as usize;
            let got = fs.read_open(&object, attrs.size, at, &mut buf[..part]).unwrap();
            assert_eq!(got, part);
            hash.update(&buf[..part]);
            at += part as u64;
        }
    }
    hex(&hash.finalize())
}

/// All objects of a file system by path from its root.
fn tree(fs: &Filesystem) -> BTreeMap<Vec<u8>, u64> {
    let mut out = BTreeMap::from([(b".".to_vec(), fs.root())]);
    let mut stack = vec![(Vec::new(), fs.root())];
    while let Some((path, dir)) = stack.pop() {
        for entry in fs.read_dir(dir).unwrap() {
            let mut full: Vec<u8> = path.clone();
            if !full.is_empty() {
                full.push(b'/');
            }
            full.extend_from_slice(&entry.name);
            if entry.kind == mode::DIR {
                stack.push((full.clone(), entry.object));
            }
            out.insert(full, entry.object);
        }
    }
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn check_xattrs(entry: &Entry, seen: &BTreeMap<Vec<u8>, Vec<u8>>, at: &str) {
    let names: Vec<&Vec<u8>> = entry.xattrs.iter().map(|(name, _)| name).collect();
    let mut extra = seen.keys().filter(|name| !names.contains(name));
    assert_eq!(extra.next(), None, "{at}: extended attributes");
    for (name, value) in &entry.xattrs {
        let shown = String::from_utf8_lossy(name);
        let seen = seen.get(name).unwrap_or_else(|| panic!("{at}: no attribute {shown}"));
        match value {
            XattrValue::Bytes(bytes) => assert_eq!(seen, bytes, "{at}: attribute {shown}"),
            XattrValue::Digest(size, sum) => {
                let digest = hex(&Sha256::digest(seen));
                assert_eq!((seen.len() as u64, &digest), (*size, sum), "{at}: {shown}");
            }
        }
    }
}

fn compare(fs: &Filesystem, entries: &[Entry]) -> usize {
    let found = tree(fs);
    // With snapdir=visible the mounted root shows `.zfs`, which is in no directory on disk.
    let zfs_shown = entries.iter().any(|e| e.path == b".zfs");
    let shown = |e: &&Entry| !e.path.starts_with(b".zfs");
    let entries: Vec<&Entry> = entries.iter().filter(shown).collect();
    let told: Vec<&[u8]> = entries.iter().map(|e| e.path.as_slice()).collect();
    let extra: Vec<_> = found.keys().filter(|p| !told.contains(&p.as_slice())).collect();
    assert!(extra.is_empty(), "{}: not in the truth: {extra:?}", fs.name());
    for entry in &entries {
        let shown = String::from_utf8_lossy(&entry.path).into_owned();
        let number = *found.get(&entry.path).unwrap_or_else(|| panic!("{shown} is missing"));
        let (object, attrs) = fs.open_object(number).unwrap();
        let at = format!("{}:{shown}", fs.name());
        // The root of a mounted snapshot is the mount point: the kernel makes its number up.
        if !(fs.name().contains('@') && entry.path == b".") {
            assert_eq!(number, entry.object, "{at}: object");
        }
        assert_eq!(engine::kind_of(&attrs), entry.kind, "{at}: kind");
        assert_eq!(attrs.permissions(), entry.mode, "{at}: mode");
        assert_eq!((attrs.uid, attrs.gid), (entry.uid.into(), entry.gid.into()), "{at}: owner");
        assert_eq!(attrs.size, entry.size, "{at}: size");
        let zfs = u64::from(zfs_shown && entry.path == b".");
        assert_eq!(attrs.links + zfs, entry.nlink, "{at}: links");
        for (seen, told) in
            [(attrs.atime, entry.atime), (attrs.mtime, entry.mtime), (attrs.ctime, entry.ctime)]
        {
            assert_eq!((seen.secs, seen.nanos), told, "{at}: times");
        }
        assert_eq!(attrs.target, entry.target, "{at}: target");
        let xattrs: BTreeMap<_, _> = fs.xattrs_of(number, &attrs).unwrap().into_iter().collect();
        check_xattrs(entry, &xattrs, &at);
        if let Some(told) = &entry.data {
            let seen = fs.data_segments(&object, attrs.size).unwrap();
            assert_eq!(&seen, told, "{at}: data segments");
        }
        if let Some(told) = &entry.sha256 {
            assert_eq!(&sha256(fs, number, None), told, "{at}: sha256");
        }
        if let Some(told) = &entry.sha256_of_data {
            let segments = entry.data.as_deref();
            assert_eq!(&sha256(fs, number, segments), told, "{at}: sha256 of the data");
        }
    }
    entries.len()
}

/// Reads everything of a golden pool; returns how many entries were compared.
fn read_all(places: &[PathBuf], truth: &Truth) -> usize {
    let pool = open(places, truth.pool());
    let mut count = 0;
    for dataset in truth.datasets() {
        let Ok(entries) = truth.entries(dataset) else { continue };
        let encrypted = truth.zfs_get(dataset, "encryption").is_some_and(|(v, _)| v != "off");
        if encrypted {
            continue;
        }
        let fs = Filesystem::open(&pool, dataset).unwrap_or_else(|e| panic!("{dataset}: {e}"));
        count += compare(&fs, &entries);
    }
    count
}

macro_rules! golden {
    ($($test:ident = $name:expr;)*) => {$(
        #[test]
        fn $test() {
            let truth = testkit::truth($name);
            let count = read_all(&[testkit::golden($name)], &truth);
            assert!(count > 5, "only {count} entries");
        }
    )*};
}

golden! {
    single_is_read = "single";
    rz1_is_read = "rz1";
    rz2_is_read = "rz2";
    rz3_is_read = "rz3";
    mirror_is_read = "mir";
    hurt_is_read = "hurt";
    hurt2_is_read = "hurt2";
    wide_is_read = "wide";
    without_features_is_read = "nofeat";
}

/// Reads everything of a golden pool of `disks` disks with each of these choices of them away.
fn read_without(name: &str, disks: usize, choices: &[Vec<usize>]) {
    let (dir, truth) = (testkit::golden(name), testkit::truth(name));
    let whole = read_all(std::slice::from_ref(&dir), &truth);
    Workers::per_core().run(choices.len(), |_, job| {
        let there = (0..disks).filter(|disk| !choices[job].contains(disk));
        let places: Vec<PathBuf> = there.map(|disk| dir.join(format!("d{disk:02}"))).collect();
        let count = read_all(&places, &truth);
        assert_eq!(count, whole, "{name} without {:?}", choices[job]);
    });
}

#[test]
fn without_any_two_disks_of_rz2_every_byte_is_there() {
    let pairs: Vec<_> = (0..11).flat_map(|a| (0..a).map(move |b| vec![a, b])).collect();
    assert_eq!(pairs.len(), 55);
    read_without("rz2", 11, &pairs);
}

#[test]
fn without_as_many_disks_as_parity_covers_every_byte_is_there() {
    for (name, disks, away) in [("rz1", 5, 1), ("rz3", 9, 3), ("mir", 3, 2)] {
        let choices = (1..=rounds(2, 20)).map(|seed| acceptance::choose(disks, away, seed));
        read_without(name, disks, &choices.collect::<Vec<_>>());
    }
}
