//! What the OpenZFS kernel does with pools of ours, and what it says of them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::paths;
use crate::tool::Ran;
use crate::truth::Truth;
use crate::vm::Vm;
use crate::workload::Op;

/// The truth about the pool `pool` on the images in `dir`, as `tests/golden/README.md` describes it: the
/// kernel imports it read-only and looks at everything. `import` are further arguments of its
/// `zpool import` (none: `-d /d`).
///
/// # Panics
/// If it does not import, with what the kernel said.
#[must_use]
#[track_caller]
pub fn truth_of(dir: &Path, pool: &str, import: &[&str]) -> Truth {
    let kit = Kit::new(dir);
    kit.copy("tests/golden/kit/truth.py");
    let words = import.join(" ");
    let script = format!("exec python3 /d/kit/truth.py '{pool}' /d/kit/out.json {words}\n");
    drop(Vm::new(dir).run(&script).expect_ok());
    let path = dir.join("kit/out.json");
    let text = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let json = serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Truth { json }
}

/// The kernel imports `pool` for writing, does `ops` in the data set `dataset`, scrubs, prints `zpool status`, and exports. The scrub must find nothing.
///
/// # Panics
/// If any of it fails, with what the kernel said.
#[track_caller]
pub fn work(dir: &Path, pool: &str, dataset: &str, ops: &[Op]) -> Ran {
    let kit = Kit::new(dir);
    let (ops, data) = for_python(ops);
    kit.write("ops.json", ops.to_string().as_bytes());
    kit.write("data", &data);
    kit.write("ops.py", include_bytes!("ops.py"));
    let script = format!(
        "set -euo pipefail\n\
         zpool import -d /d -o cachefile=none '{pool}'\n\
         top=$(zfs get -H -o value mountpoint '{dataset}')\n\
         python3 /d/kit/ops.py /d/kit/ops.json /d/kit/data \"$top\" '{pool}'\n\
         zpool sync '{pool}'\n\
         zpool scrub -w '{pool}'\n\
         zpool status -v '{pool}'\n\
         zpool export '{pool}'\n"
    );
    let ran = Vm::new(dir).run(&script).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("with 0 errors"), "{ran}");
    assert!(ran.out.contains("No known data errors"), "{ran}");
    ran
}

/// `mounted DATASET` on /mnt whatever its properties say, and `unmounted`: the VM has no program for it.
const MOUNTS: &str = r#"
libc() { python3 -c 'import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
call, where = getattr(libc, sys.argv[1]), b"/mnt"
done = call(sys.argv[2].encode(), where, b"zfs", 0, None) if len(sys.argv) > 2 else call(where, 0)
sys.exit(os.strerror(ctypes.get_errno()) if done else 0)' "$@"; }
mounted() { libc mount "$1"; }
unmounted() { libc umount2; }
"#;

/// Something that the kernel is to do.
#[derive(Debug, Clone)]
pub enum Act {
    /// Lines for bash; `mounted DATASET` mounts on /mnt, `unmounted` ends that.
    Command(String),
    /// Operations on the files of a data set, which is mounted for them.
    Files(String, Vec<Op>),
}

/// The kernel imports `pool` for writing, mounts nothing by itself, does `acts` one after another, scrubs and
/// exports. The scrub must find nothing.
///
/// # Panics
/// If any of it fails, with what the kernel said.
#[track_caller]
pub fn story(dir: &Path, pool: &str, acts: &[Act]) -> Ran {
    let kit = Kit::new(dir);
    kit.write("ops.py", include_bytes!("ops.py"));
    let mut lines = String::new();
    for (i, act) in acts.iter().enumerate() {
        match act {
            Act::Command(line) => lines += &format!("{line}\n"),
            Act::Files(dataset, ops) => {
                let (ops, data) = for_python(ops);
                kit.write(&format!("ops{i}.json"), ops.to_string().as_bytes());
                kit.write(&format!("data{i}"), &data);
                lines += &format!(
                    "mounted '{dataset}'\n\
                     python3 /d/kit/ops.py /d/kit/ops{i}.json /d/kit/data{i} /mnt '{pool}'\n\
                     unmounted\n"
                );
            }
        }
    }
    let script = format!(
        "set -euxo pipefail\n\
         {MOUNTS}\n\
         zpool import -N -d /d -o cachefile=none '{pool}'\n\
         {lines}\
         zpool sync '{pool}'\n\
         zpool wait -t free '{pool}'\n\
         zpool scrub -w '{pool}'\n\
         zpool status -v '{pool}'\n\
         zpool export '{pool}'\n"
    );
    let ran = Vm::new(dir).run(&script).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("with 0 errors"), "{ran}");
    assert!(ran.out.contains("No known data errors"), "{ran}");
    ran
}

/// A directory `kit` among the images, as long as it lives.
struct Kit<'a> {
    dir: &'a Path,
}

impl Kit<'_> {
    fn new(dir: &Path) -> Kit<'_> {
        let path = dir.join("kit");
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Kit { dir }
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.dir.join("kit").join(name);
        fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    fn copy(&self, from: &str) {
        let path = paths::repository().join(from);
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.write(path.file_name().and_then(|n| n.to_str()).expect("it has a name"), &bytes);
    }
}

impl Drop for Kit<'_> {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(self.dir.join("kit")));
    }
}

/// The operations as `ops.py` reads them, and the bytes of their writes.
fn for_python(ops: &[Op]) -> (Value, Vec<u8>) {
    let mut data = Vec::new();
    let mut list = Vec::new();
    // one character a byte: JSON has no bytes
    let text = |bytes: &[u8]| bytes.iter().map(|b| char::from(*b)).collect::<String>();
    for op in ops {
        list.push(match op {
            Op::Mkdir { path, mode } => json!(["mkdir", text(path), mode]),
            Op::Create { path, mode } => json!(["create", text(path), mode]),
            Op::Fifo { path, mode } => json!(["fifo", text(path), mode]),
            Op::Symlink { path, target } => json!(["symlink", text(path), text(target)]),
            Op::Write { path, offset, data: bytes } => {
                let start = data.len();
                data.extend(bytes.bytes());
                json!(["write", text(path), offset, start, bytes.size])
            }
            Op::Truncate { path, size } => json!(["truncate", text(path), size]),
            Op::Link { existing, path } => json!(["link", text(existing), text(path)]),
            Op::Rename { from, to } => json!(["rename", text(from), text(to)]),
            Op::Remove { path } => json!(["remove", text(path)]),
            Op::Rmdir { path } => json!(["rmdir", text(path)]),
            Op::SetMode { path, mode } => json!(["mode", text(path), mode]),
            Op::SetOwner { path, uid, gid } => json!(["owner", text(path), uid, gid]),
            Op::SetTime { path, mtime } => json!(["mtime", text(path), mtime.0, mtime.1]),
            Op::SetXattr { path, name, value } => {
                json!(["setxattr", text(path), text(name), text(value)])
            }
            Op::RemoveXattr { path, name } => json!(["removexattr", text(path), text(name)]),
            // a pool that is imported once is opened once
            Op::Sync | Op::Reopen => json!(["sync"]),
        });
    }
    (Value::Array(list), data)
}
