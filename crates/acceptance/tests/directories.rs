//! Large directories, written in turn by us and by the OpenZFS kernel: fat ZAPs with many leaves,
//! and one whose pointer table lies in blocks of its own because its names were chosen so.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use acceptance::engine;
use device::{WriteDevice, WriteFile};
use format::zap::{FatHeader, Finding, check, zap_hash};
use fs::{Filesystem, NewObject, Who, make_filesystem, mode};
use pool::{Joined, NewLeaf, NewPool, NewTop, Pool};
use rt::sync::Arc;
use testkit::{Images, Vm, tool, vm};
use zerocopy::FromBytes;

const ME: Who = Who { uid: 1000, gid: 100 };

fn create(images: &Images) -> Arc<Pool> {
    let leaf = |path: &std::path::Path| {
        let device: Arc<dyn WriteDevice> = Arc::new(WriteFile::open(path).unwrap());
        NewLeaf { path: path.as_os_str().as_encoded_bytes().to_vec(), is_disk: false, device }
    };
    Pool::create(NewPool {
        name: "tank".into(),
        tops: vec![NewTop {
            joined: Joined::Single,
            leaves: images.disks().iter().map(|d| leaf(d)).collect(),
            is_log: false,
        }],
        spares: vec![],
        ashift: 12,
        features: pool::Feature::ALL.to_vec(),
        pool_props: BTreeMap::new(),
        props: BTreeMap::new(),
        make: make_filesystem,
        command: "zpool create tank".into(),
        options: engine::options(),
    })
    .unwrap()
}

/// A directory and what must be in it.
struct Dir {
    name: &'static str,
    names: BTreeSet<String>,
}

impl Dir {
    fn number(&self, fs: &Filesystem) -> u64 {
        fs.lookup(fs.root(), self.name.as_bytes()).unwrap().unwrap().object
    }

    fn add(&mut self, fs: &Filesystem, names: impl IntoIterator<Item = String>) {
        let dir = self.number(fs);
        let file = NewObject::of(mode::FILE | 0o644, ME);
        for name in names {
            fs.create(dir, name.as_bytes(), &file).unwrap();
            self.names.insert(name);
        }
    }

    /// Removes every so manieth name.
    fn thin(&mut self, fs: &Filesystem, every: usize) {
        let dir = self.number(fs);
        for name in self.every(every) {
            fs.unlink(dir, name.as_bytes()).unwrap();
            self.names.remove(&name);
        }
    }

    fn every(&self, every: usize) -> Vec<String> {
        self.names.iter().step_by(every).cloned().collect()
    }

    /// The directory is what it should be, by its listing, by lookups and by the judge of ZAPs.
    fn check(&self, fs: &Filesystem) -> FatHeader {
        let dir = self.number(fs);
        let listed = fs.read_dir(dir).unwrap().into_iter();
        let listed: BTreeSet<_> = listed.map(|e| String::from_utf8(e.name).unwrap()).collect();
        assert!(listed == self.names, "{}", self.name);
        for name in &self.names {
            assert!(fs.lookup(dir, name.as_bytes()).unwrap().is_some(), "{name}");
        }
        let object = fs.object(dir).unwrap();
        let read = |block| object.with_block(block, <[u8]>::to_vec).map_err(|e| e.to_string());
        let findings: Vec<Finding<String>> = check(read, object.max_block().unwrap());
        assert_eq!(findings, [], "{}", self.name);
        object.with_block(0, FatHeader::parse).unwrap().unwrap()
    }
}

/// Names whose hashes in this directory all have the same top 12 bits: `count` of them, the same
/// each time for one directory.
fn colliding(fs: &Filesystem, dir: u64, prefix: &str, count: usize) -> Vec<String> {
    let object = fs.object(dir).unwrap();
    let zap = format::zap::Reader::open(|b| {
        object.with_block(b, <[u8]>::to_vec).map_err(|_| format::FormatError::InBlock {
            block: b,
            error: Box::new(format::FormatError::Short { what: "test", needed: 0, have: 0 }),
        })
    });
    let salt = zap.unwrap().salt();
    let is_wanted = |n: &String| zap_hash(salt, 0, 0, n.as_str().into()).unwrap() >> 52 == 0x5a5;
    (0..).map(|i| format!("{prefix}{i}")).filter(is_wanted).take(count).collect()
}

fn judge(images: &Images) {
    tool::zdb_content(images.path(), "tank");
    tool::zdb_objects(images.path(), "tank");
}

#[test]
fn large_directories_pass_between_us_and_the_kernel() {
    if !vm::wanted("that the kernel reads and changes our large directories, and we its") {
        return;
    }
    let images = testkit::fresh_images(1, 512 << 20);
    let pool = create(&images);
    let fs = Filesystem::open(&pool, "tank").unwrap();
    let dir = NewObject::of(mode::DIR | 0o755, ME);
    let mut many = Dir { name: "many", names: BTreeSet::new() };
    let mut deep = Dir { name: "deep", names: BTreeSet::new() };
    for name in [many.name, deep.name] {
        fs.create(fs.root(), name.as_bytes(), &dir).unwrap();
    }
    let number = deep.number(&fs);
    let chosen = colliding(&fs, number, "a", 400);
    let later = colliding(&fs, number, "kernel", 300);
    let long = "x".repeat(200);
    // A long name makes it fat, which 400 short ones would not.
    deep.add(&fs, [long.clone()]);
    deep.add(&fs, chosen);
    many.add(&fs, (0..8000).map(|i| format!("event-{i:05}{}", &long[..i % 30 / 29 * 200])));
    pool.sync().unwrap();
    many.thin(&fs, 3);
    deep.thin(&fs, 7);
    assert!(many.check(&fs).leaf_count.get() > 40);
    let ours = deep.check(&fs);
    assert!(ours.table_blocks.get() >= 2, "{ours:?}");
    drop(fs);
    pool.close().unwrap();
    drop(pool);
    judge(&images);
    drop(tool::poolaudit(images.path(), "tank").expect_ok());

    // The kernel finds every name, then adds some and removes some.
    let lines = |names: &mut dyn Iterator<Item = &String>| -> String {
        names.map(|n| format!("{n}\n")).collect()
    };
    let put = |file: &str, text: String| std::fs::write(images.path().join(file), text).unwrap();
    let mut removed = BTreeMap::new();
    for dir in [&many, &deep] {
        put(&format!("{}.want", dir.name), lines(&mut dir.names.iter()));
        removed.insert(dir.name, dir.every(4));
        put(&format!("{}.remove", dir.name), lines(&mut removed[dir.name].iter()));
    }
    let more: Vec<String> = (0..1500).map(|i| format!("kernel-{i}")).collect();
    put("many.add", lines(&mut more.iter()));
    put("deep.add", lines(&mut later.iter()));
    // Without an intent log, which would leave its first block behind.
    let script = "
        set -e; export LC_ALL=C
        zpool import -d /d -o cachefile=none tank
        zfs set sync=disabled tank
        for dir in many deep; do
            cd /tank/$dir
            ls -U | sort | cmp - /d/$dir.want
            xargs stat -c %n < /d/$dir.want | cmp - /d/$dir.want
            xargs touch < /d/$dir.add
            xargs rm < /d/$dir.remove
            cd /
        done
        zpool export tank
    ";
    drop(Vm::new(images.path()).options(["-t", "900"]).run(script).expect_ok());
    for (dir, more) in [(&mut many, more), (&mut deep, later)] {
        dir.names.retain(|name| !removed[dir.name].contains(name));
        dir.names.extend(more);
    }

    // We find what the kernel left, and go on from there.
    let pool = engine::open_for_writing(images.path(), "tank");
    let fs = Filesystem::open(&pool, "tank").unwrap();
    many.check(&fs);
    let theirs = deep.check(&fs);
    assert!(theirs.table_blocks.get() >= ours.table_blocks.get());
    many.add(&fs, (0..1000).map(|i| format!("again-{i}")));
    let number = deep.number(&fs);
    deep.add(&fs, colliding(&fs, number, "z", 500));
    many.thin(&fs, 5);
    deep.thin(&fs, 5);
    many.check(&fs);
    deep.check(&fs);
    drop(fs);
    pool.close().unwrap();
    drop(pool);
    judge(&images);

    // And the kernel removes it all.
    let script = "
        set -e
        zpool import -d /d -o cachefile=none tank
        rm -r /tank/many /tank/deep
        test -z \"$(ls -A /tank)\"
        zpool export tank
    ";
    drop(Vm::new(images.path()).options(["-t", "900"]).run(script).expect_ok());
    tool::zdb_content(images.path(), "tank");
}

/// From 2.3 on OpenZFS takes away the leaves of a directory that was emptied, in more than one txg. It leaves holes
/// between the last block that is in use and the last that the object counts.
#[test]
fn a_directory_whose_leaves_openzfs_took_away_is_sound_and_grows_again() {
    let images = testkit::fresh_images(1, 256 << 20);
    let pool = create(&images);
    let fs = Filesystem::open(&pool, "tank").unwrap();
    fs.create(fs.root(), b"many", &NewObject::of(mode::DIR | 0o755, ME)).unwrap();
    let mut many = Dir { name: "many", names: BTreeSet::new() };
    let names = || (0..1000).map(|i| format!("{i}{}", "x".repeat(60)));
    many.add(&fs, names());
    let full = many.check(&fs);
    assert!(full.is_embedded() && full.leaf_count.get() > 4, "{full:?}");
    many.thin(&fs, 1);
    let number = many.number(&fs);
    drop(fs);
    pool.sync().unwrap();
    let last = full.leaf_count.get();
    for (first, count) in [(2, last - 2), (last, 1)] {
        pool.task(move |cx| {
            let head = cx.pool.dataset("tank")?;
            let dir = head.objset.object(number)?;
            dir.free_blocks(cx.tx, first, count)?;
            dir.with_block_mut(cx.tx, 1, |leaf| {
                leaf[16..24].fill(0);
                leaf[32..34].fill(0);
            })?;
            dir.with_block_mut(cx.tx, 0, |block| {
                let (header, table) = block.split_at_mut(8192);
                table.as_chunks_mut().0.fill(1u64.to_le_bytes());
                let (header, _) = FatHeader::mut_from_prefix(header).unwrap();
                header.free_block.set(2);
                header.leaf_count.set(1);
            })?;
            cx.sync_objset(head.object, &head.objset, 0)
        })
        .unwrap();
    }
    pool.close().unwrap();
    drop(pool);
    acceptance::assert_verified(images.path(), "tank");
    judge(&images);

    let pool = engine::open_for_writing(images.path(), "tank");
    let fs = Filesystem::open(&pool, "tank").unwrap();
    let holes = fs.object(number).unwrap().max_block().unwrap();
    assert_eq!((many.check(&fs).free_block.get(), holes), (2, last - 1));
    many.add(&fs, names());
    assert!(many.check(&fs).leaf_count.get() > 4);
    drop(fs);
    pool.close().unwrap();
    drop(pool);
    acceptance::assert_verified(images.path(), "tank");
    judge(&images);
    drop(tool::poolaudit(images.path(), "tank").expect_ok());
}
