//! The pool's configuration: in the MOS, in labels, and as uberblock.

use dmu::Tx;
use format::BlkPtr;
use format::config::{PoolConfig, PoolState};
use format::uberblock::Uberblock;

use crate::error::Result;
use crate::mos::key;
use crate::pool::Pool;

impl Pool {
    /// Writes the configuration object, as of the txg of `tx`.
    pub(crate) fn write_config(&self, tx: &Tx<'_>) -> Result<()> {
        let list = {
            let mut config = self.config.lock();
            config.txg = tx.txg();
            config.features_for_read = Some(self.label_features()?);
            config.to_nvlist()
        };
        self.mos.set_nvlist(tx, self.mos.expect(key::CONFIG)?, &list)
    }

    /// Guids of the active features that labels list.
    pub(crate) fn label_features(&self) -> Result<Vec<Vec<u8>>> {
        let guids = self.features.for_labels()?;
        Ok(guids.into_iter().map(|g| g.as_bytes().to_vec()).collect())
    }

    /// The uberblock of txg `txg`.
    pub(crate) fn uberblock(&self, txg: u64, root: BlkPtr, config: &PoolConfig) -> Uberblock {
        let now_secs = rt::time::wall_clock().as_secs();
        Uberblock::new(txg, config.vdev_tree.guid_sum(), now_secs, root)
    }

    /// Changes what labels say of the pool (its state, its name), with the next sync.
    pub fn set_state(&self, state: PoolState) -> Result<()> {
        {
            // A txg has one state from its beginning to its end: that of its labels is that of its logs.
            let _between = self.writing()?.syncing.lock();
            self.config.lock().state = state;
            *self.config_dirty.lock() = true;
        }
        self.sync()?;
        Ok(())
    }
}
