//! What of `zfs create -V` and `zfs set volsize=` is a volume's own: sizes, and what is reserved for them.

use fs::{Fixed, Volume};
use pool::dsl::{lookup, property};
use pool::props::{Kind, Prop, Target};
use pool::{Pool, PoolError, Stored, VOLUME_BLOCK};

use super::properties::{Assigned, assigned};
use super::session::{Session, pool_error};
use crate::datasets::Create;
use crate::{Doing, Error, Result, Why};

/// Stands for `auto`: as much as the volume may need.
pub(super) const AUTO: Stored = Stored::Number(u64::MAX);

/// A volume to be made.
pub(super) struct Planned {
    /// Its size, a multiple of the block's, in bytes.
    pub(super) size: u64,
    /// The size of its blocks, in bytes.
    pub(super) block: u32,
    /// Its other properties, what is reserved for it among them.
    pub(super) assigned: Assigned,
    /// What there is to know of it, one a line.
    pub(super) notes: Vec<String>,
}

/// Plans the volume of a request; `None`: it is a file system.
pub(super) fn plan(session: &Session, request: &Create, doing: &Doing) -> Result<Option<Planned>> {
    let Some(volume) = &request.volume else { return Ok(None) };
    let pool = &session.pool;
    let mut typed = request.properties.clone();
    let own = Prop::Volblocksize.name();
    if let Some(block) = volume.block_size {
        typed.push((own.into(), block.to_string().into_bytes()));
    }
    let mut assigned = assigned(pool, &typed, &Target::new(Kind::Volume), doing)?;
    let mut block = None;
    assigned.stored.retain(|(name, value)| match value {
        Stored::Number(number) if name == own => {
            block = Some(*number);
            false
        }
        _ => name != Prop::Volsize.name(),
    });
    let usual = pool.volume_block();
    let mut notes = Vec::new();
    if let Some(block) = block.filter(|block| *block < VOLUME_BLOCK) {
        notes.push(format!(
            "Warning: volblocksize ({block}) is less than the default minimum block size \
             ({VOLUME_BLOCK}).\nTo reduce wasted space a volblocksize of {usual} is recommended."
        ));
    }
    let block = block.unwrap_or(usual);
    let cannot = |why| Error::cannot(doing.clone(), why);
    let size = volume.size.checked_next_multiple_of(block);
    let size = size.filter(|size| *size <= i64::MAX as u64).ok_or_else(|| cannot(Why::BadValue))?;
    if size == 0 {
        return Err(cannot(Why::Prop(pool::props::PropError::Zero(Prop::Volsize.name()))));
    }
    let reserved = Stored::Number(pool.volume_reservation(size, block));
    let name = Prop::Refreservation.name();
    match assigned.stored.iter_mut().find(|(known, _)| known == name) {
        Some((_, value)) if *value == AUTO => *value = reserved,
        Some(_) => {}
        None if volume.sparse => {}
        None => assigned.stored.push((name.into(), reserved)),
    }
    let block = u32::try_from(block).map_err(|_| cannot(Why::BadValue))?;
    Ok(Some(Planned { size, block, assigned, notes }))
}

/// Refuses a data set below a volume.
pub(super) fn no_volume(pool: &Pool, parent: &str, doing: &Doing) -> Result<()> {
    let fail = |e| pool_error(doing.clone(), e);
    match lookup::find(pool.mos(), parent) {
        Ok(found) => match fs::fixed(pool, &found).map_err(fail)? {
            Fixed::Volume { .. } | Fixed::Hidden { is_volume: true } => {
                Err(Error::cannot(doing.clone(), Why::ParentIsVolume))
            }
            _ => Ok(()),
        },
        Err(PoolError::NoDataset { .. }) => Ok(()),
        Err(e) => Err(fail(e)),
    }
}

/// Refuses a data set of this name anywhere below a volume.
pub(super) fn no_volume_above(pool: &Pool, name: &str, doing: &Doing) -> Result<()> {
    let mut above = name;
    while let Some((parent, _)) = above.rsplit_once('/') {
        no_volume(pool, parent, doing)?;
        above = parent;
    }
    Ok(())
}

/// Size and block of a volume, in bytes.
fn sizes(pool: &Pool, name: &str) -> std::result::Result<Option<(u64, u64)>, PoolError> {
    match fs::fixed(pool, &lookup::find(pool.mos(), name)?)? {
        Fixed::Volume { size, block_size } => Ok(Some((size, block_size))),
        _ => Ok(None),
    }
}

/// What `refreservation=auto` means for a volume.
pub(super) fn automatic(pool: &Pool, name: &str) -> std::result::Result<Stored, PoolError> {
    let sizes = sizes(pool, name)?;
    Ok(Stored::Number(sizes.map_or(0, |(size, block)| pool.volume_reservation(size, block))))
}

/// What another size means for a volume.
pub(super) struct Resized {
    /// Its size until now, in bytes.
    pub(super) before: u64,
    /// What is reserved for it goes with it, if it was as much as the volume may need: the new reservation.
    pub(super) reservation: Option<Stored>,
}

/// Sees that a volume may get this size.
pub(super) fn resizes(pool: &Pool, name: &str, size: u64, doing: &Doing) -> Result<Resized> {
    let fail = |e| pool_error(doing.clone(), e);
    let Some((old, block)) = sizes(pool, name).map_err(fail)? else {
        let why = "it is encrypted, and its size cannot be changed here";
        return Err(Error::cannot(doing.clone(), Why::NotDone(why.into())));
    };
    if !size.is_multiple_of(block) {
        let why = Why::BlockMultiple { name: Prop::Volsize.name(), block };
        return Err(Error::cannot(doing.clone(), why));
    }
    let found = lookup::find(pool.mos(), name).map_err(fail)?;
    let reserved = property::number(pool.mos(), &found, "refreservation", false, 0);
    let follows = reserved.map_err(fail)? == pool.volume_reservation(old, block);
    let reservation = follows.then(|| Stored::Number(pool.volume_reservation(size, block)));
    Ok(Resized { before: old, reservation })
}

/// Gives a volume another size.
pub(super) fn resize(session: &Session, name: &str, size: u64, doing: &Doing) -> Result<()> {
    let cannot = |why| Error::cannot(doing.clone(), why);
    let pool = &session.pool;
    let fail = |e| pool_error(doing.clone(), e);
    let failed = |e: fs::FsError| match e {
        fs::FsError::Pool(e) => fail(e),
        fs::FsError::ReadOnly { reason, .. } => cannot(Why::DatasetReadOnly(reason)),
        e => cannot(Why::NotDone(e.to_string())),
    };
    let volume = Volume::open(pool, name).map_err(failed)?;
    let volume = volume.ok_or_else(|| cannot(Why::WrongKind))?;
    volume.set_size(pool, size).map_err(failed)?;
    pool.sync().map_err(fail)?;
    Ok(())
}
