//! What the judge says: damage by device and by file, and what does not add up.
//!
//! The one idea: a report is bounded. Every list has a limit, and what is beyond it is counted.

use std::collections::BTreeMap;

/// Most files that are listed by name.
pub const FILES_MAX: usize = 100_000;
/// Most findings of one kind that are listed in full.
pub const FINDINGS_MAX_OF_KIND: u64 = 10;

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Nothing is wrong.
    Clean,
    /// Something is wrong, and all data can be read.
    Whole,
    /// Data is lost.
    Lost,
}

/// How far the judge is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Blocks examined.
    pub blocks: u64,
    /// Allocated bytes examined, parity and copies included.
    pub bytes: u64,
    /// Allocated bytes of the pool, as its space maps say; 0: not known yet.
    pub bytes_total: u64,
}

/// What was found on one leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceDamage {
    /// The device's name, else its path in the config, else its guid.
    pub device: String,
    /// Its guid.
    pub guid: u64,
    /// There is no device, or it is not trusted (offline, without a label).
    pub missing: bool,
    /// Labels (0 to 3) that cannot be read or are another leaf's.
    pub labels: Vec<u8>,
    /// Labels whose ring of uberblocks has something else in it, or cannot be read.
    pub rings: Vec<u8>,
    /// Pieces of blocks that could not be read.
    pub read_errors: u64,
    /// Pieces of blocks (copies, data or parity columns) whose bytes are wrong.
    pub bad_blocks: u64,
    /// Txgs that were written without it, as its DTL says.
    pub lacks_txgs: u64,
}

impl DeviceDamage {
    /// Is nothing wrong with it?
    pub fn is_clean(&self) -> bool {
        let errors = self.read_errors + self.bad_blocks + self.lacks_txgs;
        !self.missing && self.labels.is_empty() && self.rings.is_empty() && errors == 0
    }
}

/// What was found about one file, or another object of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDamage {
    /// The data set or snapshot, `MOS` for the pool's own objects.
    pub dataset: String,
    /// Object number; of lost dnodes the first of the block.
    pub object: u64,
    /// The path from the root of the file system, or the object's number in `<>`.
    pub path: String,
    /// Bytes that are lost (logical; at most: a lost indirect block counts with all below it).
    pub lost_bytes: u64,
    /// Blocks that are lost.
    pub lost_blocks: u64,
    /// Blocks with wrong pieces whose bytes were recovered.
    pub recovered_blocks: u64,
}

impl FileDamage {
    /// Is some of it lost?
    pub fn is_lost(&self) -> bool {
        self.lost_blocks > 0
    }
}

/// What does not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingKind {
    /// Labels, uberblocks or configs that contradict each other.
    Label,
    /// A structure that cannot be what it is.
    Structure,
    /// A block pointer that cannot be (address, sizes, births, fill).
    Pointer,
    /// Blocks of the pool's own metadata or of objects without a name are lost.
    LostMetadata,
    /// Allocated, but nothing refers to it.
    Leaked,
    /// Two blocks claim the same space.
    DoublyAllocated,
    /// In use, and free according to the space maps.
    ReachableButFree,
    /// Space maps that contradict themselves.
    SpaceMap,
    /// Counts that are not the sum of what they count.
    Account,
    /// Snapshots, clones and heads whose links contradict each other.
    Snapshots,
    /// Lists of what a data set has no more that are not true.
    Deadlist,
    /// Features in use that are not counted, or the other way round.
    Feature,
    /// Tables of names (ZAPs) that are not in order.
    Zap,
    /// Files, directories and links that contradict each other.
    Files,
    /// Space of users, groups and projects that is not what they use.
    Usage,
    /// Holes that do not say when they came.
    HoleBirth,
    /// Something could not be judged.
    Unjudged,
}

impl FindingKind {
    /// Is it told, but not held against a pool? OpenZFS forgets the births of holes itself, where an indirect
    /// block became empty and is filled again from its cache; `zfs send` reads over such holes for that.
    pub fn is_harmless(self) -> bool {
        self == Self::HoleBirth
    }
}

/// One thing that does not add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing.
    pub kind: FindingKind,
    /// The thing, in one line.
    pub text: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// Space, in bytes of the top-level vdevs' address spaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceTotals {
    /// Allocated according to the space maps and their logs.
    pub allocated: u64,
    /// In use by blocks that can be reached.
    pub reachable: u64,
    /// Allocated, but not reachable.
    pub leaked: u64,
    /// Claimed by more than one block.
    pub doubly_allocated: u64,
    /// Reachable, but not allocated.
    pub reachable_but_free: u64,
}

/// All that the judge found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The pool.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The txg that was judged.
    pub txg: u64,
    /// Blocks examined, each once.
    pub blocks: u64,
    /// Allocated bytes examined, with parity and copies.
    pub bytes: u64,
    /// Data sets and snapshots examined.
    pub datasets: u64,
    /// Encrypted data sets: their blocks are checked, their files not named.
    pub encrypted: Vec<String>,
    /// Leaves with something wrong.
    pub devices: Vec<DeviceDamage>,
    /// Files with lost or recovered blocks, at most [`FILES_MAX`].
    pub files: Vec<FileDamage>,
    /// Objects with damage that are not in [`Report::files`].
    pub files_unlisted: u64,
    /// Blocks that are lost.
    pub lost_blocks: u64,
    /// Blocks with wrong, unreadable or missing pieces that were recovered.
    pub recovered_blocks: u64,
    /// The space comparison; `None` if it was impossible.
    pub space: Option<SpaceTotals>,
    /// What does not add up.
    pub findings: Vec<Finding>,
    /// What is to be said that is no damage: labels and rings in which a write was cut off, what the judge never
    /// examines, and of the judgement itself where its state was kept.
    pub notes: Vec<String>,
}

impl Report {
    /// The files of which something is lost.
    pub fn lost_files(&self) -> impl Iterator<Item = &FileDamage> {
        self.files.iter().filter(|file| file.is_lost())
    }
}

/// Findings as they come in: the first of each kind in full, the rest counted.
#[derive(Default)]
pub(crate) struct Findings {
    /// What is to be said that is no damage.
    pub notes: Vec<String>,
    list: Vec<Finding>,
    counts: BTreeMap<FindingKind, u64>,
}

impl Findings {
    /// Adds one; the text is only made if it will be kept.
    pub(crate) fn add(&mut self, kind: FindingKind, text: impl FnOnce() -> String) {
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        if *count <= FINDINGS_MAX_OF_KIND {
            self.list.push(Finding { kind, text: text() });
        }
    }

    /// Was there one of this kind?
    pub(crate) fn has(&self, kind: FindingKind) -> bool {
        self.counts.contains_key(&kind)
    }

    /// Is nothing held against the pool?
    pub(crate) fn is_clean(&self) -> bool {
        self.counts.keys().all(|kind| kind.is_harmless())
    }

    /// The list, with a line for what was only counted.
    pub(crate) fn into_list(self) -> Vec<Finding> {
        let mut list = self.list;
        list.sort_by_key(|finding| finding.kind);
        for (kind, count) in self.counts {
            if count > FINDINGS_MAX_OF_KIND {
                let more = count - FINDINGS_MAX_OF_KIND;
                list.push(Finding { kind, text: format!("and {more} more like this: {kind:?}") });
            }
        }
        list
    }
}
