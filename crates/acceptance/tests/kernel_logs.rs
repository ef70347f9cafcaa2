//! Empty intent logs that the OpenZFS kernel leaves behind wherever files were synced by themselves: their data
//! sets are changed here, and the log's one block goes back to the pool, once.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use acceptance::engine::{change, open_for_writing};
use format::zil::ZilHeader;
use pool::Pool;
use rt::sync::Arc;
use testkit::data::{Data, Look};
use testkit::workload::Op;
use testkit::{Vm, poolaudit_kernels, tool, vm};

const POOL: &str = "tank";

const MAKE: &str = r#"
set -euo pipefail
zpool create -o cachefile=none -o ashift=12 -O compression=lz4 tank raidz1 /d/d00 /d/d01 /d/d02
zfs create -o sync=always tank/always
for i in $(seq 9); do head -c $((i * 9000)) /dev/urandom > /tank/always/f$i; done
for fs in fsync kept snapped back gone; do
  zfs create tank/$fs
  python3 -c 'import os, sys
for i in range(4):
    fd = os.open(f"/tank/{sys.argv[1]}/f{i}", os.O_CREAT | os.O_RDWR)
    os.write(fd, os.urandom(30000)); os.fsync(fd); os.close(fd)' $fs
done
zfs snapshot tank/back@old
zfs snapshot tank/always@old
zfs clone -o sync=always tank/always@old tank/cloned; head -c 9000 /dev/urandom > /tank/cloned/more
head -c 70000 /dev/urandom > /tank/back/later; python3 -c 'import os
os.fsync(os.open("/tank/back/later", os.O_RDWR))'
echo "correct horse battery staple" | zfs create -o encryption=on -o keyformat=passphrase -o sync=always tank/secret
head -c 9000 /dev/urandom > /tank/secret/f
zfs create -V 8M -o sync=always tank/vol
for i in $(seq 100); do ls /dev/zd* >/dev/null 2>&1 && break; sleep .1; done
head -c 100000 /dev/urandom | dd of=$(ls /dev/zd* | head -1) oflag=sync bs=10000 2>/dev/null
cd /tank; find always fsync kept snapped cloned -type f | sort | xargs sha256sum > /d/sums
cd /tank/back; sha256sum f* > /d/sums.back
cd /; zpool export tank
"#;

const GO_ON: &str = r#"
set -euo pipefail
zpool import -d /d -o cachefile=none tank
cd /tank; sha256sum -c --quiet /d/sums; cd /tank/back; sha256sum -c --quiet /d/sums.back; test ! -e later
cd /; test -z "$(zfs list -H -o name | grep gone)"
for fs in always fsync snapped back cloned ofsnap; do
  test -e /tank/$fs/ours
  python3 -c 'import os, sys
for i in range(3):
    fd = os.open(f"/tank/{sys.argv[1]}/again{i}", os.O_CREAT | os.O_RDWR)
    os.write(fd, os.urandom(30000)); os.fsync(fd); os.close(fd)' $fs
done
rm /tank/*/ours
zpool sync tank; zpool scrub -w tank; zpool status -v tank
zpool export tank
"#;

fn header(pool: &Pool, name: &str) -> ZilHeader {
    ZilHeader::parse(&pool.dataset(name).unwrap().objset.phys().zil_header)
}

fn write(pool: &Arc<Pool>, name: &str) {
    let fs = fs::Filesystem::open(pool, name).unwrap();
    let data = Data { look: Look::Noise, seed: 7, size: 50_000 };
    for op in [
        Op::Create { path: b"ours".to_vec(), mode: 0o644 },
        Op::Write { path: b"ours".to_vec(), offset: 100, data },
    ] {
        change(&fs, &op).unwrap_or_else(|e| panic!("{name}: {op}: {e}"));
    }
}

fn judged(dir: &Path) {
    tool::zdb_content(dir, POOL);
    drop(poolaudit_kernels(dir, POOL).expect_ok());
    acceptance::assert_verified_kernels(dir, POOL);
}

#[test]
fn empty_logs_go_with_the_first_change_and_their_block_with_them() {
    if !vm::wanted("that data sets whose intent log is empty are written to") {
        return;
    }
    let images = testkit::fresh_images(3, 256 << 20);
    let dir = images.path();
    drop(Vm::new(dir).run(MAKE).expect_ok());
    judged(dir);
    let pool = open_for_writing(dir, POOL);
    let written = ["always", "fsync", "cloned"];
    let left = ["kept", "snapped", "back", "gone", "vol", "secret", "always@old"];
    for name in written.iter().chain(&left) {
        let log = header(&pool, &format!("tank/{name}")).log;
        assert!(!log.is_hole(), "{name} has no log: nothing is shown");
    }
    drop(pool);

    // Of data sets that nobody has opened, and one whose log stays.
    let pool = open_for_writing(dir, POOL);
    let before = pool.space().unwrap().allocated;
    pool.snapshot(&["tank/kept@ours".into(), "tank/vol@ours".into()], &[]).unwrap();
    pool.destroy_dataset("tank/gone").unwrap();
    pool.finish_freeing(|_| true).unwrap();
    pool.rollback("tank/back@old").unwrap();
    pool.clone_snapshot("tank/kept@ours", "tank/ofsnap", Default::default()).unwrap();
    pool.close().unwrap();
    assert!(pool.space().unwrap().allocated < before);
    drop(pool);
    judged(dir);

    let pool = open_for_writing(dir, POOL);
    pool.snapshot(&["tank/snapped@ours".into()], &[]).unwrap();
    for name in written.iter().chain(&["snapped", "back", "ofsnap"]) {
        write(&pool, &format!("tank/{name}"));
        pool.sync().unwrap();
        assert_eq!(header(&pool, &format!("tank/{name}")), ZilHeader::default(), "{name}");
    }
    // That of a data set without changes is as it was.
    assert!(!header(&pool, "tank/kept").log.is_hole());
    pool.destroy_snapshots(&["tank/snapped@ours".into()], false).unwrap();
    pool.close().unwrap();
    drop(pool);
    judged(dir);

    // The kernel goes on, and leaves such logs again.
    let ran = Vm::new(dir).run(GO_ON).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("with 0 errors"), "{ran}");
    judged(dir);
    let pool = open_for_writing(dir, POOL);
    for name in written.iter().chain(&["snapped", "back", "ofsnap"]) {
        let name = format!("tank/{name}");
        assert!(!header(&pool, &name).log.is_hole(), "{name}");
        write(&pool, &name);
    }
    pool.close().unwrap();
    drop(pool);
    judged(dir);
}
