//! Who holds memory, as people and meters are told.

/// Who has the memory of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Holder {
    /// Verified metadata, kept for speed.
    Cache,
    /// Objects that are open, or were: their dnodes, and what is remembered of directories.
    Objects,
    /// Data that no txg has put on disk yet.
    Dirty,
    /// What is read ahead of readers.
    Ahead,
    /// Requests and answers of clients, and what answering them takes.
    Clients,
    /// What clients send themselves from where it is.
    Leases,
    /// What the sync works with.
    Sync,
    /// The map of free space.
    Space,
    /// Records of intent logs.
    Logs,
    /// Buffers that lie idle, to be used again.
    Buffers,
    /// What scrub and resilver have found, and not examined yet.
    Scan,
    /// Mounts.
    Mounts,
    /// Others.
    Other,
}

impl Holder {
    pub(super) const COUNT: usize = 13;

    /// All of them.
    pub const ALL: [Holder; Self::COUNT] = [
        Holder::Cache,
        Holder::Objects,
        Holder::Dirty,
        Holder::Ahead,
        Holder::Clients,
        Holder::Leases,
        Holder::Sync,
        Holder::Space,
        Holder::Logs,
        Holder::Buffers,
        Holder::Scan,
        Holder::Mounts,
        Holder::Other,
    ];

    /// Its name: one word, in small letters.
    pub fn name(self) -> &'static str {
        match self {
            Holder::Cache => "cache",
            Holder::Objects => "objects",
            Holder::Dirty => "dirty",
            Holder::Ahead => "ahead",
            Holder::Clients => "clients",
            Holder::Leases => "leases",
            Holder::Sync => "sync",
            Holder::Space => "space",
            Holder::Logs => "logs",
            Holder::Buffers => "buffers",
            Holder::Scan => "scan",
            Holder::Mounts => "mounts",
            Holder::Other => "other",
        }
    }
}

/// What one holder has, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Who.
    pub holder: Holder,
    /// Now.
    pub bytes: u64,
    /// At most, ever.
    pub bytes_max: u64,
}

/// An account at one moment, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The cap.
    pub cap: u64,
    /// Granted now.
    pub used: u64,
    /// Granted at most, ever.
    pub used_max: u64,
    /// Asked for by those who wait.
    pub waited_for: u64,
    /// Who has it, in the order of [`Holder::ALL`].
    pub holdings: Vec<Holding>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_place_and_a_name_of_its_own() {
        for (place, holder) in Holder::ALL.into_iter().enumerate() {
            assert_eq!(holder as usize, place);
            assert!(Holder::ALL[..place].iter().all(|other| other.name() != holder.name()));
        }
    }
}
