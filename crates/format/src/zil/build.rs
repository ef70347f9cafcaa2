//! Log records and log blocks as bytes: what [`super::record`] reads, the other way round.
//!
//! Only what a writer needs: records without access control lists and further attributes, whose owners are plain
//! numbers. FORMAT: sections 12.2 and 12.3.

use super::{
    Create, RECORD_HEAD_SIZE, Record, RecordKind, Setattr, SetattrMask, Write, ZIL_CHAIN_SIZE,
    ZilChain,
};
use crate::BlkPtr;
use zerocopy::IntoBytes;

/// Bytes of a write's record without the data.
pub const WRITE_SIZE: usize = 192;
/// Where the txg and the number of a record lie.
const TXG_AT: usize = 16;

/// A record; txg and number are 0 until [`number`] sets them. `None`: one of a kind that is not written here.
pub fn encode(kind: RecordKind, record: &Record<'_>) -> Option<Vec<u8>> {
    let mut out = vec![0; RECORD_HEAD_SIZE];
    put(&mut out, 0, &kind.id().to_le_bytes());
    match record {
        Record::Create(create) => put_create(&mut out, create)?,
        Record::Remove { directory, name } => {
            words(&mut out, &[*directory]);
            string(&mut out, name);
        }
        Record::Link { directory, object, name } => {
            words(&mut out, &[*directory, *object]);
            string(&mut out, name);
        }
        Record::Rename { from, to, name, new_name } => {
            words(&mut out, &[*from, *to]);
            string(&mut out, name);
            string(&mut out, new_name);
        }
        Record::Write(write) => {
            let data = write.data.unwrap_or_default().len();
            out.resize((WRITE_SIZE + data).next_multiple_of(8), 0);
            fill_write(&mut out, kind, write);
        }
        Record::Truncate { object, offset, length } => {
            words(&mut out, &[*object, *offset, *length]);
        }
        Record::Setattr(set) => put_setattr(&mut out, set)?,
        Record::Acl { .. } | Record::Other(_) => return None,
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let size = out.len() as u64;
    put(&mut out, 8, &size.to_le_bytes());
    Some(out)
}

/// Fills all of `out`, of [`WRITE_SIZE`] bytes and those of the data, and so many more that eight divide them all, with a
/// record of a write.
pub fn fill_write(out: &mut [u8], kind: RecordKind, write: &Write<'_>) {
    let data = write.data.unwrap_or_default();
    debug_assert_eq!(out.len(), (WRITE_SIZE + data.len()).next_multiple_of(8));
    let size = out.len() as u64;
    let words =
        [kind.id(), size, 0, 0, write.object, write.offset, write.length, write.block_offset];
    for (at, word) in words.iter().enumerate() {
        put(out, 8 * at, &word.to_le_bytes());
    }
    put(out, 8 * words.len(), write.pointer.as_bytes());
    put(out, WRITE_SIZE, data);
    if let Some(rest) = out.get_mut(WRITE_SIZE + data.len()..) {
        rest.fill(0);
    }
}

/// Gives a record its txg and its number in the log.
pub fn number(record: &mut [u8], txg: u64, seq: u64) {
    put(record, TXG_AT, &txg.to_le_bytes());
    put(record, TXG_AT + 8, &seq.to_le_bytes());
}

/// Puts the start of a log block in place, whose `used` bytes are complete but for the checksum.
pub fn start_block(block: &mut [u8], next: &BlkPtr, used: usize) {
    let chain = ZilChain {
        pad: 0.into(),
        next: *next,
        used: (used as u64).into(),
        eck: crate::eck::Eck::default(),
    };
    debug_assert!(block.len() >= ZIL_CHAIN_SIZE);
    put(block, 0, chain.as_bytes());
}

/// Puts bytes in place, if there is room for them.
fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = out.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

fn words(out: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

fn string(out: &mut Vec<u8>, string: &[u8]) {
    out.extend_from_slice(string);
    out.push(0);
}

fn put_create(out: &mut Vec<u8>, create: &Create<'_>) -> Option<()> {
    let plain = create.uid >> 32 == 0 && create.gid >> 32 == 0;
    if !plain || create.xvattr.is_some() || create.acl.is_some() {
        return None;
    }
    let object = create.object | u64::from(create.slots.max(1) - 1) << 56;
    words(out, &[create.directory, object, create.mode, create.uid, create.gid]);
    words(out, &[create.generation, create.crtime[0], create.crtime[1], create.rdev]);
    string(out, create.name);
    if let Some(target) = create.target {
        string(out, target);
    }
    Some(())
}

fn put_setattr(out: &mut Vec<u8>, set: &Setattr) -> Option<()> {
    if set.xvattr.is_some() || set.mask & SetattrMask::XVATTR != 0 {
        return None;
    }
    words(out, &[set.object, set.mask, set.mode, set.uid, set.gid, set.size]);
    words(out, &set.atime);
    words(out, &set.mtime);
    Some(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]

    use super::super::LogBlock;
    use super::*;

    fn all() -> Vec<(RecordKind, Record<'static>)> {
        let create = |name, target| {
            Record::Create(Box::new(Create {
                directory: 34,
                object: 1 << 33,
                slots: 3,
                mode: 0o100_644,
                uid: 7,
                gid: 8,
                generation: 99,
                crtime: [5, 6],
                rdev: 11,
                name,
                target,
                xvattr: None,
                acl: None,
            }))
        };
        let write = |data: &'static [u8]| {
            Record::Write(Write {
                object: 2,
                offset: 1 << 40,
                length: data.len() as u64,
                block_offset: 0,
                pointer: BlkPtr::ZERO,
                data: Some(data),
            })
        };
        let set = Setattr {
            object: 3,
            mask: SetattrMask::MODE | SetattrMask::MTIME,
            mode: 0o755,
            uid: 1,
            gid: 2,
            size: 4,
            atime: [5, 6],
            mtime: [7, 8],
            xvattr: None,
        };
        vec![
            (RecordKind::Create, create(b"file", None)),
            (RecordKind::Mkdir, create(b"a directory", None)),
            (RecordKind::Symlink, create(b"link", Some(b"../where/it/leads"))),
            (RecordKind::Remove, Record::Remove { directory: 34, name: b"x" }),
            (RecordKind::Rmdir, Record::Remove { directory: 34, name: b"1234567" }),
            (RecordKind::Link, Record::Link { directory: 1, object: 2, name: b"more" }),
            (RecordKind::Rename, Record::Rename { from: 1, to: 2, name: b"old", new_name: b"new" }),
            (RecordKind::Write, write(b"12345678")),
            (RecordKind::Truncate, Record::Truncate { object: 2, offset: 3, length: 4 }),
            (RecordKind::Setattr, Record::Setattr(Box::new(set))),
        ]
    }

    #[test]
    fn what_is_written_is_read() {
        let mut block = vec![0; 4096];
        let mut used = ZIL_CHAIN_SIZE;
        for (seq, (kind, record)) in (1..).zip(&all()) {
            let mut bytes = encode(*kind, record).unwrap();
            number(&mut bytes, 50 + seq, seq);
            block[used..used + bytes.len()].copy_from_slice(&bytes);
            used += bytes.len();
        }
        start_block(&mut block, &BlkPtr::ZERO, used);
        let parsed = LogBlock::parse(&block).unwrap();
        let records = parsed.records().map(Result::unwrap);
        assert_eq!(parsed.chain.used.get(), used as u64);
        for ((seq, raw), (kind, record)) in (1..).zip(records).zip(all()) {
            assert_eq!((raw.kind, raw.txg, raw.seq), (kind, 50 + seq, seq));
            assert_eq!(raw.decode().unwrap(), record, "{kind:?}");
        }
        assert_eq!(parsed.records().count(), all().len());
    }

    #[test]
    fn owners_with_domains_are_not_written() {
        let (kind, mut record) = all().remove(0);
        let Record::Create(create) = &mut record else { panic!("the first one") };
        create.uid = 1 << 32 | 5;
        assert_eq!(encode(kind, &record), None);
    }
}
