//! The history: are its records where its header says?

use crate::mos::Mos;
use crate::object::{self, Result, Unread};
use crate::report::FindingKind;
use crate::walk::Walk;
use format::history::{HistoryHeader, LENGTH_SIZE, parse_record};
use format::mos_directory as key;

/// Largest record that is believed, in bytes.
const RECORD_MAX: u64 = 16 << 20;

/// Reads all records.
pub(crate) fn check(walk: &mut Walk<'_>, mos: &Mos) {
    let Some(object) = mos.find(key::HISTORY) else { return };
    if let Err(why) = records(walk, mos, object) {
        walk.findings.add(FindingKind::Structure, || format!("history: {why}"));
    }
}

fn records(walk: &mut Walk<'_>, mos: &Mos, object: u64) -> Result<()> {
    let dnode = mos.expect(&mut walk.blocks, object)?;
    let header = HistoryHeader::parse(dnode.bonus())?;
    let mut read = |at: u64, len: u64| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (offset, len) in header.pieces(at, len) {
            bytes.extend(object::range(&mut walk.blocks, &dnode, offset, len as usize)?);
        }
        Ok(bytes)
    };
    for range in header.ranges() {
        let mut at = range.start;
        while at < range.end {
            let left = range.end - at;
            let head = read(at, LENGTH_SIZE.min(left))?;
            let length = head.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            let size = length.and_then(|length| length.checked_add(LENGTH_SIZE));
            let size = size.filter(|size| *size <= left.min(RECORD_MAX)).ok_or_else(|| {
                Unread(format!("at {at:#x}: a record of {length:?} bytes, {left} are left"))
            })?;
            parse_record(&read(at, size)?).map_err(|e| Unread(format!("at {at:#x}: {e}")))?;
            at += size;
        }
    }
    Ok(())
}
