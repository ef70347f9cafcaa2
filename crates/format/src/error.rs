//! What can be wrong with bytes from a disk.
//!
//! Errors say which structure, where in it, what was seen and what was expected. Who reads the
//! bytes adds pool, vdev, object and offset.

/// A structure that could not be parsed or built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes end before the structure does.
    #[error("{what}: needs {needed} bytes, has {have}")]
    Short {
        /// The structure.
        what: &'static str,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that are there.
        have: u64,
    },
    /// A magic number is not the expected one.
    #[error("{what}: magic {seen:#x}, expected {expected:#x}")]
    Magic {
        /// The structure.
        what: &'static str,
        /// What is there.
        seen: u64,
        /// What should be.
        expected: u64,
    },
    /// A field has a value that the format does not allow.
    #[error("{what}: {field} is {seen}, expected {expected}")]
    Field {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// What is there.
        seen: u64,
        /// What is allowed, in words ("at most 3").
        expected: &'static str,
    },
    /// A field that has to be there is not.
    #[error("{what}: {field} is missing")]
    Missing {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A length, count or nesting goes beyond what the parser accepts.
    #[error("{what}: {field} at byte {at} goes beyond its bounds")]
    Bounds {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Offset in the structure, in bytes.
        at: u64,
    },
    /// A value to be stored does not fit.
    #[error("{what}: {field} of {size} does not fit, at most {max}")]
    TooLarge {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// The size or value asked for.
        size: u64,
        /// The largest that fits.
        max: u64,
    },
    /// Something is wrong in one block of an object.
    #[error("block {block}: {error}")]
    InBlock {
        /// Number of the block in its object.
        block: u64,
        /// What is wrong.
        error: Box<FormatError>,
    },
}

impl FormatError {
    /// This error, found in block `block` of an object.
    pub fn in_block(self, block: u64) -> FormatError {
        match self {
            FormatError::InBlock { .. } => self,
            error => FormatError::InBlock { block, error: Box::new(error) },
        }
    }
}

/// Result of parsing or building.
pub type Result<T> = std::result::Result<T, FormatError>;
