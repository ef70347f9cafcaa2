//! The order of the proceedings: MOS, data sets, what is pending, space, labels, names, verdict.

use crate::accounts::{self, Counts};
use crate::block::Blocks;
use crate::chain;
use crate::config;
use crate::datasets::Datasets;
use crate::dead::{self, Dead};
use crate::dtl;
use crate::features::{self, Marks, Uses};
use crate::files;
use crate::history;
use crate::holds;
use crate::kept::{Keep, Kept, Subject};
use crate::mos::Mos;
use crate::moved;
use crate::names::Names;
use crate::object::{Result, Unread};
use crate::pending;
use crate::report::{FileDamage, FindingKind, Findings, Progress, Report, SpaceTotals, Verdict};
use crate::shared;
use crate::sorter::Sorter;
use crate::space::{self, Bitmap};
use crate::spacemaps::{self, Metaslabs};
use crate::walk::{MOS, ObjectDamage, Scope, Walk, named};
use format::config::{PoolConfig, VdevKind};
use format::dnode::DNODES_PER_BLOCK;
use format::features::Feature;
use format::objset::ObjsetType;
use format::{ObjsetPhys, Uberblock};
use std::path::PathBuf;
use vdev::import::FoundPool;
use vdev::{Leaf, Tree, VdevError};

/// Memory that is used if none is given, in bytes.
const MEMORY_DEFAULT: u64 = 256 << 20;
/// Memory below which nothing works, in bytes.
const MEMORY_MIN: u64 = 64 << 20;

/// Bytes of paths beyond which damaged objects only get their numbers.
const PATHS_MAX: usize = 16 << 20;

/// How to judge.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory to do it in, in bytes; 0 for the default. What does not fit goes to scratch files.
    pub memory: u64,
    /// The directory for scratch files, which have no names and go when the judge does.
    pub scratch: PathBuf,
    /// The file in which the state is kept, to go on from there.
    pub keep: Option<Keep>,
    /// The pool is judged as it was before its last txg: its labels tell of a later one.
    pub past: bool,
}

/// Beyond what a pool is not examined, for want of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Directories, data sets and snapshots: what is kept of each takes less than 1 KiB.
    pub datasets: usize,
    /// Entries of the mappings of removed vdevs; each takes 24 bytes, and once more while it is read.
    pub mapping: u64,
}

impl Limits {
    /// What there is room for in so many bytes.
    fn of(memory: u64) -> Limits {
        Limits { datasets: (memory >> 12) as usize, mapping: memory >> 7 }
    }
}

/// No judgement was made.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Labels that describe vdevs that cannot be, or of a kind that is not read.
    #[error(transparent)]
    Vdev(#[from] VdevError),
    /// The file of the state.
    #[error("the state in '{file}': {why}; remove it to begin anew")]
    Keep {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: std::io::Error,
    },
    /// Whoever waited for the judgement has gone.
    #[error("nobody waited for the judgement to its end")]
    Abandoned,
}

impl Default for Options {
    fn default() -> Options {
        Options { memory: 0, scratch: PathBuf::from("/var/tmp"), keep: None, past: false }
    }
}

/// Judges a pool that a scan found, with the vdevs that its MOS names.
///
/// # Errors
/// If its labels describe vdevs that cannot be, or of a kind that is not read, and if a state cannot be kept or
/// is another pool's: no verdict then.
pub fn verify_pool(
    pool: &FoundPool,
    options: &Options,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> std::result::Result<Report, VerifyError> {
    let tree = pool.open_tree()?;
    let config = {
        let mut blocks = Blocks::new(&tree);
        let opened = open(&mut blocks, &pool.uberblocks, &mut Findings::default());
        opened.and_then(|(mos, _)| mos.config(&mut blocks).ok())
    };
    // A config that cannot be opened is told of by the judgement on what the labels say.
    let tree = match config.map(|config| pool.open_tree_as(&config.vdev_tree)) {
        Some(Ok(by_config)) => by_config,
        _ => tree,
    };
    for (id, top) in (0u32..).zip(tree.tops()) {
        if top.config.kind == VdevKind::Draid {
            return Err(VdevError::Unsupported { top: id, kind: "draid" }.into());
        }
    }
    let mut report = verify(&tree, &pool.uberblocks, options, progress)?;
    if report.name.is_empty() {
        report.name = pool.name().into_owned();
    }
    Ok(report)
}

/// Judges the pool on the vdevs of `tree`, at the newest of `uberblocks` (newest first) that leads
/// to a MOS.
///
/// What is wrong with the pool, even if it is all, is in the report. `progress` hears of it often, until it gives false.
///
/// # Errors
/// [`VerifyError::Keep`], [`VerifyError::Abandoned`].
pub fn verify(
    tree: &Tree,
    uberblocks: &[Uberblock],
    options: &Options,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> std::result::Result<Report, VerifyError> {
    let memory = if options.memory == 0 { MEMORY_DEFAULT } else { options.memory.max(MEMORY_MIN) };
    verify_within(tree, uberblocks, options, (memory, Limits::of(memory)), progress)
}

/// The same within these limits.
pub(crate) fn verify_within(
    tree: &Tree,
    uberblocks: &[Uberblock],
    options: &Options,
    (memory, limits): (u64, Limits),
    progress: &mut dyn FnMut(Progress) -> bool,
) -> std::result::Result<Report, VerifyError> {
    let reach = Sorter::new(memory as usize / 4, &options.scratch);
    let dead = Sorter::new(memory as usize / 8, &options.scratch);
    let mut blocks = Blocks::waited_for(tree, progress);
    let mut findings = Findings::default();
    let opened = open(&mut blocks, uberblocks, &mut findings);
    let mut walk = Walk::new(blocks, reach, dead);
    walk.findings = findings;
    let mut summary = Summary::default();
    match &opened {
        Some((mos, uberblock)) => {
            let pool = mos.config(&mut walk.blocks).map_or(0, |config| config.pool_guid);
            let kept = options.keep.as_ref().map(|keep| kept(keep, tree, pool, uberblock));
            walk.kept = kept.transpose()?;
            judge(&mut walk, tree, mos, uberblock, (memory, limits), options, &mut summary);
        }
        None => {
            walk.lost_blocks += 1;
            walk.findings.add(FindingKind::LostMetadata, || "no uberblock leads to a MOS".into());
        }
    }
    walk.blocks.tell();
    if walk.blocks.is_over() {
        // What was learnt until then is kept, if that was asked for.
        walk.kept.take().iter().for_each(Kept::leave);
        return Err(VerifyError::Abandoned);
    }
    Ok(finish(walk, tree, opened, summary, options.past))
}

/// The state that is kept of the judgement of this uberblock.
fn kept(
    keep: &Keep,
    tree: &Tree,
    pool: u64,
    uberblock: &Uberblock,
) -> std::result::Result<Kept, VerifyError> {
    let present = tree.leaves().iter().filter(|leaf| leaf.state.is_online());
    let subject = Subject {
        pool,
        txg: uberblock.txg.get(),
        root: uberblock.root.checksum_words(),
        leaves: present.map(Leaf::guid).collect(),
    };
    let refuse = |why| VerifyError::Keep { file: keep.file.clone(), why };
    Kept::begin(keep, subject).map_err(refuse)
}

/// What the report says besides damage.
#[derive(Default)]
struct Summary {
    name: String,
    txg: u64,
    config: Option<PoolConfig>,
    datasets: u64,
    encrypted: Vec<String>,
    space: Option<SpaceTotals>,
    files: Vec<FileDamage>,
}

/// The MOS of the newest uberblock that leads to one.
fn open(
    blocks: &mut Blocks<'_>,
    uberblocks: &[Uberblock],
    findings: &mut Findings,
) -> Option<(Mos, Uberblock)> {
    for uberblock in uberblocks {
        match Mos::open(blocks, &uberblock.root) {
            Ok(mos) => return Some((mos, *uberblock)),
            Err(why) => findings.add(FindingKind::LostMetadata, || {
                format!("the uberblock of txg {} does not lead to a MOS: {why}", uberblock.txg)
            }),
        }
    }
    None
}

fn judge(
    walk: &mut Walk<'_>,
    tree: &Tree,
    mos: &Mos,
    uberblock: &Uberblock,
    (memory, limits): (u64, Limits),
    options: &Options,
    summary: &mut Summary,
) {
    let txg = uberblock.txg.get();
    summary.txg = txg;
    let config = mos.config(&mut walk.blocks);
    if let Err(why) = &config {
        walk.findings.add(FindingKind::LostMetadata, || format!("the pool's config: {why}"));
        walk.lost_blocks += 1;
    }
    let config = config.ok();
    let mut slabs = Vec::new();
    if let Some(config) = &config {
        summary.name = String::from_utf8_lossy(&config.name).into_owned();
        config::check(walk, mos, config, uberblock);
        dtl::load(walk, mos, config, tree);
        let mut left = limits.mapping;
        for (id, child) in (0u32..).zip(&config.vdev_tree.children) {
            match moved::load(walk, mos, id, child, &mut left) {
                Ok(None) => {}
                Ok(Some(count)) => {
                    // What lay there cannot be told from what is lost.
                    walk.findings.add(FindingKind::Unjudged, || {
                        format!(
                            "vdev {id} was removed, and the mapping of where it is now has {count} \
                             entries: more memory is needed to judge the pool"
                        )
                    });
                    walk.incomplete = true;
                    return;
                }
                Err(why) => walk
                    .findings
                    .add(FindingKind::LostMetadata, || format!("mapping of vdev {id}: {why}")),
            }
        }
        slabs = spacemaps::metaslabs(&mut walk.blocks, mos, config, &mut walk.findings);
        let totals = slabs.iter().map(|slabs| slabs.allocated(&mut walk.blocks, mos));
        walk.blocks.progress.bytes_total = totals.fold(0, u64::saturating_add);
    }
    let birth = uberblock.root.birth();
    if birth > txg {
        walk.findings.add(FindingKind::Pointer, || {
            format!("MOS: its root is born in txg {birth}, the uberblock is of {txg}")
        });
    }
    walk.objset(Scope::whole(MOS), &uberblock.root);
    if walk.given_up {
        summary.config = config;
        return;
    }
    let mos_used = walk.born;
    let mut datasets = Datasets::list(&mut walk.blocks, mos, &summary.name, limits.datasets);
    for why in datasets.unread.drain(..) {
        walk.incomplete = true;
        walk.lost_blocks += 1;
        walk.findings.add(FindingKind::LostMetadata, || why);
    }
    walk.names.extend(datasets.list.iter().map(|dataset| dataset.name.clone()));
    if datasets.beyond {
        (walk.incomplete, walk.left_out) = (true, true);
        walk.findings.add(FindingKind::Unjudged, || {
            let max = limits.datasets;
            format!(
                "more than {max} data sets, snapshots and directories: those beyond, how all hang \
                 together, accounts and files are not examined; that needs more memory"
            )
        });
    } else {
        chain::check(walk, mos, &datasets, txg);
    }
    let marks = Marks::read(walk, mos, &datasets);
    let counts_of_features = features::counts(&mut walk.blocks, mos).unwrap_or_default();
    features::unknown(walk, &counts_of_features);
    let hole_birth = Feature::HoleBirth.guid().as_bytes();
    walk.hole_births = counts_of_features.get(hole_birth).is_some_and(|count| *count > 0);
    let projects_since = features::enabled_since(&mut walk.blocks, mos, Feature::ProjectQuota);
    let mut dead = Dead::default();
    let mut counts: Counts = vec![Default::default(); datasets.list.len()];
    let mut uses = vec![Uses::default(); datasets.list.len()];
    if let Some(kept) = &mut walk.kept {
        let listed = datasets.order().into_iter().filter_map(|place| datasets.list.get(place));
        kept.walks(listed.map(|dataset| dataset.object));
    }
    for place in datasets.order() {
        let Some(dataset) = datasets.list.get(place) else { continue };
        let number = place as u32 + 1;
        if let Some(kept) = &mut walk.kept {
            kept.next_dataset();
        }
        if walk.blocks.is_over() {
            return;
        }
        walk.born = Default::default();
        walk.uses = dataset.prev.and_then(|prev| uses.get(prev).copied()).unwrap_or_default();
        one_dataset(walk, &datasets, place, summary, txg);
        if let Some(uses) = uses.get_mut(place) {
            *uses = walk.uses;
        }
        let room = (memory as usize / 8, options.scratch.as_path());
        files_of(walk, &datasets, place, projects_since, room);
        if let Err(why) = accounts::dataset(walk, &datasets, (number, place), &mut counts) {
            lost_account(walk, &dataset.name, &why);
        }
        if walk.given_up {
            summary.config = config;
            return;
        }
        if datasets.beyond {
            continue;
        }
        let (at, txgs) = ((number, dataset), &marks.txgs);
        if let Err(why) = dead::list(walk, mos, &datasets, at, txgs, &mut dead) {
            let name = &dataset.name;
            walk.findings.add(FindingKind::Deadlist, || format!("{name}: its deadlist: {why}"));
            walk.dead_incomplete = true;
        }
    }
    let freeing = config.as_ref().and_then(|config| pending::claim(walk, mos, config));
    for child in config.iter().flat_map(|config| &config.vdev_tree.children) {
        moved::claim(walk, mos, child, limits.mapping);
    }
    if !walk.incomplete {
        let of_mos = (mos_used, freeing);
        accounts::dirs(walk, mos, &datasets, &counts, of_mos);
        let empty = (!walk.dead_incomplete).then_some(dead.empty);
        let found = (&uses[..], &marks, empty);
        features::check(walk, mos, config.as_ref(), &datasets, found);
        dead::compare(walk);
    }
    if config.is_none() || walk.blocks.is_over() {
        return;
    }
    summary.config = config;
    if walk.given_up {
        return;
    }
    history::check(walk, mos);
    summary.space = compare_space(walk, mos, &slabs, memory, options);
    shared::spread(walk, &datasets);
    summary.files = name_files(walk, mos, &datasets);
}

/// Walks one data set.
fn one_dataset(
    walk: &mut Walk<'_>,
    datasets: &Datasets,
    place: usize,
    summary: &mut Summary,
    txg: u64,
) {
    let Some(dataset) = datasets.list.get(place) else { return };
    let (number, phys) = (place as u32 + 1, &dataset.phys);
    let prev = dataset.prev.and_then(|place| datasets.list.get(place));
    let made = prev.map_or(0, |prev| prev.phys.creation_txg.get());
    let snap_txg = made.min(phys.prev_snap_txg.get());
    let min_txg = dataset.shared_until(datasets);
    let mut objset = walk.objset(
        Scope { min_txg, snap_txg, shared: dataset.snapshot, ..Scope::whole(number) },
        &phys.bp,
    );
    if phys.bp.is_hole() {
        return;
    }
    if let Some(objset) = &objset {
        holds::check(walk, &dataset.name, objset);
    }
    summary.datasets += 1;
    if dataset.encrypted {
        summary.encrypted.push(dataset.name.clone());
    }
    if dataset.snapshot {
        return;
    }
    if objset.is_none() && phys.bp.has_space() {
        objset = read_objset(&mut walk.blocks, &phys.bp).ok();
    }
    if let Some(objset) = &objset {
        pending::intent_log(walk, number, objset, txg);
    }
}

/// Examines the files of one data set.
fn files_of(
    walk: &mut Walk<'_>,
    datasets: &Datasets,
    place: usize,
    projects_since: u64,
    room: (usize, &std::path::Path),
) {
    let Some(dataset) = datasets.list.get(place) else { return };
    let bp = &dataset.phys.bp;
    // What is received in part has files in part.
    if dataset.phys.is_inconsistent() {
        return;
    }
    // What is lost, and what is as it was in the snapshot before, is told of already.
    let prev = dataset.prev.and_then(|place| datasets.list.get(place));
    let same = prev.is_some_and(|prev| prev.phys.bp.same_block(bp));
    if walk.incomplete || bp.is_hole() || bp.is_crypt() || same {
        return;
    }
    let result = read_objset(&mut walk.blocks, bp).and_then(|objset| {
        if objset.kind != ObjsetType::Zfs {
            return Ok(());
        }
        let late = projects_since > dataset.phys.creation_txg.get();
        files::check(&mut walk.blocks, &mut walk.findings, &dataset.name, &objset, late, room)
    });
    if let Err(why) = result {
        walk.findings.add(FindingKind::Files, || format!("{}: its files: {why}", dataset.name));
    }
}

/// What cannot be read again after the walk: it has been told of as lost.
fn lost_account(walk: &mut Walk<'_>, name: &str, why: &Unread) {
    walk.incomplete = true;
    walk.findings.add(FindingKind::Unjudged, || format!("{name}: its accounts: {why}"));
}

pub(crate) fn read_objset(blocks: &mut Blocks<'_>, bp: &format::BlkPtr) -> Result<ObjsetPhys> {
    if !bp.is_little_endian() {
        return Err(Unread("an object set of the other byte order".into()));
    }
    Ok(ObjsetPhys::parse(&blocks.read(bp)?)?)
}

/// Compares what is allocated with what was reached.
pub(crate) fn compare_space(
    walk: &mut Walk<'_>,
    mos: &Mos,
    slabs: &[Metaslabs],
    memory: u64,
    options: &Options,
) -> Option<SpaceTotals> {
    let empty = Sorter::new(0, &options.scratch);
    let reach = std::mem::replace(&mut walk.reach, empty);
    let mut logs = Sorter::new(memory as usize / 8, &options.scratch);
    spacemaps::logs(&mut walk.blocks, mos, slabs, &mut logs, &mut walk.findings);
    let (reach, logs) = match (reach.finish(), logs.finish()) {
        (Ok(reach), Ok(logs)) => (reach, logs),
        (Err(error), _) | (_, Err(error)) => {
            walk.findings.add(FindingKind::Unjudged, || format!("space, scratch file: {error}"));
            return None;
        }
    };
    let failed = [reach.failed(), logs.failed()];
    let (mut reach, mut logs) = (reach.peekable(), logs.peekable());
    let mut totals = SpaceTotals::default();
    let names = std::mem::take(&mut walk.names);
    let owner = |owner: u64| owner_name(&names, owner);
    let mut found = Findings::default();
    let beyond = |record: crate::sorter::Record, findings: &mut Findings| {
        let [vdev, offset, size, of] = record;
        findings.add(FindingKind::Pointer, || {
            format!("{}: {size:#x} bytes at vdev {vdev} offset {offset:#x}, no metaslab", owner(of))
        });
    };
    for slabs in slabs {
        if Bitmap::memory(1 << slabs.shift, slabs.ashift) > memory / 8 {
            walk.findings.add(FindingKind::Unjudged, || {
                format!("vdev {}: a metaslab does not fit into memory", slabs.top)
            });
            while reach.next_if(|record| record[0] <= slabs.top.into()).is_some() {}
            continue;
        }
        while let Some(record) = reach.next_if(|record| record[0] < slabs.top.into()) {
            beyond(record, &mut found);
        }
        for index in 0..slabs.count {
            if walk.blocks.pulse().is_err() {
                return None;
            }
            let mut map = slabs.bitmap(&mut walk.blocks, mos, index, &mut logs, &mut walk.findings);
            space::sweep(slabs.top, &mut map, &mut reach, &mut totals, &mut found, &owner);
        }
    }
    for record in reach.by_ref() {
        beyond(record, &mut found);
    }
    walk.names = names;
    if let Some(error) = failed.iter().find_map(|failed| failed.get()) {
        walk.findings.add(FindingKind::Unjudged, || format!("space, scratch file: {error}"));
        return None;
    }
    if walk.incomplete && !walk.left_out && totals.leaked > 0 {
        walk.findings.add(FindingKind::Leaked, || {
            format!(
                "{:#x} allocated bytes were not reached, those below lost blocks among them",
                totals.leaked
            )
        });
    }
    for finding in found.into_list() {
        // Below what is lost much may be reachable.
        if !(walk.incomplete && finding.kind == FindingKind::Leaked) {
            walk.findings.add(finding.kind, || finding.text);
        }
    }
    Some(totals)
}

/// Who owns a segment, in words.
fn owner_name(names: &[String], owner: u64) -> String {
    let dataset = (owner & (space::OWNER_DYING - 1)) >> 40;
    let object = owner & ((1 << 40) - 1);
    let name = named(names, dataset as u32);
    match object {
        pending::PENDING => "pending frees".into(),
        pending::LOG => format!("the intent log of {name}"),
        object => format!("{name} object {object}"),
    }
}

/// Gives damaged objects their paths.
fn name_files(walk: &mut Walk<'_>, mos: &Mos, datasets: &Datasets) -> Vec<FileDamage> {
    let damage = std::mem::take(&mut walk.damage);
    let mut out = Vec::with_capacity(damage.len());
    let mut rest: Vec<((u32, u64), ObjectDamage)> = damage.into_iter().collect();
    while let Some(((number, _), _)) = rest.first() {
        let number = *number;
        let end = rest.partition_point(|((dataset, _), _)| *dataset == number);
        let part: Vec<_> = rest.drain(..end).map(|((_, object), d)| (object, d)).collect();
        let dataset = (number as usize).checked_sub(1).and_then(|at| datasets.list.get(at));
        let named_bytes: usize = out.iter().map(|file: &FileDamage| file.path.len()).sum();
        let paths = dataset
            .filter(|dataset| !dataset.encrypted && named_bytes < PATHS_MAX)
            .and_then(|dataset| paths_of(walk, mos, dataset.object, &part).ok())
            .unwrap_or_default();
        let name = named(&walk.names, number);
        for (object, damage) in part {
            add_file(&mut out, name, object, &damage, &paths);
        }
    }
    out
}

/// Paths of the damaged objects of one data set, sorted by number.
fn paths_of(
    walk: &mut Walk<'_>,
    mos: &Mos,
    dataset: u64,
    damage: &[(u64, ObjectDamage)],
) -> Result<Vec<(u64, String)>> {
    let (_, phys) = mos.dataset(&mut walk.blocks, dataset)?;
    let objset = read_objset(&mut walk.blocks, &phys.bp)?;
    if objset.kind != ObjsetType::Zfs {
        return Ok(Vec::new());
    }
    let objects: Vec<u64> = damage.iter().filter(|(_, d)| !d.dnodes).map(|(o, _)| *o).collect();
    let lost = damage.iter().filter(|(_, d)| d.dnodes && d.lost_blocks > 0);
    let nameless: Vec<_> = lost.map(|(o, _)| *o..o.saturating_add(DNODES_PER_BLOCK)).collect();
    Ok(Names::open(&mut walk.blocks, &objset)?.paths(&objects, &nameless))
}

/// Adds a damaged object; of a lost block of dnodes, all objects with names.
fn add_file(
    out: &mut Vec<FileDamage>,
    dataset: &str,
    object: u64,
    damage: &ObjectDamage,
    paths: &[(u64, String)],
) {
    let file = |object: u64, path: String| FileDamage {
        dataset: dataset.to_owned(),
        object,
        path,
        lost_bytes: damage.lost_bytes,
        lost_blocks: damage.lost_blocks,
        recovered_blocks: damage.recovered_blocks,
    };
    let from = paths.partition_point(|(number, _)| *number < object);
    if damage.dnodes && damage.lost_blocks > 0 {
        let end = object.saturating_add(DNODES_PER_BLOCK);
        let named = paths[from..].iter().take_while(|(number, _)| *number < end);
        let before = out.len();
        out.extend(named.map(|(number, path)| file(*number, path.clone())));
        if out.len() == before {
            out.push(file(object, format!("<objects {object} to {}>", end - 1)));
        }
        return;
    }
    let path = match paths.get(from) {
        Some((number, path)) if *number == object => path.clone(),
        _ => format!("<object {object}>"),
    };
    out.push(file(object, path));
}

/// What there is to say of each leaf, then the verdict.
fn finish(
    mut walk: Walk<'_>,
    tree: &Tree,
    opened: Option<(Mos, Uberblock)>,
    summary: Summary,
    past: bool,
) -> Report {
    let judged = opened
        .as_ref()
        .and_then(|(mos, uberblock)| Some((mos, summary.config.as_ref()?, uberblock.txg.get())));
    let (devices, mut notes) = config::leaves(&mut walk, tree, judged.filter(|_| !past));
    let unnamed = walk.damage.len() as u64;
    let kept = walk.kept.take();
    walk.recovered_blocks += kept.as_ref().map_or(0, Kept::missing);
    notes.append(&mut walk.findings.notes);
    let clean = devices.is_empty()
        && walk.findings.is_clean()
        && walk.recovered_blocks == 0
        && walk.lost_blocks == 0;
    let lost = walk.lost_blocks > 0 || walk.findings.has(FindingKind::LostMetadata);
    notes.extend(kept.map_or_else(Vec::new, Kept::end));
    let verdict = match (lost, clean) {
        (true, _) => Verdict::Lost,
        (_, true) => Verdict::Clean,
        _ => Verdict::Whole,
    };
    Report {
        name: summary.name,
        verdict,
        txg: summary.txg,
        blocks: walk.blocks.progress.blocks,
        bytes: walk.blocks.progress.bytes,
        datasets: summary.datasets,
        encrypted: summary.encrypted,
        devices,
        files: summary.files,
        files_unlisted: walk.damage_unlisted + unnamed,
        lost_blocks: walk.lost_blocks,
        recovered_blocks: walk.recovered_blocks,
        space: summary.space,
        findings: std::mem::take(&mut walk.findings).into_list(),
        notes,
    }
}
