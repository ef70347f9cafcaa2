//! Lies of data sets, directories, deadlists, clones and features.

use crate::Lie;
use crate::forge::{Forge, Os};
use verify::FindingKind::{Account, Deadlist, Feature, Snapshots};

/// Words of a directory.
mod dir {
    pub(super) const PARENT: usize = 2;
    pub(super) const ORIGIN: usize = 3;
    pub(super) const USED: usize = 5;
    pub(super) const COMPRESSED: usize = 6;
    pub(super) const UNCOMPRESSED: usize = 7;
    pub(super) const HEAD: usize = 13;
    pub(super) const SNAP: usize = 14;
    pub(super) const CHILD: usize = 15;
    pub(super) const CHILD_RESERVED: usize = 16;
    pub(super) const REF_RESERVED: usize = 17;
    pub(super) const CLONES: usize = 18;
}

/// Words of a data set.
mod set {
    pub(super) const DIR: usize = 0;
    pub(super) const PREV: usize = 1;
    pub(super) const PREV_TXG: usize = 2;
    pub(super) const NEXT: usize = 3;
    pub(super) const NAMES: usize = 4;
    pub(super) const CHILDREN: usize = 5;
    pub(super) const MADE: usize = 7;
    pub(super) const DEADLIST: usize = 8;
    pub(super) const REFERENCED: usize = 9;
    pub(super) const COMPRESSED: usize = 10;
    pub(super) const UNCOMPRESSED: usize = 11;
    pub(super) const UNIQUE: usize = 12;
    pub(super) const NEXT_CLONES: usize = 32;
}

fn add_dir(forge: &mut Forge, name: &str, word: usize, what: i64) {
    let object = forge.dir(name);
    forge.add(Os::Mos, object, word, what);
}

fn add_set(forge: &mut Forge, name: &str, word: usize, what: i64) {
    let object = forge.dataset(name);
    forge.add(Os::Mos, object, word, what);
}

fn set_set(forge: &mut Forge, name: &str, word: usize, value: u64) {
    let object = forge.dataset(name);
    forge.set(Os::Mos, object, word, value);
}

fn of_set(forge: &Forge, name: &str, word: usize) -> u64 {
    forge.word(Os::Mos, forge.dataset(name), word)
}

/// The bpobj under a key of a data set's deadlist.
fn sublist(forge: &Forge, name: &str, key: &str) -> u64 {
    let list = of_set(forge, name, set::DEADLIST);
    forge.zap_value(Os::Mos, list, key.as_bytes()).unwrap().as_u64().unwrap()
}

pub(crate) fn add_feature(forge: &mut Forge, guid: &str, what: i64) {
    for list in ["features_for_read", "features_for_write"] {
        let list = forge.find(list);
        if let Some(count) = forge.zap_value(Os::Mos, list, guid.as_bytes()) {
            let count = count.as_u64().unwrap().wrapping_add_signed(what);
            forge.set_zap(Os::Mos, list, guid, count);
        }
    }
}

/// Gives an entry of a micro ZAP another name.
fn rename(entry: &mut [u8], name: &str) {
    entry[14..].fill(0);
    entry[14..14 + name.len()].copy_from_slice(name.as_bytes());
}

pub(crate) const LIES: &[Lie] = &[
    Lie {
        golden: "mir",
        what: "a directory uses more than the sum of its parts",
        kind: Account,
        text: "mir: used ",
        tell: |f| add_dir(f, "mir", dir::USED, 4096),
    },
    Lie {
        golden: "mir",
        what: "space of the head is called the snapshots'",
        kind: Account,
        text: "mir/work: snapshots use",
        tell: |f| {
            add_dir(f, "mir/work", dir::SNAP, 4096);
            add_dir(f, "mir/work", dir::HEAD, -4096);
        },
    },
    Lie {
        golden: "mir",
        what: "head and snapshots use less",
        kind: Account,
        text: "mir: head and snapshots use",
        tell: |f| {
            add_dir(f, "mir", dir::HEAD, -4096);
            add_dir(f, "mir", dir::USED, -4096);
        },
    },
    Lie {
        golden: "mir",
        what: "the children use more",
        kind: Account,
        text: "mir: used by children",
        tell: |f| {
            add_dir(f, "mir", dir::CHILD, 4096);
            add_dir(f, "mir", dir::USED, 4096);
        },
    },
    Lie {
        golden: "single",
        what: "something is reserved for the children",
        kind: Account,
        text: "single: reserved for children",
        tell: |f| {
            add_dir(f, "single", dir::CHILD_RESERVED, 4096);
            add_dir(f, "single", dir::USED, 4096);
        },
    },
    Lie {
        golden: "rz2",
        what: "less is reserved for a head",
        kind: Account,
        text: "reserved for itself",
        tell: |f| {
            let name = "rz2/srv/gridstorage01";
            let reserved = f.word(Os::Mos, f.dir(name), dir::REF_RESERVED);
            let dirs: &[(&str, usize)] = if reserved > 4096 {
                &[
                    (name, dir::REF_RESERVED),
                    (name, dir::USED),
                    ("rz2/srv", dir::CHILD),
                    ("rz2/srv", dir::USED),
                    ("rz2", dir::CHILD),
                    ("rz2", dir::USED),
                ]
            } else {
                panic!("{name} has no refreservation")
            };
            dirs.iter().for_each(|(name, word)| add_dir(f, name, *word, -4096));
        },
    },
    Lie {
        golden: "mir",
        what: "a directory's compressed space",
        kind: Account,
        text: "mir: compressed",
        tell: |f| add_dir(f, "mir", dir::COMPRESSED, 4096),
    },
    Lie {
        golden: "rz1",
        what: "a directory's uncompressed space",
        kind: Account,
        text: "rz1: uncompressed",
        tell: |f| add_dir(f, "rz1", dir::UNCOMPRESSED, -512),
    },
    Lie {
        golden: "mir",
        what: "the MOS uses more than its blocks",
        kind: Account,
        text: "mir/$MOS: head and snapshots use",
        tell: |f| {
            for (name, word) in [
                ("mir/$MOS", dir::HEAD),
                ("mir/$MOS", dir::USED),
                ("mir", dir::CHILD),
                ("mir", dir::USED),
            ] {
                add_dir(f, name, word, 4096);
            }
        },
    },
    Lie {
        golden: "rz2",
        what: "something is being freed",
        kind: Account,
        text: "rz2/$FREE: being freed",
        tell: |f| {
            for (name, word) in [
                ("rz2/$FREE", dir::HEAD),
                ("rz2/$FREE", dir::USED),
                ("rz2", dir::CHILD),
                ("rz2", dir::USED),
            ] {
                add_dir(f, name, word, 4096);
            }
        },
    },
    Lie {
        golden: "mir",
        what: "a directory names another parent",
        kind: Snapshots,
        text: "mir/quota/child: its parent is",
        tell: |f| {
            let (child, other) = (f.dir("mir/quota/child"), f.dir("mir/work"));
            f.set(Os::Mos, child, dir::PARENT, other);
        },
    },
    Lie {
        golden: "mir",
        what: "a clone has another origin",
        kind: Snapshots,
        text: "mir/clone: its origin is",
        tell: |f| {
            let (clone, other) = (f.dir("mir/clone"), f.dataset("mir/work@s1"));
            f.set(Os::Mos, clone, dir::ORIGIN, other);
        },
    },
    Lie {
        golden: "mir",
        what: "a head refers to more",
        kind: Account,
        text: "mir/work: refers to",
        tell: |f| add_set(f, "mir/work", set::REFERENCED, 4096),
    },
    Lie {
        golden: "mir",
        what: "a snapshot refers to less",
        kind: Account,
        text: "mir/work@s2: refers to",
        tell: |f| add_set(f, "mir/work@s2", set::REFERENCED, -4096),
    },
    Lie {
        golden: "single",
        what: "a head's compressed space",
        kind: Account,
        text: "single/a: compressed",
        tell: |f| add_set(f, "single/a", set::COMPRESSED, 4096),
    },
    Lie {
        golden: "rz1",
        what: "a head's uncompressed space",
        kind: Account,
        text: "rz1/c_lz4: uncompressed",
        tell: |f| add_set(f, "rz1/c_lz4", set::UNCOMPRESSED, 512),
    },
    Lie {
        golden: "mir",
        what: "what only a head has",
        kind: Account,
        text: "mir/quota: unique",
        tell: |f| add_set(f, "mir/quota", set::UNIQUE, 4096),
    },
    Lie {
        golden: "mir",
        what: "what only a snapshot has",
        kind: Account,
        text: "mir/work@s1: unique",
        tell: |f| add_set(f, "mir/work@s1", set::UNIQUE, -4096),
    },
    Lie {
        golden: "mir",
        what: "a head's previous snapshot",
        kind: Snapshots,
        text: "mir/work: its previous snapshot is object",
        tell: |f| {
            let other = f.dataset("mir/work@s1");
            set_set(f, "mir/work", set::PREV, other);
        },
    },
    Lie {
        golden: "mir",
        what: "the txg of a head's previous snapshot",
        kind: Snapshots,
        text: "mir/work: its previous snapshot is of txg",
        tell: |f| add_set(f, "mir/work", set::PREV_TXG, -1),
    },
    Lie {
        golden: "mir",
        what: "a snapshot's next",
        kind: Snapshots,
        text: "mir/work@s1: next is",
        tell: |f| {
            let other = f.dataset("mir/work");
            set_set(f, "mir/work@s1", set::NEXT, other);
        },
    },
    Lie {
        golden: "mir",
        what: "how many grew from a snapshot",
        kind: Snapshots,
        text: "mir/work@s2: num_children",
        tell: |f| add_set(f, "mir/work@s2", set::CHILDREN, 1),
    },
    Lie {
        golden: "rz1",
        what: "the number of all data sets, kept at the origin",
        kind: Snapshots,
        text: "$ORIGIN@$ORIGIN: num_children",
        tell: |f| add_set(f, "rz1/$ORIGIN@$ORIGIN", set::CHILDREN, -1),
    },
    Lie {
        golden: "mir",
        what: "a head that something grew from",
        kind: Snapshots,
        text: "mir/base: num_children",
        tell: |f| set_set(f, "mir/base", set::CHILDREN, 1),
    },
    Lie {
        golden: "mir",
        what: "a snapshot's directory",
        kind: Snapshots,
        text: "mir/work@s1: its directory is",
        tell: |f| {
            let other = f.dir("mir/base");
            set_set(f, "mir/work@s1", set::DIR, other);
        },
    },
    Lie {
        golden: "mir",
        what: "when a snapshot was made",
        kind: Snapshots,
        text: "is of txg",
        tell: |f| add_set(f, "mir/work@renamed", set::MADE, 1),
    },
    Lie {
        golden: "mir",
        what: "a snapshot that was made after the last txg",
        kind: Snapshots,
        text: "mir/quota@q: made in txg",
        tell: |f| add_set(f, "mir/quota@q", set::MADE, 1 << 20),
    },
    Lie {
        golden: "mir",
        what: "a snapshot without a name",
        kind: Snapshots,
        text: "a snapshot without a name",
        tell: |f| {
            let names = of_set(f, "mir/work", set::NAMES);
            f.micro(Os::Mos, names, "s2", |entry| entry.fill(0));
        },
    },
    Lie {
        golden: "mir",
        what: "names of snapshots that depend on their case",
        kind: Snapshots,
        text: "mir/work: normalization of names",
        tell: |f| {
            let names = of_set(f, "mir/work", set::NAMES);
            f.edit(Os::Mos, names, (0, 0), |bytes| bytes[16..24].fill(0));
        },
    },
    Lie {
        golden: "mir",
        what: "a clone that its origin does not list",
        kind: Snapshots,
        text: "mir/work@s2: next_clones lacks",
        tell: |f| {
            let list = of_set(f, "mir/work@s2", set::NEXT_CLONES);
            let name = format!("{:x}", f.dataset("mir/clone"));
            f.micro(Os::Mos, list, &name, |entry| entry.fill(0));
        },
    },
    Lie {
        golden: "mir",
        what: "a clone that is listed under another's number",
        kind: Snapshots,
        text: "mir/work@s2: next_clones has",
        tell: |f| {
            let list = of_set(f, "mir/work@s2", set::NEXT_CLONES);
            let name = format!("{:x}", f.dataset("mir/clone"));
            f.micro(Os::Mos, list, &name, |entry| rename(entry, "777"));
        },
    },
    Lie {
        golden: "mir",
        what: "a clone that the directory of its origin does not list",
        kind: Snapshots,
        text: "mir/work: dd_clones lacks",
        tell: |f| {
            let list = f.word(Os::Mos, f.dir("mir/work"), dir::CLONES);
            let name = format!("{:x}", f.dataset("mir/clone"));
            f.micro(Os::Mos, list, &name, |entry| entry.fill(0));
        },
    },
    Lie {
        golden: "mir",
        what: "how much is on a deadlist",
        kind: Deadlist,
        text: "mir/work@s2: its deadlist: says",
        tell: |f| {
            let list = of_set(f, "mir/work@s2", set::DEADLIST);
            f.add(Os::Mos, list, 0, 4096);
        },
    },
    Lie {
        golden: "mir",
        what: "how much is on a part of a deadlist",
        kind: Deadlist,
        text: "mir/work@s2: its deadlist, bpobj",
        tell: |f| {
            let (list, part) =
                (of_set(f, "mir/work@s2", set::DEADLIST), sublist(f, "mir/work@s2", "1"));
            f.add(Os::Mos, part, 1, 4096);
            f.add(Os::Mos, list, 0, 4096);
        },
    },
    Lie {
        golden: "mir",
        what: "how many blocks are on a part of a deadlist",
        kind: Deadlist,
        text: "mir/clone: its deadlist lacks a block",
        tell: |f| {
            let part = sublist(f, "mir/clone", "1c");
            f.add(Os::Mos, part, 0, -1);
        },
    },
    Lie {
        golden: "mir",
        what: "the key of a part of a deadlist",
        kind: Deadlist,
        text: "mir/work: its deadlist lacks key",
        tell: |f| {
            let list = of_set(f, "mir/work", set::DEADLIST);
            f.micro(Os::Mos, list, "1e", |entry| rename(entry, "1d"));
        },
    },
    Lie {
        golden: "mir",
        what: "two parts of a deadlist changed places",
        kind: Deadlist,
        text: "mir/work@renamed: its deadlist: ",
        tell: |f| {
            let list = of_set(f, "mir/work@renamed", set::DEADLIST);
            let (one, two) =
                (sublist(f, "mir/work@renamed", "1"), sublist(f, "mir/work@renamed", "1c"));
            f.set_zap(Os::Mos, list, "1", two);
            f.set_zap(Os::Mos, list, "1c", one);
        },
    },
    Lie {
        golden: "mir",
        what: "a block on a deadlist that was born in another txg",
        kind: Deadlist,
        text: "mir/noacl: its deadlist lacks a block",
        tell: |f| {
            let part = sublist(f, "mir/noacl", "1");
            f.edit(Os::Mos, part, (0, 0), |bytes| bytes[80] -= 1);
        },
    },
    Lie {
        golden: "mir",
        what: "a block on a deadlist that is at another place",
        kind: Deadlist,
        text: "mir/noacl: its deadlist has a block that is in use or another's",
        tell: |f| {
            let part = sublist(f, "mir/noacl", "1");
            f.edit(Os::Mos, part, (0, 0), |bytes| bytes[8 + 128] ^= 8);
        },
    },
    Lie {
        golden: "mir",
        what: "a block on a deadlist of which a second copy is at another place",
        kind: Deadlist,
        text: "mir/noacl: its deadlist has a block that is in use or another's",
        tell: |f| {
            let part = sublist(f, "mir/noacl", "1");
            f.edit(Os::Mos, part, (0, 0), |bytes| {
                let at = (0..bytes.len()).step_by(128).find(|at| bytes[at + 16..at + 24] != [0; 8]);
                bytes[at.unwrap() + 24] ^= 8;
            });
        },
    },
    Lie {
        golden: "mir",
        what: "how many use the empty list",
        kind: Feature,
        text: "empty_bpobj",
        tell: |f| add_feature(f, "com.delphix:empty_bpobj", -1),
    },
    Lie {
        golden: "mir",
        what: "how many data sets are extended",
        kind: Feature,
        text: "extensible_dataset",
        tell: |f| add_feature(f, "com.delphix:extensible_dataset", 1),
    },
    Lie {
        golden: "single",
        what: "how many features say since when",
        kind: Feature,
        text: "enabled_txg",
        tell: |f| add_feature(f, "com.delphix:enabled_txg", -1),
    },
    Lie {
        golden: "rz1",
        what: "how many space maps have a histogram",
        kind: Feature,
        text: "spacemap_histogram",
        tell: |f| add_feature(f, "com.delphix:spacemap_histogram", 1),
    },
    Lie {
        golden: "rz1",
        what: "how many data sets have large blocks",
        kind: Feature,
        text: "large_blocks",
        tell: |f| add_feature(f, "org.open-zfs:large_blocks", -1),
    },
    Lie {
        golden: "mir",
        what: "how many data sets have large dnodes",
        kind: Feature,
        text: "large_dnode",
        tell: |f| add_feature(f, "org.zfsonlinux:large_dnode", 1),
    },
    Lie {
        golden: "mir",
        what: "how many data sets have bookmarks",
        kind: Feature,
        text: "feature bookmarks",
        tell: |f| add_feature(f, "com.delphix:bookmarks", 1),
    },
    Lie {
        golden: "mir",
        what: "how many bookmarks know what was written",
        kind: Feature,
        text: "bookmark_written",
        tell: |f| add_feature(f, "com.delphix:bookmark_written", 1),
    },
    Lie {
        golden: "mir",
        what: "how many clones have a list of what lives in them",
        kind: Feature,
        text: "livelist",
        tell: |f| add_feature(f, "com.delphix:livelist", 1),
    },
    Lie {
        golden: "rz1",
        what: "a data set that does not say that its blocks are large",
        kind: Feature,
        text: "rz1/rs1M: it uses large_blocks",
        tell: |f| {
            let object = f.dataset("rz1/rs1M");
            f.micro(Os::Mos, object, "org.open-zfs:large_blocks", |entry| {
                rename(entry, "org.open-zfs:large_blockz");
            });
            add_feature(f, "org.open-zfs:large_blocks", -1);
        },
    },
    Lie {
        golden: "mir",
        what: "that crash dumps are there",
        kind: Feature,
        text: "feature multi_vdev_crash_dump: its count is 3",
        tell: |f| add_feature(f, "com.joyent:multi_vdev_crash_dump", 3),
    },
    Lie {
        golden: "mir",
        what: "how often file systems have limits",
        kind: Feature,
        text: "feature filesystem_limits: its count is 3",
        tell: |f| add_feature(f, "com.joyent:filesystem_limits", 3),
    },
    Lie {
        golden: "mir",
        what: "how much is obsolete on removed vdevs",
        kind: Feature,
        text: "feature obsolete_counts: its count is 3",
        tell: |f| add_feature(f, "com.delphix:obsolete_counts", 3),
    },
    Lie {
        golden: "mir",
        what: "that there is a checkpoint",
        kind: Feature,
        text: "feature zpool_checkpoint: its count is 3",
        tell: |f| add_feature(f, "com.delphix:zpool_checkpoint", 3),
    },
    Lie {
        golden: "mir",
        what: "how many vdevs are for special blocks",
        kind: Feature,
        text: "feature allocation_classes: its count is 3",
        tell: |f| add_feature(f, "org.zfsonlinux:allocation_classes", 3),
    },
    Lie {
        golden: "mir",
        what: "how many resilvers wait",
        kind: Feature,
        text: "feature resilver_defer: its count is 3",
        tell: |f| add_feature(f, "com.datto:resilver_defer", 3),
    },
    Lie {
        golden: "mir",
        what: "how many vdevs are rebuilt",
        kind: Feature,
        text: "feature device_rebuild: its count is 3",
        tell: |f| add_feature(f, "org.openzfs:device_rebuild", 3),
    },
];
