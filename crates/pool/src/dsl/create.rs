//! Making directories and data sets. FORMAT: sections 8.1, 8.2, 8.4, 10.3.
//!
//! Every ordinary data set is formally a clone of `$ORIGIN@$ORIGIN`.

use dmu::{Bpobj, Objset, Tx, Zap};
use format::deadlist::DeadlistPhys;
use format::dsl_dataset::{DslDatasetPhys, FSID_GUID_BITS};
use format::dsl_dir::DslDirPhys;
use format::features::Feature;
use format::{BlkPtr, ObjectType};
use rt::sync::Arc;
use zerocopy::IntoBytes;

use crate::dsl::deadlist::Deadlist;
use crate::error::Result;
use crate::features::Features;
use crate::mos::{Mos, key};

/// Normalisation of the ZAPs of snapshot names: to upper case.
const SNAPNAMES_NORM: u64 = 2;
/// The txg in which a pool is made; what is made in it says 1.
const TXG_INITIAL: u64 = 4;

/// What making things in the DSL works with.
pub struct Making<'a> {
    /// The MOS.
    pub mos: &'a Mos,
    /// Feature counts; `None` while the pool itself is being made.
    pub features: &'a Features,
    /// The txg.
    pub tx: &'a Tx<'a>,
    /// Seconds since 1970.
    pub now_secs: u64,
    /// Random numbers for guids.
    pub random: &'a rt::sync::Mutex<rt::random::Rng>,
}

impl Making<'_> {
    pub(crate) fn random(&self) -> u64 {
        self.random.lock().next_u64() | 1
    }

    /// A new directory under `parent` (`None`: the root of all), with its ZAPs.
    pub fn dir(&self, parent: Option<u64>, name: &str) -> Result<u64> {
        let objset = &self.mos.objset;
        let (kind, zero) = (ObjectType::DSL_DIR, DslDirPhys::default());
        let object = objset.allocate(self.tx, kind, 512, kind, zero.as_bytes(), 1)?;
        let props = self.mos.create_zap(self.tx, ObjectType::DSL_PROPS, 0)?;
        let children = self.mos.create_zap(self.tx, ObjectType::DSL_DIR_CHILD_MAP, 0)?;
        let mut dir = zero;
        dir.creation_time_secs.set(self.now_secs);
        dir.parent_object.set(parent.unwrap_or(0));
        dir.props_zap_object.set(props.number());
        dir.child_dir_zap_object.set(children.number());
        self.mos.set_dir(self.tx, object.number(), &dir)?;
        match parent {
            None => self.mos.set(self.tx, key::ROOT_DATASET, object.number())?,
            Some(parent) => {
                let parent = self.mos.dir(parent)?;
                let map = self.mos.zap(parent.child_dir_zap_object.get())?;
                map.put_u64(self.tx, name.as_bytes(), object.number())?;
            }
        }
        Ok(object.number())
    }

    /// A data set object in directory `dir`, without an object set, with an empty deadlist.
    pub fn dataset_object(&self, dir: u64, origin: Option<u64>) -> Result<u64> {
        let (kind, mut ds) = (ObjectType::DSL_DATASET, DslDatasetPhys::default());
        let bonus = ds.as_bytes();
        let object = self.mos.objset.allocate(self.tx, kind, 512, kind, bonus, 1)?.number();
        let names = self.mos.create_zap(self.tx, ObjectType::DSL_DS_SNAP_MAP, SNAPNAMES_NORM)?;
        let txg = self.tx.txg();
        ds.dir_object.set(dir);
        ds.snapnames_zap_object.set(names.number());
        ds.creation_time_secs.set(self.now_secs);
        ds.creation_txg.set(if txg == TXG_INITIAL { 1 } else { txg });
        ds.fsid_guid.set(self.random() & ((1 << FSID_GUID_BITS) - 1));
        ds.guid.set(self.random());
        let keys = match origin {
            Some(origin) => self.keys_of_clone(origin)?,
            None => vec![0],
        };
        ds.deadlist_object.set(self.deadlist(&keys)?);
        if let Some(origin) = origin {
            self.link_to_origin(&mut ds, object, origin)?;
        }
        self.mos.set_dataset(self.tx, object, &ds)?;
        let mut phys = self.mos.dir(dir)?;
        phys.head_dataset_object.set(object);
        phys.origin_object.set(origin.unwrap_or(0));
        self.mos.set_dir(self.tx, dir, &phys)?;
        Ok(object)
    }

    /// Keys of the deadlist of a data set that starts from snapshot `origin`.
    fn keys_of_clone(&self, origin: u64) -> Result<Vec<u64>> {
        let snap = self.mos.dataset(origin)?;
        let head = self.mos.dir(snap.dir_object.get())?.head_dataset_object.get();
        let head = Deadlist::open(self, self.mos.dataset(head)?.deadlist_object.get())?;
        let keys = head.keys();
        Ok(format::deadlist::keys_of_clone(&keys, snap.creation_txg.get()).to_vec())
    }

    fn link_to_origin(&self, ds: &mut DslDatasetPhys, object: u64, origin: u64) -> Result<()> {
        let mut snap = self.mos.dataset(origin)?;
        ds.prev_snap_object.set(origin);
        ds.prev_snap_txg = snap.creation_txg;
        snap.num_children += 1;
        let clones = match snap.next_clones_object.get() {
            0 => {
                let zap = self.mos.create_zap(self.tx, ObjectType::NEXT_CLONES, 0)?;
                snap.next_clones_object.set(zap.number());
                zap
            }
            number => self.mos.zap(number)?,
        };
        clones.add_int(self.tx, object)?;
        self.mos.set_dataset(self.tx, origin, &snap)?;
        self.add_clone(snap.dir_object.get(), object)
    }

    /// Head `object` started from a snapshot of directory `dir`.
    pub(crate) fn add_clone(&self, dir: u64, object: u64) -> Result<()> {
        let mut phys = self.mos.dir(dir)?;
        let clones = match phys.clones_object.get() {
            0 => {
                let zap = self.mos.create_zap(self.tx, ObjectType::DSL_CLONES, 0)?;
                phys.clones_object.set(zap.number());
                self.mos.set_dir(self.tx, dir, &phys)?;
                zap
            }
            number => self.mos.zap(number)?,
        };
        Ok(clones.add_int(self.tx, object)?)
    }

    /// Directory `dir` forgets the clone whose head is `object`.
    pub(crate) fn remove_clone(&self, dir: u64, object: u64) -> Result<()> {
        let clones = self.mos.dir(dir)?.clones_object.get();
        if clones != 0 {
            self.mos.zap(clones)?.remove_int(self.tx, object)?;
        }
        Ok(())
    }

    /// A deadlist with these keys, all empty.
    pub fn deadlist(&self, keys: &[u64]) -> Result<u64> {
        let (objset, shared) = (&self.mos.objset, self.empty_bpobjs(keys.len())?);
        let list = |key: &u64| {
            let list = match shared {
                Some(shared) => shared,
                None => Bpobj::create_default(objset, self.tx)?.number(),
            };
            Ok((format::deadlist::key_name(*key), list))
        };
        let entries: Vec<(String, u64)> = keys.iter().map(list).collect::<Result<_>>()?;
        let phys = DeadlistPhys::default();
        let bonus = (ObjectType::DEADLIST_HDR, phys.as_bytes());
        Ok(Zap::create_filled(objset, self.tx, ObjectType::DEADLIST, bonus, &entries)?.number())
    }

    /// So many more references to the shared empty bpobj, counted at once: each deadlist has a key
    /// per snapshot. `None` without the feature: each gets one of its own.
    fn empty_bpobjs(&self, more: usize) -> Result<Option<u64>> {
        if more == 0 || !self.features.is_enabled(Feature::EmptyBpobj)? {
            return Ok(None);
        }
        let number = match self.mos.find(key::EMPTY_BPOBJ)? {
            Some(number) => number,
            None => {
                let made = Bpobj::create_default(&self.mos.objset, self.tx)?.number();
                self.mos.set(self.tx, key::EMPTY_BPOBJ, made)?;
                made
            }
        };
        self.features.add(self.tx, Feature::EmptyBpobj, more as i64)?;
        Ok(Some(number))
    }

    /// So many references less to the shared empty bpobj; the last one takes it away.
    pub(crate) fn drop_empty_bpobjs(&self, less: usize) -> Result<()> {
        if less == 0 {
            return Ok(());
        }
        self.features.add(self.tx, Feature::EmptyBpobj, -(less as i64))?;
        if self.features.count(Feature::EmptyBpobj)? == Some(0)
            && let Some(number) = self.mos.find(key::EMPTY_BPOBJ)?
        {
            self.mos.directory()?.remove(self.tx, key::EMPTY_BPOBJ)?;
            self.mos.objset.free(self.tx, number)?;
        }
        Ok(())
    }

    /// `$ORIGIN` with its head and its snapshot, from which all data sets descend.
    ///
    /// Returns the object of the snapshot.
    pub fn origin(&self, root: u64) -> Result<u64> {
        let dir = self.dir(Some(root), format::dsl_dir::ORIGIN_DIR_NAME)?;
        let head = self.dataset_object(dir, None)?;
        let kind = ObjectType::DSL_DATASET;
        let mut snap = DslDatasetPhys::default();
        let bonus = snap.as_bytes();
        let object = self.mos.objset.allocate(self.tx, kind, 512, kind, bonus, 1)?.number();
        let mut ds = self.mos.dataset(head)?;
        snap.dir_object.set(dir);
        snap.next_snap_object.set(head);
        snap.num_children.set(1);
        snap.creation_time_secs.set(self.now_secs);
        snap.creation_txg.set(1);
        snap.fsid_guid.set(self.random() & ((1 << FSID_GUID_BITS) - 1));
        snap.guid.set(self.random());
        // The snapshot takes over the head's deadlist (without keys: nothing is older).
        snap.deadlist_object.set(self.deadlist(&[])?);
        snap.flags = ds.flags;
        self.mos.set_dataset(self.tx, object, &snap)?;
        ds.prev_snap_object.set(object);
        ds.prev_snap_txg.set(1);
        self.mos.set_dataset(self.tx, head, &ds)?;
        let names = self.mos.zap(ds.snapnames_zap_object.get())?;
        names.put_u64(self.tx, format::dsl_dir::ORIGIN_DIR_NAME.as_bytes(), object)?;
        Ok(object)
    }

    /// Makes a per-data-set feature active for data set `object`, once.
    pub fn activate(&self, object: u64, feature: Feature) -> Result<()> {
        if !self.features.is_enabled(feature)? {
            return Ok(());
        }
        let zap = self.zapified(object)?;
        let guid = feature.guid().as_bytes();
        if zap.add_u64(self.tx, guid, 0)? {
            self.features.add(self.tx, feature, 1)?;
        }
        Ok(())
    }

    /// Data set `object` uses a feature no more.
    pub(crate) fn deactivate(&self, object: u64, feature: Feature) -> Result<()> {
        if let Some(zap) = self.zap_of(object)?
            && zap.remove(self.tx, feature.guid().as_bytes())?
        {
            self.features.add(self.tx, feature, -1)?;
        }
        Ok(())
    }

    /// The ZAP of a data set or directory object; makes it one if it is not yet.
    pub fn zapified(&self, object: u64) -> Result<Zap> {
        let object = self.mos.objset.object(object)?;
        if object.header()?.kind() == ObjectType::ZAP_METADATA {
            return Ok(Zap::of(object)?);
        }
        object.change_header(self.tx, |d| d.core_mut().kind = ObjectType::ZAP_METADATA.0)?;
        self.features.add(self.tx, Feature::ExtensibleDataset, 1)?;
        Ok(Zap::format(object, self.tx, 0)?)
    }

    /// Records the object set of a new data set and charges its space.
    pub fn set_root(&self, object: u64, objset: &Arc<Objset>, root: BlkPtr) -> Result<()> {
        let mut ds = self.mos.dataset(object)?;
        ds.bp = root;
        self.mos.set_dataset(self.tx, object, &ds)?;
        debug_assert_eq!(objset.root(), root);
        Ok(())
    }
}
