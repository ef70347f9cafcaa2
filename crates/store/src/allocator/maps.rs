//! The space map of a metaslab is loaded when the metaslab is needed first.
//!
//! The one idea: nothing is locked while a map is read, since that may wait for devices ([`Gate`](crate::Gate)). Who
//! needs a metaslab whose map is not here lets go of what it has locked, loads it, and looks again. One loads it, others
//! who need it wait for that one; so until it is here nobody else changes what it is read from. What is loaded stays.

use format::Dva;

use super::{Allocator, Books, Slab, TopBooks};
use crate::error::Result;
use crate::metaslab::Metaslab;

/// A metaslab whose map must be loaded first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    top: u32,
    index: u64,
}

/// What was looked for in the books, or what they lack for that.
pub(super) type Found<T> = std::result::Result<T, Missing>;

/// Somebody loads a map; should that fail, another may try.
struct Loading<'a> {
    allocator: &'a Allocator,
    missing: Missing,
    /// Another vdev may have come that has the number.
    ticket: u64,
}

impl Slab {
    pub(super) fn new(allocated: u64) -> Slab {
        Slab { allocated, loaded: None, loading: None }
    }
}

impl TopBooks {
    /// A metaslab, which is loaded; `None`: there is no such metaslab.
    pub(super) fn slab(&mut self, index: u64) -> Found<Option<&mut Slab>> {
        match self.slabs.get_mut(index as usize) {
            Some(slab) if slab.loaded.is_none() => Err(Missing { top: self.space.top, index }),
            slab => Ok(slab),
        }
    }

    /// The number of its free pieces by the power of two of their length.
    fn free_pieces(&self) -> Found<(u32, [u64; 64])> {
        let (top, size) = (self.space.top, 1u64 << self.space.ms_shift);
        let mut all = [0; 64];
        for (index, slab) in (0u64..).zip(&self.slabs).filter(|(_, slab)| slab.allocated < size) {
            let loaded = slab.loaded.as_ref().ok_or(Missing { top, index })?;
            all.iter_mut().zip(loaded.free_pieces()).for_each(|(sum, count)| *sum += count);
        }
        Ok((top, all))
    }
}

impl Books {
    pub(super) fn top(&mut self, number: u32) -> Option<&mut TopBooks> {
        self.tops.iter_mut().find(|own| own.space.top == number)
    }

    /// The metaslab of an allocation, which is loaded; `None`: there is no such metaslab.
    pub(super) fn slab_at(&mut self, dva: Dva) -> Found<Option<&mut Slab>> {
        let Some(top) = self.top(dva.vdev) else { return Ok(None) };
        top.slab(dva.offset >> top.space.ms_shift)
    }

    fn slab_of(&mut self, missing: Missing) -> Option<&mut Slab> {
        self.top(missing.top)?.slabs.get_mut(missing.index as usize)
    }
}

impl Allocator {
    /// Does `work` with the books, again each time that a metaslab which it lacked is loaded: until it lacks none it
    /// must not change anything.
    pub(super) fn with_books<T>(&self, mut work: impl FnMut(&mut Books) -> Found<T>) -> Result<T> {
        loop {
            let found = work(&mut self.books.lock());
            match found {
                Ok(found) => return Ok(found),
                Err(missing) => self.load(missing)?,
            }
        }
    }

    /// Loads a map, or waits for who does. The caller has nothing locked.
    pub(super) fn load(&self, missing: Missing) -> Result<()> {
        let Some((loading, mut map)) = self.begin(missing) else { return Ok(()) };
        let maps = self.maps.lock().clone();
        if let Some(maps) = maps {
            maps.load(missing.top, missing.index, &mut map)?;
        }
        loading.done(map);
        Ok(())
    }

    /// Begins to load a map; `None`: it is here, or there is no such metaslab any more.
    fn begin(&self, missing: Missing) -> Option<(Loading<'_>, Metaslab)> {
        let mut books = self.books.lock();
        while books.slab_of(missing)?.loading.is_some() {
            books = self.loaded.wait(books);
        }
        let ticket = books.tickets;
        books.tickets += 1;
        let slab = books.slab_of(missing).filter(|slab| slab.loaded.is_none())?;
        slab.loading = Some(ticket);
        let shift = books.top(missing.top)?.space.ms_shift;
        let map = Metaslab::empty(missing.index << shift, 1 << shift);
        Some((Loading { allocator: self, missing, ticket }, map))
    }

    /// Calls `each` for every top-level vdev that takes data with the number of its free pieces by the
    /// power of two of their length.
    pub(crate) fn free_pieces(&self, mut each: impl FnMut(u32, &[u64; 64])) -> Result<()> {
        let usable = |books: &mut Books| {
            let usable = books.tops.iter().filter(|top| top.space.usable);
            usable.map(TopBooks::free_pieces).collect::<Found<Vec<_>>>()
        };
        self.with_books(usable)?.iter().for_each(|(top, all)| each(*top, all));
        Ok(())
    }
}

impl Loading<'_> {
    fn done(self, map: Metaslab) {
        let mut books = self.allocator.books.lock();
        if let Some(slab) = self.slab(&mut books) {
            slab.allocated = map.allocated();
            slab.loaded = Some(Box::new(map));
        }
    }

    /// The metaslab for which it is.
    fn slab<'b>(&self, books: &'b mut Books) -> Option<&'b mut Slab> {
        books.slab_of(self.missing).filter(|slab| slab.loading == Some(self.ticket))
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if let Some(slab) = self.slab(&mut self.allocator.books.lock()) {
            slab.loading = None;
        }
        self.allocator.loaded.notify_all();
    }
}
