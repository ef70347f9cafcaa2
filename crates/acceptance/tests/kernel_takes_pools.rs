//! The OpenZFS kernel imports what the engine wrote, reads it, writes to it, scrubs it; the engine
//! then opens what the kernel left and reads every file.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use device::{WriteDevice, WriteFile};
use fs::{Filesystem, NewObject, Who, make_filesystem, mode};
use pool::{Devices, Joined, NewLeaf, NewPool, NewTop, OpenOptions, Pool, Stored};
use rt::random::Rng;
use rt::sync::Arc;
use sha2::{Digest, Sha256};

const ME: Who = Who { uid: 1000, gid: 100 };

fn options() -> OpenOptions {
    let host_name = "thumper".into();
    OpenOptions { workers: 2, host_id: 0x7468_756d, host_name, new_name: None }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// What the kernel does with the pool: read-only first, then it writes, scrubs and exports.
const SCRIPT: &str = "
set -e
zpool import -d /d -o cachefile=none -o readonly=on tank
sums() { python3 -c '
import hashlib, os
for base, dirs, names in os.walk(\"/tank\"):
    for name in sorted(names):
        path = os.path.join(base, name)
        print(\"SUM\", hashlib.sha256(open(path, \"rb\").read()).hexdigest(), path)
'; }
sums
stat -c 'STAT %u:%g %a %s %h %n' /tank/dir /tank/dir/file-000
zfs list -Hpo name,used,refer tank | sed 's/^/LIST /'
zpool export tank
zpool import -d /d -o cachefile=none tank
head -c 3000000 /dev/urandom > /tank/new
echo overwritten > /tank/dir/file-001
rm /tank/dir/file-002
mkdir /tank/made
sync
zpool scrub -w tank
zpool status tank | grep -E 'scan:|errors:'
sha256sum /tank/new | sed 's/^/NEW /'
zpool export tank
";

fn takes(joined: Joined, disks: usize) {
    let images = testkit::fresh_images(disks, 96 << 20);
    let leaf = |path: &std::path::PathBuf| {
        let device: Arc<dyn WriteDevice> = Arc::new(WriteFile::open(path).unwrap());
        let path = path.as_os_str().as_encoded_bytes().to_vec();
        NewLeaf { path, is_disk: false, device }
    };
    let pool = Pool::create(NewPool {
        name: "tank".into(),
        tops: vec![NewTop { joined, leaves: images.disks().iter().map(leaf).collect() }],
        spares: vec![],
        ashift: 12,
        with_features: true,
        pool_props: BTreeMap::new(),
        props: BTreeMap::from([("compression".to_string(), Stored::Number(15))]),
        make: make_filesystem,
        command: "zpool create tank".into(),
        options: options(),
    })
    .unwrap();
    let fs = Filesystem::open(&pool, "tank").unwrap();
    let file = NewObject::of(mode::FILE | 0o640, ME);
    let dir = fs.create(fs.root(), b"dir", &NewObject::of(mode::DIR | 0o750, ME)).unwrap();
    let mut sums = BTreeMap::new();
    for i in 0..100u64 {
        let data = noise(i, (i * i * 97) as usize);
        let name = format!("file-{i:03}");
        fs.create_with(dir, name.as_bytes(), &file, &data).unwrap();
        sums.insert(format!("/tank/dir/{name}"), hex(&data));
    }
    drop(fs);
    pool.set_state(format::config::PoolState::Exported).unwrap();
    pool.close().unwrap();
    drop(pool);

    let ran = testkit::Vm::new(images.path()).run(SCRIPT).expect_ok();
    let said = ran.out;
    for (path, sum) in &sums {
        assert!(said.contains(&format!("SUM {sum} {path}")), "{path} differs:\n{said}");
    }
    assert!(said.contains("STAT 1000:100 750 102 2 /tank/dir\n"), "{said}");
    assert!(said.contains("STAT 1000:100 640 0 1 /tank/dir/file-000\n"), "{said}");
    assert!(said.contains("repaired 0B") && said.contains("with 0 errors"), "{said}");
    assert!(said.contains("errors: No known data errors"), "{said}");

    // What the kernel left opens, and every file reads.
    let scan = vdev::import::scan(&[images.path().to_path_buf()]).unwrap();
    let found = scan.choose("tank").unwrap();
    let tree = Arc::new(found.open_tree().unwrap());
    let pool = Pool::open(Devices::ReadOnly(tree), &found.uberblocks, &options()).unwrap();
    let fs = Filesystem::open(&pool, "tank").unwrap();
    let read = |path: &str| {
        let (object, attrs) = fs.open_object(fs.resolve(path.as_bytes()).unwrap()).unwrap();
        let mut bytes = vec![0; attrs.size as usize];
        fs.read_open(&object, attrs.size, 0, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(read("dir/file-001"), b"overwritten\n");
    assert!(fs.resolve(b"dir/file-002").is_err());
    assert!(said.contains(&format!("NEW {}", hex(&read("new")))), "{said}");
    for (path, sum) in sums.iter().skip(3) {
        assert_eq!(&hex(&read(path.trim_start_matches("/tank/"))), sum, "{path}");
    }
    testkit::tool::zdb_content(images.path(), "tank");
}

#[test]
fn the_kernel_takes_raidz2_and_gives_it_back() {
    if testkit::vm::wanted("raidz2 in the kernel") {
        takes(Joined::Raidz(2), 6);
    }
}

#[test]
fn the_kernel_takes_a_mirror_and_gives_it_back() {
    if testkit::vm::wanted("a mirror in the kernel") {
        takes(Joined::Mirror, 2);
    }
}
