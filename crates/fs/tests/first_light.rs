//! A pool written from nothing, judged by OpenZFS's own tools and by poolaudit.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use device::{WriteDevice, WriteFile};
use fs::{Filesystem, NewObject, Who, make_filesystem, mode};
use pool::{Joined, NewLeaf, NewPool, NewTop, OpenOptions, Pool, Stored};
use rt::random::Rng;
use rt::sync::Arc;
use testkit::tool;

const ME: Who = Who { uid: 1000, gid: 100 };

fn leaf(path: &Path) -> NewLeaf {
    let device: Arc<dyn WriteDevice> = Arc::new(WriteFile::open(path).unwrap());
    NewLeaf { path: path.as_os_str().as_encoded_bytes().to_vec(), is_disk: false, device }
}

fn options() -> OpenOptions {
    OpenOptions { workers: 2, host_id: 0x7468_756d, host_name: "thumper".into(), new_name: None }
}

fn create(images: &testkit::Images, joined: Joined, ashift: u32, record: u64) -> Arc<Pool> {
    let props = BTreeMap::from([
        ("compression".to_string(), Stored::Number(15)),
        ("recordsize".to_string(), Stored::Number(record)),
        ("xattr".to_string(), Stored::Number(2)),
    ]);
    Pool::create(NewPool {
        name: "tank".into(),
        tops: vec![NewTop { joined, leaves: images.disks().iter().map(|d| leaf(d)).collect() }],
        spares: vec![],
        ashift,
        with_features: true,
        pool_props: BTreeMap::new(),
        props,
        make: make_filesystem,
        command: "zpool create tank".into(),
        options: options(),
    })
    .unwrap()
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

fn judge(images: &testkit::Images) {
    tool::zdb_content(images.path(), "tank");
    tool::zdb_objects(images.path(), "tank");
    let _clean = tool::poolaudit(images.path(), "tank").expect_ok();
}

/// Several txgs of everything a small workload does, with a sync after each step.
fn workload(pool: &Arc<Pool>) {
    let fs = Filesystem::open(pool, "tank").unwrap();
    let root = fs.root();
    let file = NewObject::of(mode::FILE | 0o644, ME);
    let dir = NewObject::of(mode::DIR | 0o755, ME);
    let big = fs.create_with(root, b"big", &file, &noise(1, 3 << 20)).unwrap();
    pool.sync().unwrap();
    let many = fs.create(root, b"many", &dir).unwrap();
    for i in 0..300u64 {
        let name = format!("file-{i:04}");
        fs.create_with(many, name.as_bytes(), &file, &noise(i, (i * 37) as usize)).unwrap();
    }
    pool.sync().unwrap();
    fs.write(big, 100_000, &noise(2, 300_000)).unwrap();
    let sparse = fs.create(root, b"sparse", &file).unwrap();
    fs.write(sparse, 500 << 20, b"end").unwrap();
    fs.write(sparse, 0, b"start").unwrap();
    pool.sync().unwrap();
    fs.truncate(big, 1_000_001).unwrap();
    for i in (0..300).step_by(3) {
        fs.unlink(many, format!("file-{i:04}").as_bytes()).unwrap();
    }
    let link = NewObject { target: Some(b"many/file-0001"), ..NewObject::of(0o120_777, ME) };
    fs.create(root, b"link", &link).unwrap();
    fs.set_xattr(big, b"user.color", Some(b"green")).unwrap();
    fs.set_xattr(big, b"user.long", Some(&noise(9, 2000))).unwrap();
    pool.sync().unwrap();
    let long = [b'n'; 255];
    fs.rename(root, b"sparse", many, &long).unwrap();
    fs.link(root, b"second-name", big).unwrap();
    fs.set_xattr(big, b"user.long", None).unwrap();
    pool.sync().unwrap();
}

#[test]
fn a_new_pool_on_one_disk_is_what_zdb_expects() {
    let images = testkit::fresh_images(1, 256 << 20);
    let pool = create(&images, Joined::Single, 12, 128 << 10);
    pool.close().unwrap();
    drop(pool);
    judge(&images);
}

#[test]
fn a_workload_on_one_disk_leaves_no_leak() {
    let images = testkit::fresh_images(1, 256 << 20);
    let pool = create(&images, Joined::Single, 12, 128 << 10);
    workload(&pool);
    pool.close().unwrap();
    drop(pool);
    judge(&images);
}

#[test]
fn a_workload_on_raidz2_leaves_no_leak() {
    let images = testkit::fresh_images(11, 128 << 20);
    let pool = create(&images, Joined::Raidz(2), 12, 1 << 20);
    workload(&pool);
    pool.close().unwrap();
    drop(pool);
    judge(&images);
}

#[test]
fn a_workload_on_a_mirror_with_small_sectors_leaves_no_leak() {
    let images = testkit::fresh_images(3, 128 << 20);
    let pool = create(&images, Joined::Mirror, 9, 128 << 10);
    workload(&pool);
    pool.close().unwrap();
    drop(pool);
    judge(&images);
}
