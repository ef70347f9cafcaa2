//! A pool that can be made to lie: any block is changed in its place, and every checksum above it is
//! made right again, up to the uberblock and on every vdev.
//!
//! The one idea: a block keeps its address, its allocated and its physical size, so that nothing
//! but the lie itself is wrong. It is compressed again, harder if need be; what does not fit is
//! not a lie that can be told here.

use codec::compress::ZstdLevel;
use codec::embedded::{Place, seal};
use codec::{checksum, compress};
use format::dnode::{BLKPTR, DNODE_CORE, DNODE_SLOT, DNODES_PER_BLOCK};
use format::label::{CONFIG_AT, CONFIG_SIZE, RING_AT, RING_SIZE, label_offset};
use format::uberblock::{slot_count, slot_size};
use format::{BlkPtr, Compress, DnodePhys, ObjectType, ObjsetPhys, Uberblock};
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use testkit::Images;
use vdev::import::scan;
use vdev::{Tree, WriteTree};
use verify::Look;
use zerocopy::IntoBytes;

/// Where a data set's root pointer is in its bonus.
const ROOT_AT: usize = 128;

/// An object set: the MOS, or the data set in an object of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Os {
    Mos,
    Set(u64),
}

/// A copy of a golden pool.
pub(crate) struct Forge {
    pub(crate) images: Images,
    tree: WriteTree,
    pub(crate) uberblock: Uberblock,
    salt: [u8; 32],
    /// Something did not fit into its place: the lie was not told.
    pub(crate) failed: Cell<bool>,
}

impl Forge {
    pub(crate) fn of(golden: &str) -> Forge {
        Forge::on(testkit::golden_copy(golden))
    }

    /// The pool in a directory of images.
    pub(crate) fn on(images: Images) -> Forge {
        let found = scan(&[images.path().to_owned()]).unwrap();
        let pool = found.pools.first().unwrap();
        let uberblock = *pool.uberblocks.first().unwrap();
        let root = {
            let tree = pool.open_tree().unwrap();
            let mut look = Look::new(&tree);
            let mos = look.objset(&uberblock.root).unwrap();
            let directory = look.expect(&mos, 1).unwrap();
            let mut config = 0;
            look.zap(&directory, |entry| {
                let entry = entry.unwrap();
                if entry.name == b"config" {
                    config = entry.value.as_u64().unwrap();
                }
                true
            })
            .unwrap();
            let dnode = look.expect(&mos, config).unwrap();
            let size = u64::from_le_bytes(*dnode.bonus().first_chunk().unwrap());
            let bytes = look.range(&dnode, 0, size as usize).unwrap();
            let list = format::NvList::parse(&bytes).unwrap();
            format::config::PoolConfig::from_nvlist(&list).unwrap().vdev_tree
        };
        let tree = pool.open_write_tree(&root).unwrap();
        let failed = Cell::new(false);
        let mut forge = Forge { images, tree, uberblock, salt: [0; 32], failed };
        if let Some(salt) = forge.zap_value(Os::Mos, 1, b"org.illumos:checksum_salt") {
            forge.salt = salt.as_bytes().unwrap().try_into().unwrap();
        }
        forge
    }

    /// Gives the images back, all locks let go.
    pub(crate) fn close(self) -> Images {
        let Forge { images, tree, .. } = self;
        drop(tree);
        images
    }

    fn look<'a>(&self, tree: &'a Tree) -> Look<'a> {
        let mut look = Look::new(tree);
        look.set_salt(self.salt);
        look
    }

    /// The pointer to an object set.
    pub(crate) fn root(&self, os: Os) -> BlkPtr {
        match os {
            Os::Mos => self.uberblock.root,
            Os::Set(object) => {
                let dnode = self.dnode(Os::Mos, object);
                let words = dnode.bonus()[ROOT_AT..][..BLKPTR].as_chunks::<8>().0.iter();
                let words: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
                BlkPtr::from_words(words.try_into().unwrap())
            }
        }
    }

    pub(crate) fn objset(&self, os: Os) -> ObjsetPhys {
        self.look(&self.tree.tree()).objset(&self.root(os)).unwrap()
    }

    pub(crate) fn dnode(&self, os: Os, object: u64) -> DnodePhys {
        let objset = self.objset(os);
        match object {
            0 => objset.meta,
            _ if object > u64::MAX - 3 => {
                objset.accounting[(u64::MAX - object) as usize].clone().unwrap()
            }
            _ => self.look(&self.tree.tree()).expect(&objset, object).unwrap(),
        }
    }

    /// A word of an object's bonus.
    pub(crate) fn word(&self, os: Os, object: u64, index: usize) -> u64 {
        let dnode = self.dnode(os, object);
        u64::from_le_bytes(*dnode.bonus()[index * 8..].first_chunk().unwrap())
    }

    /// The pointer to a block.
    pub(crate) fn pointer(&self, os: Os, object: u64, level: u8, block: u64) -> BlkPtr {
        let dnode = self.dnode(os, object);
        let top = dnode.core().levels - 1;
        if level == top {
            return dnode.blkptrs()[block as usize];
        }
        let shift = dnode.pointers_shift();
        let above = self.pointer(os, object, level + 1, block >> shift);
        let bytes = self.look(&self.tree.tree()).read(&above).unwrap();
        let index = (block & ((1 << shift) - 1)) as usize;
        pointer_at(&bytes, index * BLKPTR)
    }

    pub(crate) fn block(&self, os: Os, object: u64, level: u8, block: u64) -> Vec<u8> {
        self.look(&self.tree.tree()).read(&self.pointer(os, object, level, block)).unwrap().to_vec()
    }

    /// Changes a block.
    pub(crate) fn edit(
        &mut self,
        os: Os,
        object: u64,
        (level, block): (u8, u64),
        change: impl FnOnce(&mut Vec<u8>),
    ) {
        let old = self.pointer(os, object, level, block);
        let mut bytes = self.block(os, object, level, block);
        let before = bytes.clone();
        change(&mut bytes);
        if bytes == before {
            self.failed.set(true);
            return;
        }
        let new = self.rewrite(&old, &bytes);
        self.set_pointer(os, object, (level, block), new);
    }

    /// Puts another pointer in the place of one.
    pub(crate) fn set_pointer(
        &mut self,
        os: Os,
        object: u64,
        (level, block): (u8, u64),
        bp: BlkPtr,
    ) {
        let dnode = self.dnode(os, object);
        if level == dnode.core().levels - 1 {
            let at = DNODE_CORE + block as usize * BLKPTR;
            return self.edit_dnode(os, object, |bytes| {
                bytes[at..at + BLKPTR].copy_from_slice(bp.as_bytes());
            });
        }
        let shift = dnode.pointers_shift();
        let at = (block & ((1 << shift) - 1)) as usize * BLKPTR;
        self.edit(os, object, (level + 1, block >> shift), |bytes| {
            bytes[at..at + BLKPTR].copy_from_slice(bp.as_bytes());
        });
    }

    /// Changes a pointer without touching what it points to.
    pub(crate) fn edit_pointer(
        &mut self,
        os: Os,
        object: u64,
        at: (u8, u64),
        change: impl FnOnce(&mut [u64; 16]),
    ) {
        let mut words = self.pointer(os, object, at.0, at.1).words();
        change(&mut words);
        self.set_pointer(os, object, at, BlkPtr::from_words(words));
    }

    /// Changes the bytes of a dnode.
    pub(crate) fn edit_dnode(&mut self, os: Os, object: u64, change: impl FnOnce(&mut [u8])) {
        if object == 0 || object > u64::MAX - 3 {
            let slot = if object == 0 { 0 } else { 2 + (u64::MAX - object) as usize };
            return self
                .edit_objset(os, |bytes| change(&mut bytes[slot * DNODE_SLOT..][..DNODE_SLOT]));
        }
        let size = self.dnode(os, object).size();
        let at = (object % DNODES_PER_BLOCK) as usize * DNODE_SLOT;
        self.edit(os, 0, (0, object / DNODES_PER_BLOCK), |bytes| change(&mut bytes[at..at + size]));
    }

    pub(crate) fn edit_objset(&mut self, os: Os, change: impl FnOnce(&mut Vec<u8>)) {
        let old = self.root(os);
        let mut bytes = self.look(&self.tree.tree()).read(&old).unwrap().to_vec();
        change(&mut bytes);
        let new = self.rewrite(&old, &bytes);
        self.set_root(os, new);
    }

    /// Puts another root pointer in the place of an object set's.
    pub(crate) fn set_root(&mut self, os: Os, bp: BlkPtr) {
        match os {
            Os::Mos => {
                self.uberblock.root = bp;
                self.write_uberblock();
            }
            Os::Set(object) => {
                let at = bonus_at(&self.dnode(Os::Mos, object)) + ROOT_AT;
                self.edit_dnode(Os::Mos, object, |bytes| {
                    bytes[at..at + BLKPTR].copy_from_slice(bp.as_bytes());
                });
            }
        }
    }

    /// Adds to a word of an object's bonus.
    pub(crate) fn add(&mut self, os: Os, object: u64, index: usize, what: i64) {
        let value = self.word(os, object, index).wrapping_add_signed(what);
        self.set(os, object, index, value);
    }

    /// Sets a word of an object's bonus.
    pub(crate) fn set(&mut self, os: Os, object: u64, index: usize, value: u64) {
        let at = bonus_at(&self.dnode(os, object)) + index * 8;
        self.edit_dnode(os, object, |bytes| {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        });
    }

    /// As [`Forge::set`], where it is not so already.
    pub(crate) fn set_if(&mut self, os: Os, object: u64, index: usize, value: u64) {
        if self.word(os, object, index) != value {
            self.set(os, object, index, value);
        }
    }

    /// Writes a block where the old one is, and gives the pointer to it.
    fn rewrite(&self, old: &BlkPtr, bytes: &[u8]) -> BlkPtr {
        assert_eq!(bytes.len() as u64, old.lsize());
        let mut words = old.words();
        let kinds = [old.compress().unwrap(), Compress::Lz4, Compress::Gzip(9), Compress::Lzjb];
        let shrunk = |kind: Compress, room: usize| {
            let mut out = vec![0; room];
            if kind == Compress::Off {
                return (room == bytes.len()).then(|| (kind, bytes.to_vec(), room));
            }
            let size = compress::compress(kind, ZstdLevel::default(), bytes, &mut out)?;
            out[size..].fill(0);
            Some((kind, out, size))
        };
        if old.is_embedded() {
            let fits =
                kinds.into_iter().find_map(|kind| shrunk(kind, format::blkptr::EMBEDDED_MAX));
            let Some((kind, out, size)) = fits else {
                self.failed.set(true);
                return *old;
            };
            return BlkPtr::embedded(old.lsize(), kind, old.kind(), old.birth(), &out[..size])
                .unwrap();
        }
        let fits = kinds.into_iter().find_map(|kind| shrunk(kind, old.psize() as usize));
        let Some((kind, out, _)) = fits.filter(|_| !old.is_gang() && !self.failed.get()) else {
            self.failed.set(true);
            return *old;
        };
        let mut scratch = vdev::WriteScratch::default();
        for dva in old.dvas() {
            self.tree.write(dva.vdev, dva.offset, &out, &mut scratch).unwrap();
        }
        words[6] = words[6] & !(0x7f << 32) | u64::from(kind.id()) << 32;
        let mut bp = BlkPtr::from_words(words);
        let sum = checksum::compute(old.checksum().unwrap(), &out, false, &self.salt).unwrap();
        bp.set_checksum_words(sum);
        bp
    }

    /// Writes the uberblock to all rings in its slot.
    pub(crate) fn write_uberblock(&self) {
        for disk in 0..self.disks() {
            let file = self.disk(disk);
            let size = file.metadata().unwrap().len();
            for label in 0..4 {
                let Some(start) = label_offset(label, size) else { continue };
                let mut ring = vec![0; RING_SIZE];
                file.read_exact_at(&mut ring, start + RING_AT).unwrap();
                for ashift in [9, 12, 13] {
                    self.replace_in_ring(&file, &mut ring, start + RING_AT, ashift);
                }
            }
        }
    }

    fn replace_in_ring(&self, file: &File, ring: &mut [u8], start: u64, ashift: u64) {
        let size = slot_size(ashift);
        for slot in 0..slot_count(ashift) {
            let at = slot * size;
            let bytes = &mut ring[at..at + size];
            let place = Place::Label { offset: start + at as u64 };
            let right = codec::embedded::check(place, bytes).is_ok();
            let Ok(old) = Uberblock::parse(bytes) else { continue };
            if right && old.txg == self.uberblock.txg {
                let mut new = self.uberblock.to_slot(ashift);
                seal(place, &mut new).unwrap();
                file.write_all_at(&new, start + at as u64).unwrap();
            }
        }
    }

    pub(crate) fn disks(&self) -> usize {
        std::fs::read_dir(self.images.path()).unwrap().count()
    }

    fn disk(&self, disk: usize) -> File {
        OpenOptions::new().read(true).write(true).open(self.images.disk(disk)).unwrap()
    }

    /// Changes the config in labels of a disk.
    pub(crate) fn edit_label(
        &self,
        disk: usize,
        labels: &[usize],
        change: impl Fn(&mut format::config::PoolConfig),
    ) {
        let file = self.disk(disk);
        let size = file.metadata().unwrap().len();
        for label in labels {
            let at = label_offset(*label, size).unwrap() + CONFIG_AT;
            let mut region = vec![0; CONFIG_SIZE];
            file.read_exact_at(&mut region, at).unwrap();
            let list = format::label::parse_config(&region).unwrap();
            let mut config = format::config::PoolConfig::from_nvlist(&list).unwrap();
            change(&mut config);
            let mut region = format::label::build_config(&config.to_nvlist()).unwrap();
            seal(Place::Label { offset: at }, &mut region).unwrap();
            file.write_all_at(&region, at).unwrap();
        }
    }

    // ---- ZAPs ----

    /// The value of a name.
    pub(crate) fn zap_value(&self, os: Os, object: u64, name: &[u8]) -> Option<format::zap::Value> {
        self.zap(os, object).into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// All names and values.
    pub(crate) fn zap(&self, os: Os, object: u64) -> Vec<(Vec<u8>, format::zap::Value)> {
        let mut out = Vec::new();
        let dnode = self.dnode(os, object);
        self.look(&self.tree.tree())
            .zap(&dnode, |entry| {
                let entry = entry.unwrap();
                out.push((entry.name, entry.value));
                true
            })
            .unwrap();
        out
    }

    /// The object that a name in the MOS directory stands for.
    pub(crate) fn find(&self, name: &str) -> u64 {
        self.zap_value(Os::Mos, 1, name.as_bytes()).unwrap().as_u64().unwrap()
    }

    /// Changes the entry of a name in a micro ZAP: its 64 bytes.
    pub(crate) fn micro(
        &mut self,
        os: Os,
        object: u64,
        name: &str,
        change: impl FnOnce(&mut [u8]),
    ) {
        self.edit(os, object, (0, 0), |bytes| {
            assert_eq!(bytes[..8], format::zap::KIND_MICRO.to_le_bytes());
            let is = |at: &usize| {
                let text = &bytes[at + 14..at + 64];
                text.split(|byte| *byte == 0).next() == Some(name.as_bytes())
            };
            let at = (64..bytes.len()).step_by(64).find(is).unwrap_or_else(|| panic!("no {name}"));
            change(&mut bytes[at..at + 64]);
        });
    }

    /// Sets the number under a name, whatever the form of the ZAP.
    pub(crate) fn set_zap(&mut self, os: Os, object: u64, name: &str, value: u64) {
        let block = self.block(os, object, 0, 0);
        if block[..8] == format::zap::KIND_MICRO.to_le_bytes() {
            return self.micro(os, object, name, |entry| {
                entry[..8].copy_from_slice(&value.to_le_bytes());
            });
        }
        let (number, chunk) = self.fat_entry(os, object, name);
        self.edit(os, object, (0, number), |bytes| {
            let at = leaf_chunk(bytes, u16_at(bytes, chunk + 8));
            bytes[at + 1..at + 9].copy_from_slice(&value.to_be_bytes());
        });
    }

    /// Block and place of the entry of a name in a fat ZAP.
    pub(crate) fn fat_entry(&self, os: Os, object: u64, name: &str) -> (u64, usize) {
        for number in 1..=self.dnode(os, object).max_block() {
            let bytes = self.block(os, object, 0, number);
            if bytes[..8] != format::zap::KIND_LEAF.to_le_bytes() {
                continue;
            }
            for chunk in 0..leaf_chunks(&bytes) {
                let at = leaf_chunk(&bytes, chunk);
                if bytes[at] == 252 && leaf_name(&bytes, at) == name.as_bytes() {
                    return (number, at);
                }
            }
        }
        panic!("no {name}");
    }

    // ---- the DSL ----

    /// All data sets and snapshots, by their objects.
    pub(crate) fn datasets(&self) -> Vec<u64> {
        let numbers = |object: u64| -> Vec<u64> {
            let entries = if object == 0 { Vec::new() } else { self.zap(Os::Mos, object) };
            entries.into_iter().filter_map(|(_, value)| value.as_u64()).collect()
        };
        let (mut out, mut todo) = (Vec::new(), vec![self.find("root_dataset")]);
        while let Some(dir) = todo.pop() {
            let head = self.word(Os::Mos, dir, 1);
            if head != 0 {
                out.push(head);
                out.extend(numbers(self.word(Os::Mos, head, 4)));
            }
            todo.extend(numbers(self.word(Os::Mos, dir, 4)));
        }
        out.retain(|set| !self.root(Os::Set(*set)).is_hole());
        out
    }

    /// The objects of an object set.
    pub(crate) fn objects(&self, os: Os) -> Vec<u64> {
        let objset = self.objset(os);
        let tree = self.tree.tree();
        let mut look = self.look(&tree);
        let end = (objset.meta.max_block() + 1) * DNODES_PER_BLOCK;
        (1..end).filter(|object| look.dnode(&objset, *object).unwrap().is_some()).collect()
    }

    /// The directory of a data set.
    pub(crate) fn dir(&self, name: &str) -> u64 {
        let mut parts = name.split('/');
        let _pool = parts.next();
        let mut at = self.find("root_dataset");
        for part in parts {
            let children = self.word(Os::Mos, at, 4);
            at = self.zap_value(Os::Mos, children, part.as_bytes()).unwrap().as_u64().unwrap();
        }
        at
    }

    /// A data set or snapshot.
    pub(crate) fn dataset(&self, name: &str) -> u64 {
        let (dir, snapshot) = name.split_once('@').unwrap_or((name, ""));
        let head = self.word(Os::Mos, self.dir(dir), 1);
        if snapshot.is_empty() {
            return head;
        }
        let names = self.word(Os::Mos, head, 4);
        self.zap_value(Os::Mos, names, snapshot.as_bytes()).unwrap().as_u64().unwrap()
    }

    /// The object of a path in a file system.
    pub(crate) fn file(&self, os: Os, path: &str) -> u64 {
        let mut at = self.zap_value(os, 1, b"ROOT").unwrap().as_u64().unwrap();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let value = self.zap_value(os, at, part.as_bytes()).unwrap_or_else(|| panic!("{path}"));
            at = value.as_u64().unwrap() & ((1 << 48) - 1);
        }
        at
    }

    /// Adds to an attribute that stands at a fixed place behind the header of the bonus.
    pub(crate) fn add_attr(&mut self, os: Os, object: u64, place: usize, what: i64) {
        let dnode = self.dnode(os, object);
        assert_eq!(dnode.bonus_kind(), ObjectType::SA);
        let head = usize::from(u16_at(dnode.bonus(), 4) >> 10) * 8;
        assert_eq!(head % 8, 0);
        self.add(os, object, (head + place) / 8, what);
    }
}

/// Where a dnode's bonus starts.
fn bonus_at(dnode: &DnodePhys) -> usize {
    DNODE_CORE + dnode.blkptrs().len() * BLKPTR
}

pub(crate) fn pointer_at(bytes: &[u8], at: usize) -> BlkPtr {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(bytes[at..at + BLKPTR].as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    BlkPtr::from_words(words)
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}

fn leaf_chunks(bytes: &[u8]) -> u16 {
    let table = bytes.len() / 16;
    ((bytes.len() - table) / 24 - 2) as u16
}

fn leaf_chunk(bytes: &[u8], chunk: u16) -> usize {
    48 + bytes.len() / 16 + usize::from(chunk) * 24
}

/// The name of the entry at a place in a leaf.
fn leaf_name(bytes: &[u8], at: usize) -> Vec<u8> {
    let (mut chunk, len) = (u16_at(bytes, at + 4), usize::from(u16_at(bytes, at + 6)));
    let mut out = Vec::new();
    while chunk != u16::MAX && out.len() < len {
        let at = leaf_chunk(bytes, chunk);
        out.extend_from_slice(&bytes[at + 1..at + 22]);
        chunk = u16_at(bytes, at + 22);
    }
    out.truncate(len.saturating_sub(1));
    out
}
