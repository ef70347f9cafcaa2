//! Names in the master node, object 1 of a file system: a ZAP that leads to everything else.
//!
//! FORMAT: section 11.1.

/// Object number of the master node.
pub const MASTER_NODE_OBJECT: u64 = 1;
/// Version of file systems that we make: with system attributes.
pub const ZPL_VERSION: u64 = 5;
/// The first version with system attributes; before it objects have old znodes.
pub const ZPL_VERSION_SA: u64 = 5;
/// The first version whose user and group ids may have a domain ([`fuid`](crate::fuid)).
pub const ZPL_VERSION_FUID: u64 = 3;

/// Version of the file system.
pub const VERSION: &str = "VERSION";
/// The root directory.
pub const ROOT: &str = "ROOT";
/// The delete queue: objects without a name that are still to be freed.
pub const DELETE_QUEUE: &str = "DELETE_QUEUE";
/// Master node of the system attributes.
pub const SA_ATTRS: &str = "SA_ATTRS";
/// Table of domains of user and group ids.
pub const FUID: &str = "FUID";
/// Directory of shares (unused on Linux).
pub const SHARES: &str = "SHARES";
/// Property: Unicode normalization of names.
pub const NORMALIZATION: &str = "normalization";
/// Property: only names in UTF-8.
pub const UTF8_ONLY: &str = "utf8only";
/// Property: case of names.
pub const CASE_SENSITIVITY: &str = "casesensitivity";

/// ZAPs of quotas, by what they limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Quota {
    User,
    Group,
    UserObjects,
    GroupObjects,
    Project,
    ProjectObjects,
}

impl Quota {
    /// All kinds.
    pub const ALL: [Quota; 6] = [
        Self::User,
        Self::Group,
        Self::UserObjects,
        Self::GroupObjects,
        Self::Project,
        Self::ProjectObjects,
    ];

    /// Key of the master node whose value is the object of the ZAP.
    pub fn key(self) -> &'static str {
        match self {
            Self::User => "userquota@",
            Self::Group => "groupquota@",
            Self::UserObjects => "userobjquota@",
            Self::GroupObjects => "groupobjquota@",
            Self::Project => "projectquota@",
            Self::ProjectObjects => "projectobjquota@",
        }
    }
}

/// Object number of a volume's data.
pub const ZVOL_DATA_OBJECT: u64 = 1;
/// Object number of a volume's properties.
pub const ZVOL_PROPS_OBJECT: u64 = 2;
/// Key of a volume's properties: its size in bytes.
pub const ZVOL_SIZE: &str = "size";
