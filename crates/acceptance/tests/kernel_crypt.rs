//! Encrypted data sets of the OpenZFS kernel, changed here without their keys: taken snapshots of, renamed, rolled
//! back, cloned, destroyed. The kernel then loads the keys and finds every byte.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use acceptance::Stage;
use acceptance::engine::open_for_writing;
use pool::PoolError;
use testkit::{Vm, poolaudit_kernels, tool, vm};

const POOL: &str = "tank";

const MAKE: &str = r#"
set -euo pipefail
zpool create -o cachefile=none -o ashift=12 -O compression=lz4 tank mirror /d/d00 /d/d01
zfs create tank/plain
root() { echo "correct horse battery staple" | zfs create -o encryption=$2 -o keyformat=passphrase -o pbkdf2iters=100000 tank/$1; }
fill() { for i in $(seq 12); do head -c $((i * 9321)) /dev/urandom > /tank/$1/f$i; done; mkdir /tank/$1/dir; echo $1 > /tank/$1/dir/name; }
root s aes-256-gcm; root t aes-128-ccm; root gone aes-192-gcm; root back aes-256-gcm
zfs create tank/s/child; zfs create tank/s/kid; zfs create -o sync=always tank/gone/below
zfs create -V 8M tank/s/vol
for fs in s s/child s/kid t gone gone/below back; do fill $fs; done
for i in $(seq 100); do ls /dev/zd* >/dev/null 2>&1 && break; sleep .1; done
head -c 3000000 /dev/urandom | dd of=$(ls /dev/zd* | head -1) bs=100000 2>/dev/null
zpool sync tank
zfs snapshot -r tank@one
zfs clone tank/s/kid@one tank/s/clone; fill s/clone/ 2>/dev/null || true
cd /tank; find s t -type f | grep -v clone | sort | xargs sha256sum > /d/sums
cd /tank/back; find . -type f | sort | xargs sha256sum > /d/sums.back; cd /
for i in $(seq 10); do echo changed > /tank/back/f$i; head -c 100000 /dev/urandom > /tank/back/new$i; done
rm /tank/gone/f1 /tank/gone/f2
zpool export tank
"#;

const GO_ON: &str = r#"
set -euo pipefail
zpool import -N -d /d -o cachefile=none tank
for r in tank/s tank/s/t tank/back; do echo "correct horse battery staple" | zfs load-key $r; done
zfs mount -a
test "$(zfs get -H -o value encryptionroot tank/ourclone)" = tank/s
cd /tank
sed 's, s/child/, s/kid/child/,; s, t/, s/t/,' /d/sums | sha256sum -c --quiet
sed 's, s/kid/, ourclone/,' /d/sums | grep ' ourclone/' | sha256sum -c --quiet
cd /tank/back; sha256sum -c --quiet /d/sums.back; test ! -e new1; cd /
for peek in s@ours s/kid/child@renamed; do
  zfs clone tank/$peek tank/s/peek; test -s /tank/s/peek/dir/name; zfs destroy tank/s/peek
done
a=$(zfs get -Hp -o value ivsetguid tank/s@ours); b=$(zfs get -Hp -o value ivsetguid tank/s@one)
test "$a" -gt 0; test "$a" != "$b"
zfs list -H -o name -t bookmark -r tank/s
for fs in s s/kid s/kid/child s/t back ourclone; do head -c 200000 /dev/urandom > /tank/$fs/kernel; rm /tank/$fs/f3; done
zpool sync tank
zfs send -w -i tank/s#ours tank/s@ours | cat > /dev/null
zfs snapshot -r tank@after
zfs destroy -r tank/ourclone
zfs destroy tank/s@ours
zfs rename tank/s/kid/child tank/s/child
zfs destroy -r tank/s/kid
zfs destroy -r tank/s/vol
zpool sync tank; zpool wait -t free tank; zpool scrub -w tank; zpool status -v tank
zpool export tank
"#;

fn judged(dir: &Path) {
    tool::zdb_content(dir, POOL);
    drop(poolaudit_kernels(dir, POOL).expect_ok());
    acceptance::assert_verified_kernels(dir, POOL);
}

#[track_caller]
fn refused(done: Result<(), PoolError>, why: &str) {
    let error = done.unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn encrypted_data_sets_come_and_go_without_their_keys() {
    if !vm::wanted("that encrypted data sets are changed without their keys") {
        return;
    }
    let stage = Stage::new(2, 256 << 20);
    let dir = stage.images.path();
    drop(Vm::new(dir).run(MAKE).expect_ok());
    judged(dir);
    let pool = open_for_writing(dir, POOL);
    let names = ["s", "s/child", "s/vol"].map(|name| format!("tank/{name}@ours"));
    pool.snapshot(&names, &[]).unwrap();
    pool.bookmark(&[("tank/s#ours".into(), "tank/s@one".into())]).unwrap();
    pool.hold(&names[..1], "tag").unwrap();
    pool.release(&names[..1], "tag").unwrap();
    pool.rename_snapshots(&[(names[1].clone(), "renamed".into())]).unwrap();
    pool.set_property("tank/s", "compression", Some(pool::Stored::Number(3))).unwrap();
    // Where the key is set decides where a data set can be.
    let outside = "outside of its encryption root";
    refused(pool.rename("tank/s/child", "tank/plain/child"), outside);
    refused(pool.rename("tank/s/child", "tank/t/child"), outside);
    pool.rename("tank/s/child", "tank/s/kid/child").unwrap();
    pool.rename("tank/t", "tank/s/t").unwrap();
    // Clones share the key.
    for name in ["tank/ourclone", "tank/s/brief"] {
        pool.clone_snapshot("tank/s/kid@one", name, Default::default()).unwrap();
    }
    refused(pool.promote("tank/ourclone"), "encrypted");
    let make = fs::make_filesystem;
    refused(pool.create_filesystem("tank/s/new", Default::default(), make), "key is not loaded");
    assert!(fs::Filesystem::open(&pool, "tank/s").is_err());
    pool.sync().unwrap();
    pool.destroy_dataset("tank/s/brief").unwrap();
    pool.destroy_dataset("tank/s/clone").unwrap();
    pool.rollback("tank/back@one").unwrap();
    pool.close().unwrap();
    drop(pool);
    judged(dir);

    let pool = open_for_writing(dir, POOL);
    let before = pool.space().unwrap().allocated;
    pool.destroy_snapshots(&["tank/gone@one".into(), "tank/gone/below@one".into()], false).unwrap();
    pool.destroy_dataset("tank/gone/below").unwrap();
    pool.destroy_dataset("tank/gone").unwrap();
    pool.finish_freeing(|_| true).unwrap();
    assert_eq!(pool.freeing().unwrap(), 0);
    pool.close().unwrap();
    let freed = before - pool.space().unwrap().allocated;
    assert!(freed > 2 * 12 * 13 / 2 * 9321, "{freed}");
    drop(pool);
    judged(dir);
    let listed = stage.ok("zfs -d $D list -H -o name,encryptionroot -r tank/s");
    assert!(listed.out.contains("tank/s/kid/child\ttank/s\n"), "{listed}");
    assert!(listed.out.contains("tank/s/t\ttank/s/t\n"), "{listed}");

    let ran = Vm::new(dir).run(GO_ON).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("with 0 errors"), "{ran}");
    assert!(ran.out.contains("No known data errors"), "{ran}");
    judged(dir);
}
