//! What the house holds itself to, as data. The checks beside this file read it; to change a rule,
//! change it here and say why in the commit.

/// A crate of the workspace, and which of the others it may use.
pub(crate) struct Storey {
    pub(crate) name: &'static str,
    /// Crates it may depend on.
    pub(crate) uses: &'static [&'static str],
    /// Crates that its tests may use as well, besides all that stands below it.
    pub(crate) tests_use: &'static [&'static str],
}

impl Storey {
    /// True if `name` stands below: used by this one, or by what it uses.
    pub(crate) fn stands_on(&self, name: &str) -> bool {
        let below = |used: &&str| STOREYS.iter().find(|s| s.name == *used);
        self.uses.contains(&name) || self.uses.iter().filter_map(below).any(|s| s.stands_on(name))
    }
}

const fn storey(name: &'static str, uses: &'static [&'static str]) -> Storey {
    Storey { name, uses, tests_use: &["testkit"] }
}

/// Who may use whom (INV-7). From the bottom to the doors; what stands beside the house comes last.
pub(crate) const STOREYS: &[Storey] = &[
    storey("rt", &[]),
    storey("format", &[]),
    storey("codec", &["format"]),
    storey("device", &["rt"]),
    storey("vdev", &["rt", "codec", "format", "device"]),
    storey("store", &["rt", "codec", "format", "device", "vdev"]),
    storey("dmu", &["rt", "codec", "format", "store"]),
    storey("pool", &["rt", "codec", "format", "device", "vdev", "store", "dmu"]),
    storey("fs", &["rt", "codec", "format", "dmu", "pool"]),
    // the judge never shares the writer's arithmetic: no store, no dmu, no pool
    storey("verify", &["rt", "codec", "format", "device", "vdev"]),
    // the mount; its threads are those of the foreign crate that speaks with the kernel
    storey("fuse", &["rt", "format", "pool", "fs"]),
    // experiments on simulated disks
    storey("lab", &["rt", "format", "device", "vdev", "pool", "fs", "verify"]),
    storey("verbs", &["rt", "format", "device", "pool", "fs", "verify", "fuse", "lab"]),
    storey("wire", &["rt"]),
    storey("client", &["rt", "wire"]),
    storey("watch", &["rt", "verbs"]),
    storey("daemon", &["rt", "format", "pool", "fs", "verbs", "wire", "watch"]),
    storey("cli", &["rt", "verbs", "daemon"]),
    Storey { name: "testkit", uses: &[], tests_use: &[] },
    Storey {
        name: "acceptance",
        uses: &["testkit", "rt", "device", "vdev", "pool", "fs", "verify"],
        tests_use: HOUSE,
    },
    Storey {
        name: "interleavings",
        uses: &["rt"],
        tests_use: &["testkit", "acceptance", "device", "dmu", "vdev", "pool", "fs", "verify"],
    },
    Storey { name: "bench", uses: HOUSE, tests_use: &[] },
    Storey { name: "xtask", uses: &[], tests_use: &[] },
];

/// The crates below the doors: no blocking, spawning or guessing of their own.
pub(crate) const ENGINE: &[&str] =
    &["rt", "format", "codec", "device", "vdev", "store", "dmu", "pool", "fs", "verify", "verbs"];

/// What stands below the command line: the engine, and what clients have.
pub(crate) const HOUSE: &[&str] = &[
    "rt", "format", "codec", "device", "vdev", "store", "dmu", "pool", "fs", "verify", "lab",
    "verbs", "wire", "client", "watch",
];

/// Crates from outside that the engine must not use, and why.
pub(crate) const FOREIGN_BANNED: &[(&str, &str)] = &[
    ("rayon", "threads come from rt (INV-10)"),
    ("tokio", "the engine is blocking code; threads come from rt (INV-10)"),
    ("async-std", "the engine is blocking code; threads come from rt (INV-10)"),
    ("smol", "the engine is blocking code; threads come from rt (INV-10)"),
    ("crossbeam", "threads and channels come from rt (INV-10)"),
    ("crossbeam-channel", "channels come from rt (INV-10)"),
    ("parking_lot", "locks come from rt (INV-10)"),
    ("dashmap", "locks come from rt (INV-10)"),
    ("rand", "randomness comes from rt::random (INV-10)"),
    ("chrono", "time comes from rt::time (INV-10)"),
];

/// Crates from outside that the engine may pull in, all of them counted.
pub(crate) const FOREIGN_MAX: usize = 40;

/// The only files that may contain `unsafe` (docs/decisions/0002-unsafe.md).
pub(crate) const UNSAFE: &[&str] = &[
    "crates/client/src/c/files.rs",
    "crates/client/src/c/mod.rs",
    "crates/client/src/c/names.rs",
    "crates/codec/src/checksum/fletcher_x86.rs",
    "crates/codec/src/parity/x86.rs",
    "crates/daemon/src/command.rs",
    "crates/rt/src/buf/memory.rs",
    "crates/rt/src/buf/shelf.rs",
    "crates/rt/src/mem/process.rs",
    "crates/rt/src/thread/lenient.rs",
    "crates/rt/src/workers.rs",
    "crates/wire/src/pipe.rs",
    "crates/wire/src/trays.rs",
];

/// Lines a source file may have, its tests not counted.
pub(crate) const LINES_MAX: usize = 700;

/// Files that are longer, with their length today. An entry may only shrink, and goes when the file
/// is short enough.
pub(crate) const LONG_FILES: &[(&str, usize)] = &[];

/// Something that code must not say.
pub(crate) struct Ban {
    /// The text, as it stands in code (comments and strings do not count).
    pub(crate) text: &'static str,
    /// What to do instead.
    pub(crate) instead: &'static str,
    /// Where the rule holds.
    pub(crate) scope: Scope,
}

/// Where a ban holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All Rust code.
    Everywhere,
    /// Crates of the engine and the doors but `rt`, without their tests.
    Product,
}

const fn product(text: &'static str, instead: &'static str) -> Ban {
    Ban { text, instead, scope: Scope::Product }
}

const fn everywhere(text: &'static str, instead: &'static str) -> Ban {
    Ban { text, instead, scope: Scope::Everywhere }
}

/// What code must not say, with what to say instead.
pub(crate) const BANS: &[Ban] = &[
    product("std::thread", "use rt::thread (INV-10)"),
    product("std::sync::Mutex", "use rt::sync::Mutex (INV-10)"),
    product("std::sync::RwLock", "use rt::sync::RwLock (INV-10)"),
    product("std::sync::Condvar", "use rt::sync::Condvar (INV-10)"),
    product("std::sync::Barrier", "use rt::sync (INV-10)"),
    product("std::sync::mpsc", "use rt::sync::mpsc (INV-10)"),
    product("std::sync::atomic", "use rt::sync::atomic (INV-10)"),
    product("Instant::now", "use rt::time::now (INV-10)"),
    product("SystemTime::now", "use rt::time::wall_clock (INV-10)"),
    product(
        "HashMap::new(",
        "use a BTreeMap or a fixed hasher: a seed must give one trace (INV-10)",
    ),
    product(
        "HashSet::new(",
        "use a BTreeSet or a fixed hasher: a seed must give one trace (INV-10)",
    ),
    product("HashMap::with_capacity(", "use a fixed hasher: a seed must give one trace (INV-10)"),
    product("HashSet::with_capacity(", "use a fixed hasher: a seed must give one trace (INV-10)"),
    product("process::Command", "never shell out; make the call, or read the file"),
    everywhere("todo!", "finish it, or leave it out and say so in SHORTCOMINGS.md"),
    everywhere("unimplemented!", "finish it, or leave it out and say so in SHORTCOMINGS.md"),
    everywhere("dbg!", "take it out"),
    everywhere("#[ignore", "assert what holds today, and say so in SHORTCOMINGS.md"),
    everywhere("#[should_panic", "catch the panic and look at its message"),
];

/// The only files that may run a program (`process::Command`), which nobody below may.
pub(crate) const RUNS_PROGRAMS: &[&str] = &["crates/watch/src/hooks.rs"];

/// What no text file may say: leftovers, and things that are true on one machine only.
/// Spelled in two halves, so that this table does not accuse itself.
pub(crate) const TEXT_BANS: &[(&str, &str, &str)] = &[
    ("../sha", "red", "the project stands alone: take it over, or leave it"),
    ("crates", ".io", "name no registry"),
    ("pypi", ".org", "name no registry"),
    ("deb.debian", ".org", "name no registry"),
    ("/ro", "ot/", "name no path of one machine"),
    ("/ho", "me/", "name no path of one machine"),
    ("/wo", "rk/", "name no path of one machine"),
    ("FIX", "ME", "mend it, or say so in SHORTCOMINGS.md"),
    ("TO", "DO", "do it, or say so in SHORTCOMINGS.md"),
];

/// Files that [`TEXT_BANS`] does not reach: made by tools, or copied word by word.
pub(crate) const TEXT_BANS_SKIP: &[&str] = &["Cargo.lock", "fuzz/Cargo.lock", "LICENSE"];

/// Bytes that all tracked files together may have.
pub(crate) const TREE_BYTES_MAX: u64 = 40 << 20;

/// Bytes that one tracked file may have (the largest golden pool has 3.5 MiB).
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 20;
