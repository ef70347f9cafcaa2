//! Encrypted data sets without their keys: what changes of data sets owe to them.
//!
//! The one idea: names, dnodes and accounts of space are in the clear, so data sets come, go and move while their
//! blocks stay as they are. What has to be kept is which key is whose: a directory names an object with its
//! wrapped key, which clones share by a count, and which names the directory where the wrapping key is set (the
//! encryption root). Each snapshot has a number of its own for its set of IVs. FORMAT: section 14.

use format::ObjectType;
use format::dsl_dataset::{DS_IVSET_GUID, FSID_GUID_BITS};
use format::dsl_dir::DIR_CRYPTO_KEY_OBJECT;

use crate::dsl::create::Making;
use crate::error::{PoolError, Result};
use crate::mos::Mos;

const ROOT: &[u8] = b"DSL_CRYPTO_ROOT_DDOBJ";
const COUNT: &[u8] = b"DSL_CRYPTO_REFCOUNT";

/// The object of a directory's key; `None`: it is not encrypted.
pub(crate) fn key_of(mos: &Mos, dir: u64) -> Result<Option<u64>> {
    let object = mos.objset.object(dir)?;
    if object.header()?.kind() != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    Ok(dmu::Zap::of(object)?.get_u64(DIR_CRYPTO_KEY_OBJECT.as_bytes())?)
}

/// The directory where the key of another is set; `None`: it is not encrypted.
fn root_of(mos: &Mos, dir: u64) -> Result<Option<u64>> {
    match key_of(mos, dir)? {
        Some(key) => Ok(mos.zap(key)?.get_u64(ROOT)?),
        None => Ok(None),
    }
}

/// Refuses to move a directory away from its encryption root, unless it is one.
pub(crate) fn may_move(mos: &Mos, dir: u64, parent: u64) -> Result<()> {
    let root = root_of(mos, dir)?;
    if root.is_none() || root == Some(dir) || root == root_of(mos, parent)? {
        return Ok(());
    }
    let what = "cannot move encrypted child outside of its encryption root";
    Err(PoolError::Invalid(what.into()))
}

impl Making<'_> {
    /// The snapshot `object` of a head in `dir` gets the number of its set of IVs, if it is encrypted.
    pub(crate) fn number_ivset(&self, dir: u64, object: u64) -> Result<()> {
        if key_of(self.mos, dir)?.is_none() {
            return Ok(());
        }
        let guid = self.random() & ((1 << FSID_GUID_BITS) - 1);
        Ok(self.zapified(object)?.put_u64(self.tx, DS_IVSET_GUID.as_bytes(), guid)?)
    }

    /// The number of a snapshot's set of IVs; 0: it has none.
    pub(crate) fn ivset_of(&self, object: u64) -> Result<u64> {
        match self.zap_of(object)? {
            Some(zap) => Ok(zap.get_u64(DS_IVSET_GUID.as_bytes())?.unwrap_or(0)),
            None => Ok(0),
        }
    }

    /// The clone in directory `to` has the key of its origin in `from`, if that has one.
    pub(crate) fn share_key(&self, from: u64, to: u64) -> Result<()> {
        let Some(key) = key_of(self.mos, from)? else { return Ok(()) };
        self.zapified(to)?.put_u64(self.tx, DIR_CRYPTO_KEY_OBJECT.as_bytes(), key)?;
        Ok(self.mos.zap(key)?.increment(self.tx, COUNT, 1)?)
    }

    /// Directory `dir` goes: its key goes with the last that has it.
    pub(crate) fn release_key(&self, dir: u64) -> Result<()> {
        let Some(key) = key_of(self.mos, dir)? else { return Ok(()) };
        let zap = self.mos.zap(key)?;
        match zap.get_u64(COUNT)? {
            Some(2..) => Ok(zap.increment(self.tx, COUNT, -1)?),
            _ => Ok(self.mos.objset.free(self.tx, key)?),
        }
    }
}
