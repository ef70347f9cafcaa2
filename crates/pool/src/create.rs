//! Making a pool: the first txg, from nothing. FORMAT: section 10.3.
//!
//! Everything is made in txg 4, as the kernel does, through the same code that changes it later;
//! the file system's own objects come from the door above (`fs`), as a function.

use std::collections::{BTreeMap, BTreeSet};

use device::WriteDevice;
use dmu::{Bpobj, Objset, Policy, Tx, Zap};
use format::bpobj::SYNC_BPLIST_BLOCK;
use format::config::{
    AuxLabel, PoolConfig, PoolState, TopConfig, VdevConfig, VdevKind, aux_to_nvlist,
};
use format::features::Feature;
use format::master_node::{CASE_SENSITIVITY, NORMALIZATION, UTF8_ONLY};
use format::objset::{ObjsetFlags, ObjsetType};
use format::zap::Value;
use format::{Compress, ObjectType};
use rt::sync::atomic::AtomicU64;
use rt::sync::{Arc, Mutex};
use vdev::{VdevError, WriteTree};

use crate::dataset::owner_of;
use crate::dsl::create::Making;
use crate::dsl::property::{self, Stored};
use crate::error::Result;
use crate::features::Features;
use crate::mos::{DIRECTORY, Mos, key};
use crate::open::{self, OpenOptions};
use crate::pool::Pool;
use crate::pool_props::in_config;
use crate::spacemaps::Before;

/// Makes the objects of an empty file system in a new object set.
pub type MakeFilesystem = fn(&Objset, &Tx<'_>, &BTreeMap<String, Stored>) -> dmu::Result<()>;

/// The first txg of a pool.
pub const TXG_INITIAL: u64 = 4;
/// The salt of the pool's keyed checksums, in bytes.
const SALT_BYTES: usize = 32;

/// Makes the MOS's directory and the ZAPs of features, these of them enabled.
pub(crate) fn directory(
    objset: &Arc<Objset>,
    tx: &Tx<'_>,
    wanted: &BTreeSet<Feature>,
) -> Result<(Mos, Features)> {
    let mos = Mos { objset: objset.clone(), ruins: None };
    let kind = ObjectType::OBJECT_DIRECTORY;
    let object = objset.allocate_at(tx, DIRECTORY, kind, 512, ObjectType::NONE, &[], 1)?;
    let directory = Zap::format(object, tx, 0)?;
    let meta = ObjectType::ZAP_METADATA;
    let for_read = mos.create_zap(tx, meta, 0)?;
    let for_write = mos.create_zap(tx, meta, 0)?;
    let descriptions = mos.create_zap(tx, meta, 0)?;
    directory.put_u64(tx, key::FEATURES_FOR_READ, for_read.number())?;
    directory.put_u64(tx, key::FEATURES_FOR_WRITE, for_write.number())?;
    directory.put_u64(tx, key::FEATURE_DESCRIPTIONS, descriptions.number())?;
    directory.put_u64(tx, key::CREATION_VERSION, format::SPA_VERSION)?;
    directory.put_u64(tx, key::DEFLATE, 1)?;
    let counts = Features::open(&mos, format::SPA_VERSION)?;
    let mut enabled = None;
    if wanted.contains(&Feature::EnabledTxg) {
        let zap = mos.create_zap(tx, meta, 0)?;
        directory.put_u64(tx, key::FEATURE_ENABLED_TXG, zap.number())?;
        enabled = Some(zap);
    }
    let mut dated = 0;
    for feature in wanted {
        let info = feature.info();
        counts.set(tx, *feature, u64::from(info.activates_on_enable()))?;
        let text = Value::string(info.description.as_bytes());
        descriptions.put(tx, info.guid.as_bytes(), &text)?;
        // Features before enabled_txg have no date: it was not there to note it.
        if let Some(enabled) = enabled.as_ref().filter(|_| *feature >= Feature::EnabledTxg) {
            enabled.put_u64(tx, info.guid.as_bytes(), tx.txg())?;
            dated += 1;
        }
    }
    if enabled.is_some() {
        counts.set(tx, Feature::EnabledTxg, dated)?;
    }
    Ok((mos, counts))
}

/// Makes everything of the DSL: the root, the internal directories, the lists of frees.
///
/// Returns the root directory and the snapshot that all data sets descend from.
pub(crate) fn dsl(making: &Making<'_>) -> Result<(u64, u64)> {
    let (mos, tx) = (making.mos, making.tx);
    let root = making.dir(None, "")?;
    making.dir(Some(root), format::dsl_dir::MOS_DIR_NAME)?;
    making.dir(Some(root), format::dsl_dir::FREE_DIR_NAME)?;
    let frees = Bpobj::create_default(&mos.objset, tx)?;
    mos.set(tx, key::FREE_BPOBJ, frees.number())?;
    let origin = making.origin(root)?;
    let deferred = Bpobj::create(&mos.objset, tx, SYNC_BPLIST_BLOCK)?;
    mos.objset.object(deferred.number())?.change_header(tx, |d| {
        d.core_mut().compress = Compress::Off.id();
    })?;
    mos.set(tx, key::SYNC_BPLIST, deferred.number())?;
    Ok((root, origin))
}

/// Stores the pool's salt.
pub(crate) fn salt(mos: &Mos, tx: &Tx<'_>, rng: &mut rt::random::Rng) -> Result<[u8; SALT_BYTES]> {
    let mut salt = [0; SALT_BYTES];
    rng.fill(&mut salt);
    mos.directory()?.put(tx, key::CHECKSUM_SALT, &Value::bytes(&salt))?;
    Ok(salt)
}

/// A new, empty file system in memory, to be synced in the txg of `making`.
pub(crate) fn filesystem(
    making: &Making<'_>,
    policy: Policy,
    make: MakeFilesystem,
    props: &BTreeMap<String, Stored>,
) -> Result<Arc<Objset>> {
    let store = making.mos.objset.store().clone();
    let objset = Objset::create(store, ObjsetType::Zfs, policy, Some(owner_of));
    let mut flags = ObjsetFlags::USERACCOUNTING_COMPLETE;
    if making.features.is_enabled(Feature::UserobjAccounting)? {
        flags |= ObjsetFlags::USEROBJACCOUNTING_COMPLETE;
    }
    if making.features.is_enabled(Feature::ProjectQuota)? {
        flags |= ObjsetFlags::PROJECTQUOTA_COMPLETE;
    }
    objset.change_phys(|phys| phys.flags = flags);
    make(&objset, making.tx, props)?;
    Ok(Arc::new(objset))
}

/// Stores properties of a directory, those too that also live in the directory itself.
pub(crate) fn properties(
    making: &Making<'_>,
    dir: u64,
    props: &BTreeMap<String, Stored>,
) -> Result<()> {
    // What is fixed when a file system is made is in itself.
    let is_own = |name: &str| [CASE_SENSITIVITY, NORMALIZATION, UTF8_ONLY].contains(&name);
    for (name, value) in props.iter().filter(|(name, _)| !is_own(name)) {
        property::set(making.mos, making.tx, dir, name, value)?;
    }
    Ok(())
}

/// A device for a new pool.
pub struct NewLeaf {
    /// Its path, as labels will name it.
    pub path: Vec<u8>,
    /// Is it a block device (else a file)?
    pub is_disk: bool,
    /// The device, open for writing.
    pub device: Arc<dyn WriteDevice>,
}

/// How the leaves of a new top-level vdev are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// One leaf.
    Single,
    /// Copies.
    Mirror,
    /// Columns with this many of parity, 1 to 3.
    Raidz(u8),
}

/// A new top-level vdev.
pub struct NewTop {
    /// How its leaves are joined.
    pub joined: Joined,
    /// Its leaves.
    pub leaves: Vec<NewLeaf>,
    /// It takes intent logs, and nothing else.
    pub is_log: bool,
}

/// A pool to be made.
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Its top-level vdevs.
    pub tops: Vec<NewTop>,
    /// Its spares.
    pub spares: Vec<NewLeaf>,
    /// log2 of the sector size, 9 to 16.
    pub ashift: u32,
    /// Features to enable, with those that they need.
    pub features: Vec<Feature>,
    /// Properties of the pool.
    pub pool_props: BTreeMap<String, Stored>,
    /// Properties of its root file system.
    pub props: BTreeMap<String, Stored>,
    /// Makes the objects of a file system.
    pub make: MakeFilesystem,
    /// The command, for the history.
    pub command: String,
    /// Number of workers and identity of the host.
    pub options: OpenOptions,
}

pub(crate) type DevicesByGuid = BTreeMap<u64, Arc<dyn WriteDevice>>;

impl NewTop {
    /// The config of the vdev, with this number and sectors, made in this txg; it has no objects yet. Its devices come
    /// among `devices`.
    pub(crate) fn config(
        self,
        (id, ashift, txg): (u64, u32, u64),
        devices: &mut DevicesByGuid,
        random: &mut impl FnMut() -> u64,
    ) -> VdevConfig {
        let mut smallest = u64::MAX;
        let mut leaves = Vec::new();
        for (index, leaf) in self.leaves.into_iter().enumerate() {
            let guid = random();
            let kind = if leaf.is_disk { VdevKind::Disk } else { VdevKind::File };
            let mut config = VdevConfig::new(kind, index as u64, guid);
            config.path = Some(leaf.path);
            config.create_txg = txg;
            if leaf.is_disk {
                config.whole_disk = Some(false);
            }
            smallest = smallest.min(format::label::leaf_asize(leaf.device.size()).unwrap_or(0));
            leaves.push(config);
            devices.insert(guid, leaf.device);
        }
        let count = leaves.len() as u64;
        let (mut config, asize) = match self.joined {
            Joined::Single => {
                let mut leaf = leaves.remove(0);
                leaf.id = Some(id);
                (leaf, smallest)
            }
            Joined::Mirror => (VdevConfig::new(VdevKind::Mirror, id, random()), smallest),
            Joined::Raidz(parity) => {
                let mut config = VdevConfig::new(VdevKind::Raidz, id, random());
                config.nparity = Some(parity.into());
                (config, smallest * count)
            }
        };
        config.create_txg = txg;
        config.children = leaves;
        config.top = Some(TopConfig {
            metaslab_array: 0,
            metaslab_shift: vdev::sizes::metaslab_shift(asize).into(),
            ashift: ashift.into(),
            asize,
            is_log: self.is_log,
            removing: false,
        });
        config
    }
}

/// The vdev tree of a new pool, and its devices by guid.
fn vdevs(
    new: &mut NewPool,
    pool_guid: u64,
    random: &mut impl FnMut() -> u64,
) -> (VdevConfig, DevicesByGuid) {
    let mut devices = BTreeMap::new();
    let mut root = VdevConfig::new(VdevKind::Root, 0, pool_guid);
    root.create_txg = TXG_INITIAL;
    for (id, top) in (0..).zip(new.tops.drain(..)) {
        root.children.push(top.config((id, new.ashift, TXG_INITIAL), &mut devices, random));
    }
    (root, devices)
}

impl Pool {
    /// Makes a pool on devices that the caller has checked and opened.
    pub fn create(mut new: NewPool) -> Result<Arc<Pool>> {
        let mut rng = rt::random::Rng::new(rt::random::seed_from_system());
        let mut random = || rng.next_u64() | 1;
        let pool_guid = random();
        let (tree, devices) = vdevs(&mut new, pool_guid, &mut random);
        let leaves: Vec<(u64, Arc<dyn WriteDevice>)> =
            devices.iter().map(|(guid, device)| (*guid, device.clone())).collect();
        let out = WriteTree::open(&tree, devices)?;
        let spares: Vec<VdevConfig> = new
            .spares
            .iter()
            .map(|leaf| {
                let kind = if leaf.is_disk { VdevKind::Disk } else { VdevKind::File };
                let mut config = VdevConfig::new(kind, None, random());
                config.path = Some(leaf.path.clone());
                config
            })
            .collect();
        let mut config = PoolConfig {
            version: format::SPA_VERSION,
            name: new.name.clone().into_bytes(),
            state: PoolState::Active,
            txg: TXG_INITIAL,
            pool_guid,
            errata: Some(0),
            comment: None,
            compatibility: None,
            hostid: new.options.host_id,
            hostname: Some(new.options.host_name.clone().into_bytes()),
            has_per_vdev_zaps: true,
            label: None,
            holes: Vec::new(),
            vdev_children: Some(tree.children.len() as u64),
            split_guid: None,
            vdev_tree: tree,
            features_for_read: Some(Vec::new()),
            unknown: Vec::new(),
        };
        new.pool_props.retain(|name, value| match in_config(&mut config, name) {
            Some(slot) => {
                let Stored::Text(text) = value else { return false };
                *slot = Some(std::mem::take(text));
                false
            }
            None => true,
        });
        // A label of txg 0 is in no pool: a cut before the first uberblock leaves none behind.
        let fresh = PoolConfig { txg: 0, ..config.clone() };
        for (guid, device) in leaves {
            if let Some(config) = fresh.for_leaf(guid) {
                label(vdev::label::write_fresh(&*device, &config.to_nvlist()))?;
            }
        }
        for (leaf, spare) in new.spares.iter().zip(&spares) {
            let aux = AuxLabel {
                version: format::SPA_VERSION,
                state: PoolState::Spare,
                guid: spare.guid,
                unknown: Vec::new(),
            };
            label(vdev::label::write_fresh(&*leaf.device, &aux.to_nvlist()))?;
        }
        Self::first_txg(new, out, config, &spares, rng)
    }

    /// Makes everything of the pool in its first txg and puts it on disk.
    fn first_txg(
        new: NewPool,
        out: WriteTree,
        mut config: PoolConfig,
        spares: &[VdevConfig],
        mut rng: rt::random::Rng,
    ) -> Result<Arc<Pool>> {
        let (store, gate) = open::parts(out.present().clone(), new.options.memory.as_ref());
        let workers = open::workers(new.options.workers);
        let wanted: BTreeSet<Feature> =
            new.features.iter().flat_map(|feature| feature.with_dependencies()).collect();
        let policy = Policy {
            lz4: wanted.contains(&Feature::Lz4Compress),
            embed: wanted.contains(&Feature::EmbeddedData),
            hole_birth: wanted.contains(&Feature::HoleBirth),
            ..Policy::new(true)
        };
        let of_sync = Arc::new(store.of_objset(0).waiting_at(gate.clone()));
        let objset = Arc::new(Objset::create(of_sync, ObjsetType::Meta, policy, None));
        let dirty_max = crate::memory::Memory::of(&out.tree(), store.account()).dirty_max;
        let txgs = dmu::Txgs::new(TXG_INITIAL - 1, dirty_max, store.account());
        let tx = &txgs.in_sync(TXG_INITIAL);
        let (mos, features) = directory(&objset, tx, &wanted)?;
        store.set_salt(salt(&mos, tx, &mut rng)?);
        vdev_objects(&mos, tx, &mut config)?;
        let usable: u64 = config
            .vdev_tree
            .children
            .iter()
            .filter_map(|c| Some((c.id? as u32, c.top.as_ref().filter(|top| !top.is_log)?.asize)))
            .map(|(id, asize)| store.deflate(id, asize))
            .sum();
        mos.set(tx, key::HISTORY, crate::history::create(&objset, tx, usable)?)?;
        mos.set(tx, key::CONFIG, mos.create_nvlist(tx)?)?;
        if !spares.is_empty() {
            let object = mos.create_nvlist(tx)?;
            mos.set_nvlist(tx, object, &aux_to_nvlist(spares, "spares"))?;
            mos.set(tx, key::SPARES, object)?;
        }
        if !new.pool_props.is_empty() {
            let zap = mos.create_zap(tx, ObjectType::POOL_PROPS, 0)?;
            for (name, value) in &new.pool_props {
                match value {
                    Stored::Number(number) => zap.put_u64(tx, name.as_bytes(), *number)?,
                    Stored::Text(text) => zap.put(tx, name.as_bytes(), &Value::string(text))?,
                }
            }
            mos.set(tx, key::POOL_PROPS, zap.number())?;
        }
        let random = Mutex::new(rng);
        let making = Making {
            mos: &mos,
            features: &features,
            tx,
            now_secs: rt::time::wall_clock().as_secs(),
            random: &random,
        };
        let (root, origin) = dsl(&making)?;
        let object = making.dataset_object(root, Some(origin))?;
        properties(&making, root, &new.props)?;
        let tops = open::slabs(&config)?;
        let parts = (&*store, gate);
        let txgs = (TXG_INITIAL - 1, Before::default());
        let writing = open::writing(parts, &mos, &config, out, txgs, &workers, &tops)?;
        let pool = Pool {
            name: new.name.clone(),
            guid: config.pool_guid,
            store,
            workers,
            mos: mos.clone(),
            features: features.clone(),
            config: Mutex::new(config),
            config_dirty: Mutex::new(true),
            writing: Some(writing),
            offline_for_now: Mutex::default(),
            unlabelled: Mutex::default(),
            read_only_because: None,
            logs_to_replay: Mutex::default(),
            logs_left: Mutex::default(),
            in_memory: false,
            heads: Mutex::default(),
            upheavals: AtomicU64::new(0),
            random: Mutex::new(random.into_inner()),
            last_txg: Mutex::new(TXG_INITIAL - 1),
            tasks: AtomicU64::new(0),
            opened: rt::time::now(),
            slow: Mutex::default(),
            known_spares: Mutex::default(),
            scan: crate::scan::Scans::default(),
            healing: Default::default(),
        };
        let pool = Arc::new(pool);
        // The rest is a task of the first txg: the file system, and the note in the history.
        let (props, make) = (new.props, new.make);
        let (command, host) = (new.command, new.options.host_name);
        pool.task(move |cx| {
            // Only what is enabled becomes active.
            cx.making.activate(object, Feature::UserobjAccounting)?;
            cx.making.activate(object, Feature::ProjectQuota)?;
            let found = crate::dsl::lookup::find(cx.making.mos, cx.pool.name())?;
            let policy = cx.pool.policy(&found)?;
            let objset = filesystem(cx.making, policy, make, &props)?;
            cx.sync_objset(object, &objset, 0)?;
            let record = crate::history::command(cx.making.now_secs, &command, 0, &host);
            crate::history::append(cx.making.mos, cx.tx, &record)
        })?;
        pool.start();
        Ok(pool)
    }
}

fn label<T>(result: std::result::Result<T, vdev::label::LabelError>) -> Result<T> {
    Ok(result.map_err(VdevError::from)?)
}

/// Metaslab arrays and vdev ZAPs, noted in the config.
fn vdev_objects(mos: &Mos, tx: &Tx<'_>, config: &mut PoolConfig) -> Result<()> {
    let map = mos.create_zap(tx, ObjectType::ZAP_METADATA, 0)?;
    for top in &mut config.vdev_tree.children {
        top_objects(mos, tx, Some(&map), top)?;
    }
    mos.set(tx, key::VDEV_ZAP_MAP, map.number())
}

/// The metaslab array of a new top-level vdev, and the ZAPs of it and its leaves, noted in its config and in `map`; no
/// ZAPs without that.
pub(crate) fn top_objects(
    mos: &Mos,
    tx: &Tx<'_>,
    map: Option<&Zap>,
    vdev: &mut VdevConfig,
) -> Result<()> {
    if let Some(map) = map {
        let zap = || -> Result<Zap> {
            let zap = mos.create_zap(tx, ObjectType::ZAP_METADATA, 0)?;
            map.add_int(tx, zap.number())?;
            Ok(zap)
        };
        let of_top = zap()?;
        if vdev.top.is_some_and(|top| top.is_log) {
            of_top.put(tx, key::TOP_ALLOCATION_BIAS, &Value::string(b"log"))?;
        }
        vdev.zap_top = Some(of_top.number());
        if vdev.children.is_empty() {
            vdev.zap_leaf = Some(zap()?.number());
        }
        for leaf in &mut vdev.children {
            leaf.zap_leaf = Some(zap()?.number());
        }
    }
    let array = mos.objset.allocate(tx, ObjectType::OBJECT_ARRAY, 512, ObjectType::NONE, &[], 1)?;
    if let Some(top) = &mut vdev.top {
        top.metaslab_array = array.number();
    }
    Ok(())
}
