//! One block by its place: as it is stored, decompressed, as pointers, or as a gang header.

use format::gang::{GANG_SIZE, GangHeader};
use format::{BlkPtr, Checksum, Compress, bpobj};

use super::{Dumper, Told};
use crate::dump::{Fact, RawBlock, Value};

/// Checksums that are shown of a block that was read without one.
const SHOWN: [(&str, Checksum); 3] = [
    ("fletcher4", Checksum::Fletcher4),
    ("sha256", Checksum::Sha256),
    ("fletcher2", Checksum::Fletcher2),
];

/// Checksums by their names.
const CHECKSUMS: [(&str, Checksum); 6] = [
    ("fletcher2", Checksum::Fletcher2),
    ("fletcher4", Checksum::Fletcher4),
    ("sha256", Checksum::Sha256),
    ("sha512", Checksum::Sha512),
    ("skein", Checksum::Skein),
    ("edonr", Checksum::Edonr),
];

/// Compressions by their names.
fn compression(name: &str) -> Option<Compress> {
    Some(match name {
        "off" => Compress::Off,
        "lz4" => Compress::Lz4,
        "lzjb" => Compress::Lzjb,
        "zle" => Compress::Zle,
        "zstd" => Compress::Zstd,
        name => Compress::Gzip(match name.strip_prefix("gzip")? {
            "" => 6,
            level => level.strip_prefix('-')?.parse().ok().filter(|l| (1..=9).contains(l))?,
        }),
    })
}

impl Dumper<'_, '_> {
    /// Reads one block and tells it.
    pub(super) fn raw(&mut self, block: &RawBlock) -> Told {
        let what = || format!("{}:{:x}:{:x}", block.vdev, block.offset, block.psize);
        let checksum = match &block.checksum {
            None => None,
            Some((name, words)) => match CHECKSUMS.iter().find(|(known, _)| known == name) {
                Some((_, kind)) => Some((*kind, *words)),
                None => return self.out.wrong(what(), format!("no such checksum: {name}")),
            },
        };
        let compress = match &block.compress {
            None => Compress::Off,
            Some(name) => match compression(name) {
                Some(compress) => compress,
                None => return self.out.wrong(what(), format!("no such compression: {name}")),
            },
        };
        let psize = if block.gang { GANG_SIZE as u64 } else { block.psize };
        let stored = match self.look.stored(block.vdev, block.offset, psize, checksum) {
            Ok(stored) => stored,
            Err(why) => return self.out.wrong(what(), why),
        };
        let lsize = if block.lsize == 0 { psize } else { block.lsize };
        let bytes = match compress {
            Compress::Off => Ok(stored.clone()),
            compress => self.look.decompress(compress, &stored, lsize),
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(why) => return self.out.wrong(what(), why),
        };
        let mut fact = Fact::new("stored")
            .number("vdev", block.vdev)
            .hex("offset", block.offset)
            .hex("psize", psize)
            .hex("lsize", bytes.len() as u64);
        if checksum.is_some() {
            fact = fact.word("checksum", "ok");
        } else {
            for (name, kind) in SHOWN {
                if let Some(words) = self.look.checksum(kind, &stored) {
                    fact = fact.with(name, Value::Checksum(words));
                }
            }
        }
        self.out.tell(fact)?;
        if block.gang {
            return match GangHeader::parse(&bytes) {
                Ok(header) => self.pointers(header.pointers.iter().copied()),
                Err(why) => self.out.wrong(what(), why),
            };
        }
        if block.pointers {
            let count = bytes.len() / size_of::<BlkPtr>();
            let pointers = bpobj::entries(&bytes, count as u64).unwrap_or_default();
            return self.pointers(pointers.iter().copied());
        }
        for (at, part) in (0u64..).step_by(16).zip(bytes.chunks(16)) {
            let fact = Fact::new("bytes").hex("at", at).with("bytes", Value::Bytes(part.to_vec()));
            self.out.tell(fact)?;
        }
        Ok(())
    }

    fn pointers(&mut self, pointers: impl Iterator<Item = BlkPtr>) -> Told {
        for (index, bp) in (0u64..).zip(pointers).filter(|(_, bp)| !bp.is_zero()) {
            self.out.tell(Fact::new("pointer").number("index", index).pointer("bp", &bp))?;
        }
        Ok(())
    }
}
