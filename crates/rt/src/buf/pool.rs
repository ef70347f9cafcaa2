//! The pool of recycled buffers.
//!
//! The one idea: `get` never waits and never fails. What limits memory in use is the account
//! (INV-5); the pool's cap limits only what lies idle, which the account knows of in steps. When more than
//! that comes back, or others need the memory, idle memory goes to the system. A part of the account is the pool's for
//! good: where everybody waits for memory, what one gives back the next one asks for, and pages that went to the system
//! in between would have to be made anew. For the same reason an account has one pool of buffers for all pools of disks: what
//! one leaves when it is exported is there for the next.
//!
//! Buffers are cut from regions on huge pages, several of one size from each. A region goes back to
//! the system as a whole, when none of its buffers is in use.

use super::memory::{HUGE, Memory, Piece};
use crate::mem::{Account, Class, Grant, Holder, Reclaim};
use crate::sync::{Arc, Mutex, Weak};
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};

/// The smallest class, in bytes.
const CLASS_MIN: usize = 4 << 10;
/// The largest class, in bytes. Larger buffers are made to measure and never kept.
const CLASS_MAX: usize = 16 << 20;
/// Pools of an account that keep less than this cut no regions: a region stays as long as one of its buffers is in use, and
/// where little memory is to be had the others are missed.
const REGIONS_LEAST: usize = 256 << 20;
/// So many bytes of buffers are made one by one before regions are cut: a pool that is opened for a few blocks would
/// take a huge page for each of their sizes, and filling one in takes longer than reading them.
const SINGLY: usize = 16 << 20;
/// Idle bytes are leased in steps: most that go and come are no matter of the account's.
const STEP: u64 = 4 << 20;
/// What lies idle of an account is at most one of so many parts: what is dirty at a time comes back, and others get it at
/// once.
const IDLE_PART: u64 = 2;
/// The part of an account that is kept for what lies idle, while anybody uses buffers: one of so many.
const KEPT_PART: u64 = 16;
/// And no more than so many bytes.
const KEPT_MAX: u64 = 64 << 20;
/// Number of classes.
const CLASSES: usize = 13 * 4;

/// The class that serves `len`: four steps to a power of two, so that at most a quarter of a
/// buffer is unused, each a multiple of a page. None when it is larger than every class.
fn class_of(len: usize) -> Option<(usize, usize)> {
    if len > CLASS_MAX {
        return None;
    }
    let len = len.max(CLASS_MIN);
    let power = len.next_power_of_two();
    let step = (power / 8).max(super::ALIGN);
    let size = len.next_multiple_of(step);
    // Classes in (power/2, power] are numbered by their power and their step within it.
    let row = (power / CLASS_MIN).trailing_zeros() as usize;
    let column = (power - size) / step;
    Some((row * 4 + (3 - column), size))
}

/// Bytes of the regions from which buffers of `size` are cut: at least four buffers, so that
/// little is left over, but for the largest.
fn region_size(size: usize) -> usize {
    let count = if size > CLASS_MAX / 4 { 1 } else { 4 };
    (size * count).next_multiple_of(HUGE)
}

struct Idle {
    classes: Vec<Vec<Piece>>,
    bytes: usize,
    /// Bytes of buffers that were made one by one.
    singly: usize,
    /// Regions of which every buffer lies idle.
    regions: usize,
    /// For what lies idle, if the pool belongs to an account.
    lease: Option<Grant>,
    /// Of the lease so much is kept while nothing of it is needed, from the first buffer that comes back until a rest.
    kept: u64,
}

struct Shared {
    idle: Mutex<Idle>,
    idle_max: usize,
    /// What lies idle belongs to an account.
    leased: bool,
}

/// A pool, as long as anybody has it.
#[derive(Default)]
pub(crate) struct WeakPool(Weak<Shared>);

/// A pool of recycled page-aligned buffers. Clones are the same pool.
#[derive(Clone)]
pub struct BufPool(Arc<Shared>);

/// What a pool holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolState {
    /// Bytes that lie idle in the pool.
    pub idle_bytes: usize,
}

impl BufPool {
    /// A pool that keeps at most about `idle_bytes_max` bytes of unused buffers. (It may be more
    /// while each of their regions has another buffer that is in use.)
    pub fn new(idle_bytes_max: usize) -> BufPool {
        BufPool::make(idle_bytes_max, None, 0)
    }

    /// The one of `account`, from which what lies idle is leased: it goes to the system when others need it.
    pub fn of(account: &Account) -> BufPool {
        let mut slot = account.buffers().lock();
        if let Some(shared) = slot.0.upgrade() {
            return BufPool(shared);
        }
        let kept = (account.cap() / KEPT_PART).min(KEPT_MAX) / STEP * STEP;
        let pool = BufPool::leased(account, account.cap() / IDLE_PART, kept);
        slot.0 = Arc::downgrade(&pool.0);
        pool
    }

    /// One apart from that, of the same account: for buffers that are soon given back, and would lie between others that
    /// are not, whose regions they would hold.
    pub fn apart(account: &Account, idle_bytes_max: u64) -> BufPool {
        BufPool::leased(account, idle_bytes_max, 0)
    }

    fn leased(account: &Account, idle_max: u64, kept: u64) -> BufPool {
        let lease = account.of(Holder::Buffers).empty(Class::Elastic);
        let idle_max = usize::try_from(idle_max).unwrap_or(usize::MAX);
        let pool = BufPool::make(idle_max, Some(lease), kept);
        let weak: Weak<dyn Reclaim> = Arc::<Shared>::downgrade(&pool.0);
        account.add_reclaimer(Class::Elastic, weak);
        pool
    }

    fn make(idle_max: usize, lease: Option<Grant>, kept: u64) -> BufPool {
        let classes = std::iter::repeat_with(Vec::new).take(CLASSES).collect();
        let leased = lease.is_some();
        let idle = Mutex::new(Idle { classes, bytes: 0, singly: 0, regions: 0, lease, kept });
        BufPool(Arc::new(Shared { idle, idle_max, leased }))
    }

    /// A buffer of `len` bytes with whatever its last owner left in it: for those who overwrite
    /// all of it.
    pub fn get(&self, len: usize) -> PooledBuf {
        let Some((class, size)) = class_of(len) else {
            return PooledBuf { piece: Memory::zeroed(len).carve(len).pop(), len, home: None };
        };
        let recycled = self.0.idle.lock().take(class);
        let piece = recycled.unwrap_or_else(|| self.grow(class, size));
        PooledBuf { piece: Some(piece), len, home: Some(self.0.clone()) }
    }

    /// Makes a region of buffers, keeps all but one.
    fn grow(&self, class: usize, size: usize) -> Piece {
        // A small pool (a test's, a tool's) takes no huge pages: they would be most of it.
        let region = region_size(size);
        let least = if self.0.leased { REGIONS_LEAST.max(8 * region) } else { 8 * region };
        let bytes = if self.0.idle_max >= least && !self.is_little(size) { region } else { size };
        let mut pieces = Memory::zeroed(bytes).carve(size);
        let piece = pieces.pop().expect("a region holds at least one buffer");
        let mut idle = self.0.idle.lock();
        pieces.into_iter().for_each(|piece| idle.put(class, piece));
        let freed = idle.settle(self.0.idle_max);
        drop(idle);
        drop(freed);
        piece
    }

    /// Is it little that was asked for until now, with `size` bytes more?
    fn is_little(&self, size: usize) -> bool {
        let mut idle = self.0.idle.lock();
        idle.singly = idle.singly.saturating_add(size);
        idle.singly <= SINGLY
    }

    /// A buffer of `len` zero bytes.
    pub fn get_zeroed(&self, len: usize) -> PooledBuf {
        let mut buf = self.get(len);
        buf.fill(0);
        buf
    }

    /// A buffer with a copy of `bytes`.
    pub fn copy_of(&self, bytes: &[u8]) -> PooledBuf {
        let mut buf = self.get(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Gives idle memory back to the system until at most `keep_bytes` lie idle, or no region is
    /// left of which all buffers are idle.
    pub fn trim(&self, keep_bytes: usize) {
        let freed = self.0.idle.lock().trim(keep_bytes);
        drop(freed); // unmapped after the lock is given back
    }

    /// What the pool holds now.
    pub fn state(&self) -> PoolState {
        PoolState { idle_bytes: self.0.idle.lock().bytes }
    }
}

impl Idle {
    fn take(&mut self, class: usize) -> Option<Piece> {
        let piece = self.classes[class].pop()?;
        self.regions -= usize::from(piece.region_is_idle());
        self.bytes -= piece.len();
        piece.set_idle(false);
        let kept = self.kept;
        if let Some(lease) = &mut self.lease
            && lease.bytes() > kept.max(self.bytes as u64 + 2 * STEP)
        {
            lease.shrink(kept.max((self.bytes as u64).next_multiple_of(STEP)));
        }
        Some(piece)
    }

    /// More lies idle than did: what there is no lease for, or no room, is taken out.
    fn settle(&mut self, idle_max: usize) -> Vec<Piece> {
        let (mut keep, mut slack, kept) = (idle_max, 0, self.kept);
        if let Some(lease) = &mut self.lease {
            if lease.bytes() < kept && self.bytes > 0 {
                lease.admit(kept - lease.bytes());
            }
            let wanted = (self.bytes.min(idle_max) as u64).next_multiple_of(STEP);
            if wanted > lease.bytes() && !lease.try_grow(wanted - lease.bytes()) {
                // To look for what can go is work: not for each buffer.
                (keep, slack) = (lease.bytes() as usize, STEP as usize);
            }
        }
        let over = self.bytes > keep + slack && self.regions > 0;
        let freed = if over { self.trim(keep) } else { Vec::new() };
        if let Some(lease) = &mut self.lease
            && self.bytes as u64 > lease.bytes() + STEP
        {
            // It is there, in regions that are still needed.
            lease.admit((self.bytes as u64).next_multiple_of(STEP) - lease.bytes());
        }
        freed
    }

    fn put(&mut self, class: usize, piece: Piece) {
        piece.set_idle(true);
        self.bytes += piece.len();
        self.regions += usize::from(piece.region_is_idle());
        self.classes[class].push(piece);
    }

    /// Takes out whole regions, largest buffers first.
    fn trim(&mut self, keep: usize) -> Vec<Piece> {
        let mut freed = Vec::new();
        for class in self.classes.iter_mut().rev() {
            if self.bytes <= keep || self.regions == 0 {
                break;
            }
            // The oldest first: the last ones are warm.
            let mut going = BTreeSet::new();
            for piece in class.iter() {
                let goes = going.contains(&piece.region());
                if goes || (self.bytes > keep && piece.region_is_idle()) {
                    self.bytes -= piece.len();
                    self.regions -= usize::from(!goes);
                    going.insert(piece.region());
                }
            }
            if !going.is_empty() {
                let (out, stay): (Vec<_>, Vec<_>) =
                    std::mem::take(class).into_iter().partition(|p| going.contains(&p.region()));
                *class = stay;
                freed.extend(out);
            }
        }
        let kept = self.kept;
        if let Some(lease) = &mut self.lease {
            lease.shrink(kept.max((self.bytes as u64).next_multiple_of(STEP)));
        }
        freed
    }
}

impl Reclaim for Shared {
    fn reclaim(&self, bytes: u64) {
        let Some(mut idle) = self.idle.try_lock() else { return };
        let keep = (idle.bytes as u64).saturating_sub(bytes) / STEP * STEP;
        let keep = keep.max(idle.kept);
        let freed = idle.trim(keep as usize);
        drop(idle);
        drop(freed);
    }

    fn rest(&self) {
        let mut idle = self.idle.lock();
        let freed = idle.trim(0);
        let left = (idle.bytes as u64).next_multiple_of(STEP);
        if let Some(lease) = &mut idle.lease {
            lease.shrink(left);
        }
        drop(idle);
        drop(freed);
    }
}

/// A buffer that goes back to its pool when it is dropped.
pub struct PooledBuf {
    /// None for an empty buffer that never was in the pool.
    piece: Option<Piece>,
    len: usize,
    home: Option<Arc<Shared>>,
}

impl PooledBuf {
    /// Shortens the buffer, or lengthens it again up to [`PooledBuf::capacity`]; bytes that appear
    /// are initialised but not zero.
    ///
    /// # Panics
    /// When `len` is above the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes in a buffer of {}", self.capacity());
        self.len = len;
    }

    /// The length that it could have.
    pub fn capacity(&self) -> usize {
        self.piece.as_ref().map_or(0, |piece| piece.len())
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        let (Some(home), Some(piece)) = (self.home.take(), self.piece.take()) else { return };
        let Some((class, _)) = class_of(piece.len()) else { return };
        let mut idle = home.idle.lock();
        idle.put(class, piece);
        let freed = idle.settle(home.idle_max);
        drop(idle);
        drop(freed); // unmapped after the lock is given back
    }
}

impl Deref for PooledBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.piece.as_ref().map_or(&[], |piece| &piece[..self.len])
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.piece.as_mut().map_or(&mut [], |piece| &mut piece[..self.len])
    }
}

impl AsRef<[u8]> for PooledBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for PooledBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PooledBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests;
