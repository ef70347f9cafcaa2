//! Many blocks with few I/Os: what lies side by side on disks is read together.
//!
//! Place: under the reads of large files from disks; from files in the page cache single blocks are as fast.
//! The one idea: blocks of one vdev are asked for at once, and those that follow each other are one read of each
//! of its leaves. Each is verified
//! as ever (INV-2); one that is wrong goes the long way, alone.

use codec::checksum;
use format::{BlkPtr, Checksum, Compress};
use rt::buf::PooledBuf;
use vdev::{Piece, ReadScratch};

use crate::error::{Result, StoreError};
use crate::read::{Store, check_sizes, decompress};

/// A block and where its bytes go: as many as its logical size.
pub struct Wanted<'a> {
    /// Its place among those that are wanted, for errors.
    pub place: usize,
    /// The block.
    pub bp: BlkPtr,
    /// Its bytes.
    pub out: &'a mut [u8],
}

impl Store {
    /// Reads blocks, those that lie side by side together.
    ///
    /// # Errors
    /// The first that cannot be read, by its place, with the reason.
    pub fn read_each(
        &self,
        mut blocks: &mut [Wanted<'_>],
    ) -> std::result::Result<(), (usize, StoreError)> {
        // As they lie, not as they are wanted: several workers may have written them.
        blocks.sort_by_key(|wanted| (wanted.bp.dva(0).vdev, wanted.bp.dva(0).offset));
        while !blocks.is_empty() {
            let count = self.together(blocks);
            let (now, later) = blocks.split_at_mut(count);
            match now {
                [one] if one.bp.is_hole() => one.out.fill(0),
                [one] => self.read_into(&one.bp, one.out).map_err(|e| (one.place, e))?,
                run => self.read_run(run)?,
            }
            blocks = later;
        }
        Ok(())
    }

    /// How many blocks from the start can be read together; 1: the first alone.
    fn together(&self, blocks: &[Wanted<'_>]) -> usize {
        let fits = |Wanted { bp, out, .. }: &Wanted<'_>| {
            let plain = bp.has_space() && !bp.is_gang() && !bp.is_crypt() && bp.is_little_endian();
            let kept = !matches!(bp.checksum(), None | Some(Checksum::Off | Checksum::Noparity));
            let sized = check_sizes(bp).is_ok() && out.len() as u64 == bp.lsize();
            plain && kept && sized && bp.compress().is_some()
        };
        let mut count = 0;
        let mut last: Option<format::Dva> = None;
        for block in blocks {
            let dva = block.bp.dva(0);
            let follows = last
                .is_none_or(|last| dva.vdev == last.vdev && dva.offset >= last.offset + last.asize);
            if !(fits(block) && follows) {
                break;
            }
            last = Some(dva);
            count += 1;
        }
        count.max(1)
    }

    fn read_run(&self, run: &mut [Wanted<'_>]) -> std::result::Result<(), (usize, StoreError)> {
        let packed = |bp: &BlkPtr| bp.compress() != Some(Compress::Off) || bp.psize() != bp.lsize();
        let buffer = |wanted: &Wanted<'_>| {
            packed(&wanted.bp).then(|| self.buffers().get(wanted.bp.psize() as usize))
        };
        let mut stored: Vec<Option<PooledBuf>> = run.iter().map(buffer).collect();
        let bps: Vec<BlkPtr> = run.iter().map(|wanted| wanted.bp).collect();
        let top = bps.first().map_or(0, |bp| bp.dva(0).vdev);
        let salt = self.salt();
        let mut check = |place: usize, bytes: &[u8]| {
            let bp = &bps[place];
            let kind = bp.checksum().unwrap_or(Checksum::Off);
            checksum::compute(kind, bytes, false, &salt)
                .is_ok_and(|seen| seen == bp.checksum_words())
        };
        let pieces = run.iter_mut().zip(&mut stored).map(|(wanted, stored)| Piece {
            offset: wanted.bp.dva(0).offset,
            birth: wanted.bp.physical_birth(),
            buf: stored.as_deref_mut().unwrap_or(&mut *wanted.out),
        });
        let mut pieces: Vec<Piece<'_>> = pieces.collect();
        let read = self.tree().read_run(top, &mut pieces, &mut ReadScratch::default(), &mut check);
        drop(pieces);
        // A place that no block can be at is told by the long way.
        let lost = read.map(|report| report.lost.into_iter().map(|(place, _)| place).collect());
        let lost: Vec<usize> = lost.unwrap_or_else(|_| (0..run.len()).collect());
        for (at, (wanted, stored)) in run.iter_mut().zip(stored).enumerate() {
            let Wanted { place, bp, out } = wanted;
            let done: Result<()> = match stored {
                // Its other copies, or its error.
                _ if lost.contains(&at) => self.read_into(bp, out),
                None => Ok(()),
                Some(stored) => {
                    let compress = bp.compress().unwrap_or(Compress::Off);
                    let reason = "its compressed data is damaged";
                    decompress(compress, &stored, out)
                        .map_err(|()| StoreError::BadPointer { bp: Box::new(*bp), reason })
                }
            };
            done.map_err(|e| (*place, e))?;
        }
        Ok(())
    }
}
