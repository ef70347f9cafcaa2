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
}
