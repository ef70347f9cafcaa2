//! The pool's history: a ring of records in one object. FORMAT: section 10.4.
//!
//! The structure is in `format::history`; here it meets the object and the txg.

use dmu::{DmuError, Object, Objset, Tx};
use format::history::{HistoryHeader, build_record, key as record_key, parse_record};
use format::{FormatError, NvList, ObjectType};
use rt::sync::Arc;
use zerocopy::IntoBytes;

use crate::error::{PoolError, Result};
use crate::mos::{Mos, key};

/// Size of the history's blocks, in bytes.
const BLOCK: u32 = 128 << 10;
/// So many bytes of a command are kept, as in OpenZFS.
pub const COMMAND_MAX: usize = 8192;

fn damaged(e: impl std::fmt::Display) -> PoolError {
    PoolError::Damaged { what: "pool history", detail: e.to_string() }
}

impl From<FormatError> for PoolError {
    fn from(e: FormatError) -> Self {
        damaged(e)
    }
}

/// Makes an empty history for a pool of `space_bytes` usable bytes.
pub(crate) fn create(objset: &Arc<Objset>, tx: &Tx<'_>, space_bytes: u64) -> Result<u64> {
    let header = HistoryHeader::new(space_bytes);
    let (kind, bonus_kind) = (ObjectType::SPA_HISTORY, ObjectType::SPA_HISTORY_OFFSETS);
    Ok(objset.allocate(tx, kind, BLOCK, bonus_kind, header.as_bytes(), 1)?.number())
}

/// What is kept of a command: the beginning of a long one.
pub fn kept(command: &str) -> &str {
    &command[..command.floor_char_boundary(COMMAND_MAX)]
}

/// The record of a command that `who` (a user id) gave on `host`.
pub fn command(now_secs: u64, command: &str, who: u64, host: &str) -> NvList {
    let mut list = NvList::new();
    list.put_u64(record_key::TIME, now_secs);
    list.put_string(record_key::COMMAND, kept(command));
    list.put_u64(record_key::WHO, who);
    list.put_string(record_key::ZONE, "linux");
    list.put_string(record_key::HOST, host);
    list
}

/// The record of something that the pool did by itself (or for a command).
pub fn event(now_secs: u64, txg: u64, name: &str, text: &str, host: &str) -> NvList {
    let mut list = NvList::new();
    list.put_u64(record_key::TIME, now_secs);
    list.put_u64(record_key::TXG, txg);
    list.put_string(record_key::INTERNAL_NAME, name);
    list.put_string(record_key::INTERNAL_TEXT, text);
    list.put_string(record_key::HOST, host);
    list
}

fn open(mos: &Mos) -> Result<(Arc<Object>, HistoryHeader)> {
    let object = mos.objset.object_of(mos.expect(key::HISTORY)?, ObjectType::SPA_HISTORY)?;
    let header = HistoryHeader::parse(&object.bonus()?)?;
    Ok((object, header))
}

fn read_ring(
    object: &Object,
    header: &HistoryHeader,
    from: u64,
    out: &mut [u8],
) -> std::result::Result<(), DmuError> {
    let mut at = 0;
    for (offset, len) in header.pieces(from, out.len() as u64) {
        object.read(offset, &mut out[at..at + len as usize])?;
        at += len as usize;
    }
    Ok(())
}

/// Appends a record. One that is larger than the ring is left out: what it tells of has been done.
pub(crate) fn append(mos: &Mos, tx: &Tx<'_>, record: &NvList) -> Result<()> {
    let (object, mut header) = open(mos)?;
    let bytes = build_record(record)?;
    if bytes.len() as u64 >= header.ring_size() {
        return Ok(());
    }
    let old = header;
    let start = header.append(bytes.len() as u64, |at| -> Result<u64> {
        let mut length = [0; 8];
        read_ring(&object, &old, at, &mut length)?;
        Ok(u64::from_le_bytes(length))
    })?;
    let mut at = 0;
    for (offset, len) in header.pieces(start, bytes.len() as u64) {
        object.write(tx, offset, &bytes[at..at + len as usize])?;
        at += len as usize;
    }
    if header.creation_len.get() == 0 && record.contains(record_key::COMMAND) {
        header.end_creation();
    }
    Ok(object.set_bonus(tx, header.as_bytes(), None)?)
}

/// All records, oldest first.
pub fn records(mos: &Mos) -> Result<Vec<NvList>> {
    let (object, header) = open(mos)?;
    let mut out = Vec::new();
    for range in header.ranges() {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        read_ring(&object, &header, range.start, &mut bytes)?;
        let mut rest = bytes.as_slice();
        while let Some((record, size)) = parse_record(rest)? {
            out.push(record);
            rest = rest.get(size..).unwrap_or_default();
        }
    }
    Ok(out)
}
