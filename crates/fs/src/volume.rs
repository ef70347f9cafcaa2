//! A volume read as one file: its bytes are the data of object 1.
//!
//! The one idea: who can read a file can read a volume; only where size and bytes come from differs.
//! FORMAT: section 11.9.

use dmu::Object;
use format::master_node::ZVOL_DATA_OBJECT;
use format::objset::ObjsetType;
use pool::{Dataset, Pool};
use rt::sync::Arc;

use crate::error::{FsError, Result};
use crate::file::segments;
use crate::fixed::{Fixed, fixed};

/// An open volume, or snapshot of one.
pub struct Volume {
    dataset: Arc<Dataset>,
    object: Arc<Object>,
    size: u64,
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
        Ok(Some(Volume { dataset, object, size }))
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
        let part = self.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        self.object.read(offset, &mut buf[..part])?;
        Ok(part)
    }

    /// Where it has blocks: segments as (offset, length).
    pub fn data_segments(&self) -> Result<Vec<(u64, u64)>> {
        segments(&self.object, self.size)
    }

    /// Writes `data` at `offset`, within the volume: for its intent log only.
    pub(crate) fn write(&self, pool: &Pool, offset: u64, data: &[u8]) -> Result<()> {
        self.check(offset, data.len() as u64)?;
        let tx = pool.admit(&self.dataset, data.len() as u64)?;
        Ok(self.object.write(&tx, offset, data)?)
    }

    /// Frees a range, as far as it is within the volume: for its intent log only.
    pub(crate) fn punch_hole(&self, pool: &Pool, offset: u64, length: u64) -> Result<()> {
        self.check(offset, 0)?;
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
