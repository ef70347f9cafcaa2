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
//! the system as a whole, when none of its buffers is in use. Where too much lies idle beside buffers
//! that are in use, its pages go without it: such a buffer is bare, counts for nothing, and is handed out again when no other
//! one is there.

use super::memory::{HUGE, Memory, Piece};
use crate::mem::{Account, Class, Grant, Holder, Reclaim};
use crate::sync::{Arc, Mutex, MutexGuard, Weak};
use crate::time::{Instant, now};
use std::collections::{BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// The smallest class, in bytes.
const CLASS_MIN: usize = 4 << 10;
/// The largest class, in bytes. Larger buffers are made to measure and never kept.
const CLASS_MAX: usize = 16 << 20;
/// A pool of an account cuts no regions if it may keep fewer idle bytes than this: a region stays as long as one of its buffers
/// is in use, and where memory is scarce others need the rest of it.
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
/// An account's cap divided by this is how much more than is leased may lie idle in regions of which other buffers are in
/// use: to split huge pages takes longer than to wait until a whole region is idle.
const BESIDE_PART: u64 = 6;
/// And no more than so many bytes.
const BESIDE_MAX: u64 = 80 << 20;
/// So long others wait for what lies idle so, until pages go by themselves.
const PATIENCE: Duration = Duration::from_millis(50);
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
    /// The bare ones in front.
    classes: Vec<VecDeque<Piece>>,
    /// Bytes of those that are not bare.
    bytes: usize,
    /// Bytes of others that are on their way from the system, with regions that are being made, or to it.
    moving: usize,
    /// Bytes of buffers that were made one by one.
    singly: usize,
    /// Regions of which every buffer lies idle.
    regions: usize,
    /// For what lies idle, if the pool belongs to an account.
    lease: Option<Grant>,
    /// For what does so beyond that.
    beyond: Option<Grant>,
    /// Since when others want more than can go as whole regions.
    missed: Option<Instant>,
    /// Of the lease so much is kept while nothing of it is needed, from the first buffer that comes back until a rest.
    kept: u64,
}

struct Shared {
    idle: Mutex<Idle>,
    idle_max: usize,
    /// So much more than may lie idle may do so in regions that are still needed.
    beside_max: usize,
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
    /// A pool that keeps at most about `idle_bytes_max` bytes of unused buffers.
    pub fn new(idle_bytes_max: usize) -> BufPool {
        BufPool::make(idle_bytes_max, 0, None, 0)
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
        let beside_max = (account.cap() / BESIDE_PART).min(BESIDE_MAX) as usize;
        let pool = BufPool::make(idle_max, beside_max, Some(lease), kept);
        let weak: Weak<dyn Reclaim> = Arc::<Shared>::downgrade(&pool.0);
        account.add_reclaimer(Class::Elastic, weak);
        pool
    }

    fn make(idle_max: usize, beside_max: usize, mut lease: Option<Grant>, kept: u64) -> BufPool {
        let classes = std::iter::repeat_with(VecDeque::new).take(CLASSES).collect();
        let (leased, beyond) = (lease.is_some(), lease.as_mut().map(|lease| lease.split(0)));
        let idle = Mutex::new(Idle {
            classes,
            bytes: 0,
            moving: 0,
            singly: 0,
            regions: 0,
            lease,
            beyond,
            missed: None,
            kept,
        });
        BufPool(Arc::new(Shared { idle, idle_max, beside_max, leased }))
    }

    /// A buffer of `len` bytes with whatever its last owner left in it: for those who overwrite
    /// all of it.
    pub fn get(&self, len: usize) -> PooledBuf {
        let Some((class, size)) = class_of(len) else {
            return PooledBuf { piece: Memory::zeroed(len).carve(len).pop(), len, home: None };
        };
        let recycled = self.0.idle.lock().take(class);
        let mut piece = recycled.unwrap_or_else(|| self.grow(class, size));
        if piece.is_bare() {
            piece.fill_in();
        }
        PooledBuf { piece: Some(piece), len, home: Some(self.0.clone()) }
    }

    /// Makes a region of buffers, keeps all but one.
    fn grow(&self, class: usize, size: usize) -> Piece {
        // A small pool (a test's, a tool's) takes no huge pages: they would be most of it.
        let region = region_size(size);
        let least = if self.0.leased { REGIONS_LEAST.max(8 * region) } else { 8 * region };
        let is_large = self.0.idle_max >= least && !self.is_little(size);
        let others = if is_large && self.expects(region - size) { region - size } else { 0 };
        let mut pieces = Memory::zeroed(size + others).carve(size);
        let piece = pieces.pop().expect("a region holds at least one buffer");
        let mut idle = self.0.idle.lock();
        idle.moving -= others;
        pieces.into_iter().for_each(|piece| idle.put(class, piece));
        self.0.settle(idle);
        piece
    }

    /// May so much more lie idle? Then it is expected to.
    fn expects(&self, bytes: usize) -> bool {
        let mut idle = self.0.idle.lock();
        idle.moving += bytes;
        let wanted = idle.counted();
        let may = idle
            .lease
            .as_mut()
            .is_none_or(|lease| wanted <= lease.bytes() || lease.try_grow(wanted - lease.bytes()));
        idle.moving -= if may { 0 } else { bytes };
        may
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

    /// Gives idle memory back to the system until at most `keep_bytes` lie idle.
    pub fn trim(&self, keep_bytes: usize) {
        self.0.give_back(self.0.idle.lock(), keep_bytes, 0);
    }

    /// What the pool holds now.
    pub fn state(&self) -> PoolState {
        PoolState { idle_bytes: self.0.idle.lock().bytes }
    }
}

impl Idle {
    fn take(&mut self, class: usize) -> Option<Piece> {
        let piece = self.classes[class].pop_back()?;
        self.regions -= usize::from(piece.region_is_idle());
        piece.set_idle(false);
        if piece.is_bare() {
            return Some(piece);
        }
        self.bytes -= piece.len();
        self.shrink(STEP);
        Some(piece)
    }

    /// The lease is for no more than lies idle, and `slack`.
    fn shrink(&mut self, slack: u64) {
        let (counted, kept) = (self.counted(), self.kept);
        if let Some(lease) = &mut self.lease
            && lease.bytes() > kept.max(counted + slack)
        {
            lease.shrink(kept.max(counted));
        }
        self.count();
    }

    /// For so many bytes there is a lease.
    fn counted(&self) -> u64 {
        ((self.bytes + self.moving) as u64).next_multiple_of(STEP)
    }

    fn put(&mut self, class: usize, piece: Piece) {
        piece.set_idle(true);
        self.regions += usize::from(piece.region_is_idle());
        match piece.is_bare() {
            true => self.classes[class].push_front(piece),
            false => {
                self.bytes += piece.len();
                self.classes[class].push_back(piece);
            }
        }
    }

    /// More lies idle than did: how much may stay, if not all of it.
    fn settle(&mut self, idle_max: usize) -> Option<usize> {
        let (mut keep, mut slack, kept) = (idle_max, 0, self.kept);
        let wanted = self.counted().min((idle_max as u64).next_multiple_of(STEP));
        if let Some(lease) = &mut self.lease {
            if lease.bytes() < kept && self.bytes > 0 {
                lease.admit(kept - lease.bytes());
            }
            if wanted > lease.bytes() && !lease.try_grow(wanted - lease.bytes()) {
                // To look for what can go is work: not for each buffer.
                keep = (lease.bytes() as usize).saturating_sub(self.moving);
                slack = STEP as usize;
            }
        }
        self.count();
        (self.bytes > keep + slack).then_some(keep)
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
                    self.bytes -= if piece.is_bare() { 0 } else { piece.len() };
                    self.regions -= usize::from(!goes);
                    going.insert(piece.region());
                }
            }
            if !going.is_empty() {
                let all = std::mem::take(class).into_iter();
                let (out, stay): (VecDeque<_>, _) = all.partition(|p| going.contains(&p.region()));
                *class = stay;
                freed.extend(out);
            }
        }
        freed
    }

    /// Takes out single ones that are to be stripped, largest first; of regions first of which the least is in use: the
    /// others are handed out before, and these may come to go as a whole.
    fn pick(&mut self, keep: usize) -> Vec<Piece> {
        let mut picked = Vec::new();
        for class in self.classes.iter_mut().rev() {
            if self.bytes <= keep {
                break;
            }
            let pieces = class.make_contiguous();
            pieces.sort_by_key(|piece| (!piece.is_bare(), piece.region_in_use()));
            let bare = pieces.iter().filter(|piece| piece.is_bare()).count();
            let over = self.bytes - keep;
            let count = pieces[bare..].first().map_or(0, |piece| over.div_ceil(piece.len()));
            for piece in class.drain(bare..class.len().min(bare + count)) {
                self.bytes -= piece.len();
                self.regions -= usize::from(piece.region_is_idle());
                piece.set_idle(false);
                picked.push(piece);
            }
        }
        picked
    }

    /// What lies idle beyond the lease is counted anew.
    fn count(&mut self) {
        let counted = self.counted();
        if let (Some(lease), Some(beyond)) = (&self.lease, &mut self.beyond) {
            let bytes = counted.saturating_sub(lease.bytes());
            beyond.shrink(bytes);
            if bytes > beyond.bytes() {
                beyond.admit(bytes - beyond.bytes());
            }
        }
    }
}

impl Shared {
    /// More lies idle than did: what there is no lease for, or no room, is given back.
    fn settle(&self, mut idle: MutexGuard<'_, Idle>) {
        if let Some(keep) = idle.settle(self.idle_max) {
            self.give_back(idle, keep, self.beside_max);
        }
    }

    /// Gives memory back to the system until no more than `keep` bytes lie idle, or so many more, `beside` others that are in
    /// use. That takes a while, and nobody waits for it.
    fn give_back(&self, mut idle: MutexGuard<'_, Idle>, keep: usize, beside: usize) {
        let whole = idle.trim(keep);
        let mut parts = Vec::new();
        if idle.bytes > keep.saturating_add(beside) {
            parts = idle.pick(keep + beside / 2);
        }
        // What is on its way to the system counts until it is there.
        let going = parts.iter().map(|piece| piece.len()).sum::<usize>();
        idle.moving += going;
        idle.shrink(0);
        drop(idle);
        drop(whole);
        if parts.is_empty() {
            return;
        }
        parts.iter_mut().for_each(Piece::strip);
        let mut idle = self.idle.lock();
        idle.moving -= going;
        idle.shrink(0);
        for piece in parts {
            if let Some((class, _)) = class_of(piece.len()) {
                idle.put(class, piece);
            }
        }
    }
}

impl Reclaim for Shared {
    fn reclaim(&self, bytes: u64) {
        let Some(idle) = self.idle.try_lock() else { return };
        let keep = (idle.bytes as u64).saturating_sub(bytes) / STEP * STEP;
        let keep = keep.max(idle.kept) as usize;
        let is_late = idle.missed.is_some_and(|since| since.elapsed() > PATIENCE);
        self.give_back(idle, keep, if is_late { 0 } else { self.beside_max });
        let Some(mut idle) = self.idle.try_lock() else { return };
        let is_missed = idle.bytes > keep;
        idle.missed = is_missed.then(|| idle.missed.unwrap_or_else(now));
    }

    fn rest(&self) {
        let kept = std::mem::take(&mut self.idle.lock().kept);
        self.give_back(self.idle.lock(), 0, 0);
        self.idle.lock().kept = kept;
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
        home.settle(idle);
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
