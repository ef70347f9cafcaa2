//! `zfs diff` beside the OpenZFS kernel's, line by line and in its order, over all that can happen to files.

#![allow(clippy::unwrap_used)]

use acceptance::Stage;
use testkit::{Vm, vm};

const SCRIPT: &str = r#"
set -euo pipefail
zpool create -o cachefile=none -o ashift=12 -O atime=off tank mirror /d/d00 /d/d01
zfs create -o xattr=on -o dnodesize=auto tank/fs
zfs create -o mountpoint=none tank/aside
cat > /d/first.py <<'X'
import os, socket
os.chdir("/tank/fs")
def put(name, data=b"x"):
    with open(name, "wb") as f: f.write(data)
for d in ("a", "a/b", "a/b/c", "links", "links2", "moved", "moved/in", "gone", "many", "few"): os.mkdir(d)
for i in range(500): put(f"many/{'long' * 12}{i:05}", b"y" * (i % 700))
for i in range(40): put(f"a/b/c/f{i}"); put(f"moved/in/f{i}"); put(f"gone/g{i}")
for n in (b"sp ace", b"back\\slash", b"new\nline", "ümlaut".encode(), b"\xff\xfe", b"tab\t", b"~", b"\x7f"):
    put(b"a/" + n); put(b"few/" + n)
for i in range(20):
    put(f"links/l{i}"); os.link(f"links/l{i}", f"links/second{i}")
    put(f"links/only{i}")
    put(f"links/far{i}"); os.link(f"links/far{i}", f"links2/far{i}")
    put(f"links/cut{i}"); os.link(f"links/cut{i}", f"links2/cut{i}")
os.mkfifo("fifo"); os.mknod("block", 0o60600, os.makedev(7, 3)); os.mknod("char", 0o20600, os.makedev(1, 3))
os.symlink("target", "sym"); s = socket.socket(socket.AF_UNIX); s.bind("sock")
for i in range(6): put(f"x{i}"); os.setxattr(f"x{i}", "user.one", b"1" * 50); os.setxattr(f"x{i}", "user.two", b"2")
for i in range(60): put(f"big{i}", os.urandom(3000))
X
cat > /d/second.py <<'X'
import os
os.chdir("/tank/fs")
def put(name, data=b"x"):
    with open(name, "wb") as f: f.write(data)
for i in range(420): os.unlink(f"many/{'long' * 12}{i:05}")
for i in range(430, 480): os.chmod(f"many/{'long' * 12}{i:05}", 0o600)
for i in range(40): os.unlink(f"gone/g{i}")
os.rmdir("gone")
os.rename("moved", "a/elsewhere")
os.rename("a/b/c/f1", "a/b/c/renamed"); os.rename("a/b/c/f2", "few/f2"); os.rename("a/b/c/f3", "a/b/c/f4")
put("a/b/c/f5", b"changed"); os.utime("a/b/c/f6", (5, 5)); os.truncate("a/b/c/f7", 100000)
for n in os.listdir(b"few"): os.rename(b"few/" + n, b"few/now " + n)
for n in (b"sp ace", b"new\nline", b"\xff\xfe"): put(b"a/" + n, b"new")
for i in range(20):
    os.unlink(f"links/second{i}") if i % 2 else os.unlink(f"links/l{i}")
    os.link(f"links/only{i}", f"links/{'ab'[i % 2]}only{i}")
    os.unlink(f"links2/far{i}") if i % 2 else os.unlink(f"links/far{i}")
    if i % 3 == 0: os.link(f"links/cut{i}", f"third{i}"); os.unlink(f"links2/cut{i}")
for i in range(4): os.setxattr(f"x{i}", "user.three", b"3"); 
os.removexattr("x0", "user.one"); os.unlink("x5")
os.unlink("fifo"); os.chmod("block", 0o666); os.unlink("sym"); os.symlink("other", "sym"); os.unlink("sock")
for i in range(0, 60, 2): os.unlink(f"big{i}")
for i in range(200): put(f"new {i}")
os.mkdir("dir"); os.mkdir("dir/dir"); put("dir/dir/f")
X
cat > /d/third.py <<'X'
import os, subprocess
os.chdir("/tank/fs")
# Numbers are used again, for other kinds, too.
for i in range(300): os.mkdir(f"again{i}") if i % 3 else open(f"again{i}", "w").close()
held = [open(f"new {i}") for i in range(5)]
for i in range(10): os.unlink(f"new {i}")
os.rename("a", "z"); os.rename("z/b", "b")
subprocess.run(["zfs", "snapshot", "tank/fs@three"], check=True)
X
python3 /d/first.py; zfs snapshot tank/fs@one
python3 /d/second.py; zfs snapshot tank/fs@two
zpool export tank; zpool import -d /d -o cachefile=none tank
python3 /d/third.py; zpool sync tank; sleep 1
zfs clone tank/fs@one tank/clone; rm /tank/clone/a/b/c/f9; mv /tank/clone/links /tank/clone/l; zfs snapshot tank/clone@now
zfs snapshot tank/aside@none
echo more > /tank/fs/more; rm -r /tank/fs/dir
zpool export tank; zpool import -d /d -o cachefile=none tank
mkdir -p /d/out; n=0
while read -r words; do
  n=$((n + 1)); s=0
  zfs diff $words > /d/out/$n.out 2> /d/out/$n.err || s=$?
  echo $s > /d/out/$n.status
done < /d/cases
zpool export tank
"#;

const CASES: &[&str] = &[
    "-F tank/fs@one tank/fs@two",
    "-FHt tank/fs@one @three",
    "-Ft @two tank/fs@three",
    "-t tank/fs@three tank/fs",
    "-F tank/fs@one tank/fs",
    "-F tank/fs@one tank/clone@now",
    "tank/fs@two tank/clone@now",
];

#[test]
fn differences_are_told_as_the_kernel_tells_them() {
    if !vm::wanted("that zfs diff says what the kernel's says") {
        return;
    }
    let stage = Stage::new(2, 256 << 20);
    let dir = stage.images.path();
    std::fs::write(dir.join("cases"), CASES.join("\n") + "\n").unwrap();
    drop(Vm::new(dir).run(SCRIPT).expect_ok());
    let mut lines = 0;
    for (n, words) in (1..).zip(CASES) {
        let theirs = |what: &str| std::fs::read(dir.join(format!("out/{n}.{what}"))).unwrap();
        let mut command = stage.command(&format!("zfs -d $D diff {words}"));
        let ours = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let status = text(&theirs("status"));
        assert_eq!(
            ours.status.code(),
            status.trim().parse().ok(),
            "{words}: {}",
            text(&ours.stderr)
        );
        assert_eq!(text(&ours.stderr), text(&theirs("err")), "{words}");
        let (out, wanted) = (text(&ours.stdout), text(&theirs("out")));
        for (at, (a, b)) in out.lines().zip(wanted.lines()).enumerate() {
            assert_eq!(a, b, "{words}: line {at}");
        }
        assert_eq!(out.lines().count(), wanted.lines().count(), "{words}");
        lines += wanted.lines().count();
    }
    assert!(lines > 1500, "{lines}");
}
