//! The MOS: the object set of the pool itself, and its directory.
//!
//! Only the sync changes it (tasks run inside one), so nothing here needs a lock of its own.

use dmu::{Objset, Tx, Zap};
use format::ObjectType;
use format::nvlist::PACKED_MAX;
use rt::sync::Arc;

use crate::error::{PoolError, Result};
use crate::ruins::{Found, Ruins};

pub use format::mos_directory::{self as key, DIRECTORY};

/// The MOS.
#[derive(Clone)]
pub struct Mos {
    /// Its objects.
    pub objset: Arc<Objset>,
    /// It is damaged, and what its names do not lead to is looked for.
    pub ruins: Option<Ruins>,
}

impl Mos {
    /// Its directory.
    pub fn directory(&self) -> Result<Zap> {
        Ok(Zap::open(&self.objset, DIRECTORY)?)
    }

    /// The ZAP in object `number`.
    pub fn zap(&self, number: u64) -> Result<Zap> {
        Ok(Zap::open(&self.objset, number)?)
    }

    /// The object that `name` in the directory stands for.
    pub fn find(&self, name: &[u8]) -> Result<Option<u64>> {
        let found = self.directory().and_then(|zap| Ok(zap.get_u64(name)?));
        match (&found, self.ruins()) {
            (Ok(Some(_)), _) | (_, None) => found,
            (_, Some(ruins)) => Ok(ruins.entry(name)),
        }
    }

    /// What could not be read of a damaged one is not there.
    pub(crate) fn unless_ruined<T>(&self, read: Result<Option<T>>) -> Result<Option<T>> {
        match (&read, &self.ruins) {
            (Err(_), Some(_)) => Ok(None),
            _ => read,
        }
    }

    /// What is left of it, if it is damaged.
    pub(crate) fn ruins(&self) -> Option<Arc<Found>> {
        self.ruins.as_ref().map(|ruins| ruins.found(self))
    }

    /// The object that `name` in the directory must stand for.
    pub fn expect(&self, name: &[u8]) -> Result<u64> {
        self.find(name)?.ok_or_else(|| PoolError::Damaged {
            what: "MOS directory",
            detail: format!("no entry '{}'", String::from_utf8_lossy(name)),
        })
    }

    /// Sets an entry of the directory.
    pub fn set(&self, tx: &Tx<'_>, name: &[u8], object: u64) -> Result<()> {
        Ok(self.directory()?.put_u64(tx, name, object)?)
    }

    /// A new ZAP object.
    pub fn create_zap(&self, tx: &Tx<'_>, kind: ObjectType, normflags: u64) -> Result<Zap> {
        Ok(Zap::create(&self.objset, tx, kind, normflags)?)
    }

    /// Reads a packed nvlist object.
    pub fn nvlist(&self, number: u64) -> Result<format::nvlist::NvList> {
        let damaged = |detail: String| PoolError::Damaged { what: "packed nvlist", detail };
        let object = self.objset.object(number)?;
        let bonus = object.bonus()?;
        let size = bonus.first_chunk::<8>().map(|b| u64::from_le_bytes(*b));
        let covered = (object.max_block()? + 1).saturating_mul(object.block_size()?.into());
        let size = size.filter(|s| *s <= covered && *s <= PACKED_MAX).ok_or_else(|| {
            damaged(format!("object {number}: its size is beyond its blocks or 8 MiB"))
        })?;
        let mut bytes = vec![0; size as usize];
        object.read(0, &mut bytes)?;
        format::nvlist::NvList::parse(&bytes).map_err(|e| damaged(format!("object {number}: {e}")))
    }

    /// Writes a packed nvlist object.
    pub fn set_nvlist(
        &self,
        tx: &Tx<'_>,
        number: u64,
        list: &format::nvlist::NvList,
    ) -> Result<()> {
        let damaged = |e: format::FormatError| PoolError::Damaged {
            what: "packed nvlist",
            detail: e.to_string(),
        };
        let object = self.objset.object(number)?;
        let mut bytes = list.to_xdr().map_err(damaged)?;
        let size = bytes.len() as u64;
        let block = object.block_size()? as usize;
        bytes.resize(bytes.len().next_multiple_of(block), 0);
        let blocks = (bytes.len() / block) as u64;
        if object.max_block()? + 1 > blocks {
            object.free_blocks(tx, blocks, u64::MAX)?;
        }
        object.write(tx, 0, &bytes)?;
        Ok(object.set_bonus(tx, &size.to_le_bytes(), None)?)
    }

    /// A new packed nvlist object of 16 KiB blocks.
    pub fn create_nvlist(&self, tx: &Tx<'_>) -> Result<u64> {
        let object = self.objset.allocate(
            tx,
            ObjectType::PACKED_NVLIST,
            16 << 10,
            ObjectType::PACKED_NVLIST_SIZE,
            &[0; 8],
            1,
        )?;
        Ok(object.number())
    }
}
