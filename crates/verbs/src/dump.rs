//! Request and report of `dump`: what is on disk, structure by structure.
//!
//! The one idea: a dump has no end that could be held in memory, so its report is a stream of
//! *facts*, each a kind and named values. A value says what it is (a number, a time, a pointer, a
//! name of unknown bytes), not how it looks: a door prints the same facts as text or for machines.

use std::path::PathBuf;
use std::rc::Rc;

pub use format::nvlist::Value as PairValue;
pub use format::{BlkPtr, Dva, NvList, Uberblock, printing};

/// Prints structures as they are on disk. Nothing is written, and nobody is kept from the devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dump {
    /// The labels of devices.
    Labels {
        /// The devices.
        devices: Vec<PathBuf>,
        /// With the rings of uberblocks.
        rings: bool,
    },
    /// Parts of a pool.
    Pool {
        /// Which pool, and at which txg.
        of: Source,
        /// What of it.
        parts: Parts,
    },
    /// One block by its place.
    Block {
        /// Which pool.
        of: Source,
        /// Where it is and how it is to be read.
        block: RawBlock,
    },
}

/// Which pool, and where to look for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Name, or guid of one that `places` has.
    pub pool: String,
    /// Where to look for it, if it is not remembered.
    pub places: Vec<PathBuf>,
    /// The newest uberblock that is not after this txg, instead of the newest.
    pub txg: Option<u64>,
}

/// What of a pool is to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The newest uberblock.
    pub uberblock: bool,
    /// The config in the MOS.
    pub config: bool,
    /// The MOS directory, the features and the tree of vdevs.
    pub overview: bool,
    /// Metaslabs: 1 a line each, 2 and the maps' headers, 3 and their entries and the logs.
    pub metaslabs: u8,
    /// The pool's history.
    pub history: bool,
    /// Intent logs, block by block and record by record.
    pub intent_logs: bool,
    /// Data sets: 1 a line each, 2 and their objects, 4 and what is in the objects, 5 and their
    /// blocks.
    pub datasets: u8,
    /// The data set that is meant (`mos` for the pool's own); `None`: all.
    pub dataset: Option<String>,
    /// The objects that are meant, from first to last; none: all. Those named are told in full.
    pub objects: Vec<(u64, u64)>,
}

/// A block by its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawBlock {
    /// Number of the top-level vdev.
    pub vdev: u32,
    /// Offset in it, in bytes.
    pub offset: u64,
    /// Bytes as they are stored.
    pub psize: u64,
    /// Bytes when decompressed; 0: as many.
    pub lsize: u64,
    /// How it is compressed: its name.
    pub compress: Option<String>,
    /// The checksum that it must have: its name and words.
    pub checksum: Option<(String, [u64; 4])>,
    /// Read its bytes as block pointers.
    pub pointers: bool,
    /// Read it as a gang header.
    pub gang: bool,
}

/// A value as it is on disk.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A number below zero, perhaps.
    Signed(i64),
    /// A number that is read as hexadecimal: offsets, sizes, bits, guids that are no identity.
    Hex(u64),
    /// Seconds since 1970, and nanoseconds where the structure has them.
    Time(i64, Option<u32>),
    /// A word of ours.
    Word(String),
    /// A name or text from the disk: any bytes.
    Text(Vec<u8>),
    /// Bytes that are no text.
    Bytes(Vec<u8>),
    /// Several numbers.
    Numbers(Vec<u64>),
    /// Several words of ours.
    Words(Vec<&'static str>),
    /// The four words of a checksum.
    Checksum([u64; 4]),
    /// A block pointer.
    Pointer(Box<BlkPtr>),
    /// A list of pairs.
    List(NvList),
    /// An uberblock.
    Uberblock(Box<Uberblock>),
}

/// One thing that is on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// What it is: `dnode`, `block`, `entry`, .. (`thumper dump -h` has the list).
    pub kind: &'static str,
    /// The data set that it belongs to, `mos` for the pool's own.
    pub dataset: Option<Rc<str>>,
    /// The object that it belongs to.
    pub object: Option<u64>,
    /// What is known of it, in order.
    pub values: Vec<(&'static str, Value)>,
}

impl Fact {
    /// A fact of this kind, of which nothing is known yet.
    #[must_use]
    pub fn new(kind: &'static str) -> Fact {
        Fact { kind, dataset: None, object: None, values: Vec::new() }
    }

    /// And a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: Value) -> Fact {
        self.values.push((name, value));
        self
    }

    /// And a number.
    #[must_use]
    pub fn number(self, name: &'static str, value: impl Into<u64>) -> Fact {
        self.with(name, Value::Number(value.into()))
    }

    /// And a number that is read as hexadecimal.
    #[must_use]
    pub fn hex(self, name: &'static str, value: impl Into<u64>) -> Fact {
        self.with(name, Value::Hex(value.into()))
    }

    /// And a word of ours.
    #[must_use]
    pub fn word(self, name: &'static str, value: impl Into<String>) -> Fact {
        self.with(name, Value::Word(value.into()))
    }

    /// And text from the disk.
    #[must_use]
    pub fn text(self, name: &'static str, value: impl Into<Vec<u8>>) -> Fact {
        self.with(name, Value::Text(value.into()))
    }

    /// And a time in seconds since 1970.
    #[must_use]
    pub fn time(self, name: &'static str, value: u64) -> Fact {
        self.with(name, Value::Time(value.cast_signed(), None))
    }

    /// And a block pointer.
    #[must_use]
    pub fn pointer(self, name: &'static str, value: &BlkPtr) -> Fact {
        self.with(name, Value::Pointer(Box::new(*value)))
    }

    /// The value of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The number of this name, 0 if there is none.
    #[must_use]
    pub fn u64(&self, name: &str) -> u64 {
        match self.get(name) {
            Some(Value::Number(value) | Value::Hex(value)) => *value,
            Some(Value::Signed(value) | Value::Time(value, _)) => value.cast_unsigned(),
            _ => 0,
        }
    }
}

/// How a dump ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// Things that could not be read: each was told as a fact of kind `error`.
    pub errors: u64,
}
