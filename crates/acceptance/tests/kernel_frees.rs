//! Half-freed files in delete queues, handed on between the OpenZFS kernel and us, both ways.
//!
//! Seen red: with a queue that is left as it is found.

#![allow(clippy::unwrap_used)]

use acceptance::{SHAPES, Session};
use fs::{NewObject, Who, mode};
use testkit::{Images, Vm, poolaudit_kernels, tool, vm};

const POOL: &str = "tank";

fn assert_verified(images: &Images) {
    let scan = vdev::import::scan(&[images.path().to_path_buf()]).unwrap();
    let found = scan.choose(POOL).unwrap();
    let report = verify::verify_pool(found, &verify::Options::default(), &mut |_| true).unwrap();
    assert!(report.verdict == verify::Verdict::Clean, "{:?}", report.findings);
}

/// The kernel goes on where we stopped, and all space comes back.
#[test]
fn the_kernel_works_off_what_we_left() {
    if !vm::wanted("that the kernel works off our delete queue") {
        return;
    }
    const RECORD: u64 = 512;
    let (images, mut session) = Session::create(&SHAPES[1], RECORD);
    session.pool().set_freeing(300, false).unwrap();
    let fs = session.filesystem();
    let file = NewObject::of(mode::FILE | 0o644, Who { uid: 1000, gid: 100 });
    let mut data = vec![0; 3000 * RECORD as usize];
    rt::random::Rng::new(1).fill(&mut data);
    fs.create_with(fs.root(), b"kept", &file, &data[..100_000]).unwrap();
    let large = fs.create_with(fs.root(), b"large", &file, &data).unwrap();
    fs.set_xattr(large, b"user.long", Some(&data[..40_000])).unwrap();
    session.pool().sync().unwrap();
    fs.unlink(fs.root(), b"large").unwrap();
    session.pool().sync().unwrap();
    session.pool().sync().unwrap();
    assert_eq!(fs.delete_queue().unwrap(), [large]);
    let before = session.pool().space().unwrap().allocated;
    session.close().unwrap();
    let script = "set -euo pipefail\n\
         zpool import -f -d /d -o cachefile=none tank\n\
         test -s /tank/kept\n\
         for i in $(seq 20); do zpool sync tank; sleep 0.2; done\n\
         zfs userspace -Hp -o name,used,objused tank\n\
         zpool scrub -w tank; zpool status -v tank\n\
         zpool export tank\n";
    let ran = Vm::new(images.path()).run(script).expect_ok();
    assert!(ran.out.contains("with 0 errors"), "{ran}");
    tool::zdb_content(images.path(), POOL);
    drop(poolaudit_kernels(images.path(), POOL).expect_ok());
    assert_verified(&images);
    let mut session = Session::open(images.path(), POOL, POOL).unwrap();
    assert_eq!(session.filesystem().delete_queue().unwrap(), [0; 0]);
    let after = session.pool().space().unwrap().allocated;
    assert!(after + 5_000_000 < before, "{before} bytes allocated, then {after}");
    session.close().unwrap();
}

/// The power goes while the kernel has an unlinked file open: we work it off, with its extended
/// attributes, in several txgs, each of which is right.
#[test]
fn we_work_off_what_the_kernel_left() {
    if !vm::wanted("that we work off the kernel's delete queue") {
        return;
    }
    let images = testkit::fresh_images(2, 256 << 20);
    let script = "set -euo pipefail\n\
         zpool create -o cachefile=none -O sync=disabled -O recordsize=4k -O xattr=dir tank mirror $(ls /d/d0?)\n\
         head -c 12000000 /dev/urandom > /tank/large\n\
         head -c 700000 /dev/urandom > /tank/other\n\
         head -c 300000 /dev/urandom > /tank/kept\n\
         mkdir /tank/dir\n\
         for f in large other kept; do\n\
           python3 -c 'import os,sys; os.setxattr(sys.argv[1], \"user.a\", b\"x\" * 9000)' /tank/$f\n\
         done\n\
         zpool sync tank\n\
         exec 3</tank/large 4</tank/other 5</tank/dir\n\
         rm /tank/large /tank/other; rmdir /tank/dir\n\
         zpool sync tank; zpool sync tank\n\
         echo READY; sleep 1000\n";
    drop(Vm::new(images.path()).options(["--kill-after", "1"]).run(script).expect_ok());
    assert_verified(&images);
    let mut cuts = 0;
    let mut before = u64::MAX;
    loop {
        let mut session = Session::open_freeing(images.path(), POOL, POOL, Some(1200)).unwrap();
        assert_eq!(session.pool().read_only_reason(), None);
        let left = session.filesystem().delete_queue().unwrap();
        if cuts == 0 {
            assert_eq!(left.len(), 3, "{left:?}");
        }
        session.pool().sync().unwrap();
        let now = session.pool().space().unwrap().allocated;
        session.close().unwrap();
        tool::zdb_content(images.path(), POOL);
        drop(poolaudit_kernels(images.path(), POOL).expect_ok());
        assert_verified(&images);
        if left.is_empty() {
            break;
        }
        assert!(now < before, "{before} bytes allocated, then {now}");
        (before, cuts) = (now, cuts + 1);
        assert!(cuts < 20, "it never ends: {left:?}");
    }
    assert!(cuts >= 2, "{cuts} sessions for 3,000 blocks, 2,400 in each");
    assert!(before < 3_000_000, "{before} bytes are left");
    let script = "set -euo pipefail\n\
         zpool import -f -d /d -o cachefile=none tank\n\
         test $(ls /tank | wc -l) = 1; test $(stat -c %s /tank/kept) = 300000\n\
         zfs userspace -Hp -o name,used,objused tank\n\
         zpool scrub -w tank; zpool status -v tank\n\
         zpool export tank\n";
    let ran = Vm::new(images.path()).run(script).expect_ok();
    assert!(ran.out.contains("repaired 0B") && ran.out.contains("with 0 errors"), "{ran}");
}
