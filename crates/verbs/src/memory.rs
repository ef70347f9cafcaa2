//! `thumper top`, and whoever else wants to know: who holds the server's memory.

use rt::mem::{Holding, Snapshot, process};

pub use pool::{CAP_LEAST, default_cap_bytes};

/// The memory of a server at one moment, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the account says: the cap, and who has what of it.
    pub account: Snapshot,
    /// Memory of the process that is backed by no file, as the system counts it; 0: it does not say.
    pub resident: u64,
}

impl Report {
    /// The account as it is now, and the memory of this process.
    #[must_use]
    pub fn of(account: &rt::Account) -> Report {
        let resident = process::resident().unwrap_or_default();
        Report { account: account.snapshot(), resident: resident.anonymous + resident.shared }
    }

    /// Who holds what.
    pub fn holdings(&self) -> impl Iterator<Item = &Holding> {
        self.account.holdings.iter()
    }

    /// What the process has and nobody in it holds: the program itself, its threads, and what the allocator keeps.
    #[must_use]
    pub fn unaccounted(&self) -> u64 {
        self.resident.saturating_sub(self.account.used)
    }
}
