//! Limits on the number of file systems and snapshots: counts in directories, and who may go on.
//!
//! Counts are kept in a directory once a limit was set on it or above it, and from then on in all
//! that is made below: file systems and volumes below it, snapshots of its own and below. As in
//! OpenZFS nobody is stopped who could change the limit; so whoever asks says who he is.

use format::ObjectType;
use format::dsl_dir::{DIR_FILESYSTEM_COUNT, DIR_SNAPSHOT_COUNT};
use format::features::Feature;

use crate::dsl::create::Making;
use crate::dsl::lookup::{self, DEPTH_MAX};
use crate::dsl::property::{self, Stored};
use crate::error::{PoolError, Result};
use crate::mos::Mos;
use crate::pool::Pool;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// File systems and volumes below a directory.
    Filesystems,
    /// Snapshots of a directory and of all below.
    Snapshots,
}

impl Counted {
    /// The key of the count in a directory.
    fn key(self) -> &'static [u8] {
        match self {
            Counted::Filesystems => DIR_FILESYSTEM_COUNT.as_bytes(),
            Counted::Snapshots => DIR_SNAPSHOT_COUNT.as_bytes(),
        }
    }

    /// The property that limits it.
    pub fn limit(self) -> &'static str {
        match self {
            Counted::Filesystems => "filesystem_limit",
            Counted::Snapshots => "snapshot_limit",
        }
    }
}

/// The count in directory `dir`; `None`: it keeps none.
pub fn count(mos: &Mos, dir: u64, counted: Counted) -> Result<Option<u64>> {
    if mos.objset.object(dir)?.header()?.kind() != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    Ok(mos.zap(dir)?.get_u64(counted.key())?)
}

/// The directories from `dir` up to the root.
fn upwards(mos: &Mos, dir: u64) -> Result<Vec<u64>> {
    let (mut list, mut at) = (Vec::new(), dir);
    while at != 0 {
        if list.len() >= DEPTH_MAX {
            let detail = format!("object {dir}: parents without end");
            return Err(PoolError::Damaged { what: "DSL directory", detail });
        }
        list.push(at);
        at = mos.dir(at)?.parent_object.get();
    }
    Ok(list)
}

/// Adds to the counts of directory `dir` and of all above that keep one. For what is made or gone
/// in `dir`: a child of it, or a snapshot of its head.
pub fn adjust(making: &Making<'_>, dir: u64, counted: Counted, delta: i64) -> Result<()> {
    let mos = making.mos;
    for at in upwards(mos, dir)? {
        let Some(count) = count(mos, at, counted)? else { return Ok(()) };
        let count = count.saturating_add_signed(delta);
        mos.zap(at)?.put_u64(making.tx, counted.key(), count)?;
    }
    Ok(())
}

/// Directory `dir` with all below it moves from one parent to another.
pub(crate) fn move_counts(making: &Making<'_>, dir: u64, (from, to): (u64, u64)) -> Result<()> {
    let mos = making.mos;
    // Where the new ancestors count, it counts too.
    if count(mos, to, Counted::Filesystems)?.is_some() {
        start_below(making, dir, DEPTH_MAX)?;
    }
    let filesystems = count(mos, dir, Counted::Filesystems)?.map_or(1, |below| below + 1) as i64;
    let snapshots = count(mos, dir, Counted::Snapshots)?.unwrap_or(0) as i64;
    for (at, sign) in [(from, -1), (to, 1)] {
        adjust(making, at, Counted::Filesystems, sign * filesystems)?;
        adjust(making, at, Counted::Snapshots, sign * snapshots)?;
    }
    Ok(())
}

/// Starts to count in a new directory without children, if some directory of the pool counts.
pub fn start_new(making: &Making<'_>, dir: u64) -> Result<()> {
    if making.features.is_active(Feature::FilesystemLimits)? {
        let zap = making.zapified(dir)?;
        for counted in [Counted::Filesystems, Counted::Snapshots] {
            zap.put_u64(making.tx, counted.key(), 0)?;
        }
    }
    Ok(())
}

/// Starts to count in directory `dir` and in all below it: a limit is set on it.
pub fn start(making: &Making<'_>, dir: u64) -> Result<()> {
    if !making.features.is_enabled(Feature::FilesystemLimits)? {
        let what = "the feature filesystem_limits is not enabled";
        return Err(PoolError::Invalid(what.into()));
    }
    if !making.features.is_active(Feature::FilesystemLimits)? {
        making.features.add(making.tx, Feature::FilesystemLimits, 1)?;
    }
    start_below(making, dir, DEPTH_MAX).map(|_| ())
}

/// The counts of a directory, made if there are none.
fn start_below(making: &Making<'_>, dir: u64, depth: usize) -> Result<(u64, u64)> {
    let mos = making.mos;
    let known = |counted| count(mos, dir, counted);
    if let (Some(filesystems), Some(snapshots)) =
        (known(Counted::Filesystems)?, known(Counted::Snapshots)?)
    {
        return Ok((filesystems, snapshots));
    }
    if depth == 0 {
        let detail = format!("object {dir}: children without end");
        return Err(PoolError::Damaged { what: "DSL directory", detail });
    }
    let phys = mos.dir(dir)?;
    let (mut filesystems, mut snapshots) = (0, 0);
    for (_, child) in lookup::children(mos, dir, &phys)? {
        let below = start_below(making, child, depth - 1)?;
        filesystems += below.0 + 1;
        snapshots += below.1;
    }
    let head = phys.head_dataset_object.get();
    if head != 0 {
        let names = mos.dataset(head)?.snapnames_zap_object.get();
        snapshots += if names == 0 { 0 } else { mos.zap(names)?.count()? };
    }
    let zap = making.zapified(dir)?;
    zap.put_u64(making.tx, Counted::Filesystems.key(), filesystems)?;
    zap.put_u64(making.tx, Counted::Snapshots.key(), snapshots)?;
    Ok((filesystems, snapshots))
}

impl Pool {
    /// May somebody who cannot change the limit make `more` file systems below directory `dir`, or
    /// snapshots of it? Else [`PoolError::QuotaExceeded`], which names the directory that is full.
    pub fn check_count(&self, dir: u64, counted: Counted, more: u64) -> Result<()> {
        if !self.features.is_active(Feature::FilesystemLimits)? {
            return Ok(());
        }
        for at in upwards(&self.mos, dir)? {
            let Some(count) = count(&self.mos, at, counted)? else { return Ok(()) };
            let props = self.mos.dir(at)?.props_zap_object.get();
            if let Some(Stored::Number(limit)) = property::own(&self.mos, props, counted.limit())?
                && count.saturating_add(more) > limit
            {
                let name = lookup::name_of_dir(&self.mos, self.name(), at)?;
                return Err(PoolError::QuotaExceeded { name });
            }
        }
        Ok(())
    }
}
