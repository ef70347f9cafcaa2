//! How an open pool is: its tree with counters, its space, its properties and features.

use std::collections::BTreeMap;
use std::path::PathBuf;

use format::BlkPtr;
use format::config::{VdevConfig, aux_from_nvlist};
use format::features::Feature;
use format::scan::{ScanFlags, ScanState};
use pool::devices::{FoundPool, Labels, Scan as Devices, Seen};
use pool::mos::key;
use pool::props::{PoolKey, PoolProp, Source, Value, default_pool_value};
use pool::{Pool, PoolError, ScanStatus, Stored};
use rt::Account;

use super::catalogue::Catalogue;
use super::damaged;
use super::disks::path_of;
use super::session::Session;
use crate::find;
use crate::health::{self, Facts, Known};
use crate::layout::Class;
use crate::pools::{Aux, PoolReport, Removal, SUSPENDED, Scan, State, Stats, Vdev};

type Result<T> = std::result::Result<T, PoolError>;

/// All there is to say of a pool; what is damaged by its names where it is told where file systems are mounted, and else only
/// how much that is.
pub(crate) fn report(
    session: &Session,
    mounted: Option<&[(String, PathBuf)]>,
) -> Result<PoolReport> {
    let pool = &*session.pool;
    let config = pool.config();
    let paths = session.paths();
    let spaces: BTreeMap<u32, (u64, u64)> =
        pool.space_by_top()?.into_iter().map(|(top, size, used)| (top, (size, used))).collect();
    let classes = classes(pool, &config.vdev_tree)?;
    let kept = pool.kept_by_checkpoint()?;
    let fragmentation = pool.fragmentation_by_top()?;
    let slow = pool.slow();
    let mut known = |vdev: &VdevConfig| {
        let mut known = known(pool, vdev, &paths, &spaces, &classes);
        known.slow = slow.iter().find(|slow| slow.guid == vdev.guid).cloned();
        if let (Some(id), Some(_)) = (vdev.id, vdev.top) {
            let top = fragmentation.iter().find(|(top, _, _)| u64::from(*top) == id);
            known.stats.fragmentation = top.and_then(|(_, _, percent)| *percent);
            known.stats.checkpoint = kept.get(&id).copied().unwrap_or(0);
        }
        known
    };
    let tree = health::tree(&config.vdev_tree, true, &mut known);
    let there = session.paths_there();
    let spares = others(pool, key::SPARES, "spares", &there)?;
    let cache = others(pool, key::L2CACHE, "l2cache", &there)?;
    let scan = pool.scan_status()?.as_ref().map(of_scan);
    let removal = pool.removal()?.map(of_removal);
    let checkpoint = pool.checkpoint()?;
    let resilvering = scan.is_some_and(|scan| scan.resilver && scan.end.is_none());
    let lost = pool.lost_blocks()?;
    let error_count = damaged::count(&lost);
    let damaged = mounted.map(|mounted| damaged::named(&session.pool, lost, mounted));
    let facts = Facts {
        data_errors: error_count > 0,
        open: true,
        resilvering,
        old_version: config.version < format::SPA_VERSION,
        suspended: pool.suspended().is_some(),
        features_off: config.version >= format::SPA_VERSION && features_off(pool)?,
        ..Facts::default()
    };
    let remembered_readonly = session.known.as_ref().is_some_and(|known| known.readonly);
    Ok(PoolReport {
        name: pool.name().into(),
        guid: pool.guid(),
        txg: pool.txg(),
        version: config.version,
        condition: health::condition(&tree, facts),
        readonly: None,
        properties: properties(session, &tree, fragmentation_of(&tree), remembered_readonly)?,
        tree,
        spares,
        cache,
        scan,
        removal,
        checkpoint,
        error_count: Some(error_count),
        damaged: damaged.unwrap_or_default(),
        opened: pool.opened().since_start(),
        open_for: pool.open_for(),
    })
}

/// Fragmentation of the pool's normal vdevs together, in percent, each as it is large.
fn fragmentation_of(tree: &Vdev) -> Option<u64> {
    let (mut total, mut weighed) = (0u128, 0u128);
    for top in tree.children.iter().filter(|top| top.class == Class::Normal) {
        let size = u128::from(top.stats.space);
        if size > 0 {
            total += size;
            weighed += size * u128::from(top.stats.fragmentation?);
        }
    }
    weighed.checked_div(total).map(|percent| percent as u64)
}

/// Spares and cache devices of a pool that was found: its labels do not name them, so it is opened
/// to be read. None of one that does not open.
pub(crate) fn found_others(
    scan: &Devices,
    found: &FoundPool,
    memory: &Account,
) -> (Vec<Vdev>, Vec<Vdev>) {
    let open = || -> Result<(Vec<Vdev>, Vec<Vdev>)> {
        let pool = find::opened(found, &found.uberblocks, memory)?;
        let paths = scan.aux.iter();
        let paths = paths.filter_map(|aux| Some((aux.label.guid, aux.candidate.shown_path()?)));
        let paths = paths.collect();
        let spares = others(&pool, key::SPARES, "spares", &paths)?;
        Ok((spares, others(&pool, key::L2CACHE, "l2cache", &paths)?))
    };
    open().unwrap_or_default()
}

fn classes(pool: &Pool, root: &VdevConfig) -> Result<BTreeMap<u64, Class>> {
    let mut classes = BTreeMap::new();
    for top in &root.children {
        let Some(zap) = top.zap_top.filter(|zap| *zap != 0) else { continue };
        let bias = pool.mos().zap(zap)?.get(key::TOP_ALLOCATION_BIAS)?;
        let class = match bias.as_ref().and_then(|bias| bias.as_string()) {
            Some(b"log") => Class::Log,
            Some(b"special") => Class::Special,
            Some(b"dedup") => Class::Dedup,
            _ => continue,
        };
        classes.insert(top.guid, class);
    }
    Ok(classes)
}

fn known(
    pool: &Pool,
    vdev: &VdevConfig,
    paths: &BTreeMap<u64, PathBuf>,
    spaces: &BTreeMap<u32, (u64, u64)>,
    classes: &BTreeMap<u64, Class>,
) -> Known {
    let mut known = Known { class: classes.get(&vdev.guid).copied(), ..Known::default() };
    let tree = pool.store().tree();
    if let Some(leaf) = tree.leaf_by_guid(vdev.guid).and_then(|at| tree.leaves().get(at)) {
        let counts = leaf.errors.get();
        known.stats.read_errors = counts.read;
        known.stats.write_errors = counts.write;
        known.stats.checksum_errors = counts.checksum;
        known.meters = leaf.meters();
        known.stats.slow = known.meters.slow;
        known.stats.device_size = leaf.device().map_or(0, |device| device.size());
        // What is in use is there, wherever it was found.
        let found = || paths.get(&vdev.guid).cloned().unwrap_or_else(|| path_of(vdev));
        let path = leaf.state.is_online().then(found);
        if path.is_none() {
            known.absent = Some(absent(vdev, Some(&pool.newest())));
        }
        known.verdict = verdict(leaf.verdict.get());
        known.path = path;
    }
    let id = vdev.id.and_then(|id| u32::try_from(id).ok());
    if vdev.top.is_some()
        && let Some((size, used)) = id.and_then(|id| spaces.get(&id))
    {
        known.stats.space = *size;
        known.stats.allocated = *used;
    }
    known
}

/// What a leaf's watcher says of it, in words of a status.
fn verdict(seen: Seen) -> Option<(State, Aux)> {
    match seen {
        Seen::Fine => None,
        Seen::Degraded => Some((State::Degraded, Aux::TooManyErrors)),
        Seen::Faulted => Some((State::Faulted, Aux::TooManyErrors)),
        Seen::Removed => Some((State::Removed, Aux::CannotOpen)),
        Seen::Cut => Some((State::Unavail, Aux::TooSmall)),
    }
}

/// What is where a device should be that is not there: its own label does not make it wrong, unless it has gone another
/// way than the pool, whose newest uberblock is that of `newest`.
pub(super) fn absent(vdev: &VdevConfig, newest: Option<&(u64, BlkPtr)>) -> Aux {
    let path = path_of(vdev);
    if vdev.path.is_none() || !path.exists() {
        return Aux::CannotOpen;
    }
    let labels = find::labels_at(&path).filter(|labels| labels.guid() == Some(vdev.guid));
    let is_astray = |labels: &Labels| newest.is_some_and(|(txg, at)| labels.is_astray((*txg, at)));
    match labels {
        Some(labels) if !is_astray(&labels) => Aux::CannotOpen,
        _ => Aux::BadLabel,
    }
}

/// Spares or cache devices of a pool, of which these are there.
fn others(
    pool: &Pool,
    name: &[u8],
    list: &'static str,
    paths: &BTreeMap<u64, PathBuf>,
) -> Result<Vec<Vdev>> {
    let Some(object) = pool.mos().find(name)? else { return Ok(Vec::new()) };
    let configs = aux_from_nvlist(&pool.mos().nvlist(object)?, list)?;
    let tree = pool.config().vdev_tree;
    let mut known = |vdev: &VdevConfig| {
        let path = paths.get(&vdev.guid).cloned().or_else(|| has_come(vdev));
        let absent = path.is_none().then(|| absent(vdev, None));
        let size = path.as_ref().and_then(|path| std::fs::metadata(path).ok());
        let device_size = size.map_or(0, |meta| meta.len());
        let stats = Stats { device_size, ..Stats::default() };
        Known { path, absent, stats, ..Known::default() }
    };
    let mut others = health::others(&configs, &mut known);
    for spare in others.iter_mut().filter(|spare| tree.find(spare.guid).is_some()) {
        (spare.state, spare.aux) = (State::Unavail, Some(Aux::Spared));
    }
    Ok(others)
}

/// Where a spare or cache device is by now that was not found when its pool was: where the pool says, if its label is there.
fn has_come(vdev: &VdevConfig) -> Option<PathBuf> {
    let path = path_of(vdev);
    let file = device::ReadFile::open(&path).ok()?;
    let labels = Labels::read(&file);
    labels.aux().is_some_and(|label| label.guid == vdev.guid).then_some(path)
}

/// What is told of a scan.
pub(super) fn of_scan(now: &ScanStatus) -> Scan {
    let phys = now.scan;
    let ended = !now.is_running();
    // Nobody writes down since when it is paused: for somebody who looks from outside it is since it was left.
    let is_paused = phys.flags & ScanFlags::PAUSED != 0;
    let paused = now.paused.or(is_paused.then_some(phys.end_time));
    Scan {
        resilver: now.is_resilver(),
        start: phys.start_time,
        end: ended.then_some(phys.end_time),
        cancelled: phys.state == ScanState::Canceled,
        paused: paused.filter(|_| !ended),
        processed: phys.processed,
        to_examine: phys.to_examine,
        examined: phys.examined,
        pass: (now.pass_examined, now.pass_secs),
        errors: phys.errors,
    }
}

/// What is told of a removal, with the bytes of all mappings.
fn of_removal((phys, mappings): (format::removal::Removal, u64)) -> Removal {
    let ended = phys.state != ScanState::Scanning;
    Removal {
        vdev: phys.vdev,
        start: phys.start_time,
        end: ended.then_some(phys.end_time),
        cancelled: phys.state == ScanState::Canceled,
        to_copy: phys.to_copy,
        copied: phys.copied,
        mappings,
    }
}

fn features_off(pool: &Pool) -> Result<bool> {
    for feature in Feature::ALL {
        if !pool.features().is_enabled(feature)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What `zpool get` says.
fn properties(
    session: &Session,
    tree: &Vdev,
    fragmentation: Option<u64>,
    readonly: bool,
) -> Result<Vec<(PoolKey, Value, Source)>> {
    let pool = &*session.pool;
    let config = pool.config();
    let space = pool.space()?;
    let mut list = Vec::new();
    let mut fact = |prop, value: Value| list.push((PoolKey::Native(prop), value, Source::None));
    let number = Value::Number;
    let share =
        (u128::from(space.allocated) * 100).checked_div(u128::from(space.size)).unwrap_or(0);
    fact(PoolProp::Size, number(space.size));
    fact(PoolProp::Allocated, number(space.allocated));
    fact(PoolProp::Free, number(space.size.saturating_sub(space.allocated)));
    fact(PoolProp::Capacity, number(share as u64));
    let health = if pool.suspended().is_some() { SUSPENDED } else { tree.state.name() };
    fact(PoolProp::Health, Value::text(health));
    fact(PoolProp::Guid, number(pool.guid()));
    fact(PoolProp::LoadGuid, number(pool.guid() ^ pool.txg()));
    fact(PoolProp::Readonly, number(u64::from(readonly)));
    fact(PoolProp::Dedupratio, number(pool.dedup()?.ratio()));
    fact(PoolProp::Expandsize, number(0));
    fact(PoolProp::Checkpoint, number(pool.checkpoint()?.map_or(0, |checkpoint| checkpoint.kept)));
    fact(PoolProp::Fragmentation, number(fragmentation.unwrap_or(u64::MAX)));
    fact(PoolProp::Freeing, number(internal_dir_used(pool, format::dsl_dir::FREE_DIR_NAME)?));
    fact(PoolProp::Leaked, number(internal_dir_used(pool, format::dsl_dir::LEAK_DIR_NAME)?));
    fact(PoolProp::Maxblocksize, number(1 << 20));
    fact(PoolProp::Maxdnodesize, number(16 << 10));
    let mut set: BTreeMap<String, Stored> = pool.pool_properties()?.into_iter().collect();
    for prop in PoolProp::all() {
        let key = PoolKey::Native(prop);
        let stored = set.remove(prop.name());
        let value = match (prop, stored) {
            (PoolProp::Altroot, _) => session
                .known
                .as_ref()
                .and_then(|known| known.altroot.clone())
                .map(|root| (Value::Text(root), Source::Local)),
            (PoolProp::Version, _) if config.version < format::SPA_VERSION => {
                Some((number(config.version), Source::Local))
            }
            (PoolProp::Bootfs, Some(Stored::Number(object))) => {
                bootfs(pool, object).map(|name| (Value::text(name), Source::Local))
            }
            // As OpenZFS tells it: a number that is the default was not set.
            (_, Some(Stored::Number(stored))) => {
                let usual = default_pool_value(prop) == Some(number(stored));
                let source = if usual { Source::Default } else { Source::Local };
                Some((number(stored), source))
            }
            (_, Some(Stored::Text(text))) => Some((Value::Text(text), Source::Local)),
            (_, None) => default_pool_value(prop).map(|value| (value, Source::Default)),
        };
        if let Some((value, source)) = value {
            list.push((key, value, source));
        }
    }
    list.extend(features(pool)?);
    Ok(list)
}

/// The name of the file system in data set `object`; `None`: whoever destroyed it has left its number in the property.
fn bootfs(pool: &Pool, object: u64) -> Option<String> {
    let dir = pool.mos().dataset(object).ok()?.dir_object.get();
    let is_head = pool.mos().dir(dir).ok()?.head_dataset_object.get() == object;
    is_head.then(|| Catalogue::new(pool, None).dir_name(dir).ok().flatten()).flatten()
}

fn internal_dir_used(pool: &Pool, name: &str) -> Result<u64> {
    let mos = pool.mos();
    let root = mos.dir(pool::dsl::lookup::root_dir(mos)?)?;
    let object = mos.zap(root.child_dir_zap_object.get())?.get_u64(name.as_bytes())?;
    object.map_or(Ok(0), |object| Ok(mos.dir(object)?.used_bytes.get()))
}

fn features(pool: &Pool) -> Result<Vec<(PoolKey, Value, Source)>> {
    let mut list = Vec::new();
    for feature in Feature::ALL {
        let state = match pool.features().count(feature)? {
            None => "disabled",
            Some(0) => "enabled",
            Some(_) => "active",
        };
        let key = PoolKey::Feature(feature.name().into());
        list.push((key, Value::text(state), Source::Local));
    }
    for (guid, count, for_read) in pool.features().all()? {
        if Feature::from_guid(&guid).is_none() {
            let state = match (count, for_read) {
                (0, _) => "inactive",
                (_, true) => "active",
                (_, false) => "readonly",
            };
            let guid = String::from_utf8_lossy(&guid).into_owned();
            list.push((PoolKey::Unsupported(guid), Value::text(state), Source::Local));
        }
    }
    Ok(list)
}
