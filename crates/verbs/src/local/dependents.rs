//! What a destroy would take along: children, snapshots, and clones of these.

use std::collections::BTreeSet;

use pool::dsl::lookup::{self, Found};
use pool::{Pool, PoolError};

/// A data set that goes before another one can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dependent {
    pub(super) name: String,
    /// It is below what is destroyed, or a snapshot of it.
    pub(super) below: bool,
}

/// Names in the order in which data sets can go, each at its first place: there all that must go before it has gone.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    pub(super) names: Vec<String>,
    met: BTreeSet<String>,
}

impl InOrder {
    pub(super) fn add(&mut self, name: String) {
        if self.met.insert(name.clone()) {
            self.names.push(name);
        }
    }
}

/// Everything that must go before `found`, in the order in which it can.
pub(super) fn dependents(pool: &Pool, found: &Found) -> Result<Vec<Dependent>, PoolError> {
    let mut walk = Walk { pool, top: &found.name, seen: BTreeSet::new(), out: Vec::new() };
    walk.before(found)?;
    Ok(walk.out)
}

struct Walk<'a> {
    pool: &'a Pool,
    top: &'a str,
    /// Objects that were met: the history of clones may lead back to what is destroyed.
    seen: BTreeSet<u64>,
    out: Vec<Dependent>,
}

impl Walk<'_> {
    fn add(&mut self, found: &Found) -> Result<(), PoolError> {
        if !self.seen.insert(found.object) {
            return Ok(());
        }
        self.before(found)?;
        let rest = found.name.strip_prefix(self.top);
        let below = rest.is_some_and(|rest| rest.starts_with(['/', '@']));
        self.out.push(Dependent { name: found.name.clone(), below });
        Ok(())
    }

    fn before(&mut self, found: &Found) -> Result<(), PoolError> {
        let mos = self.pool.mos();
        if found.is_snapshot() {
            for clone in self.pool.clones_of(found)? {
                self.add(&lookup::find(mos, &clone)?)?;
            }
            return Ok(());
        }
        for (child, _) in lookup::children(mos, found.dir_object, &found.dir)? {
            self.add(&lookup::find(mos, &format!("{}/{child}", found.name))?)?;
        }
        // The newest first, as OpenZFS lists them.
        for (snapshot, _, _) in lookup::snapshots(mos, &found.phys)?.into_iter().rev() {
            self.add(&lookup::find(mos, &format!("{}@{snapshot}", found.name))?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_met_stays_where_it_is() {
        let mut order = InOrder::default();
        for name in ["t/c@mon", "t/c", "t@mon", "t@tue", "t/c@mon", "t@mon", "t/d@mon"] {
            order.add(name.into());
        }
        assert_eq!(order.names, ["t/c@mon", "t/c", "t@mon", "t@tue", "t/d@mon"]);
    }
}
