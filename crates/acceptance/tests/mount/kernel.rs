//! The OpenZFS kernel imports a pool that was written through a mount, and sees what the mount showed.

use acceptance::Stage;
use testkit::truth::Entry;
use testkit::{Compare, assert_same, host, kernel, vm};

use crate::model::played;
use crate::served::{judged, serve, stage, wanted};

/// Both look at the same objects.
const SAME: Compare =
    Compare { objects: true, directories: true, ctime: true, mtime: true, ..Compare::COPY };

/// All but the root, whose number FUSE makes up.
fn below(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| entry.path != b".");
    entries
}

#[test]
fn the_kernel_sees_what_the_mount_showed() {
    if !wanted("pools of the mount") || !vm::wanted("that the kernel takes pools of the mount") {
        return;
    }
    let stage = stage(1 << 30, "-O xattr=sa -O acltype=posix -O compression=lz4");
    let served = serve(&stage, "tank", "mnt");
    played(&served, 600, 77);
    let shown = below(host::list(&served.dir));
    served.unmount(&stage);
    judged(&stage);
    // The kernel has another host's number.
    drop(stage.ok("zpool export tank"));
    let truth = kernel::truth_of(stage.images.path(), "tank", &[]);
    assert_same(&shown, &below(truth.entries("tank").unwrap()), SAME);
    assert!(shown.len() > 10, "{}", shown.len());
    let _status = kernel::work(stage.images.path(), "tank", "tank", &[]);
    drop(stage.ok("zpool import -d $D tank"));
    let served = serve(&stage, "tank", "mnt");
    assert_same(&shown, &below(host::list(&served.dir)), SAME);
    served.unmount(&stage);
}

/// What chattr(1) has protected under OpenZFS is as protected here: the same attempts, by root, in the kernel's mount and in ours.
#[test]
fn protected_files_are_as_the_kernel_has_them() {
    if !wanted("that protected files are protected") || !vm::wanted("how the kernel protects files")
    {
        return;
    }
    const SCRIPT: &str = r#"
set -euo pipefail
zpool create -o cachefile=none -o ashift=12 -O xattr=sa -m /tank tank /d/d00
cat > /d/attempts.py <<'X'
import errno, os, sys
os.chdir(sys.argv[1])
def attempt(what, f):
    try: f(); print(what, "done")
    except OSError as e: print(what, errno.errorcode[e.errno])
def opened(path, flags, data=None):
    fd = os.open(path, flags)
    try:
        if data: os.write(fd, data)
    finally: os.close(fd)
W = os.O_WRONLY
for kind in ("plain", "immutable", "append"):
    for path in (kind, "dir-" + kind, "empty-" + kind):
        attempt(path + " chmod", lambda: os.chmod(path, 0o700))
        attempt(path + " chown", lambda: os.chown(path, 5, 6))
        attempt(path + " times", lambda: os.utime(path, (1, 2)))
        attempt(path + " touch", lambda: os.utime(path))
        attempt(path + " set", lambda: os.setxattr(path, "user.a", b"1"))
        attempt(path + " get", lambda: os.getxattr(path, "user.old"))
        attempt(path + " unset", lambda: os.removexattr(path, "user.old"))
        attempt(path + " away", lambda: os.rename(path, "moved"))
        attempt(path + " back", lambda: os.rename("moved", path))
    attempt(kind + " read", lambda: open(kind, "rb").read())
    attempt(kind + " write", lambda: opened(kind, W, b"x"))
    attempt(kind + " append", lambda: opened(kind, W | os.O_APPEND, b"x"))
    attempt(kind + " anew", lambda: opened(kind, W | os.O_TRUNC))
    attempt(kind + " cut", lambda: os.truncate(kind, 10))
    attempt(kind + " longer", lambda: os.truncate(kind, 5000))
    attempt(kind + " link", lambda: os.link(kind, "link-" + kind))
    open("other", "w").close()
    attempt(kind + " replace", lambda: os.rename("other", kind + "-goal"))
    attempt(kind + " remove", lambda: os.unlink(kind))
    attempt(kind + " rmdir", lambda: os.rmdir("empty-" + kind))
    d = "dir-" + kind + "/"
    attempt(d + " make", lambda: opened(d + "new", W | os.O_CREAT))
    attempt(d + " mkdir", lambda: os.mkdir(d + "sub"))
    attempt(d + " in", lambda: os.link("plain-link", d + "link"))
    attempt(d + " moved in", lambda: os.rename("into-" + kind, d + "in"))
    attempt(d + " write", lambda: opened(d + "one", W, b"x"))
    attempt(d + " rename", lambda: os.rename(d + "one", d + "two"))
    attempt(d + " out", lambda: os.rename(d + "out", "out-" + kind))
    attempt(d + " remove", lambda: os.unlink(d + "three"))
    attempt(d + " rmdir", lambda: os.rmdir(d + "four"))
X
cat > /d/made.py <<'X'
import fcntl, os, struct, sys
flags = {"plain": 0, "immutable": 0x10, "append": 0x20}
for top in ("/tank/theirs", "/tank/ours"):
    os.mkdir(top); os.chdir(top)
    def put(name):
        with open(name, "w") as f: f.write("x" * 1000)
    put("plain-link")
    for kind in flags:
        d = "dir-" + kind; os.mkdir(d); os.mkdir("empty-" + kind); os.mkdir(d + "/four")
        for name in (kind, kind + "-goal", "into-" + kind, d + "/one", d + "/out", d + "/three"): put(name)
        for name in (kind, d, "empty-" + kind): os.setxattr(name, "user.old", b"1")
    for kind, bits in flags.items():
        for name in (kind, kind + "-goal", "dir-" + kind, "empty-" + kind):
            fd = os.open(name, os.O_RDONLY); fcntl.ioctl(fd, 0x40086602, struct.pack("l", bits)); os.close(fd)
X
python3 /d/made.py
python3 /d/attempts.py /tank/theirs > /d/theirs
zpool export tank
"#;
    let stage = Stage::new(1, 256 << 20);
    let dir = stage.images.path();
    drop(vm::Vm::new(dir).run(SCRIPT).expect_ok());
    drop(stage.ok("zpool import -d $D tank"));
    let served = serve(&stage, "tank", "mnt");
    let attempts = dir.join("attempts.py");
    let top = served.dir.join("ours");
    let ran = std::process::Command::new("python3").args([&attempts, &top]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let theirs = std::fs::read_to_string(dir.join("theirs")).unwrap();
    let ours = String::from_utf8(ran.stdout).unwrap();
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.lines().count(), theirs.lines().count());
    assert!(theirs.lines().filter(|line| line.ends_with("EPERM")).count() > 40, "{theirs}");
    served.unmount(&stage);
}
