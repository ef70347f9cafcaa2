//! What `fs` reads from a pool beside what the kernel said of it: every name, attribute, link,
//! extended attribute, ACL and sha256 of every file system, snapshot and clone, and every volume.

use std::collections::BTreeMap;

use acceptance::engine;
use format::znode::{Pflags, device_parts};
use fs::{Filesystem, Volume, mode};
use pool::Pool;
use rt::sync::Arc;
use sha2::{Digest, Sha256};
use testkit::truth::{Entry, Truth, XattrValue};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The sha256 of these segments, as `read` gives their bytes.
pub(crate) fn sha256(
    segments: &[(u64, u64)],
    mut read: impl FnMut(u64, &mut [u8]) -> usize,
) -> String {
    let mut hash = Sha256::new();
    let mut buf = vec![0; 1 << 20];
    for (start, len) in segments {
        let mut at = *start;
        while at < start + len {
            let part = (start + len - at).min(buf.len() as u64) as usize;
            assert_eq!(read(at, &mut buf[..part]), part);
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

/// An ACL as the kernel packs it, in the lines of `getfacl -n`.
fn acl_lines(packed: &[u8], prefix: &str) -> Vec<String> {
    let word = |at: usize| u16::from_le_bytes([packed[at], packed[at + 1]]);
    let mut rows = Vec::new();
    for at in (4..packed.len()).step_by(8) {
        let id = u32::from_le_bytes(packed[at + 4..at + 8].try_into().unwrap());
        rows.push((word(at), word(at + 2), id));
    }
    let letters = |bits: u16| {
        let letter = |bit, letter| if bits & bit != 0 { letter } else { '-' };
        [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')].iter().collect::<String>()
    };
    let mask = rows.iter().find(|row| row.0 == 0x10).map_or(7, |row| row.1);
    let line = |(tag, bits, id): &(u16, u16, u32)| {
        let (who, masked) = match tag {
            0x01 => ("user:".to_string(), false),
            0x02 => (format!("user:{id}"), true),
            0x04 => ("group:".to_string(), true),
            0x08 => (format!("group:{id}"), true),
            0x10 => ("mask:".to_string(), false),
            0x20 => ("other:".to_string(), false),
            other => panic!("tag {other:#x}"),
        };
        let effective = match masked && bits & !mask != 0 {
            true => format!("\t#effective:{}", letters(bits & mask)),
            false => String::new(),
        };
        format!("{prefix}{who}:{}{effective}", letters(*bits))
    };
    rows.iter().map(line).collect()
}

fn check_acl(entry: &Entry, xattrs: &BTreeMap<Vec<u8>, Vec<u8>>, at: &str) {
    let mut lines = Vec::new();
    for (name, prefix) in
        [("system.posix_acl_access", ""), ("system.posix_acl_default", "default:")]
    {
        if let Some(packed) = xattrs.get(name.as_bytes()) {
            lines.extend(acl_lines(packed, prefix));
        }
    }
    assert_eq!((!lines.is_empty()).then_some(lines), entry.acl, "{at}: ACL");
}

/// The flags that the ioctl tells, from those of the znode.
fn xflags(flags: u64) -> u32 {
    let pairs = [
        (Pflags::IMMUTABLE, 0x10),
        (Pflags::APPENDONLY, 0x20),
        (Pflags::NODUMP, 0x40),
        (Pflags::PROJINHERIT, 0x2000_0000),
    ];
    pairs.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, bit)| bit).sum()
}

/// Compares a file system with what the kernel said of it; the number of entries.
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
        let at = format!("{}:{shown}", fs.name());
        // Found by its path as well as listed.
        assert_eq!(fs.resolve(&entry.path).unwrap(), number, "{at}: path");
        let (object, attrs) = fs.open_object(number).unwrap();
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
        assert_eq!(attrs.rdev.map(device_parts), entry.rdev, "{at}: device");
        let project: u32 = entry.project.unwrap_or(0);
        assert_eq!(attrs.project.unwrap_or(0), u64::from(project), "{at}: project");
        assert_eq!(xflags(attrs.flags), entry.xflags.unwrap_or(0), "{at}: flags");
        let slots = object.header().unwrap().slots() as u64;
        let blocks = (object.used_bytes() + 256) / 512 + slots;
        let size = u64::from(object.block_size().unwrap());
        assert_eq!((blocks, size), (entry.blocks, entry.blksize), "{at}: blocks");
        let xattrs: BTreeMap<_, _> = fs.xattrs_of(number, &attrs).unwrap().into_iter().collect();
        check_xattrs(entry, &xattrs, &at);
        check_acl(entry, &xattrs, &at);
        if let Some(told) = &entry.data {
            let seen = fs.data_segments(&object, attrs.size).unwrap();
            assert_eq!(&seen, told, "{at}: data segments");
        }
        let read = |offset, buf: &mut [u8]| {
            let got = fs.read_open(&object, attrs.size, offset, buf);
            got.unwrap_or_else(|e| panic!("{at}: {e}"))
        };
        if let Some(told) = &entry.sha256 {
            assert_eq!(&sha256(&[(0, attrs.size)], read), told, "{at}: sha256");
        }
        if let Some(told) = &entry.sha256_of_data {
            let segments = entry.data.as_deref().unwrap();
            assert_eq!(&sha256(segments, read), told, "{at}: sha256 of the data");
        }
        assert_eq!(entry.error, None, "{at}");
    }
    entries.len()
}

/// Is the data set encrypted?
fn is_encrypted(truth: &Truth, dataset: &str) -> bool {
    truth.zfs_get(dataset, "encryption").is_some_and(|(value, _)| value != "off")
}

/// Reads everything of a pool and compares it, volumes up to a size in bytes; how many entries there
/// were.
pub(crate) fn read_all(pool: &Arc<Pool>, truth: &Truth, volume_max: u64) -> usize {
    let mut count = 0;
    for dataset in truth.datasets() {
        let Ok(entries) = truth.entries(dataset) else { continue };
        if is_encrypted(truth, dataset) {
            let Err(error) = Filesystem::open(pool, dataset) else { panic!("{dataset}") };
            assert!(error.to_string().contains("encrypted"), "{dataset}: {error}");
            continue;
        }
        let fs = Filesystem::open(pool, dataset).unwrap_or_else(|e| panic!("{dataset}: {e}"));
        count += compare(&fs, &entries);
    }
    for (name, size, told) in truth.volumes().into_iter().filter(|of| of.1 <= volume_max) {
        let volume = Volume::open(pool, name).unwrap().unwrap_or_else(|| panic!("{name}"));
        assert_eq!(volume.size(), size, "{name}: size");
        let seen = sha256(&[(0, size)], |at, buf| volume.read(at, buf).unwrap());
        assert_eq!(seen, told, "{name}: sha256");
        count += 1;
    }
    count
}
