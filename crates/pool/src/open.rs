//! Opening a pool: from its vdevs and uberblocks to the MOS, its features and its space maps.
//!
//! The newest uberblock that opens is taken. What the pool needs and we lack decides whether it
//! opens at all, read-only or for writing (INV-12).

use std::collections::BTreeMap;

use dmu::{Objset, Policy, Txgs};
use format::SPA_VERSION;
use format::config::{PoolConfig, PoolState, VdevConfig, VdevKind};
use format::features::Feature;
use format::uberblock::Uberblock;
use rt::buf::BufPool;
use rt::mem::{Account, Holder};
use rt::sync::atomic::{AtomicBool, AtomicU64};
use rt::sync::{Arc, Mutex};
use rt::workers::Workers;
use store::{Allocator, Gate, Store, Streams, TopSpace, Writer};
use vdev::{Present, Top, Tree, WriteTree};

use crate::claim::{self, Left};
use crate::dsl::freeing;
use crate::dtl;
use crate::error::{PoolError, Result};
use crate::features::Features;
use crate::logging::{self, Logs};
use crate::logmaps;
use crate::memory::Memory;
use crate::mos::{Mos, key};
use crate::pool::{Freeing, Pool, Writing};
use crate::removed;
use crate::ruins::Ruins;
use crate::scan::{self, Scans};
use crate::spacemaps::{self, Before, PoolSpaceMaps, Slabs};

/// The last version before feature flags.
const VERSION_OLD_MAX: u64 = 28;
/// First txg that does not fit into the stamps of space maps.
pub(crate) const TXG_MAX: u64 = 1 << 50;

/// The devices of a pool, open one way or the other.
pub enum Devices {
    /// To read only: no type that could write exists (INV-4).
    ReadOnly(Arc<Tree>),
    /// To read what is left of a pool whose MOS may be damaged, with the config that its labels have.
    Ruins(Arc<Tree>, Box<PoolConfig>),
    /// To write.
    Writable(WriteTree),
    /// To write, though log devices may be missing: intent logs on them are given up, with what they hold.
    WithoutLogs(WriteTree),
    /// To write into memory: devices that keep what is written to themselves (INV-4). So intent logs are
    /// replayed to be read, unclaimed.
    InMemory(WriteTree),
}

impl Devices {
    fn present(&self) -> Arc<Present> {
        match self {
            Devices::ReadOnly(tree) | Devices::Ruins(tree, _) => Present::new(tree.clone()),
            Devices::Writable(out) | Devices::WithoutLogs(out) | Devices::InMemory(out) => {
                out.present().clone()
            }
        }
    }
}

impl Devices {
    /// What labels have, of a pool that is read though it is damaged.
    fn labels(&self) -> Option<&PoolConfig> {
        match self {
            Devices::Ruins(_, labels) => Some(labels),
            _ => None,
        }
    }
}

/// Options of an open.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Number of workers; 0: one per core.
    pub workers: usize,
    /// Identity of this host, written into labels.
    pub host_id: u64,
    /// Its name.
    pub host_name: String,
    /// A new name for the pool.
    pub new_name: Option<String>,
    /// The account of its memory (INV-5), made by [`crate::account`]; `None`: one of its own.
    pub memory: Option<Account>,
}

/// The reading side of a pool on its vdevs, and where its sync waits when devices fail.
pub(crate) fn parts(present: Arc<Present>, memory: Option<&Account>) -> (Arc<Store>, Arc<Gate>) {
    let account = memory.cloned().unwrap_or_else(crate::memory::own_account);
    let memory = Memory::of(&present.get(), &account);
    let buffers = Arc::new(BufPool::of(&account));
    let streams = Streams::new(&account, memory.ahead);
    (Arc::new(Store::new(present, buffers, memory.cache, streams)), Arc::default())
}

pub(crate) fn workers(count: usize) -> Workers {
    if count == 0 { Workers::per_core() } else { Workers::new(count) }
}

/// Metaslabs that a top-level vdev can have: OpenZFS aims at 200 and makes 131,072 at most, some
/// more when its disks grow.
pub(crate) const METASLABS_MAX: u64 = 1 << 20;

/// Metaslabs that all top-level vdevs can have together, and bytes in them: each is asked for by whoever wants to know how
/// much space there is.
const METASLABS_ALL: u64 = 1 << 22;
const BYTES_ALL: u64 = 1 << 60;

/// Where the metaslabs of each top-level vdev are, with the ZAP of the vdev.
pub(crate) fn slabs(config: &PoolConfig) -> Result<Vec<(Slabs, u64)>> {
    let mut out = Vec::new();
    let (mut all, mut bytes) = (0, 0u64);
    for (id, child) in config.vdev_tree.children.iter().enumerate() {
        let Some(top) = child.top.filter(|_| child.kind != VdevKind::Hole) else { continue };
        if top.metaslab_shift == 0 || top.asize == 0 || child.indirect.is_some() {
            continue;
        }
        let count = top.asize.checked_shr(top.metaslab_shift as u32).unwrap_or(0);
        (all, bytes) = (all + count, bytes.saturating_add(top.asize));
        if count > METASLABS_MAX || all > METASLABS_ALL || bytes > BYTES_ALL {
            let of = format!("{count} metaslabs, and with those before it {all} of {bytes} bytes");
            let detail = format!("top-level vdev {id} has {of}");
            return Err(PoolError::Damaged { what: "pool configuration", detail });
        }
        let slabs = Slabs {
            top: child.id.unwrap_or(id as u64) as u32,
            array_object: top.metaslab_array,
            ms_shift: top.metaslab_shift as u32,
            ms_count: count,
            ashift: top.ashift as u32,
        };
        out.push((slabs, child.zap_top.unwrap_or(0)));
    }
    Ok(out)
}

impl Slabs {
    /// What the allocator must know of them, with the bytes that are allocated in each.
    pub(crate) fn space(&self, root: &VdevConfig, allocated: Vec<u64>) -> TopSpace {
        let config = root.children.get(self.top as usize).and_then(|child| child.top);
        let in_use = config.filter(|top| !top.removing);
        TopSpace {
            top: self.top,
            ashift: self.ashift,
            ms_shift: self.ms_shift,
            ms_count: self.ms_count,
            allocated,
            usable: in_use.is_some_and(|top| !top.is_log),
            is_log: in_use.is_some_and(|top| top.is_log),
        }
    }
}

impl Pool {
    /// Opens a pool by its newest uberblock that leads to a MOS.
    ///
    /// `uberblocks` newest first. If it is not the first, then what that one held is lost, or away
    /// with a disk that may come back: such a pool is not written.
    pub fn open(
        devices: Devices,
        uberblocks: &[Uberblock],
        options: &OpenOptions,
    ) -> Result<Arc<Pool>> {
        let (store, gate) = parts(devices.present(), options.memory.as_ref());
        let mut last = None;
        for uberblock in uberblocks {
            match Self::load(&store, &gate, uberblock, devices.labels()) {
                Ok(loaded) => {
                    let newer = last.map(|e| {
                        let (newest, txg) = (uberblocks[0].txg, uberblock.txg);
                        format!("txg {newest} cannot be opened, this is its state at {txg}: {e}")
                    });
                    let (parts, of) = ((store, gate), (uberblock, uberblocks));
                    return Self::finish_open(devices, parts, of, loaded, newer, options);
                }
                Err(e) => last = last.or(Some(e)),
            }
        }
        Err(last.unwrap_or_else(|| PoolError::Unopenable {
            name: "?".into(),
            reason: "no label has a valid uberblock".into(),
        }))
    }

    fn load(
        store: &Arc<Store>,
        gate: &Arc<Gate>,
        uberblock: &Uberblock,
        labels: Option<&PoolConfig>,
    ) -> Result<(Mos, PoolConfig)> {
        let of_sync = Arc::new(store.of_objset(0).waiting_at(gate.clone()));
        let objset = Objset::open(of_sync, &uberblock.root, Policy::new(true), None)?;
        let ruins = labels.map(|_| Ruins::default());
        let mos = Mos { objset: Arc::new(objset), ruins };
        let salt = mos.directory().and_then(|zap| Ok(zap.get(key::CHECKSUM_SALT)?));
        if let Some(salt) = mos.unless_ruined(salt)?
            && let Some(salt) = salt.as_bytes().and_then(|b| <[u8; 32]>::try_from(b).ok())
        {
            store.set_salt(salt);
        }
        let read = |mos: &Mos| {
            let list = mos.nvlist(mos.expect(key::CONFIG)?)?;
            PoolConfig::from_nvlist(&list).map_err(|e| PoolError::Damaged {
                what: "pool configuration",
                detail: e.to_string(),
            })
        };
        // A root that was found among the blocks tells no sum of guids, nor whose it is: its config must do that, since
        // disks may still hold the blocks of a pool before this one.
        let sum = Some(uberblock.guid_sum.get()).filter(|sum| *sum != 0);
        let config = match (read(&mos), labels) {
            (Err(_), Some(labels)) if sum.is_some() => {
                let left = mos.ruins().and_then(|left| left.config.clone());
                return Ok((mos, left.unwrap_or_else(|| labels.clone())));
            }
            (config, _) => config?,
        };
        let wrong = if labels.is_some_and(|labels| labels.pool_guid != config.pool_guid) {
            Some(format!("it is that of another pool, {}", config.pool_guid))
        } else if sum.is_some_and(|sum| config.vdev_tree.guid_sum() != sum) {
            Some("its guids do not add up to the uberblock's sum".into())
        } else {
            None
        };
        if let Some(detail) = wrong {
            return Err(PoolError::Damaged { what: "pool configuration", detail });
        }
        removed::map(store, &mos, &config)?;
        Ok((mos, config))
    }

    fn finish_open(
        devices: Devices,
        (store, gate): (Arc<Store>, Arc<Gate>),
        (uberblock, uberblocks): (&Uberblock, &[Uberblock]),
        (mos, mut config): (Mos, PoolConfig),
        newer: Option<String>,
        options: &OpenOptions,
    ) -> Result<Arc<Pool>> {
        let name = match &options.new_name {
            Some(name) => name.clone(),
            None => String::from_utf8_lossy(&config.name).into_owned(),
        };
        if !(1..=VERSION_OLD_MAX).contains(&config.version) && config.version != SPA_VERSION {
            let reason = format!("its version {} is not known", config.version);
            return Err(PoolError::Unopenable { name, reason });
        }
        let features = features_of(&mos, &config)?;
        let in_memory = matches!(devices, Devices::InMemory(_));
        let (devices, give_up) = match devices {
            Devices::WithoutLogs(out) => (Devices::Writable(out), true),
            devices => (devices, false),
        };
        let known = (&mos, &features, &config);
        let why_not = cannot_write((&devices, &store), known, uberblock, newer)?;
        let (left, why_not) = match (&devices, why_not) {
            (Devices::Writable(out), None) => {
                let exported = config.state == PoolState::Exported;
                match left_behind(out, uberblock, &mos, &name, (give_up, exported)) {
                    Ok(left) => (left, None),
                    Err(why) => (Left::default(), Some(why)),
                }
            }
            (_, why_not) => (Left::default(), why_not),
        };
        let tops = slabs(&config)?;
        let txg = uberblock.txg.get();
        let workers = workers(options.workers);
        let (writing, read_only_because) = match (devices, why_not) {
            (Devices::ReadOnly(_) | Devices::Ruins(..), why) => {
                (None, Some(why.unwrap_or_else(|| "it was opened read-only".into())))
            }
            (_, Some(why)) => (None, Some(why)),
            (Devices::Writable(out) | Devices::WithoutLogs(out) | Devices::InMemory(out), None) => {
                config.hostid = options.host_id;
                config.hostname = Some(options.host_name.clone().into_bytes());
                config.name = name.clone().into_bytes();
                let txgs = (txg, spacemaps::before(uberblocks, txg));
                let writing = writing((&store, gate), &mos, &config, out, txgs, &workers, &tops)?;
                writing.writer.settle_log_vdevs();
                if in_memory {
                    writing.freeing.lock().pending = false;
                }
                (Some(writing), None)
            }
        };
        let pool = Arc::new(Pool {
            name,
            guid: config.pool_guid,
            store,
            workers,
            mos,
            features,
            config: Mutex::new(config),
            config_dirty: Mutex::new(false),
            writing,
            offline_for_now: Mutex::default(),
            unlabelled: Mutex::default(),
            read_only_because,
            in_memory,
            heads: Mutex::default(),
            upheavals: AtomicU64::new(0),
            logs_to_replay: Mutex::new(left.claimed),
            logs_left: Mutex::default(),
            random: Mutex::new(rt::random::Rng::new(rt::random::seed_from_system())),
            last_txg: Mutex::new(txg),
            tasks: AtomicU64::new(0),
            opened: rt::time::now(),
            slow: Mutex::default(),
            known_spares: Mutex::default(),
            scan: Scans::default(),
            healing: Default::default(),
        });
        if pool.writing.is_some() && !in_memory {
            pool.scan.load(&pool.mos, txg, uberblock.root)?;
        }
        left.lost.iter().for_each(|root| _ = pool.note_lost(*root, false));
        if !left.claims.is_empty() {
            pool.task(move |cx| claim::claim(cx, &left.claims))?;
        }
        pool.start();
        Ok(pool)
    }

    /// Allocated bytes per top-level vdev, with where its metaslabs are.
    pub(crate) fn slab_space(&self) -> Result<Vec<(Slabs, u64)>> {
        let tops = slabs(&self.config.lock())?;
        let mut out = Vec::new();
        if let Some(writing) = &self.writing {
            let allocated = writing.writer.allocator().allocated_by_top();
            for (slabs, _) in tops {
                let bytes = allocated.iter().find(|(top, _)| *top == slabs.top).map_or(0, |a| a.1);
                out.push((slabs, bytes));
            }
            return Ok(out);
        }
        let unflushed = logmaps::replay(&self.mos, &tops)?;
        let all = tops.iter().map(|(s, _)| s.clone()).collect();
        let maps = PoolSpaceMaps::new(self.mos.clone(), all, unflushed, Before::default());
        for (slabs, _) in tops {
            let mut sum = 0;
            for index in 0..slabs.ms_count {
                sum += maps.allocated(slabs.top, index)?;
            }
            out.push((slabs, sum));
        }
        Ok(out)
    }
}

/// The writing half of a pool that is on disk as of txg `txg`, and as of those `before`.
pub(crate) fn writing(
    (store, gate): (&Store, Arc<Gate>),
    mos: &Mos,
    config: &PoolConfig,
    out: WriteTree,
    (txg, before): (u64, Before),
    workers: &Workers,
    tops: &[(Slabs, u64)],
) -> Result<Writing> {
    let unflushed = logmaps::replay(mos, tops)?;
    let logs = Logs::open(mos, tops, &unflushed)?;
    let slabs: Vec<Slabs> = tops.iter().map(|(s, _)| s.clone()).collect();
    let maps = PoolSpaceMaps::new(mos.clone(), slabs.clone(), unflushed, before);
    // They need the ZAPs of the vdevs, which pools of old kernels lack.
    *maps.logs.lock() = tops.iter().all(|(_, zap)| *zap != 0).then_some(logs);
    let mut spaces = Vec::new();
    let mut min_alloc = u64::MAX;
    for slabs in &slabs {
        let mut allocated = Vec::with_capacity(slabs.ms_count as usize);
        for index in 0..slabs.ms_count {
            allocated.push(maps.allocated(slabs.top, index)?);
        }
        let space = slabs.space(&config.vdev_tree, allocated);
        if space.usable {
            min_alloc = min_alloc.min(1 << slabs.ashift);
        }
        spaces.push(space);
    }
    let count = workers.count() + 1;
    let allocator = Arc::new(Allocator::new(spaces, count));
    allocator.set_space_maps(maps.clone());
    let memory = Memory::of(&out.tree(), store.account());
    let txgs = Txgs::new(txg, memory.dirty_max, store.account());
    let lease = |holder| Mutex::new(store.account().of(holder).take(0));
    let (map_lease, logs_lease) = (lease(Holder::Space), lease(Holder::Logs));
    Ok(Writing {
        writer: Writer::new(
            store,
            out,
            gate,
            allocator,
            min_alloc,
            (count, memory.run_bytes(count)),
        ),
        map_lease,
        logs_lease,
        space_maps: maps,
        txgs,
        dirty_sync: memory.dirty_sync,
        tasks: Mutex::default(),
        syncing: Mutex::default(),
        uberblock_wanted: Mutex::default(),
        labels_stale: Mutex::new(true),
        freeing: Mutex::new(Freeing {
            pending: mos.find(key::FREE_BPOBJ)?.is_some() && freeing::is_pending(mos)?,
            last: 0,
            files: false,
            blocks_per_txg: freeing::BLOCKS_PER_TXG,
            by_itself: true,
        }),
        suspended: Mutex::default(),
        log_dying: Mutex::default(),
        closing: AtomicBool::new(false),
        without_logs: AtomicBool::new(false),
        bell: Arc::default(),
        thread: Mutex::default(),
    })
}

/// Features that may be active in a pool that we write to: we keep all that they ask for.
const WRITABLE: &[Feature] = &[
    Feature::AsyncDestroy,
    Feature::EmptyBpobj,
    Feature::Lz4Compress,
    Feature::SpacemapHistogram,
    Feature::EnabledTxg,
    Feature::HoleBirth,
    Feature::ExtensibleDataset,
    Feature::EmbeddedData,
    Feature::LargeBlocks,
    Feature::LargeDnode,
    Feature::Sha512,
    Feature::Skein,
    Feature::Edonr,
    Feature::UserobjAccounting,
    Feature::ProjectQuota,
    Feature::SpacemapV2,
    Feature::LogSpacemap,
    Feature::ZstdCompress,
    // Data sets that use it open read-only one by one.
    Feature::Encryption,
    Feature::BookmarkV2,
    Feature::Bookmarks,
    Feature::BookmarkWritten,
    Feature::FilesystemLimits,
    // A clone's livelist is dropped by the first change of the clone.
    Feature::Livelist,
];

/// INV-12, too: what is written needs a place. Within redundancy leaves may be away: their DTLs say what they
/// then lack. Logs go elsewhere, if those that are there do not lie on what is away: [`claim::left`] sees to that.
fn lacking(tree: &Tree) -> Option<String> {
    let is_lost = |top: &&Top| !top.is_log() && !tree.is_complete(top.id());
    let top = tree.tops().iter().find(is_lost)?;
    let mut leaves = tree.leaves().iter().filter(|leaf| leaf.top == top.id());
    let Some(leaf) = leaves.find(|leaf| !leaf.state.is_online()) else {
        return Some(format!("top-level vdev {} is missing", top.id()));
    };
    Some(format!("disk {} is missing or damaged, and the redundancy is used up", leaf.name()))
}

/// The features of a pool; blocks of its MOS are written as they say.
fn features_of(mos: &Mos, config: &PoolConfig) -> Result<Features> {
    let features = Features::open(mos, config.version);
    let features = match features.and_then(|features| features.all().map(|_| features)) {
        Err(_) if mos.ruins.is_some() => Features::none(),
        features => features?,
    };
    mos.objset.set_policy(features.policy()?);
    Ok(features)
}

/// Works on the leaves that the MOS knows from here on, and says why nothing can be written to them, if so.
fn cannot_write(
    (devices, store): (&Devices, &Store),
    (mos, features, config): (&Mos, &Features, &PoolConfig),
    uberblock: &Uberblock,
    newer: Option<String>,
) -> Result<Option<String>> {
    // Labels may be older than the pool, all that are left of a vdev: what its leaves are the MOS says.
    let impossible = match devices {
        Devices::Ruins(..) => None,
        Devices::ReadOnly(_) => store.present().exchange(&config.vdev_tree).err(),
        Devices::Writable(out) | Devices::WithoutLogs(out) | Devices::InMemory(out) => {
            out.exchange(&config.vdev_tree, BTreeMap::new()).err()
        }
    };
    let unknown = dtl::load((mos, uberblock.txg.get()), config, &store.tree());
    // What led here was read before it was known who lacks it: they have not lied.
    let tree = store.tree();
    tree.leaves().iter().filter(|leaf| !leaf.lacks.is_empty()).for_each(vdev::Leaf::absolve);
    let why_not = newer.or(impossible.map(|error| error.to_string())).or(unknown);
    let why_not = why_not.or(match unwritable(mos, features, config, uberblock) {
        Err(error) if mos.ruins.is_some() => Some(error.to_string()),
        why => why?,
    });
    Ok(why_not.or_else(|| lacking(&store.tree())))
}

/// What a crash has left in intent logs; or why nothing can be written.
fn left_behind(
    out: &WriteTree,
    uberblock: &Uberblock,
    mos: &Mos,
    name: &str,
    (give_up, exported): (bool, bool),
) -> std::result::Result<Left, String> {
    // Whoever wrote the uberblock may have died before it was on stable storage. It has to
    // be before its frees are used (INV-3), and on all leaves before they are lost that have it.
    let spread = out.flush().and_then(|_| out.spread(uberblock));
    spread.map_err(|error| error.to_string())?;
    claim::left(mos, name, (give_up, exported))
}

/// INV-12: why a pool may not be written; `None`: it may.
///
/// A feature needed for reading that nobody here knows makes it unreadable: an error.
fn unwritable(
    mos: &Mos,
    features: &Features,
    config: &PoolConfig,
    uberblock: &Uberblock,
) -> Result<Option<String>> {
    let name = String::from_utf8_lossy(&config.name).into_owned();
    if config.version != SPA_VERSION {
        return Ok(Some(format!("its version is {}, not {SPA_VERSION}", config.version)));
    }
    if uberblock.txg.get() >= TXG_MAX {
        return Ok(Some(format!("its txg {} cannot be followed by another", uberblock.txg)));
    }
    for entry in mos.directory()?.entries()? {
        // "DDT-" and so on is a table of blocks that may have several owners.
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        if let (true, Some(object)) = (name.starts_with("DDT-"), entry.value.as_u64())
            && name.as_bytes() != key::DDT_STATISTICS
            && mos.zap(object)?.count()? > 0
        {
            return Ok(Some("it has deduplicated blocks".into()));
        }
    }
    for (guid, count, for_read) in features.all()? {
        let text = String::from_utf8_lossy(&guid).into_owned();
        match Feature::from_guid(&guid) {
            None if for_read && count > 0 => {
                let reason = format!("it uses the unknown feature {text}");
                return Err(PoolError::Unopenable { name, reason });
            }
            None if count > 0 => return Ok(Some(format!("it uses the unknown feature {text}"))),
            Some(feature) if count > 0 && !WRITABLE.contains(&feature) => {
                return Ok(Some(format!("feature {} is active", feature.name())));
            }
            _ => {}
        }
    }
    if mos.find(key::LOG_SPACEMAP_ZAP)?.is_some()
        && !(logging::wanted(features)? && slabs(config)?.iter().all(|(_, zap)| *zap != 0))
    {
        return Ok(Some("it has log space maps, but not what they need".into()));
    }
    if mos.directory()?.get(key::CHECKPOINT)?.is_some() {
        return Ok(Some("it has a checkpoint".into()));
    }
    if uberblock.mmp_delay.get() != 0 {
        return Ok(Some("multihost protection is on".into()));
    }
    if let Some(why) = scan::record::unwritable(mos)? {
        return Ok(Some(why));
    }
    for vdev in config.vdev_tree.walk() {
        let kind = String::from_utf8_lossy(vdev.kind.name()).into_owned();
        if matches!(kind.as_str(), "draid" | "dspare" | "indirect") {
            return Ok(Some(format!("it has a vdev of kind {kind}")));
        }
        // Nothing but logs is written to a log device.
        let is_log = vdev.top.as_ref().is_some_and(|top| top.is_log);
        if let Some(zap) = vdev.zap_top.filter(|zap| *zap != 0 && !is_log)
            && mos.zap(zap)?.get(key::TOP_ALLOCATION_BIAS)?.is_some()
        {
            return Ok(Some("it has a vdev of a special class".into()));
        }
    }
    Ok(None)
}
