//! Lies of objects, ZAPs, files, directories, and accounts of users.

use crate::Lie;
use crate::forge::{Forge, Os, u16_at};
use format::BlkPtr;
use verify::FindingKind::{Account, Files, HoleBirth, Pointer, Structure, Usage, Zap};

/// Attributes at fixed places behind their header.
mod attr {
    pub(super) const SIZE: usize = 8;
    pub(super) const UID: usize = 24;
    pub(super) const PARENT: usize = 40;
    pub(super) const LINKS: usize = 120;
    pub(super) const ACL_COUNT: usize = 136;
}

/// Places in a dnode.
const FLAGS_AT: usize = 7;
const MAX_BLOCK_AT: usize = 16;
const USED_AT: usize = 24;

fn fs(forge: &Forge, name: &str) -> Os {
    Os::Set(forge.dataset(name))
}

fn add_attr(forge: &mut Forge, name: &str, path: &str, place: usize, what: i64) {
    let os = fs(forge, name);
    let object = forge.file(os, path);
    forge.add_attr(os, object, place, what);
}

fn add_word(bytes: &mut [u8], at: usize, what: i64) {
    let word = u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    bytes[at..at + 8].copy_from_slice(&word.wrapping_add_signed(what).to_le_bytes());
}

/// The head and its one snapshot have the same blocks: whatever is changed, is changed in both.
fn in_both(forge: &mut Forge, head: &str, snapshot: &str, change: impl FnOnce(&mut Forge, Os)) {
    let (head, old) = (fs(forge, head), fs(forge, snapshot));
    assert!(forge.root(head).same_block(&forge.root(old)));
    change(forge, old);
    let root = forge.root(old);
    forge.set_root(head, root);
}

/// Of this file blocks were freed between two snapshots: one that was is now a hole of another birth.
fn bear_hole(forge: &mut Forge, birth: u64) {
    in_both(forge, "mir/work", "mir/work@renamed", |f, os| {
        let file = 132;
        assert!(f.pointer(os, file, 0, 1).is_hole());
        assert!(f.pointer(fs(f, "mir/work@s2"), file, 0, 1).has_space());
        f.edit_pointer(os, file, (0, 1), |words| words[10] = birth);
    });
}

pub(crate) const LIES: &[Lie] = &[
    Lie {
        golden: "rz1",
        what: "that a file system is a volume",
        kind: Structure,
        text: "rz1/rs16K: an object set of type 3, its first object is ZFS master node",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            f.edit_objset(os, |bytes| bytes[704..712].copy_from_slice(&3u64.to_le_bytes()));
        },
    },
    Lie {
        golden: "rz1",
        what: "that a file system is nothing that is known",
        kind: Structure,
        text: "rz1/rs16K: an object set of type 7",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            f.edit_objset(os, |bytes| bytes[704..712].copy_from_slice(&7u64.to_le_bytes()));
        },
    },
    Lie {
        golden: "rz1",
        what: "what an object uses",
        kind: Account,
        text: "uses",
        tell: |f| {
            // Not one of a file: that would be the owner's lie, too.
            let os = fs(f, "rz1/rs512");
            let object = f.zap_value(os, 1, b"SA_ATTRS").unwrap().as_u64().unwrap();
            let layouts = f.zap_value(os, object, b"LAYOUTS").unwrap().as_u64().unwrap();
            f.edit_dnode(os, layouts, |bytes| add_word(bytes, USED_AT, 512));
        },
    },
    Lie {
        golden: "mir",
        what: "what an object of the MOS uses",
        kind: Account,
        text: "MOS object",
        tell: |f| {
            let config = f.find("config");
            f.edit_dnode(Os::Mos, config, |bytes| add_word(bytes, USED_AT, -4096));
        },
    },
    Lie {
        golden: "rz1",
        what: "an object's last block",
        kind: Account,
        text: "its last block is",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let file = f.file(os, "text");
            f.edit_dnode(os, file, |bytes| add_word(bytes, MAX_BLOCK_AT, -1));
        },
    },
    Lie {
        golden: "rz1",
        what: "a last block that the levels do not reach",
        kind: Account,
        text: "levels do not reach",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let file = f.file(os, "text");
            f.edit_dnode(os, file, |bytes| add_word(bytes, MAX_BLOCK_AT, 1 << 30));
        },
    },
    Lie {
        golden: "rz1",
        what: "how full an indirect block is",
        kind: Account,
        text: "level 1 block 0: fill",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let file = f.file(os, "text");
            f.edit_pointer(os, file, (1, 0), |words| words[11] += 1);
        },
    },
    Lie {
        golden: "rz1",
        what: "how full a block of data is",
        kind: Account,
        text: "level 0 block 1: fill 2",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let file = f.file(os, "text");
            f.edit_pointer(os, file, (0, 1), |words| words[11] += 1);
            f.edit_pointer(os, file, (1, 0), |words| words[11] += 1);
        },
    },
    Lie {
        golden: "rz1",
        what: "how many objects a file system has",
        kind: Account,
        text: "rz1/rs16K: the root's fill",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let mut words = f.root(os).words();
            words[11] -= 1;
            f.set_root(os, BlkPtr::from_words(words));
        },
    },
    Lie {
        golden: "rz1",
        what: "a block that is younger than its parent",
        kind: Pointer,
        text: "born in txg",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let file = f.file(os, "text");
            f.edit_pointer(os, file, (0, 1), |words| words[10] += 1000);
        },
    },
    Lie {
        golden: "rz1",
        what: "a file system that is younger than the pool",
        kind: Pointer,
        text: "rz1/rs16K: its root is born",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let mut words = f.root(os).words();
            words[10] += 1000;
            f.set_root(os, BlkPtr::from_words(words));
        },
    },
    Lie {
        golden: "rz1",
        what: "a block of another type",
        kind: Pointer,
        text: "expected ZFS plain file",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let file = f.file(os, "text");
            f.edit_pointer(os, file, (0, 1), |words| {
                words[6] = words[6] & !(0xff << 48) | 23 << 48;
            });
        },
    },
    Lie {
        golden: "mir",
        what: "a block that is older than the snapshot that lacks it",
        kind: Pointer,
        text: "and the snapshot of",
        tell: |f| {
            // Between the snapshot's root and the snapshot nothing can be born.
            let os = fs(f, "mir");
            let object = f.zap_value(os, 1, b"ROOT").unwrap().as_u64().unwrap();
            let birth = f.root(fs(f, "mir@s2")).birth();
            let old = f.pointer(os, object, 0, 0);
            assert!(old.birth() > birth + 1, "{birth} {}", old.birth());
            f.edit_pointer(os, object, (0, 0), |words| words[10] = birth + 1);
        },
    },
    Lie {
        golden: "rz1",
        what: "how many entries a ZAP has",
        kind: Zap,
        text: "num_entries",
        tell: |f| {
            let os = fs(f, "rz1");
            let big = f.file(os, "big");
            f.edit(os, big, (0, 0), |bytes| add_word(bytes, 72, 1));
        },
    },
    Lie {
        golden: "rz1",
        what: "how many leaves a ZAP has",
        kind: Zap,
        text: "num_leafs",
        tell: |f| {
            let os = fs(f, "rz1");
            let big = f.file(os, "big");
            f.edit(os, big, (0, 0), |bytes| add_word(bytes, 64, 1));
        },
    },
    Lie {
        golden: "rz1",
        what: "the hash of an entry",
        kind: Zap,
        text: "hash",
        tell: |f| {
            let (os, big) = (fs(f, "rz1"), f.file(fs(f, "rz1"), "big"));
            let block = f.block(os, big, 0, 1);
            assert_eq!(block[..8], format::zap::KIND_LEAF.to_le_bytes());
            let first = (48 + block.len() / 16..).step_by(24).find(|at| block[*at] == 252).unwrap();
            f.edit(os, big, (0, 1), |bytes| bytes[first + 20] ^= 1);
        },
    },
    Lie {
        golden: "rz1",
        what: "how many chunks of a leaf are free",
        kind: Zap,
        text: "nfree",
        tell: |f| {
            let (os, big) = (fs(f, "rz1"), f.file(fs(f, "rz1"), "big"));
            f.edit(os, big, (0, 1), |bytes| bytes[28] ^= 1);
        },
    },
    Lie {
        golden: "rz1",
        what: "a salt of nothing",
        kind: Zap,
        text: "salt",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            f.edit(os, 1, (0, 0), |bytes| bytes[8..16].fill(0));
        },
    },
    Lie {
        golden: "rz1",
        what: "how many names a file has",
        kind: Files,
        text: "2 links, it has 1 names",
        tell: |f| add_attr(f, "rz1/rs16K", "text", attr::LINKS, 1),
    },
    Lie {
        golden: "rz1",
        what: "how many subdirectories a directory has",
        kind: Files,
        text: "3 links, it has 0 subdirectories",
        tell: |f| add_attr(f, "rz1/rs16K", "", attr::LINKS, 1),
    },
    Lie {
        golden: "rz1",
        what: "how many entries a directory has",
        kind: Files,
        text: "a directory of size",
        tell: |f| add_attr(f, "rz1/rs16K", "", attr::SIZE, -1),
    },
    Lie {
        golden: "rz1",
        what: "what a name leads to",
        kind: Files,
        text: "has type 4 for it",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let (root, file) = (f.file(os, ""), f.file(os, "text"));
            f.set_zap(os, root, "text", file | 4 << 60);
        },
    },
    Lie {
        golden: "rz1",
        what: "a name that leads nowhere",
        kind: Files,
        text: "object 99: directory",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let root = f.file(os, "");
            f.set_zap(os, root, "text", 99 | 8 << 60);
        },
    },
    Lie {
        golden: "rz1",
        what: "a file without a name",
        kind: Files,
        text: "it has no name and is not in the delete queue",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let root = f.file(os, "");
            f.micro(os, root, "text", |entry| entry.fill(0));
        },
    },
    Lie {
        golden: "rz1",
        what: "the directory that a directory is in",
        kind: Files,
        text: "parent",
        tell: |f| add_attr(f, "rz1", "big", attr::PARENT, 1),
    },
    Lie {
        golden: "rz1",
        what: "the directory that the root is in",
        kind: Files,
        text: "the root, and its parent is",
        tell: |f| add_attr(f, "rz1/rs16K", "", attr::PARENT, 1),
    },
    Lie {
        golden: "rz1",
        what: "the form of a file's attributes",
        kind: Files,
        text: "layout",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let file = f.file(os, "text");
            let head = f.word(os, file, 0);
            assert_eq!(u16_at(f.dnode(os, file).bonus(), 4) & 1023, (head >> 32 & 1023) as u16);
            f.set(os, file, 0, head & !(1023 << 32) | 77 << 32);
        },
    },
    Lie {
        golden: "rz1",
        what: "which attributes there are",
        kind: Files,
        text: "the registry of attributes lacks ZPL_UID",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let master = f.zap_value(os, 1, b"SA_ATTRS").unwrap().as_u64().unwrap();
            let registry = f.zap_value(os, master, b"REGISTRY").unwrap().as_u64().unwrap();
            f.micro(os, registry, "ZPL_UID", |entry| entry.fill(0));
        },
    },
    Lie {
        golden: "mir",
        what: "how full an object set is that the snapshot has, too",
        kind: Pointer,
        text: "is not the one that its previous snapshot has",
        tell: |f| {
            let os = fs(f, "mir/large");
            let mut words = f.root(os).words();
            words[11] += 1;
            f.set_root(os, BlkPtr::from_words(words));
        },
    },
    Lie {
        golden: "mir",
        what: "when a hole came",
        kind: Pointer,
        text: "a hole born in txg 28 where its previous snapshot has a block",
        tell: |f| bear_hole(f, 28),
    },
    Lie {
        golden: "mir",
        what: "that a hole came at all",
        kind: HoleBirth,
        text: "a hole born in txg 0 where its previous snapshot has a block",
        tell: |f| bear_hole(f, 0),
    },
    Lie {
        golden: "mir",
        what: "whose a directory of attributes is",
        kind: Files,
        text: "but it is the attributes of object",
        tell: |f| {
            in_both(f, "mir/dirattr", "mir/dirattr@s2", |f, os| {
                let xattrs = (1..200).find(|object| {
                    let objset = f.objset(os);
                    let tree = vdev::import::scan(&[f.images.path().to_owned()]).unwrap();
                    let tree = tree.pools[0].open_tree().unwrap();
                    let mut look = verify::Look::new(&tree);
                    let dnode = look.dnode(&objset, *object).unwrap();
                    dnode.is_some_and(|dnode| {
                        // A directory with the flag of one for attributes.
                        dnode.kind() == format::ObjectType::DIRECTORY_CONTENTS
                            && dnode.bonus()[8 + 48] & 1 == 1
                    })
                });
                f.add_attr(os, xattrs.unwrap(), attr::PARENT, 1);
            });
        },
    },
    Lie {
        golden: "mir",
        what: "how many links a file of a snapshot has",
        kind: Files,
        text: "mir/large@s2 object",
        tell: |f| {
            in_both(f, "mir/large", "mir/large@s2", |f, os| {
                let root = f.file(os, "");
                f.add_attr(os, root, attr::LINKS, 5);
            });
        },
    },
    Lie {
        golden: "rz1",
        what: "whose a file is",
        kind: Usage,
        text: "user",
        tell: |f| add_attr(f, "rz1/rs16K", "text", attr::UID, 77),
    },
    Lie {
        golden: "rz1",
        what: "how much a user has",
        kind: Usage,
        text: "user 0 has",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            f.micro(os, u64::MAX, "0", |entry| add_word(entry, 0, 512));
        },
    },
    Lie {
        golden: "rz1",
        what: "how many objects a group has",
        kind: Usage,
        text: "group 0 has",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            f.micro(os, u64::MAX - 1, "obj-0", |entry| add_word(entry, 0, -1));
        },
    },
    Lie {
        golden: "rz1",
        what: "how much a project has",
        kind: Usage,
        text: "project 0 has",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            f.micro(os, u64::MAX - 2, "0", |entry| add_word(entry, 0, 1024));
        },
    },
    Lie {
        golden: "rz1",
        what: "how many entries an access control list has",
        kind: Files,
        text: "an ACL of 4 entries, counted 3",
        tell: |f| add_attr(f, "rz1/rs16K", "text", attr::ACL_COUNT, 1),
    },
    Lie {
        golden: "rz1",
        what: "that a file is not counted for its owner",
        kind: Usage,
        text: "it is counted for its owner, and does not say so",
        tell: |f| {
            let os = fs(f, "rz1/rs16K");
            let file = f.file(os, "text");
            f.edit_dnode(os, file, |bytes| bytes[FLAGS_AT] &= !2);
        },
    },
];
