//! A walk over every block of a pool, to have real blocks to read. Knows just enough of what is in
//! them to find the next ones.
#![allow(dead_code, clippy::unwrap_used, reason = "each test program uses a part, in tests")]

use codec::checksum;
use format::dsl_dataset::DslDatasetPhys;
use format::zap::Reader;
use format::{BlkPtr, DnodePhys, Dva, ObjectType, ObjsetPhys};
use std::collections::HashSet;

pub(crate) type Salt = [u8; 32];

/// Does the block have the checksum that its pointer says? Of an encrypted block two words are a
/// message authentication code, and fletcher4 is folded into the other two.
pub(crate) fn is_right(bp: &BlkPtr, bytes: &[u8], salt: &Salt) -> bool {
    let kind = bp.checksum().unwrap();
    if kind == format::Checksum::Off {
        return true;
    }
    let words = checksum::compute(kind, bytes, !bp.is_little_endian(), salt).unwrap();
    let expected = bp.checksum_words();
    if !bp.is_crypt() || bp.kind() == ObjectType::OBJSET {
        return words == expected;
    }
    let fold = if kind == format::Checksum::Fletcher4 { [words[2], words[3]] } else { [0, 0] };
    [words[0] ^ fold[0], words[1] ^ fold[1]] == expected[..2]
}

/// Reads one copy of a block: the pointer, the copy, the salt; gives the verified bytes.
pub(crate) type Read<'a> = &'a mut dyn FnMut(&BlkPtr, Dva, &Salt) -> Vec<u8>;

pub(crate) struct Walk<'a> {
    read: Read<'a>,
    salt: Salt,
    seen: HashSet<Dva>,
    /// Blocks read, each counted once however many copies it has.
    pub(crate) blocks: u64,
    /// Of all copies together.
    pub(crate) bytes: u64,
    /// Of one copy of each.
    pub(crate) psize: u64,
    /// Blocks that were passed over because they are gangs.
    pub(crate) gangs: u64,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(read: Read<'a>) -> Self {
        let seen = HashSet::new();
        Walk { read, salt: [0; 32], seen, blocks: 0, bytes: 0, psize: 0, gangs: 0 }
    }

    /// Reads every copy of every block of the pool; with `only_mos` those of the MOS only.
    pub(crate) fn pool(&mut self, root: &BlkPtr, only_mos: bool) {
        let mos = ObjsetPhys::parse(&self.block(root).unwrap()).unwrap();
        self.find_salt(&mos.meta);
        let mut heads = Vec::new();
        self.dnode(&mos.meta, &mut heads);
        if !only_mos {
            for head in heads {
                self.objset(&head);
            }
        }
    }

    fn find_salt(&mut self, meta: &DnodePhys) {
        let block = self.block_of(meta, 0);
        let directory = DnodePhys::parse(&block[512..]).unwrap().unwrap();
        let read = |id| Ok::<_, format::FormatError>(self.block_of(&directory, id));
        let salt = Reader::open(read).unwrap().lookup("org.illumos:checksum_salt").unwrap();
        if let Some(salt) = salt {
            self.salt = salt.as_bytes().unwrap().try_into().unwrap();
        }
        // The walk shall come by here again.
        self.seen.clear();
        (self.blocks, self.bytes, self.psize) = (0, 0, 0);
    }

    /// A data block of an object.
    fn block_of(&mut self, dnode: &DnodePhys, id: u64) -> Vec<u8> {
        self.seen.clear();
        let shift = dnode.pointers_shift();
        let mut level = u32::from(dnode.core().levels) - 1;
        let mut bp = dnode.blkptrs()[(id >> (shift * level)) as usize];
        loop {
            let bytes = self.block(&bp).unwrap();
            if level == 0 {
                return bytes;
            }
            level -= 1;
            let index = (id >> (shift * level)) & ((1 << shift) - 1);
            bp = pointers(&bytes)[index as usize];
        }
    }

    fn objset(&mut self, bp: &BlkPtr) {
        if let Some(bytes) = self.block(bp) {
            let objset = ObjsetPhys::parse(&bytes).unwrap();
            let mut none = Vec::new();
            self.dnode(&objset.meta, &mut none);
            for dnode in objset.accounting.iter().flatten() {
                self.dnode(dnode, &mut none);
            }
            assert!(none.is_empty());
        }
    }

    /// All below a dnode; object sets that data sets name go to `heads`.
    fn dnode(&mut self, dnode: &DnodePhys, heads: &mut Vec<BlkPtr>) {
        if dnode.bonus_kind() == ObjectType::DSL_DATASET {
            heads.push(DslDatasetPhys::parse(dnode.bonus()).unwrap().bp);
        }
        for bp in dnode.blkptrs().iter().chain(dnode.spill()) {
            self.below(bp, heads);
        }
    }

    fn below(&mut self, bp: &BlkPtr, heads: &mut Vec<BlkPtr>) {
        let Some(bytes) = self.block(bp) else { return };
        if bp.level() > 0 {
            for bp in pointers(&bytes) {
                self.below(&bp, heads);
            }
        } else if bp.kind() == ObjectType::DNODE {
            let mut at = 0;
            while at < bytes.len() {
                let dnode = DnodePhys::parse(&bytes[at..]).unwrap();
                at += dnode.as_ref().map_or(512, DnodePhys::size);
                if let Some(dnode) = dnode {
                    self.dnode(&dnode, heads);
                }
            }
        }
    }

    /// Reads all copies of a block; `None` if it was read before, or has no place on disk.
    fn block(&mut self, bp: &BlkPtr) -> Option<Vec<u8>> {
        if !bp.has_space() || !self.seen.insert(bp.dva(0)) {
            return None;
        }
        if bp.is_gang() {
            self.gangs += 1;
            return None;
        }
        self.blocks += 1;
        self.psize += bp.psize();
        let mut bytes = Vec::new();
        for dva in bp.dvas() {
            bytes = (self.read)(bp, dva, &self.salt);
            self.bytes += bytes.len() as u64;
        }
        if bp.is_crypt() && bp.level() == 0 && bp.kind().is_encrypted() {
            return (bp.kind() == ObjectType::DNODE).then_some(bytes);
        }
        let mut whole = vec![0; bp.lsize() as usize];
        codec::compress::decompress(bp.compress().unwrap(), &bytes, &mut whole).unwrap();
        Some(whole)
    }
}

fn pointers(bytes: &[u8]) -> Vec<BlkPtr> {
    use zerocopy::FromBytes;
    bytes.chunks_exact(128).map(|b| BlkPtr::read_from_bytes(b).unwrap()).collect()
}
