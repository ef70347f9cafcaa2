//! What can go wrong with objects.

use format::FormatError;
use store::StoreError;

/// An error of the dmu. Whoever knows the data set adds its name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DmuError {
    /// A block could not be read, written or freed.
    #[error("object {object}, level {level}, block {block}: {source}")]
    Block {
        /// Number of the object.
        object: u64,
        /// Level of indirection.
        level: u8,
        /// Number of the block on its level.
        block: u64,
        /// Why.
        source: Box<StoreError>,
    },
    /// A structure in an object is damaged.
    #[error("object {object}: {source}")]
    Format {
        /// Number of the object.
        object: u64,
        /// What is wrong.
        source: FormatError,
    },
    /// A ZAP is damaged, or was asked for what it cannot do.
    #[error("object {object}: {source}")]
    Zap {
        /// Number of the object.
        object: u64,
        /// What is wrong.
        source: crate::zap::ZapError,
    },
    /// There is no such object.
    #[error("object {object} does not exist")]
    NoObject {
        /// Number of the object.
        object: u64,
    },
    /// An object is not what its user expects.
    #[error("object {object} is a {seen}, not a {expected}")]
    WrongKind {
        /// Number of the object.
        object: u64,
        /// What it is.
        seen: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// The store failed without a block to blame.
    #[error(transparent)]
    Store(#[from] Box<StoreError>),
    /// A request goes beyond the limits of the format.
    #[error("object {object}: {what}")]
    Limit {
        /// Number of the object.
        object: u64,
        /// Which limit.
        what: &'static str,
    },
}

impl DmuError {
    /// Is it an error of devices that may be back later?
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            DmuError::Block { source, .. } | DmuError::Store(source) => store::may_pass(source),
            _ => false,
        }
    }
}

impl From<StoreError> for DmuError {
    fn from(e: StoreError) -> Self {
        DmuError::Store(Box::new(e))
    }
}

/// Result of the dmu.
pub type Result<T> = std::result::Result<T, DmuError>;
