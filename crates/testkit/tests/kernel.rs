//! The kernel's helpers on a pool that the kernel itself made: what it wrote must be what the model
//! says, and the truth that is taken of it must be whole.

use testkit::workload::random;
use testkit::{Compare, Vm, assert_same, fresh_images, kernel, poolaudit_kernels, vm};

#[test]
fn the_kernel_does_what_the_model_says() {
    if !vm::wanted("that the model of a file system agrees with the OpenZFS kernel") {
        return;
    }
    let images = fresh_images(3, 256 << 20);
    let made = Vm::new(images.path()).run(
        "zpool create -o cachefile=none tank raidz1 /d/d00 /d/d01 /d/d02 &&
         zfs create -o xattr=sa tank/fs && zpool export tank",
    );
    drop(made.expect_ok());
    let load = random(11, 300, 4);
    drop(kernel::work(images.path(), "tank", "tank/fs", &load.ops));
    let truth = kernel::truth_of(images.path(), "tank", &[]);
    let found = truth.entries("tank/fs").expect("the kernel mounts its own file system");
    assert_same(&load.tree.entries(), &found, Compare::MODEL);
    assert_eq!(truth.zpool_get("ashift").map(|p| p.0), Some("0"));
    drop(poolaudit_kernels(images.path(), "tank").expect_ok());
    testkit::tool::zdb_content(images.path(), "tank");
}
