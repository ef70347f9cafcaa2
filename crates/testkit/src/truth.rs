//! What the kernel said about a golden pool: `tests/golden/NAME.json.zst`, as types.
//!
//! The format is described in `tests/golden/README.md`.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::golden::decompressed;

/// The truth about one pool.
#[derive(Debug, Clone)]
pub struct Truth {
    /// All of it, as it stands in the file.
    pub json: Value,
}

/// What kind of file an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A block device.
    Block,
    /// A character device.
    Char,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// Seconds and nanoseconds since 1970, as in a timespec: the nanoseconds always count forward.
pub type Time = (i64, u32);

/// The time of something whose time is not known: equal to every other when listings are compared.
pub const UNKNOWN_TIME: Time = (i64::MIN, 0);

/// The value of an extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum XattrValue {
    /// All of its bytes.
    Bytes(Vec<u8>),
    /// Of one over 256 bytes: its size in bytes and the hex of its sha256.
    Digest(u64, String),
}

impl XattrValue {
    /// The value `bytes` in the form that a truth has it in.
    #[must_use]
    pub fn of(bytes: &[u8]) -> XattrValue {
        if bytes.len() <= 256 {
            return XattrValue::Bytes(bytes.to_vec());
        }
        XattrValue::Digest(bytes.len() as u64, hex_digest(bytes))
    }
}

/// The hex of the sha256 of `bytes`.
#[must_use]
pub fn hex_digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One file of a file system.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Path below the root, `.` for the root itself; bytes, as names are.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Object number.
    pub object: u64,
    /// Permission bits (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Links.
    pub nlink: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Block size in bytes, as stat tells it.
    pub blksize: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Of a symbolic link, where it points.
    pub target: Option<Vec<u8>>,
    /// Of a device, its major and minor number.
    pub rdev: Option<(u32, u32)>,
    /// Of a file up to 2 GiB: the hex of its sha256.
    pub sha256: Option<String>,
    /// Of a larger one: the hex of the sha256 of its data segments, one after another.
    pub sha256_of_data: Option<String>,
    /// Of a file with holes: offset and length in bytes of each segment of data.
    pub data: Option<Vec<(u64, u64)>>,
    /// Extended attributes, in the order of the file: name with its namespace, value.
    pub xattrs: Vec<(Vec<u8>, XattrValue)>,
    /// Project id, where it or a flag is not 0.
    pub project: Option<u32>,
    /// Flags as the ioctl FS_IOC_FSGETXATTR gives them, likewise.
    pub xflags: Option<u32>,
    /// The lines of `getfacl -n`, where there is more than the mode.
    pub acl: Option<Vec<String>>,
    /// What reading said instead of giving the bytes.
    pub error: Option<String>,
}

impl Entry {
    /// An entry of which only path and kind are known yet: numbers 0, times unknown, no attributes.
    #[must_use]
    pub fn new(path: Vec<u8>, kind: Kind) -> Entry {
        Entry {
            path,
            kind,
            object: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            nlink: 1,
            blocks: 0,
            blksize: 0,
            atime: UNKNOWN_TIME,
            mtime: UNKNOWN_TIME,
            ctime: UNKNOWN_TIME,
            target: None,
            rdev: None,
            sha256: None,
            sha256_of_data: None,
            data: None,
            xattrs: Vec::new(),
            project: None,
            xflags: None,
            acl: None,
            error: None,
        }
    }
}

/// The truth of `tests/golden/NAME.json.zst`.
///
/// # Panics
/// If there is none, or it is not JSON.
#[must_use]
pub fn truth(name: &str) -> Truth {
    let text = decompressed(&format!("{name}.json.zst"));
    let json = serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{name}.json.zst: {e}"));
    Truth { json }
}

impl Truth {
    /// The pool's name (not always that of the archive).
    #[must_use]
    pub fn pool(&self) -> &str {
        text(&self.json, "pool")
    }

    /// The file systems and snapshots, in order.
    #[must_use]
    pub fn datasets(&self) -> Vec<&str> {
        self.member("files").as_object().into_iter().flatten().map(|(k, _)| k.as_str()).collect()
    }

    /// The files of a file system or snapshot; or why the kernel would not mount it.
    ///
    /// # Errors
    /// The kernel's words.
    pub fn entries(&self, dataset: &str) -> Result<Vec<Entry>, String> {
        let found = &self.member("files")[dataset];
        if let Some(why) = found["error"].as_str() {
            return Err(why.to_string());
        }
        let list = found["entries"].as_array();
        let list = list.unwrap_or_else(|| panic!("no data set {dataset} in this truth"));
        Ok(list.iter().map(entry).collect())
    }

    /// What `zfs userspace -Hp` says of a mounted file system or snapshot, row by row; of `group` or `project`
    /// its kin.
    #[must_use]
    pub fn space(&self, dataset: &str, owner: &str) -> Vec<Vec<&str>> {
        let rows = self.member("space")[dataset][owner].as_array();
        let rows = rows.unwrap_or_else(|| panic!("no space of {dataset} by {owner}"));
        let cells = rows.iter().map(|row| row.as_array().into_iter().flatten());
        cells.map(|row| row.filter_map(Value::as_str).collect()).collect()
    }

    /// The volumes and snapshots of volumes: name, size in bytes, hex of the sha256 of it all.
    #[must_use]
    pub fn volumes(&self) -> Vec<(&str, u64, &str)> {
        let all = self.member("zvols").as_object().into_iter().flatten();
        all.map(|(name, of)| (name.as_str(), number(of, "size"), text(of, "sha256"))).collect()
    }

    /// Value and source of a property as `zfs get -Hp` gave them.
    #[must_use]
    pub fn zfs_get(&self, dataset: &str, property: &str) -> Option<(&str, &str)> {
        pair(&self.member("zfs_get")[dataset][property])
    }

    /// Value and source of a property as `zpool get -Hp` gave them.
    #[must_use]
    pub fn zpool_get(&self, property: &str) -> Option<(&str, &str)> {
        pair(&self.member("zpool_get")[property])
    }

    /// The raw output of the command that begins with `start` (`"zfs list"`, `"zpool status -P"`).
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn command(&self, start: &str) -> &str {
        let output = &self.member("commands")[self.command_name(start)];
        output.as_str().expect("outputs are strings")
    }

    /// The words of the command that begins with `start`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn command_name(&self, start: &str) -> &str {
        let all = self.member("commands").as_object().into_iter().flatten();
        let mut names = all.map(|(name, _)| name).filter(|name| name.starts_with(start));
        names.next().unwrap_or_else(|| panic!("no command {start} in this truth"))
    }

    fn member(&self, name: &str) -> &Value {
        self.json.get(name).unwrap_or_else(|| panic!("no {name} in this truth"))
    }
}

fn pair(value: &Value) -> Option<(&str, &str)> {
    Some((value[0].as_str()?, value[1].as_str()?))
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or_else(|| panic!("no {key} in {of}"))
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("no {key} in {of}"))
}

fn small(of: &Value, key: &str) -> u32 {
    u32::try_from(number(of, key)).unwrap_or_else(|_| panic!("{key} is too large in {of}"))
}

/// Bytes from the form in which `%XX` stands for one byte.
fn unescape(escaped: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(escaped.len());
    let mut rest = escaped.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (digits, tail) = tail.split_at(2);
        let digits = str::from_utf8(digits).expect("two digits follow %");
        out.push(u8::from_str_radix(digits, 16).expect("two digits follow %"));
        rest = tail;
    }
    out
}

fn time(of: &Value, key: &str) -> Time {
    let (seconds, nanoseconds) = text(of, key).split_once('.').expect("SEC.NSEC");
    let whole = seconds.parse().expect("a time is a number");
    (whole, nanoseconds.parse().expect("a time is a number"))
}

fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().as_chunks::<2>().0.iter();
    let byte = |p: &[u8; 2]| u8::from_str_radix(str::from_utf8(p).expect("hex"), 16).expect("hex");
    pairs.map(byte).collect()
}

fn xattr(value: &Value) -> XattrValue {
    match value.as_str() {
        Some(digits) => XattrValue::Bytes(hex(digits)),
        None => XattrValue::Digest(number(value, "size"), text(value, "sha256").to_string()),
    }
}

fn entry(e: &Value) -> Entry {
    let kind = match text(e, "type") {
        "file" => Kind::File,
        "dir" => Kind::Dir,
        "link" => Kind::Link,
        "block" => Kind::Block,
        "char" => Kind::Char,
        "fifo" => Kind::Fifo,
        "socket" => Kind::Socket,
        other => panic!("type {other} in a truth"),
    };
    let string = |key: &str| e[key].as_str().map(str::to_string);
    let segment = |s: &Value| Some((s[0].as_u64()?, s[1].as_u64()?));
    let xattrs = e["xattrs"].as_object().into_iter().flatten();
    Entry {
        path: unescape(text(e, "path")),
        kind,
        object: number(e, "ino"),
        mode: u32::from_str_radix(text(e, "mode"), 8).expect("modes are octal"),
        uid: small(e, "uid"),
        gid: small(e, "gid"),
        size: number(e, "size"),
        nlink: number(e, "nlink"),
        blocks: number(e, "blocks"),
        blksize: number(e, "blksize"),
        atime: time(e, "atime"),
        mtime: time(e, "mtime"),
        ctime: time(e, "ctime"),
        target: e["target"].as_str().map(unescape),
        rdev: e["rdev"].as_array().map(|_| {
            let part = |i: usize| e["rdev"][i].as_u64().and_then(|n| u32::try_from(n).ok());
            (part(0).expect("a device has a major number"), part(1).expect("and a minor one"))
        }),
        sha256: string("sha256"),
        sha256_of_data: string("sha256_of_data"),
        data: e["data"].as_array().map(|all| {
            all.iter().map(|s| segment(s).expect("a segment is offset and length")).collect()
        }),
        xattrs: xattrs.map(|(name, value)| (unescape(name), xattr(value))).collect(),
        project: e.get("project").map(|_| small(e, "project")),
        xflags: e.get("xflags").map(|_| small(e, "xflags")),
        acl: e["acl"]
            .as_array()
            .map(|lines| lines.iter().filter_map(Value::as_str).map(str::to_string).collect()),
        error: string("error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_come_back_as_bytes() {
        assert_eq!(unescape("a%25b%FF%0A\u{e9}"), b"a%b\xff\n\xc3\xa9");
    }

    #[test]
    fn every_truth_parses_whole() {
        let names = "dirty draid features gpt hurt hurt2 mir nofeat old resilvering rz1 rz2 rz3 \
                     single wide dirty.ro";
        let mut files = 0;
        for name in names.split_whitespace() {
            let truth = truth(name);
            assert!(!truth.pool().is_empty());
            assert!(truth.command("zfs list").contains(truth.pool()));
            for dataset in truth.datasets() {
                files += truth.entries(dataset).map_or(0, |list| list.len());
            }
        }
        assert!(files > 5000, "{files}");
    }
}
