//! Reads, and what they read: lent where it is in memory, and read ahead of who reads on.

use fs::{Lent, code};
use rt::Grant;
use rt::buf::PooledBuf;
use wire::{BULK_MAX, Mark, PIECES_MAX, Request, WHOLE_BELOW};

use super::handles::{Handle, Session};
use super::lane::Supply;
use super::tree::{Place, Result, fail, told};

/// Bulk bytes of an answer.
pub(super) struct Bulk {
    bytes: Bytes,
    /// For the bytes, and for what reading them takes.
    _memory: Option<Grant>,
}

enum Bytes {
    /// So many at the beginning of a buffer.
    Read(PooledBuf, usize),
    /// Where the engine has them.
    Lent(Lent),
}

impl Bulk {
    /// All bytes of a buffer.
    #[cfg(test)]
    pub(super) fn of(buf: PooledBuf) -> Bulk {
        let length = buf.len();
        Bulk { bytes: Bytes::Read(buf, length), _memory: None }
    }

    /// How many bytes there are.
    pub(super) fn length(&self) -> usize {
        match &self.bytes {
            Bytes::Read(_, length) => *length,
            Bytes::Lent(lent) => lent.length(),
        }
    }

    /// The bytes behind the first `done`, one piece behind the other.
    pub(super) fn pieces(&self, done: usize) -> Vec<&[u8]> {
        let pieces: Vec<&[u8]> = match &self.bytes {
            Bytes::Read(buf, length) => vec![&buf[..*length]],
            Bytes::Lent(lent) => lent.pieces().collect(),
        };
        let mut skip = done;
        let rest = pieces.into_iter().map(|piece| {
            let (_, rest) = piece.split_at(skip.min(piece.len()));
            skip -= piece.len() - rest.len();
            rest
        });
        rest.filter(|piece| !piece.is_empty()).collect()
    }
}

/// For so many bytes of a file, and for what reading them takes: a record as it is stored, and as it is, where a part
/// of it is wanted.
pub(super) fn memory_for(handle: &Handle, length: usize, supply: Supply<'_>) -> Option<Grant> {
    let record = u64::from(handle.place.fs.record_size());
    supply.grant(2 * length as u64 + 2 * record)
}

/// Reads from a file.
pub(super) fn read(
    handle: &Handle,
    offset: u64,
    length: usize,
    supply: Supply<'_>,
) -> Result<Bulk> {
    let length = length.min(BULK_MAX);
    let Place { fs, object } = &handle.place;
    if let Some((buf, length, memory)) = fs.prepared(*object, offset, length).map_err(told)? {
        return Ok(Bulk { bytes: Bytes::Read(buf, length), _memory: Some(memory) });
    }
    // Of what is there already only its records are held.
    if let Some(lent) = fs.lend_kept(*object, offset, length).map_err(told)?
        && let Some(memory) = supply.grant_now(lent.memory_bytes())
    {
        return Ok(Bulk { bytes: Bytes::Lent(lent), _memory: Some(memory) });
    }
    let memory = memory_for(handle, length, supply);
    let granted = memory.as_ref().map_or(0, Grant::bytes);
    let bytes = match fs.lend(*object, offset, length).map_err(told)? {
        Some(lent) if lent.memory_bytes() <= granted => Bytes::Lent(lent),
        _ => {
            let mut buf = supply.buffers.get(length);
            let length = fs.read(*object, offset, &mut buf).map_err(told)?;
            Bytes::Read(buf, length)
        }
    };
    Ok(Bulk { bytes, _memory: memory })
}

/// Reads all of a small file, and tells by what its client sees whether that is still so. Of what cannot be read he hears when
/// he asks for it.
pub(super) fn read_whole(handle: &Handle, size: u64, supply: Supply<'_>) -> Option<(Mark, Bulk)> {
    let shop = supply.shop.filter(|_| size < WHOLE_BELOW as u64)?;
    let Place { fs, object } = &handle.place;
    let mark = fs.mark(*object, shop.shelf())?;
    // Not only as many bytes as there were: it may have grown before it was marked.
    let bulk = read(handle, 0, WHOLE_BELOW, supply).ok()?;
    let is_all = bulk.length() < WHOLE_BELOW;
    is_all.then_some((Mark { place: mark.place, count: mark.count }, bulk))
}

/// Reads pieces of it, one behind the other, all of each.
pub(super) fn read_all(handle: &Handle, pieces: &[(u64, u32)], supply: Supply<'_>) -> Result<Bulk> {
    if pieces.len() > PIECES_MAX {
        let count = pieces.len();
        return fail(code::INVAL, format!("{count} pieces at once; the most is {PIECES_MAX}"));
    }
    let length = pieces.iter().fold(0usize, |sum, (_, len)| sum.saturating_add(*len as usize));
    if length > BULK_MAX {
        return fail(code::INVAL, format!("{length} bytes at once; the most is {BULK_MAX}"));
    }
    let memory = memory_for(handle, length, supply);
    let mut buf = supply.buffers.get(length);
    let mut rest = &mut buf[..length];
    for (offset, len) in pieces {
        let (now, later) = rest.split_at_mut(*len as usize);
        let got = handle.place.fs.read(handle.place.object, *offset, now).map_err(told)?;
        if got < now.len() {
            return fail(code::SPIPE, "a piece lies beyond the end of the file");
        }
        rest = later;
    }
    Ok(Bulk { bytes: Bytes::Read(buf, length), _memory: memory })
}

/// What a read may be followed by: another one of as many bytes, where it ends.
pub(super) struct Next {
    handle: u64,
    offset: u64,
    length: usize,
}

impl Next {
    /// After this request.
    pub(super) fn after(request: &Request) -> Option<Next> {
        let Request::Read { handle, offset, length } = request else { return None };
        let offset = offset.checked_add(u64::from(*length))?;
        Some(Next { handle: *handle, offset, length: (*length as usize).min(BULK_MAX) })
    }

    /// Were so many bytes read?
    pub(super) fn follows(&self, read: &Bulk) -> bool {
        read.length() == self.length
    }

    /// Prepares it, or what comes behind what is prepared, if that is likely to be asked for. Is there room for more?
    pub(super) fn prepare(&self, session: &Session) -> bool {
        let Ok(handle) = session.handle(self.handle) else { return false };
        let prepared = handle.place.fs.prepare(handle.place.object, self.offset, self.length);
        // Who asks for it hears what is wrong with it.
        prepared.unwrap_or(false)
    }
}
