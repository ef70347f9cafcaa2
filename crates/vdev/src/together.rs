//! Reading several pieces from several leaves at once.
//!
//! Place: under the readers, for leaves with a queue in front of them (disks); leaves without one
//! (files in the page cache) are read by the caller, who has no use for this.
//! The one idea: everything is submitted before anything is waited for, so a block takes the time
//! of its slowest disk, not of all of them. The queue reads into buffers of its own, which a disk
//! that hangs may keep; what arrived is copied to where it belongs.

use crate::tree::Tree;
use device::queue::{Batch, Class};
use device::{DeviceError, Result};
use format::label::DATA_AT;
use std::io::IoSliceMut;

/// A piece to be read.
pub(crate) struct Want<'a> {
    /// The leaf, by its place in the tree.
    pub(crate) leaf: usize,
    /// Offset in its allocatable space, in bytes.
    pub(crate) offset: u64,
    /// Where the bytes go: each part with its offset from there, ascending. What lies between parts is read
    /// over.
    pub(crate) parts: Vec<(u64, &'a mut [u8])>,
}

impl Want<'_> {
    /// Bytes from its offset to the end of its last part.
    pub(crate) fn span(&self) -> u64 {
        self.parts.last().map_or(0, |(offset, part)| offset + part.len() as u64)
    }
}

impl Tree {
    /// Bytes that the leaf is asked for.
    pub(crate) fn bytes_asked(&self, want: &Want<'_>) -> u64 {
        let device = self.leaves()[want.leaf].device();
        match device.and_then(|device| device.read_queue()) {
            Some(_) => want.span(),
            None => want.parts.iter().map(|(_, part)| part.len() as u64).sum(),
        }
    }

    /// Reads all pieces for somebody who waits; one result for each, in order. Leaves without a device give `None`.
    pub(crate) fn read_together(&self, wants: &mut [Want<'_>]) -> Vec<Option<Result<()>>> {
        self.read_together_for(Class::SyncRead, wants)
    }

    /// As [`Tree::read_together`], for whoever it is.
    pub(crate) fn read_together_for(
        &self,
        class: Class,
        wants: &mut [Want<'_>],
    ) -> Vec<Option<Result<()>>> {
        let batch = Batch::new();
        let mut places = Vec::with_capacity(wants.len());
        let mut results: Vec<Option<Result<()>>> = Vec::with_capacity(wants.len());
        for want in wants.iter_mut() {
            let device = self.leaves()[want.leaf].device();
            let queue = device.and_then(|device| device.read_queue());
            let at = DATA_AT + want.offset;
            let size = want.span() as usize;
            places.push(queue.map(|queue| queue.start_read(&batch, class, at, size)));
            // Those without a queue are read while the others are under way.
            results.push(match (queue, device) {
                (None, Some(device)) => Some(read_parts(&**device, at, &mut want.parts)),
                _ => None,
            });
        }
        let mut outcomes: Vec<_> = batch.wait().into_iter().map(Some).collect();
        for ((want, place), result) in wants.iter_mut().zip(places).zip(&mut results) {
            let outcome = place.and_then(|place| outcomes.get_mut(place)?.take());
            let Some(outcome) = outcome else { continue };
            if let Some(buf) = &outcome.buf {
                for (offset, part) in &mut want.parts {
                    part.copy_from_slice(&buf[*offset as usize..][..part.len()]);
                }
            }
            *result = Some(outcome.result);
        }
        results
    }
}

/// Reads what lies side by side with one call.
fn read_parts(
    device: &dyn device::Device,
    offset: u64,
    parts: &mut [(u64, &mut [u8])],
) -> std::result::Result<(), DeviceError> {
    let touch = |a: &(u64, &mut [u8]), b: &(u64, &mut [u8])| a.0 + a.1.len() as u64 == b.0;
    for run in parts.chunk_by_mut(touch) {
        let at = offset + run[0].0;
        match run {
            [(_, part)] => device.read_at(at, part)?,
            run => {
                let mut bufs: Vec<IoSliceMut<'_>> =
                    run.iter_mut().map(|(_, part)| IoSliceMut::new(part)).collect();
                device.read_vectored_at(at, &mut bufs)?;
            }
        }
    }
    Ok(())
}
