//! A volume read as one file: its bytes are the data of object 1.
//!
//! The one idea: who can read a file can read a volume; only where size and bytes come from differs.
//! FORMAT: section 11.9.

use dmu::{Object, Zap};
use format::master_node::{ZVOL_DATA_OBJECT, ZVOL_PROPS_OBJECT, ZVOL_SIZE};
use format::objset::ObjsetType;
use pool::{Dataset, Pool};
use rt::sync::{Arc, Mutex};

use crate::error::{FsError, Result};
use crate::file::segments;
use crate::fixed::{Fixed, fixed};
use crate::salvage::Remains;

/// An open volume, or snapshot of one.
pub struct Volume {
    dataset: Arc<Dataset>,
    object: Arc<Object>,
    size: u64,
    /// Who changes it, in a txg that he enters under it: all who have it open have the same.
    turn: Arc<Mutex<()>>,
}

impl Volume {
    /// Opens the volume or snapshot called `name`; `None` if it is no volume.
    pub fn open(pool: &Arc<Pool>, name: &str) -> Result<Option<Volume>> {
        let dataset = pool.dataset(name)?;
        if dataset.kind() != ObjsetType::Zvol {
            return Ok(None);
        }
        let found = pool::dsl::lookup::find(pool.mos(), name)?;
        let Fixed::Volume { size, .. } = fixed(pool, &found)? else {
            let reason = "it is encrypted, and its bytes cannot be decrypted here".into();
            return Err(FsError::NotAFilesystem { name: name.into(), reason });
        };
        let object = dataset.objset.object(ZVOL_DATA_OBJECT)?;
        let turn = dataset.shared(|| Mutex::new(()));
        Ok(Some(Volume { dataset, object, size, turn }))
    }

    /// Its data set.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Its size, in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that its blocks take on disk.
    pub fn used_bytes(&self) -> u64 {
        self.object.used_bytes()
    }

    /// Reads up to `buf.len()` bytes from `offset` on; returns how many there were.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.dataset.not_revoked()?;
        let part = self.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        self.object.read(offset, &mut buf[..part])?;
        Ok(part)
    }

    /// What is left of it, should not all of it be readable.
    ///
    /// # Errors
    /// It is gone.
    pub fn remains(&self) -> Result<Remains<'_>> {
        Remains::of(&self.object, self.size)
    }

    /// Where it has blocks: segments as (offset, length).
    pub fn data_segments(&self) -> Result<Vec<(u64, u64)>> {
        segments(&self.object, self.size)
    }

    /// Writes `data` at `offset`, within the volume.
    ///
    /// # Errors
    /// A volume that can only be read; a write beyond its end; no room.
    pub fn write(&self, pool: &Pool, offset: u64, data: &[u8]) -> Result<()> {
        self.may_change()?;
        self.replay_write(pool, offset, data).map_err(|e| e.of_room(|| self.dataset.name()))
    }

    /// Refuses to change one that can only be read: who enters a txg is not asked for that.
    fn may_change(&self) -> Result<()> {
        let reason = match self.dataset.is_set_readonly() {
            true => Some("its property readonly is on"),
            false => self.dataset.read_only_because.as_deref(),
        };
        let Some(reason) = reason else { return Ok(()) };
        Err(FsError::ReadOnly { name: self.dataset.name(), reason: reason.into() })
    }

    /// Gives the volume another size, in bytes. What it has beyond goes, a portion in each txg.
    ///
    /// # Errors
    /// A volume that can only be read; a size that is 0 or no multiple of a block's.
    pub fn set_size(&self, pool: &Pool, size: u64) -> Result<()> {
        self.may_change()?;
        let block = u64::from(self.object.block_size()?);
        if size == 0 || !size.is_multiple_of(block) {
            let reason = "no multiple of the size of its blocks";
            return Err(FsError::Invalid { path: self.dataset.name(), reason });
        }
        let _turn = self.turn.lock();
        let tx = pool.admit(&self.dataset, 0)?;
        let props = Zap::open(&self.dataset.objset, ZVOL_PROPS_OBJECT)?;
        props.put_u64(&tx, ZVOL_SIZE.as_bytes(), size)?;
        drop(tx);
        let first = size / block;
        let mut end = self.object.max_block()?.saturating_add(1);
        while first < end {
            let tail = self.object.tail(first, end, pool.blocks_per_txg()?)?;
            pool.wait_to_free(tail.blocks)?;
            let tx = pool.admit(&self.dataset, 0)?;
            tx.frees(tail.blocks);
            let from = tail.first.max(first);
            let at = from.saturating_mul(block);
            self.object.free_bytes(&tx, at, u64::MAX - at)?;
            end = from;
        }
        Ok(())
    }

    /// Writes `data` at `offset`, within the volume.
    pub(crate) fn replay_write(&self, pool: &Pool, offset: u64, data: &[u8]) -> Result<()> {
        self.check(offset, data.len() as u64)?;
        let _turn = self.turn.lock();
        let tx = pool.admit(&self.dataset, data.len() as u64)?;
        Ok(self.object.write(&tx, offset, data)?)
    }

    /// Frees a range, as far as it is within the volume: for its intent log only.
    pub(crate) fn punch_hole(&self, pool: &Pool, offset: u64, length: u64) -> Result<()> {
        self.check(offset, 0)?;
        let _turn = self.turn.lock();
        let tx = pool.admit(&self.dataset, 0)?;
        Ok(self.object.free_bytes(&tx, offset, length.min(self.size - offset))?)
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        if offset.checked_add(length).is_some_and(|end| end <= self.size) {
            return Ok(());
        }
        let reason = "a write beyond the end of the volume";
        Err(FsError::Invalid { path: self.dataset.name(), reason })
    }
}
