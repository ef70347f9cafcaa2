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
    // Not by recursion: clones of clones may go on for as long as names do.
    let mut steps = Vec::new();
    let mut met = BTreeSet::new();
    let mut gone = Vec::new();
    steps.extend(before(pool, found)?.into_iter().rev().map(Step::Look));
    while let Some(step) = steps.pop() {
        match step {
            Step::Look(name) => {
                let found = lookup::find(pool.mos(), &name)?;
                // The history of clones may lead back to what is destroyed.
                if met.insert(found.object) {
                    steps.push(Step::Go(name));
                    steps.extend(before(pool, &found)?.into_iter().rev().map(Step::Look));
                }
            }
            Step::Go(name) => gone.push(name),
        }
    }
    let is_below = |name: &str| {
        name.strip_prefix(&found.name).is_some_and(|rest| rest.starts_with(['/', '@']))
    };
    Ok(gone.into_iter().map(|name| Dependent { below: is_below(&name), name }).collect())
}

/// What is to be done with a data set that was found on the way.
enum Step {
    /// To see what must go before it.
    Look(String),
    /// To let it go: what must go before it has.
    Go(String),
}

/// What must have gone right before `found` goes: clones of a snapshot, children and snapshots of a head.
fn before(pool: &Pool, found: &Found) -> Result<Vec<String>, PoolError> {
    if found.is_snapshot() {
        return pool.clones_of(found);
    }
    let (mos, name) = (pool.mos(), &found.name);
    let children = lookup::children(mos, found.dir_object, &found.dir)?;
    let mut names: Vec<_> = children.iter().map(|(child, _)| format!("{name}/{child}")).collect();
    // The newest first, as OpenZFS lists them.
    let snapshots = lookup::snapshots(mos, &found.phys)?;
    names.extend(snapshots.iter().rev().map(|(snapshot, _, _)| format!("{name}@{snapshot}")));
    Ok(names)
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
