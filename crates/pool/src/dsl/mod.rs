//! Directories and data sets (DSL): the tree of names, and the space that each is charged with.
//!
//! Everything here lives in bonus buffers and ZAPs of the MOS and is changed in syncing context
//! only. Space is charged in one place: `account`.

pub mod account;
pub(crate) mod bookmark;
pub mod create;
pub(crate) mod crypt;
pub(crate) mod deadlist;
pub(crate) mod destroy;
pub(crate) mod freeing;
pub mod limits;
pub mod lookup;
pub(crate) mod promote;
pub mod property;
pub(crate) mod rename;
pub(crate) mod rollback;
pub(crate) mod snapshot;
pub(crate) mod tree;

use format::dsl_dataset::DslDatasetPhys;
use format::dsl_dir::DslDirPhys;
use zerocopy::IntoBytes;

use dmu::Tx;

use crate::error::{PoolError, Result};
use crate::mos::Mos;

impl Mos {
    /// The DSL directory in object `number`.
    pub fn dir(&self, number: u64) -> Result<DslDirPhys> {
        let bonus = self.objset.object(number)?.bonus()?;
        DslDirPhys::parse(&bonus).copied().map_err(|e| PoolError::Damaged {
            what: "DSL directory",
            detail: format!("object {number}: {e}"),
        })
    }

    /// Replaces a DSL directory.
    pub fn set_dir(&self, tx: &Tx<'_>, number: u64, dir: &DslDirPhys) -> Result<()> {
        Ok(self.objset.object(number)?.set_bonus(tx, dir.as_bytes(), None)?)
    }

    /// The data set in object `number`.
    pub fn dataset(&self, number: u64) -> Result<DslDatasetPhys> {
        let bonus = self.objset.object(number)?.bonus()?;
        DslDatasetPhys::parse(&bonus).copied().map_err(|e| PoolError::Damaged {
            what: "DSL data set",
            detail: format!("object {number}: {e}"),
        })
    }

    /// Replaces a data set.
    pub fn set_dataset(&self, tx: &Tx<'_>, number: u64, ds: &DslDatasetPhys) -> Result<()> {
        Ok(self.objset.object(number)?.set_bonus(tx, ds.as_bytes(), None)?)
    }
}
