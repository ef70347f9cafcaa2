//! Features: is what is counted as in use what is in use?
//!
//! FORMAT: sections 7.3, 7.4. OpenZFS counts up and down when things are made and destroyed, and
//! panics when a count would fall below nothing. Here everything that is counted is counted anew.

use crate::block::Blocks;
use crate::datasets::Datasets;
use crate::mos::Mos;
use crate::object::{self, Result};
use crate::report::FindingKind;
use crate::walk::Walk;
use format::bookmark::{Bookmark, BookmarkFlags};
use format::config::{PoolConfig, VdevKind};
use format::dsl_dataset::{DS_BOOKMARKS, DS_REMAP_DEADLIST};
use format::dsl_dir::DIR_LIVELIST;
use format::features::Feature;
use format::mos_directory as key;
use format::zap::Value;
use format::{BlkPtr, Checksum, Compress};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Largest block without the feature of large ones, in bytes.
const BLOCK_MAX_OLD: u64 = 128 << 10;

/// What the blocks and dnodes of a data set use that needs a feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    pub large_block: bool,
    pub large_dnode: bool,
    pub sha512: bool,
    pub skein: bool,
    pub edonr: bool,
    pub zstd: bool,
}

impl Uses {
    /// Notes what a block uses.
    pub(crate) fn note(&mut self, bp: &BlkPtr) {
        self.zstd |= bp.compress() == Some(Compress::Zstd);
        if bp.is_embedded() {
            return;
        }
        self.large_block |= bp.lsize() > BLOCK_MAX_OLD;
        let checksum = bp.checksum();
        self.sha512 |= checksum == Some(Checksum::Sha512);
        self.skein |= checksum == Some(Checksum::Skein);
        self.edonr |= checksum == Some(Checksum::Edonr);
    }

    fn features(self, encrypted: bool) -> impl Iterator<Item = Feature> {
        let list = [
            (self.large_block, Feature::LargeBlocks),
            (self.large_dnode, Feature::LargeDnode),
            (self.sha512, Feature::Sha512),
            (self.skein, Feature::Skein),
            (self.edonr, Feature::Edonr),
            (self.zstd, Feature::ZstdCompress),
            (encrypted, Feature::Encryption),
        ];
        list.into_iter().filter_map(|(uses, feature)| uses.then_some(feature))
    }
}

/// What the bookmarks of all data sets are counted as.
#[derive(Default)]
pub(crate) struct Marks {
    /// Txgs of bookmarks, whose keys deadlists keep.
    pub txgs: BTreeSet<u64>,
    datasets: u64,
    long: u64,
    written: u64,
    redacted: u64,
}

impl Marks {
    /// Reads all bookmarks.
    pub(crate) fn read(walk: &mut Walk<'_>, mos: &Mos, datasets: &Datasets) -> Marks {
        let mut marks = Marks::default();
        for dataset in datasets.list.iter().filter(|dataset| dataset.zapified) {
            if let Err(why) = marks.of(walk, mos, dataset.object) {
                let name = &dataset.name;
                walk.findings
                    .add(FindingKind::Structure, || format!("{name}: its bookmarks: {why}"));
            }
        }
        marks
    }

    fn of(&mut self, walk: &mut Walk<'_>, mos: &Mos, dataset: u64) -> Result<()> {
        let zap = mos.expect(&mut walk.blocks, dataset)?;
        let list = object::zap_get(&mut walk.blocks, &zap, DS_BOOKMARKS.as_bytes())?;
        let Some(list) = list.and_then(|value| value.as_u64()) else { return Ok(()) };
        self.datasets += 1;
        let zap = mos.expect(&mut walk.blocks, list)?;
        let mut odd = None;
        object::zap_each(&mut walk.blocks, &zap, |entry| {
            let words = entry.value.ints();
            match Bookmark::from_words(&words) {
                Ok(mark) => {
                    self.txgs.insert(mark.creation_txg);
                    let long = words.len() > 3;
                    self.long += u64::from(long);
                    let written = mark.flags & BookmarkFlags::HAS_FBN != 0;
                    self.written += u64::from(long && written);
                    self.redacted += u64::from(long && words.get(3) != Some(&0));
                }
                Err(error) => odd = Some(error),
            }
        })?;
        odd.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// The txg in which a feature was enabled, 0 if that is not known.
pub(crate) fn enabled_since(blocks: &mut Blocks<'_>, mos: &Mos, feature: Feature) -> u64 {
    let object = mos.find(key::FEATURE_ENABLED_TXG).unwrap_or(0);
    let list = mos.numbers(blocks, object).unwrap_or_default();
    list.get(feature.guid().as_bytes()).copied().unwrap_or(0)
}

/// The counts of all features that are enabled, as the pool has them.
pub(crate) fn counts(blocks: &mut Blocks<'_>, mos: &Mos) -> Result<BTreeMap<Vec<u8>, u64>> {
    let mut said = BTreeMap::new();
    for name in [key::FEATURES_FOR_READ, key::FEATURES_FOR_WRITE] {
        said.extend(mos.numbers(blocks, mos.find(name).unwrap_or(0))?);
    }
    Ok(said)
}

/// Tells of features that are in use, and of which nobody here knows what they change: then what looks like damage may be none.
pub(crate) fn unknown(walk: &mut Walk<'_>, counts: &BTreeMap<Vec<u8>, u64>) {
    let used = counts.iter().filter(|(_, count)| **count > 0);
    for (guid, _) in used.filter(|(guid, _)| Feature::from_guid(guid).is_none()) {
        walk.findings.add(FindingKind::Unjudged, || {
            let guid = String::from_utf8_lossy(guid);
            format!(
                "feature {guid} is in use, and not known here: what it changes may look like damage"
            )
        });
    }
}

/// What was found: what is used, by the places of the data sets, bookmarks, and the number of keys of
/// deadlists that lead to the shared empty bpobj, if that is known.
type Found<'f> = (&'f [Uses], &'f Marks, Option<u64>);

/// Compares the counts of features.
pub(crate) fn check(
    walk: &mut Walk<'_>,
    mos: &Mos,
    config: Option<&PoolConfig>,
    datasets: &Datasets,
    found: Found<'_>,
) {
    if let Err(why) = compare(walk, mos, config, datasets, found) {
        walk.findings.add(FindingKind::Structure, || format!("counts of features: {why}"));
    }
}

fn compare(
    walk: &mut Walk<'_>,
    mos: &Mos,
    config: Option<&PoolConfig>,
    datasets: &Datasets,
    (uses, marks, empty): Found<'_>,
) -> Result<()> {
    if mos.find(key::FEATURES_FOR_READ).is_none() {
        return Ok(());
    }
    let said = counts(&mut walk.blocks, mos)?;
    let known = empty.is_some();
    let mut empty = empty.unwrap_or(0);
    let mut counted: BTreeMap<Feature, u64> = BTreeMap::new();
    let shared = mos.find(key::EMPTY_BPOBJ);
    for (place, dataset) in datasets.list.iter().enumerate() {
        let mut own = BTreeSet::new();
        if dataset.zapified {
            let zap = mos.expect(&mut walk.blocks, dataset.object)?;
            let mut remap = None;
            object::zap_each(&mut walk.blocks, &zap, |entry| {
                own.extend(Feature::from_guid(&entry.name).filter(|f| f.info().is_per_data_set()));
                if entry.name == DS_REMAP_DEADLIST.as_bytes() {
                    remap = entry.value.as_u64();
                }
            })?;
            // It has the form of a deadlist.
            let remap = mos.numbers(&mut walk.blocks, remap.unwrap_or(0))?;
            empty += remap.values().filter(|object| Some(**object) == shared).count() as u64;
        }
        for feature in &own {
            *counted.entry(*feature).or_default() += 1;
        }
        let used = uses.get(place).copied().unwrap_or_default();
        for feature in used.features(dataset.phys.bp.is_crypt()) {
            if !own.contains(&feature) {
                walk.findings.add(FindingKind::Feature, || {
                    format!("{}: it uses {} and does not say so", dataset.name, feature.name())
                });
            }
        }
    }
    let mut livelists = 0;
    for dir in datasets.dirs.iter().filter(|dir| dir.zapified) {
        let zap = mos.expect(&mut walk.blocks, dir.object)?;
        let list = object::zap_get(&mut walk.blocks, &zap, DIR_LIVELIST.as_bytes())?;
        let Some(list) = list.and_then(|value| value.as_u64()) else { continue };
        livelists += 1;
        let list = mos.numbers(&mut walk.blocks, list)?;
        empty += list.values().filter(|object| Some(**object) == shared).count() as u64;
    }
    if let Some(list) = mos.find(key::DELETED_CLONES) {
        livelists += mos.numbers(&mut walk.blocks, list)?.len() as u64;
    }
    let zapified = datasets.list.iter().filter(|dataset| dataset.zapified).count()
        + datasets.dirs.iter().filter(|dir| dir.zapified).count();
    let enabled = match mos.find(key::FEATURE_ENABLED_TXG) {
        Some(object) => mos.numbers(&mut walk.blocks, object)?.len() as u64,
        None => 0,
    };
    let exists = |name: &[u8]| u64::from(mos.find(name).is_some());
    counted.extend([
        (Feature::EnabledTxg, enabled),
        (Feature::ExtensibleDataset, zapified as u64),
        (Feature::EmptyBpobj, empty),
        (Feature::SpacemapHistogram, walk.histograms),
        (Feature::Bookmarks, marks.datasets),
        (Feature::BookmarkV2, marks.long),
        (Feature::BookmarkWritten, marks.written),
        (Feature::RedactionBookmarks, marks.redacted),
        (Feature::LogSpacemap, exists(key::LOG_SPACEMAP_ZAP)),
        (Feature::AsyncDestroy, exists(key::BPTREE)),
        (Feature::Livelist, livelists),
    ]);
    for feature in Feature::ALL {
        if feature.info().activates_on_enable() {
            counted.insert(feature, 1);
        } else if feature.info().is_per_data_set() {
            counted.entry(feature).or_default();
        }
    }
    if !known {
        counted.remove(&Feature::EmptyBpobj);
    }
    for (feature, count) in counted {
        let (name, said) = (feature.name(), said.get(feature.guid().as_bytes()).copied());
        let fits = match (feature, said) {
            (_, None) => count == 0 || feature.info().activates_on_enable(),
            // Promoting counts each bookmark that moves again.
            (Feature::BookmarkV2, Some(said)) => said >= count,
            // Once it became active at its first use.
            (Feature::Lz4Compress, Some(0)) => true,
            (_, Some(said)) => said == count,
        };
        if !fits {
            let said = said.map_or("not enabled".into(), |said| said.to_string());
            walk.findings.add(FindingKind::Feature, || {
                format!("feature {name}: its count is {said}, counted {count}")
            });
        }
    }
    for (feature, due) in of_vdevs(walk, mos, config)? {
        let said = said.get(feature.guid().as_bytes()).copied();
        if let Some(said) = said.filter(|said| !due.contains(said)) {
            let (least, most) = due.into_inner();
            walk.findings.add(FindingKind::Feature, || {
                let name = feature.name();
                format!("feature {name}: its count is {said}, it can be {least} to {most}")
            });
        }
    }
    described(walk, mos, &said)
}

/// The counts that vdevs and what is done to them allow.
fn of_vdevs(
    walk: &mut Walk<'_>,
    mos: &Mos,
    config: Option<&PoolConfig>,
) -> Result<Vec<(Feature, RangeInclusive<u64>)>> {
    let Some(config) = config else { return Ok(Vec::new()) };
    let (mut removed, mut draid, mut special, mut tops) = (0, 0, 0, 0);
    let mut removing = u64::from(mos.words(key::REMOVING).is_some());
    for child in &config.vdev_tree.children {
        match child.kind {
            VdevKind::Indirect => removed += 1,
            VdevKind::Hole | VdevKind::Missing => {}
            _ => {
                tops += 1;
                draid += u64::from(child.kind == VdevKind::Draid);
                removing |= u64::from(child.top.is_some_and(|top| top.removing));
                let Some(zap) = child.zap_top.filter(|zap| *zap != 0) else { continue };
                let zap = mos.expect(&mut walk.blocks, zap)?;
                let key = key::TOP_ALLOCATION_BIAS;
                let bias = object::zap_get(&mut walk.blocks, &zap, key)?;
                let bias = bias.as_ref().and_then(Value::as_bytes).unwrap_or_default();
                special += u64::from(bias.starts_with(b"special") || bias.starts_with(b"dedup"));
            }
        }
    }
    let checkpoint = u64::from(mos.words(key::CHECKPOINT).is_some());
    let mut list = vec![
        (Feature::MultiVdevCrashDump, 0..=1),
        // Once a limit was set, for ever.
        (Feature::FilesystemLimits, 0..=1),
        (Feature::DeviceRemoval, removed..=removed + removing),
        // Still counted while the space of one that was given up is freed.
        (Feature::ZpoolCheckpoint, checkpoint..=1),
        // One that was removed may have been counted.
        (Feature::AllocationClasses, special..=special + removed),
        (Feature::ResilverDefer, 0..=1),
        (Feature::DeviceRebuild, 0..=tops),
        (Feature::Draid, draid..=draid),
    ];
    if removed + removing == 0 && mos.find(key::OBSOLETE_BPOBJ).is_none() {
        list.push((Feature::ObsoleteCounts, 0..=0));
    }
    Ok(list)
}

/// Every feature must have a description: tools that do not know it show that.
fn described(walk: &mut Walk<'_>, mos: &Mos, said: &BTreeMap<Vec<u8>, u64>) -> Result<()> {
    let Some(object) = mos.find(key::FEATURE_DESCRIPTIONS) else { return Ok(()) };
    let zap = mos.expect(&mut walk.blocks, object)?;
    let mut names = BTreeSet::new();
    object::zap_each(&mut walk.blocks, &zap, |entry| {
        if names.len() < object::ENTRIES_MAX {
            names.insert(entry.name);
        }
    })?;
    for guid in said.keys().filter(|guid| !names.contains(*guid)) {
        let guid = String::from_utf8_lossy(guid).into_owned();
        walk.findings.add(FindingKind::Feature, || format!("feature {guid}: no description"));
    }
    Ok(())
}
