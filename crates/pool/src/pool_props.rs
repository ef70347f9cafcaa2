//! Properties of the pool itself: in a ZAP of the MOS, in the configuration, or features.
//!
//! Most are entries of the ZAP. What must be known of a pool that is not open (its comment, the
//! features it shall have) is in the configuration, and so in all labels.

use format::config::PoolConfig;
use format::features::Feature;
use format::zap::Value;

use crate::dsl::property::{self, Stored};
use crate::error::Result;
use crate::mos::key;
use crate::pool::Pool;
use crate::props::PoolProp;
use crate::space::Need;
use crate::sync::TaskContext;

/// Where the configuration keeps a property; `None`: it does not.
pub(crate) fn in_config<'a>(
    config: &'a mut PoolConfig,
    property: &str,
) -> Option<&'a mut Option<Vec<u8>>> {
    match property {
        "comment" => Some(&mut config.comment),
        "compatibility" => Some(&mut config.compatibility),
        _ => None,
    }
}

impl Pool {
    /// Sets a property of the pool; `None` takes it away.
    pub fn set_pool_property(&self, property: &str, value: Option<Stored>) -> Result<()> {
        let property = property.to_string();
        self.task_within(Need::Change(6), move |cx| {
            if let Some(slot) = in_config(&mut cx.pool.config.lock(), &property) {
                *slot = match value {
                    Some(Stored::Text(text)) => Some(text),
                    Some(Stored::Number(number)) => Some(number.to_string().into_bytes()),
                    None => None,
                };
                *cx.pool.config_dirty.lock() = true;
                return Ok(());
            }
            let (mos, tx) = (cx.making.mos, cx.tx);
            let zap = match mos.find(key::POOL_PROPS)? {
                Some(number) => mos.zap(number)?,
                None => {
                    let zap = mos.create_zap(tx, format::ObjectType::POOL_PROPS, 0)?;
                    mos.set(tx, key::POOL_PROPS, zap.number())?;
                    zap
                }
            };
            match value {
                Some(Stored::Number(number)) => zap.put_u64(tx, property.as_bytes(), number)?,
                Some(Stored::Text(text)) => {
                    zap.put(tx, property.as_bytes(), &Value::string(&text))?;
                }
                None => {
                    zap.remove(tx, property.as_bytes())?;
                }
            }
            Ok(())
        })
    }

    /// Properties of the pool that were set, by name.
    pub fn pool_properties(&self) -> Result<Vec<(String, Stored)>> {
        let mut list = match self.mos.find(key::POOL_PROPS)? {
            Some(number) => property::local(&self.mos, number)?,
            None => Vec::new(),
        };
        let mut config = self.config();
        for name in ["comment", "compatibility"] {
            let text = in_config(&mut config, name).and_then(|slot| slot.take());
            list.extend(text.map(|text| (name.to_string(), Stored::Text(text))));
        }
        Ok(list)
    }

    /// Enables a feature and those that it needs.
    pub fn enable_feature(&self, feature: Feature) -> Result<()> {
        self.task_within(Need::Change(6), move |cx| {
            for needed in feature.with_dependencies() {
                if !cx.making.features.is_enabled(needed)? {
                    enable(cx, needed)?;
                }
            }
            // What is open obeys from now on.
            cx.making.mos.objset.set_policy(cx.making.features.policy()?);
            for dataset in cx.pool.upheave_all() {
                if !dataset.name().contains('@') {
                    dataset.refresh(cx.pool)?;
                }
            }
            Ok(())
        })
    }
}

impl TaskContext<'_> {
    /// Data set `object` goes: its number is another's soon, and the pool is not booted from that.
    pub(crate) fn forget_bootfs(&self, object: u64) -> Result<()> {
        let mos = self.making.mos;
        let Some(props) = mos.find(key::POOL_PROPS)? else { return Ok(()) };
        let (props, name) = (mos.zap(props)?, PoolProp::Bootfs.name().as_bytes());
        if props.get(name)?.and_then(|value| value.as_u64()) == Some(object) {
            props.remove(self.tx, name)?;
        }
        Ok(())
    }
}

/// Enables one feature. Some are active as soon as they are enabled.
fn enable(cx: &TaskContext<'_>, feature: Feature) -> Result<()> {
    let (mos, tx, features) = (cx.making.mos, cx.tx, cx.making.features);
    let (info, directory) = (feature.info(), mos.directory()?);
    if feature == Feature::EnabledTxg && mos.find(key::FEATURE_ENABLED_TXG)?.is_none() {
        let zap = mos.create_zap(tx, format::ObjectType::ZAP_METADATA, 0)?;
        directory.put_u64(tx, key::FEATURE_ENABLED_TXG, zap.number())?;
    }
    features.set(tx, feature, u64::from(info.activates_on_enable()))?;
    let descriptions = mos.zap(mos.expect(key::FEATURE_DESCRIPTIONS)?)?;
    descriptions.put(tx, info.guid.as_bytes(), &Value::string(info.description.as_bytes()))?;
    // The count of enabled_txg is that of the dates it keeps.
    if let Some(dates) = mos.find(key::FEATURE_ENABLED_TXG)? {
        mos.zap(dates)?.put_u64(tx, info.guid.as_bytes(), tx.txg())?;
        if feature == Feature::EnabledTxg {
            features.set(tx, feature, 1)?;
        } else {
            features.add(tx, Feature::EnabledTxg, 1)?;
        }
    }
    // The labels list some features as soon as they are active.
    *cx.pool.config_dirty.lock() = true;
    Ok(())
}
