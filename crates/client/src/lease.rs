//! Bytes of a file where the server has them, for who sends them on.
//!
//! The one idea: they are in a file, the shelf, which a socket can be sent from without a copy. They stay as they are until
//! the lease is dropped, or this process ends: so a server that has gone, or has forgotten the session, changes nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rt::sync::Arc;
use wire::{BULK_MAX, Reply, Request};

use crate::error::{Error, Result};
use crate::file::File;
use crate::lanes::Client;

/// Bytes of a file, as they were when they were leased.
pub struct Lease {
    client: Arc<Client>,
    number: u64,
    shelf: Arc<OwnedFd>,
    places: Vec<(u64, u32)>,
}

impl Lease {
    /// Where they are, one piece behind the other: each an offset in [`Lease::as_fd`], in bytes, and a length.
    #[must_use]
    pub fn places(&self) -> &[(u64, u32)] {
        &self.places
    }
}

impl AsFd for Lease {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shelf.as_fd()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.client.end_lease(self.number);
    }
}

impl File {
    /// The `length` bytes from `offset` on where the server has them, if it has all of them where they can be sent from, in
    /// at most `pieces_max` pieces. `None`: they are to be read. It is so where they were read twice of late.
    ///
    /// # Errors
    /// As [`File::read`].
    pub fn lend(&self, offset: u64, length: usize, pieces_max: usize) -> Result<Option<Lease>> {
        self.settle()?;
        let client = &self.client;
        if length == 0 || length > BULK_MAX || client.shelf(None).is_none() {
            return Ok(None);
        }
        let (ended, length) = (client.take_ended(), length as u32);
        let pieces_max = u32::try_from(pieces_max).unwrap_or(u32::MAX);
        let ask =
            |handle| Request::Lease { handle, offset, length, pieces_max, ended: ended.clone() };
        let (number, places, epoch) = match self.call(ask, &[], &mut []) {
            Ok((handle, Reply::Leased { lease, places }, _)) => (lease, places, handle.epoch),
            Ok((_, Reply::Done, _)) => return Ok(None),
            Ok(_) => return Err(Error::protocol()),
            Err(error) => {
                // Maybe no server has heard of them.
                client.put_back_ended(ended);
                return Err(error);
            }
        };
        let Some(shelf) = client.shelf(Some(epoch)) else {
            // It was lent by another server than the one whose shelf we have.
            client.end_lease(number);
            return Ok(None);
        };
        let lease = Lease { client: client.clone(), number, shelf, places };
        let all = |places: &[(u64, u32)]| places.iter().map(|(_, n)| u64::from(*n)).sum::<u64>();
        match all(&lease.places) == u64::from(length) {
            true => Ok(Some(lease)),
            false => Err(Error::protocol()),
        }
    }
}
