//! An object set: its objects by number, and the sync that turns its changes into a new root.
//!
//! Dnodes are records of object 0, the meta dnode, and go through the same state machine as any
//! record. Only the sync writes them, so they have one version at a time.

use std::collections::BTreeMap;

use format::dnode::{DNODE_BLOCK, DNODE_SLOT, DNODES_PER_BLOCK};
use format::objset::{
    GROUPUSED_OBJECT, OBJSET_SIZE, ObjsetType, PROJECTUSED_OBJECT, USERUSED_OBJECT,
};
use format::zap::Value;
use format::{BlkPtr, DnodePhys, ObjectType, ObjsetPhys};
use rt::Grant;
use rt::mem::{Class, Holder, Reclaim};
use rt::sync::atomic::Ordering;
use rt::sync::{Arc, Mutex, Weak};
use store::{At, BlockWrite, Store};

use crate::dirty::DirtyLists;
use crate::error::{DmuError, Result};
use crate::ledger::{Needs, Space, Tally};
use crate::numbers::{Numbers, used_slots};
use crate::object::{Object, SPILL};
use crate::policy::Policy;
use crate::reaper::Reaper;
use crate::sync::{Synced, Syncing};
use crate::tree::Root;
use crate::txg::Tx;
use crate::zap_object::Zap;

const SHARDS: usize = 16;
/// Clean objects that stay in memory, per shard.
const SHARD_OBJECTS_MAX: usize = 4096;
/// Memory that an object takes beside its records and what a txg has changed, about, in bytes.
const OBJECT_BYTES: u64 = 3 << 10;
/// Objects of a shard are leased so many at a time.
const OBJECTS_STEP: u64 = 32;

/// Who owns an object: whom its space is charged to. Found in the bonus by `owner_of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User, as stored (a FUID).
    pub user: u64,
    /// Group, as stored.
    pub group: u64,
    /// Project, 0 if it has none.
    pub project: u64,
}

/// Finds the owner in a bonus; `None`: the object is not accounted.
pub type OwnerOf = fn(ObjectType, &[u8]) -> Option<Owner>;

/// An object set in memory.
pub struct Objset {
    store: Arc<Store>,
    dirty: Arc<DirtyLists>,
    pub(crate) meta: Arc<Object>,
    /// The accounting objects: user, group, project; made when first needed.
    accounting: Mutex<[Option<Arc<Object>>; 3]>,
    objects: Arc<Loaded>,
    numbers: Mutex<Numbers>,
    phys: Mutex<ObjsetPhys>,
    policy: Mutex<Arc<Policy>>,
    owner_of: Option<OwnerOf>,
    /// Entries that the next sync adds to ZAPs.
    to_put: Mutex<Vec<(Zap, Vec<u8>, Value)>>,
    pub(crate) reaper: Reaper,
    /// Root on disk and size of the object set there.
    root: Mutex<BlkPtr>,
}

/// The objects in memory, by number. Those that nobody uses give way when others need memory.
struct Loaded(Vec<Mutex<Shard>>);

struct Shard {
    objects: BTreeMap<u64, Arc<Object>>,
    lease: Grant,
}

impl Shard {
    /// Their number has changed.
    fn settle(&mut self) {
        let wanted = (self.objects.len() as u64).next_multiple_of(OBJECTS_STEP) * OBJECT_BYTES;
        if wanted != self.lease.bytes() {
            self.lease.set(wanted);
        }
    }

    /// Lets go of those that nobody uses, and that are as on disk.
    fn forget(&mut self) {
        let is_used = |object: &Arc<Object>| {
            Arc::strong_count(object) > 1 || object.is_only_remembered() != Some(true)
        };
        self.objects.retain(|_, object| is_used(object));
    }
}

impl Reclaim for Loaded {
    fn reclaim(&self, bytes: u64) {
        let mut left = bytes;
        for shard in &self.0 {
            let Some(mut shard) = shard.try_lock().filter(|_| left > 0) else { continue };
            let before = shard.lease.bytes();
            shard.forget();
            shard.settle();
            left = left.saturating_sub(before.saturating_sub(shard.lease.bytes()));
        }
    }
}

/// Numbers of the accounting objects, in the order of the object set.
const ACCOUNTING: [u64; 3] = [USERUSED_OBJECT, GROUPUSED_OBJECT, PROJECTUSED_OBJECT];

impl Objset {
    /// Opens the object set that `root` points to.
    pub fn open(
        store: Arc<Store>,
        root: &BlkPtr,
        policy: Policy,
        owner_of: Option<OwnerOf>,
    ) -> Result<Objset> {
        let fail =
            |source| DmuError::Block { object: 0, level: 0, block: 0, source: Box::new(source) };
        let bytes = store.read_for(At::ROOT, root).map_err(fail)?;
        let phys =
            ObjsetPhys::parse(&bytes).map_err(|source| DmuError::Format { object: 0, source })?;
        Ok(Self::assemble(store, phys, *root, policy, owner_of))
    }

    /// A new object set without objects.
    pub fn create(
        store: Arc<Store>,
        kind: ObjsetType,
        policy: Policy,
        owner_of: Option<OwnerOf>,
    ) -> Objset {
        let levels = if kind == ObjsetType::Meta { 1 } else { format::dnode::META_LEVELS };
        let phys = ObjsetPhys::new(kind, levels);
        Self::assemble(store, phys, BlkPtr::ZERO, policy, owner_of)
    }

    fn assemble(
        store: Arc<Store>,
        phys: ObjsetPhys,
        root: BlkPtr,
        policy: Policy,
        owner_of: Option<OwnerOf>,
    ) -> Objset {
        let dirty = Arc::new(DirtyLists::default());
        let object = |number, dnode: &DnodePhys| {
            Arc::new(Object::on_disk(number, store.clone(), dirty.clone(), dnode.clone()))
        };
        let accounting = [0, 1, 2]
            .map(|i| phys.accounting[i].as_ref().map(|dnode| object(ACCOUNTING[i], dnode)));
        let account = store.account().of(Holder::Objects);
        let shard = |_| Mutex::new(Shard { objects: BTreeMap::new(), lease: account.take(0) });
        let objects = Arc::new(Loaded((0..SHARDS).map(shard).collect()));
        let weak: Weak<dyn Reclaim> = Arc::<Loaded>::downgrade(&objects);
        account.add_reclaimer(Class::Elastic, weak);
        Objset {
            meta: object(0, &phys.meta),
            accounting: Mutex::new(accounting),
            objects,
            numbers: Mutex::new(Numbers::new()),
            phys: Mutex::new(phys),
            policy: Mutex::new(Arc::new(policy)),
            owner_of,
            to_put: Mutex::default(),
            reaper: Reaper::default(),
            root: Mutex::new(root),
            dirty,
            store,
        }
    }

    /// What the object set holds.
    pub fn kind(&self) -> ObjsetType {
        self.phys.lock().kind
    }

    /// Flags, intent log header and the like, as on disk.
    pub fn phys(&self) -> ObjsetPhys {
        self.phys.lock().clone()
    }

    /// Changes flags or the intent log header; goes to disk with the next sync that has changes.
    pub fn change_phys(&self, f: impl FnOnce(&mut ObjsetPhys)) {
        f(&mut self.phys.lock());
    }

    /// The pointer to the object set as of the last sync.
    pub fn root(&self) -> BlkPtr {
        *self.root.lock()
    }

    /// The pointer to a block as it is on disk now: the object set's own at level -1, or one of an object. A hole
    /// if there is none.
    pub fn pointer(&self, object: u64, level: i64, block: u64) -> Result<BlkPtr> {
        let Ok(level) = u8::try_from(level) else { return Ok(self.root()) };
        let Some(dnode) = self.any_object(object)?.synced() else { return Ok(BlkPtr::ZERO) };
        if block == SPILL {
            return Ok(dnode.spill().copied().unwrap_or(BlkPtr::ZERO));
        }
        Root::of(object, &dnode).pointer(&self.store, level, block)
    }

    /// Where the blocks come from.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Replaces the properties that blocks obey from the next sync on.
    pub fn set_policy(&self, policy: Policy) {
        *self.policy.lock() = Arc::new(policy);
    }

    /// The properties that blocks obey.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.lock().clone()
    }

    fn shard(&self, number: u64) -> &Mutex<Shard> {
        &self.objects.0[number as usize % SHARDS]
    }

    /// The object with this number.
    pub fn object(&self, number: u64) -> Result<Arc<Object>> {
        let object = self.any_object(number)?;
        // One that is being freed is there for the sync alone.
        if object.exists() { Ok(object) } else { Err(DmuError::NoObject { object: number }) }
    }

    /// The object with this number, also if nobody else finds it any more.
    pub(crate) fn any_object(&self, number: u64) -> Result<Arc<Object>> {
        if let Some(i) = ACCOUNTING.iter().position(|n| *n == number) {
            let object = self.accounting.lock()[i].clone();
            return object.ok_or(DmuError::NoObject { object: number });
        }
        if number == 0 {
            return Ok(self.meta.clone());
        }
        if let Some(object) = self.shard(number).lock().objects.get(&number) {
            return Ok(object.clone());
        }
        let (loaded, mut shard) = loop {
            let version = self.meta.version();
            let dnode = self.load_dnode(number)?.ok_or(DmuError::NoObject { object: number })?;
            let (store, dirty) = (self.store.clone(), self.dirty.clone());
            let loaded = Arc::new(Object::on_disk(number, store, dirty, dnode));
            let shard = self.shard(number).lock();
            // A sync in between may have freed it.
            if self.meta.version() == version {
                break (loaded, shard);
            }
        };
        if shard.objects.len() > SHARD_OBJECTS_MAX {
            shard.forget();
        }
        let object = shard.objects.entry(number).or_insert(loaded).clone();
        shard.settle();
        Ok(object)
    }

    /// The object with this number, which must be of this kind.
    pub fn object_of(&self, number: u64, kind: ObjectType) -> Result<Arc<Object>> {
        let object = self.object(number)?;
        let seen = object.with_header(DnodePhys::kind)?;
        if seen != kind {
            let (seen, expected) = (seen.name(), kind.name());
            return Err(DmuError::WrongKind { object: number, seen, expected });
        }
        Ok(object)
    }

    fn load_dnode(&self, number: u64) -> Result<Option<DnodePhys>> {
        let block = number / DNODES_PER_BLOCK;
        if block > self.meta.max_block()? {
            return Ok(None);
        }
        let at = (number % DNODES_PER_BLOCK) as usize * DNODE_SLOT;
        let parsed = self.meta.with_block(block, |bytes| {
            // A number inside a large dnode is not an object.
            let inside = slots_before(bytes, number % DNODES_PER_BLOCK);
            if inside { Ok(None) } else { DnodePhys::parse(bytes.get(at..).unwrap_or_default()) }
        })?;
        parsed.map_err(|source| DmuError::Format { object: number, source })
    }

    /// Numbers of objects on disk, in order, from `from` on: the next one and its dnode.
    pub fn next_object(&self, from: u64) -> Result<Option<(u64, DnodePhys)>> {
        let blocks = self.meta.max_block()? + 1;
        let mut number = from.max(1);
        while number / DNODES_PER_BLOCK < blocks {
            let block = number / DNODES_PER_BLOCK;
            let Some(block) = self.meta.next_block(block, blocks, true)? else { return Ok(None) };
            number = number.max(block * DNODES_PER_BLOCK);
            let found = self.meta.with_block(block, |bytes| {
                let mut slot = 0;
                while slot < DNODES_PER_BLOCK {
                    let at = slot as usize * DNODE_SLOT;
                    let dnode = DnodePhys::parse(bytes.get(at..).unwrap_or_default());
                    let this = block * DNODES_PER_BLOCK + slot;
                    match dnode {
                        Ok(Some(dnode)) if this >= number && this > 0 => {
                            return Ok(Some((this, dnode)));
                        }
                        Ok(Some(dnode)) => slot += dnode.slots() as u64,
                        Ok(None) => slot += 1,
                        Err(source) if this >= number => {
                            return Err(DmuError::Format { object: this, source });
                        }
                        Err(_) => slot += 1,
                    }
                }
                Ok(None)
            })??;
            if found.is_some() {
                return Ok(found);
            }
            number = (block + 1) * DNODES_PER_BLOCK;
        }
        Ok(None)
    }

    /// Number of objects on disk.
    pub fn object_count(&self) -> u64 {
        self.root.lock().fill()
    }

    /// Makes a new object. `block_size` in bytes; `slots` of 512 bytes for its dnode.
    pub fn allocate(
        &self,
        tx: &Tx<'_>,
        kind: ObjectType,
        block_size: u32,
        bonus_kind: ObjectType,
        bonus: &[u8],
        slots: u8,
    ) -> Result<Arc<Object>> {
        let number = self.numbers.lock().take(&self.meta, u64::from(slots.max(1)))?;
        self.allocate_at(tx, number, kind, block_size, bonus_kind, bonus, slots)
    }

    /// Makes a new object with a number that the caller knows to be free.
    #[allow(clippy::too_many_arguments)]
    pub fn allocate_at(
        &self,
        tx: &Tx<'_>,
        number: u64,
        kind: ObjectType,
        block_size: u32,
        bonus_kind: ObjectType,
        bonus: &[u8],
        slots: u8,
    ) -> Result<Arc<Object>> {
        let slots = slots.max(1);
        if number % DNODES_PER_BLOCK + u64::from(slots) > DNODES_PER_BLOCK {
            let what = "its dnode reaches beyond its block";
            return Err(DmuError::Limit { object: number, what });
        }
        self.numbers.lock().reserve(number, slots.into());
        let mut dnode = DnodePhys::new(kind, block_size, bonus_kind, bonus.len() as u16, slots);
        dnode.set_bonus(bonus).map_err(|source| DmuError::Format { object: number, source })?;
        let object = Object::create(number, self.store.clone(), self.dirty.clone(), dnode, tx);
        let mut shard = self.shard(number).lock();
        shard.objects.insert(number, object.clone());
        shard.settle();
        drop(shard);
        Ok(object)
    }

    /// Are these numbers, of one block of dnodes, nobody's: neither that of an object that is there, or goes with a txg that
    /// is not synced yet, nor inside the dnode of one?
    pub fn are_free(&self, first: u64, count: u64) -> Result<bool> {
        let (block, slot) = (first / DNODES_PER_BLOCK, first % DNODES_PER_BLOCK);
        let is_loaded = |number: u64| {
            let shard = self.shard(number).lock();
            shard.objects.get(&number).is_some_and(|object| number + object.slots() > first)
        };
        if (first - slot..first.saturating_add(count)).any(is_loaded) {
            return Ok(false);
        }
        if block > self.meta.max_block()? {
            return Ok(true);
        }
        let used = self.meta.with_block(block, used_slots)?;
        Ok(used.iter().skip(slot as usize).take(count as usize).all(|used| !used))
    }

    /// Frees an object with all its blocks.
    pub fn free(&self, tx: &Tx<'_>, number: u64) -> Result<()> {
        self.object(number)?.free(tx)
    }

    /// From now on the number of an object that is there is given to no other one, though it is freed, until
    /// it is handed back: somebody outside may still take it for this one.
    pub fn withhold(&self, number: u64) {
        self.numbers.lock().withhold(number);
    }

    /// Nobody takes the number for a withheld object any more.
    pub fn hand_back(&self, number: u64) {
        self.numbers.lock().hand_back(number);
    }

    /// Has the next sync add an entry to a ZAP, which nobody else changes.
    ///
    /// For what changes of several txgs may need at once: only the sync knows their order.
    pub fn put_at_sync(&self, zap: &Zap, name: Vec<u8>, value: Value) {
        self.to_put.lock().push((zap.clone(), name, value));
    }

    /// Was the object with this number freed in a txg that is not synced yet?
    pub fn is_going(&self, number: u64) -> bool {
        let shard = self.shard(number).lock();
        shard.objects.get(&number).is_some_and(|object| !object.exists())
    }

    /// Has `txg` changed anything, or is anything left to be freed?
    pub fn is_dirty(&self, txg: u64) -> bool {
        self.dirty.any(txg) || self.has_left()
    }

    /// Syncs what `cx.txg` has changed and returns the new root with the births and deaths.
    ///
    /// Objects that the accounting of users changes are part of the same sync.
    pub fn sync(&self, cx: &Syncing<'_>, tx: &Tx<'_>) -> Result<(BlkPtr, Tally)> {
        self.numbers.lock().sync_begins(cx.txg);
        for (zap, name, value) in std::mem::take(&mut *self.to_put.lock()) {
            zap.put(tx, &name, &value)?;
        }
        cx.frees.store(self.reap(tx, cx.frees.load(Ordering::Relaxed))?, Ordering::Relaxed);
        let (mut synced, mut tally) = cx.objects(self.dirty.take(cx.txg))?;
        if let Some(owner_of) = self.owner_of {
            self.account(tx, owner_of, &mut synced)?;
            let (accounts, more) = cx.objects(self.dirty.take(cx.txg))?;
            tally.merge(more);
            synced.extend(accounts);
        }
        {
            // The blocks of dnodes show a slot as free before its object is forgotten.
            let mut numbers = self.numbers.lock();
            for item in synced.iter().filter(|item| item.new.is_none()) {
                numbers.reserve(item.object.number(), item.object.slots());
            }
        }
        self.store_dnodes(tx, &synced)?;
        let (metas, more) = cx.objects(self.dirty.take(cx.txg))?;
        tally.merge(more);
        for meta in metas {
            if let Some(new) = &meta.new {
                self.phys.lock().meta = DnodePhys::clone(new);
            }
            meta.object.finish(cx.txg, meta.new);
        }
        for item in synced {
            if let Some(i) = ACCOUNTING.iter().position(|n| *n == item.object.number()) {
                self.phys.lock().accounting[i] = item.new.as_deref().cloned();
            } else if item.new.is_none() {
                let number = item.object.number();
                let mut shard = self.shard(number).lock();
                shard.objects.remove(&number);
                shard.settle();
                drop(shard);
                self.numbers.lock().freed(cx.txg, number, item.object.slots());
            }
            item.object.finish(cx.txg, item.new);
        }
        let root = self.write_root(cx, &self.phys(), &mut tally)?;
        Ok((root, tally))
    }

    fn write_root(&self, cx: &Syncing<'_>, phys: &ObjsetPhys, tally: &mut Tally) -> Result<BlkPtr> {
        let policy = cx.policy.block(ObjectType::OBJSET, 0, false, &phys.meta);
        // Nobody waits for it while it is written.
        let old = self.root();
        let rewritable = cx.rewrite && old.birth() == cx.txg && old.has_space();
        let bytes = phys.to_bytes();
        debug_assert_eq!(bytes.len(), OBJSET_SIZE);
        let block = BlockWrite {
            data: &bytes,
            kind: ObjectType::OBJSET,
            level: 0,
            checksum: policy.checksum,
            compress: policy.compress,
            zstd_level: policy.zstd_level,
            copies: policy.copies,
            embed: false,
            fill: phys.fill(),
            rewrite: rewritable.then_some(old),
        };
        let bp = cx.writer.write_run(0, cx.txg, &[block])?[0];
        self.store.keep(&bp, Arc::new(bytes.into()));
        if !(old.has_space() && old.same_block(&bp)) {
            if !old.is_hole() {
                tally.died.push(old);
            }
            tally.born += Space::of(&bp, self.store.dsize(&bp));
        }
        *self.root.lock() = bp;
        Ok(bp)
    }

    /// Puts the new dnodes into the blocks of the meta dnode.
    fn store_dnodes(&self, tx: &Tx<'_>, synced: &[Synced]) -> Result<()> {
        let mut items: Vec<&Synced> =
            synced.iter().filter(|s| !ACCOUNTING.contains(&s.object.number())).collect();
        items.sort_by_key(|s| s.object.number());
        let mut rest = items.as_slice();
        while let Some(first) = rest.first() {
            let block = first.object.number() / DNODES_PER_BLOCK;
            let count =
                rest.iter().take_while(|s| s.object.number() / DNODES_PER_BLOCK == block).count();
            let (now, later) = rest.split_at(count);
            self.meta.with_block_mut(tx, block, |bytes| {
                // What is gone first: its slots may belong to somebody else now.
                for item in now {
                    if let (Some(old), None) = (&item.old, &item.new) {
                        let at = (item.object.number() % DNODES_PER_BLOCK) as usize * DNODE_SLOT;
                        bytes[at..at + old.size()].fill(0);
                    }
                }
                for item in now {
                    if let Some(new) = &item.new {
                        let at = (item.object.number() % DNODES_PER_BLOCK) as usize * DNODE_SLOT;
                        new.store(&mut bytes[at..at + new.size()]);
                    }
                }
            })?;
            rest = later;
        }
        Ok(())
    }

    /// Charges owners with what their objects use more (or less) than before.
    fn account(&self, tx: &Tx<'_>, owner_of: OwnerOf, synced: &mut [Synced]) -> Result<()> {
        let flags = self.phys.lock().flags;
        let mut deltas: [BTreeMap<u64, (i64, i64)>; 3] = Default::default();
        let mut charge = |owner: Owner, bytes: i64, count: i64| {
            for (map, id) in deltas.iter_mut().zip([owner.user, owner.group, owner.project]) {
                let entry = map.entry(id).or_default();
                entry.0 += bytes;
                entry.1 += count;
            }
        };
        for item in synced {
            let accounted = crate::accounting::flags_for(flags);
            if let Some(old) = &item.old {
                let was = old.core().flags & format::dnode::DnodeFlags::USERUSED_ACCOUNTED != 0;
                if let (true, Some(owner)) = (was, owner_of(old.bonus_kind(), old.bonus())) {
                    charge(owner, -(512 + old.used_bytes() as i64), -1);
                }
            }
            if let Some(new) = item.new.as_mut() {
                new.core_mut().flags |= accounted;
                if let Some(owner) = owner_of(new.bonus_kind(), new.bonus()) {
                    charge(owner, 512 + new.used_bytes() as i64, 1);
                }
            }
        }
        for (i, deltas) in deltas.iter().enumerate() {
            let kept = i < 2 || flags & format::objset::ObjsetFlags::PROJECTQUOTA_COMPLETE != 0;
            if !kept || deltas.values().all(|d| *d == (0, 0)) {
                continue;
            }
            let mut accounting = self.accounting.lock();
            let object = match &accounting[i] {
                Some(object) => object.clone(),
                None => {
                    let kind = ObjectType::USERGROUP_USED;
                    let dnode = DnodePhys::new(kind, 512, ObjectType::NONE, 0, 1);
                    let number = ACCOUNTING[i];
                    let (store, dirty) = (self.store.clone(), self.dirty.clone());
                    let object = Object::create(number, store, dirty, dnode, tx);
                    crate::accounting::create(&object, tx)?;
                    accounting[i] = Some(object.clone());
                    object
                }
            };
            drop(accounting);
            crate::accounting::apply(&object, tx, flags, deltas)?;
        }
        Ok(())
    }

    /// Forgets clean objects that nobody uses.
    pub fn shrink(&self) {
        for shard in &self.objects.0 {
            let mut shard = shard.lock();
            shard.forget();
            shard.settle();
        }
    }
}

impl Drop for Objset {
    fn drop(&mut self) {
        // What was never synced would keep itself alive, and the devices with it.
        self.dirty.clear();
    }
}

/// Does a large dnode that starts before `slot` reach over it?
fn slots_before(block: &[u8], slot: u64) -> bool {
    let mut at = 0;
    while at < slot {
        let head = block.get(at as usize * DNODE_SLOT..).unwrap_or_default();
        let allocated = head.first().is_some_and(|kind| *kind != 0);
        at += if allocated { 1 + u64::from(head.get(12).copied().unwrap_or(0)) } else { 1 };
    }
    at != slot
}

/// Bits of a large dnode in [`Needs`], if `slots` asks for it.
pub fn needs_of_slots(slots: u8) -> u32 {
    if slots > 1 { Needs::LARGE_DNODE } else { 0 }
}

const _: () = assert!(DNODE_BLOCK as u64 == DNODES_PER_BLOCK * DNODE_SLOT as u64);
