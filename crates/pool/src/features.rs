//! Feature reference counts in the MOS.
//!
//! A feature is disabled (no entry), enabled (0) or active (more). The table of features is
//! `format::features`; here are the counts, and what a change of one entails.

use dmu::{Policy, Tx, Zap};
use format::features::Feature;

use crate::error::{PoolError, Result};
use crate::mos::{Mos, key};

/// The feature counts of a pool. A pool from before features has none of them.
#[derive(Clone)]
pub struct Features {
    for_read: Option<Zap>,
    for_write: Option<Zap>,
}

impl Features {
    /// Opens the feature ZAPs of a pool of this version.
    pub fn open(mos: &Mos, version: u64) -> Result<Features> {
        if version < format::SPA_VERSION {
            return Ok(Features { for_read: None, for_write: None });
        }
        Ok(Features {
            for_read: Some(mos.zap(mos.expect(key::FEATURES_FOR_READ)?)?),
            for_write: Some(mos.zap(mos.expect(key::FEATURES_FOR_WRITE)?)?),
        })
    }

    /// Those of a pool of which nothing is known.
    pub(crate) fn none() -> Features {
        Features { for_read: None, for_write: None }
    }

    fn zap(&self, feature: Feature) -> Option<&Zap> {
        let read_only = feature.info().is_read_only_compatible();
        if read_only { self.for_write.as_ref() } else { self.for_read.as_ref() }
    }

    /// The count; `None`: disabled.
    pub fn count(&self, feature: Feature) -> Result<Option<u64>> {
        match self.zap(feature) {
            Some(zap) => Ok(zap.get_u64(feature.guid().as_bytes())?),
            None => Ok(None),
        }
    }

    /// Is the feature active?
    pub fn is_active(&self, feature: Feature) -> Result<bool> {
        Ok(self.count(feature)?.is_some_and(|c| c > 0))
    }

    /// Is the feature enabled (or active)?
    pub fn is_enabled(&self, feature: Feature) -> Result<bool> {
        Ok(self.count(feature)?.is_some())
    }

    /// Changes the count of an enabled feature; `true`: labels list it and must be rewritten.
    pub fn add(&self, tx: &Tx<'_>, feature: Feature, delta: i64) -> Result<bool> {
        let Some(old) = self.count(feature)? else { return Ok(false) };
        let new = old.saturating_add_signed(delta);
        self.set(tx, feature, new)?;
        Ok(feature.info().is_in_label() && (old == 0) != (new == 0))
    }

    /// Enables a feature or sets its count.
    pub fn set(&self, tx: &Tx<'_>, feature: Feature, count: u64) -> Result<()> {
        let missing = || PoolError::Invalid("a pool from before features has none".into());
        let zap = self.zap(feature).ok_or_else(missing)?;
        Ok(zap.put_u64(tx, feature.guid().as_bytes(), count)?)
    }

    /// Guids and counts of everything enabled: (guid, count, needed for reading).
    pub fn all(&self) -> Result<Vec<(Vec<u8>, u64, bool)>> {
        let mut out = Vec::new();
        for (zap, read) in [(&self.for_read, true), (&self.for_write, false)] {
            let Some(zap) = zap else { continue };
            for entry in zap.entries()? {
                let count = entry.value.as_u64().unwrap_or(u64::MAX);
                out.push((entry.name, count, read));
            }
        }
        Ok(out)
    }

    /// How blocks of the MOS are written where there are these; of data sets, what they have in common with it.
    pub(crate) fn policy(&self) -> Result<Policy> {
        Ok(Policy {
            lz4: self.is_active(Feature::Lz4Compress)?,
            embed: self.is_enabled(Feature::EmbeddedData)?,
            hole_birth: self.is_active(Feature::HoleBirth)?,
            ..Policy::new(true)
        })
    }

    /// Guids of active features that labels must list.
    pub fn for_labels(&self) -> Result<Vec<&'static str>> {
        let mut out = Vec::new();
        for feature in Feature::ALL {
            if feature.info().is_in_label() && self.is_active(feature)? {
                out.push(feature.guid());
            }
        }
        Ok(out)
    }
}
