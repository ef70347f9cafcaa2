//! Space and quotas of users, groups and projects, which are read and set like properties.
//!
//! `userused@root`, `groupquota@100`, `projectobjquota@7`: what, then whose.

/// Of whom the space is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A user.
    User,
    /// A group.
    Group,
    /// A project.
    Project,
}

/// A property of one user, group or project.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceProp {
    /// Whose kind it is.
    pub owner: Owner,
    /// Objects are counted, not bytes.
    pub objects: bool,
    /// It is the limit, not the use.
    pub quota: bool,
    /// Name or number, as written.
    pub who: String,
}

/// The words before the `@`, in the order of usage.
pub const PREFIXES: [&str; 12] = [
    "userused",
    "groupused",
    "projectused",
    "userobjused",
    "groupobjused",
    "projectobjused",
    "userquota",
    "groupquota",
    "projectquota",
    "userobjquota",
    "groupobjquota",
    "projectobjquota",
];

impl SpaceProp {
    /// The property of a name, `None` if it is no such name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<SpaceProp> {
        let text = std::str::from_utf8(name).ok()?;
        let (word, who) = text.split_once('@')?;
        if !PREFIXES.contains(&word) {
            return None;
        }
        let owner = match word.as_bytes().first()? {
            b'u' => Owner::User,
            b'g' => Owner::Group,
            _ => Owner::Project,
        };
        let (objects, quota) = (word.contains("obj"), word.ends_with("quota"));
        Some(SpaceProp { owner, objects, quota, who: who.into() })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> String {
        let owner = match self.owner {
            Owner::User => "user",
            Owner::Group => "group",
            Owner::Project => "project",
        };
        let objects = if self.objects { "obj" } else { "" };
        let what = if self.quota { "quota" } else { "used" };
        format!("{owner}{objects}{what}@{}", self.who)
    }

    /// True for a limit, which can be set.
    #[must_use]
    pub fn is_quota(&self) -> bool {
        self.quota
    }

    /// The number of a user, group or project that is given as a number.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.who.parse().ok()
    }
}
