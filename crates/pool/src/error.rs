//! What can go wrong with a pool or a data set.

use dmu::DmuError;
use store::StoreError;
use vdev::VdevError;

/// An error of the pool. Messages name the thing; the doors add what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// There is no such data set.
    #[error("cannot open '{name}': dataset does not exist")]
    NoDataset {
        /// The name asked for.
        name: String,
    },
    /// A data set of this name is there.
    #[error("cannot create '{name}': dataset already exists")]
    Exists {
        /// The name asked for.
        name: String,
    },
    /// The parent of a new data set is missing.
    #[error("cannot create '{name}': parent does not exist")]
    NoParent {
        /// The name asked for.
        name: String,
    },
    /// The data set has children or snapshots.
    #[error("cannot destroy '{name}': filesystem has children")]
    HasChildren {
        /// The data set.
        name: String,
    },
    /// A snapshot has clones, or is the origin of what a destroy would take away.
    #[error("cannot destroy '{name}': snapshot has dependent clones")]
    HasClones {
        /// The snapshot.
        name: String,
    },
    /// Somebody holds the snapshot.
    #[error("cannot destroy snapshot {name}: dataset is busy")]
    Held {
        /// The snapshot.
        name: String,
    },
    /// A data set that is no clone.
    #[error("cannot promote '{name}': not a cloned filesystem")]
    NoClone {
        /// The data set.
        name: String,
    },
    /// A promotion would bring two snapshots of one name together.
    #[error("conflicting snapshot '{snapshot}' from parent '{origin}'")]
    Conflict {
        /// The name that both have.
        snapshot: String,
        /// The clone's origin.
        origin: String,
    },
    /// Nobody of that name holds the snapshot.
    #[error("cannot release hold from snapshot '{name}': no such tag on this dataset")]
    NoTag {
        /// The snapshot.
        name: String,
    },
    /// What a bookmark is made of must be in the past of its data set.
    #[error("{name} is not of the past of the new bookmark's dataset")]
    NoAncestor {
        /// The snapshot or bookmark.
        name: String,
    },
    /// Two changes that cannot be in one txg: the same again, in the next.
    #[error("{name}: changed in this txg already")]
    SameTxg {
        /// The data set.
        name: String,
    },
    /// The pool or data set can only be read, and why.
    #[error("{name} is read-only: {reason}")]
    ReadOnly {
        /// The pool or data set.
        name: String,
        /// Why.
        reason: String,
    },
    /// The data set was rolled back or destroyed since it was opened.
    #[error("{name} was rolled back or destroyed; open it anew")]
    Revoked {
        /// The data set.
        name: String,
    },
    /// The pool cannot be opened at all, and why.
    #[error("cannot open pool '{name}': {reason}")]
    Unopenable {
        /// The pool.
        name: String,
        /// Why.
        reason: String,
    },
    /// Not enough space for a change.
    #[error("{name}: out of space")]
    NoSpace {
        /// Pool or data set.
        name: String,
    },
    /// Not enough space for a change of data sets: it was not begun.
    #[error("out of space")]
    NoRoom,
    /// A quota would be exceeded.
    #[error("{name}: quota exceeded")]
    QuotaExceeded {
        /// The data set with the quota.
        name: String,
    },
    /// The pool was suspended: devices failed beyond redundancy while writing.
    #[error("pool '{name}' is suspended: {reason}; its last state on disk is intact")]
    Suspended {
        /// The pool.
        name: String,
        /// What failed.
        reason: String,
    },
    /// A metadata object contradicts another one.
    #[error("{what}: {detail}")]
    Damaged {
        /// Which structure.
        what: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// A request that cannot be carried out.
    #[error("{0}")]
    Invalid(String),
    /// Objects.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// Blocks.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// Devices.
    #[error(transparent)]
    Vdev(#[from] VdevError),
}

impl PoolError {
    /// Is what was to be read lost? What devices may still give is not.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            PoolError::Store(source)
            | PoolError::Dmu(DmuError::Block { source, .. } | DmuError::Store(source)) => {
                !store::may_pass(source)
            }
            PoolError::Damaged { .. } => true,
            _ => false,
        }
    }

    /// Was a request refused before anything was changed?
    pub fn is_refusal(&self) -> bool {
        use PoolError as E;
        matches!(
            self,
            E::NoDataset { .. }
                | E::Exists { .. }
                | E::NoParent { .. }
                | E::HasChildren { .. }
                | E::HasClones { .. }
                | E::Held { .. }
                | E::NoTag { .. }
                | E::NoAncestor { .. }
                | E::NoClone { .. }
                | E::Conflict { .. }
                | E::SameTxg { .. }
                | E::ReadOnly { .. }
                | E::Revoked { .. }
                | E::NoRoom
                | E::QuotaExceeded { .. }
                | E::Invalid(_)
        )
    }
}

impl From<StoreError> for PoolError {
    fn from(e: StoreError) -> Self {
        match e {
            StoreError::NoSpace { .. } => PoolError::NoSpace { name: "pool".into() },
            e => PoolError::Store(Box::new(e)),
        }
    }
}

impl From<dmu::Closed> for PoolError {
    fn from(_: dmu::Closed) -> Self {
        let reason = "it takes no more changes".into();
        PoolError::Suspended { name: "pool".into(), reason }
    }
}

/// Result of the pool.
pub type Result<T> = std::result::Result<T, PoolError>;
