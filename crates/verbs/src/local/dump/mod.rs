//! `dump`: what is on disk, told structure by structure as it is read.
//!
//! The pool is not opened: its structures are read one after another through the judge's reader
//! ([`verify::Look`]), so that what the engine would refuse can still be looked at, and what the
//! engine wrote is not read by the code that wrote it. Nothing is collected; what cannot be read
//! is told as an `error` and the next thing comes. Loops that the disk could close are cut: a tree
//! of blocks visits no indirect block twice, a list of objects no object.

mod bonus;
mod contents;
mod dataset;
mod intent_log;
mod labels;
mod metaslabs;
mod object;
mod overview;
mod raw;
mod removed;
mod sa;
mod tree;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::rc::Rc;

use format::config::{PoolConfig, VdevKind};
use format::mos_directory as key;
use format::zap::Value as ZapValue;
use format::{NvList, ObjsetPhys, Uberblock};
use pool::devices::{FoundPool, Scan};
use verify::{Look, Unread};

use crate::dump::{Dump, Dumped, Fact, Parts, Source};
use crate::{Doing, Error, Result, Why};

use super::located::locate_on_disk;
use super::session::pool_error;
use crate::local::Here;

/// Entries of the MOS directory that are kept.
const DIRECTORY_MAX: usize = 4096;
/// Largest packed list that is read, in bytes.
const LIST_MAX: u64 = 64 << 20;
/// The name of the pool's own object set among data sets.
pub(super) const MOS: &str = "mos";

/// Nobody listens any more.
#[derive(Debug)]
struct Gone;

/// What telling comes to.
type Told = std::result::Result<(), Gone>;

/// Result of reading something.
type Readable<T> = std::result::Result<T, Unread>;

/// Where facts go.
struct Teller<'s> {
    sink: &'s mut dyn FnMut(Fact) -> bool,
    errors: u64,
    /// What facts belong to until further notice.
    dataset: Option<Rc<str>>,
    object: Option<u64>,
}

impl<'s> Teller<'s> {
    fn new(sink: &'s mut dyn FnMut(Fact) -> bool) -> Teller<'s> {
        Teller { sink, errors: 0, dataset: None, object: None }
    }

    fn tell(&mut self, mut fact: Fact) -> Told {
        fact.dataset = self.dataset.clone();
        fact.object = fact.object.or(self.object);
        if (self.sink)(fact) { Ok(()) } else { Err(Gone) }
    }

    /// Tells that something could not be read, and why.
    fn wrong(&mut self, what: impl Into<String>, why: impl Display) -> Told {
        self.errors += 1;
        self.tell(Fact::new("error").word("what", what).word("why", why.to_string()))
    }
}

/// A pool that is being told.
struct Dumper<'a, 's> {
    look: Look<'a>,
    out: Teller<'s>,
    mos: ObjsetPhys,
    uberblock: Uberblock,
    config: Option<PoolConfig>,
    directory: BTreeMap<Vec<u8>, ZapValue>,
}

/// Executes the verb.
pub(super) fn dump(
    here: &Here,
    request: &Dump,
    sink: &mut dyn FnMut(Fact) -> bool,
) -> Result<Dumped> {
    let mut out = Teller::new(sink);
    // Who listens no longer has got what he wanted.
    let told = match request {
        Dump::Labels { devices, rings } => labels::tell(&mut out, devices, *rings),
        Dump::Pool { of, parts } => pool(here, of, &mut out, |dumper| dumper.parts(parts))?,
        Dump::Block { of, block } => pool(here, of, &mut out, |dumper| dumper.raw(block))?,
    };
    drop(told);
    Ok(Dumped { errors: out.errors })
}

/// Finds a pool and lends it to `tell`.
fn pool(
    here: &Here,
    of: &Source,
    out: &mut Teller<'_>,
    tell: impl FnOnce(&mut Dumper<'_, '_>) -> Told,
) -> Result<Told> {
    let scan: Scan;
    let located = match locate_on_disk(here, &of.pool, &of.places) {
        Ok(located) => located,
        Err(error) => {
            // A destroyed pool, or one of several of a name, has its guid.
            scan = crate::find::look(&of.places);
            let named = scan.pools.iter().find(|pool| Ok(pool.guid()) == of.pool.parse());
            let Some(found) = named.filter(|_| !of.places.is_empty()) else { return Err(error) };
            return on(found, of, out, tell);
        }
    };
    on(located.found(), of, out, tell)
}

/// Opens the newest uberblock that leads to a MOS, on the vdevs that the MOS names.
fn on(
    found: &FoundPool,
    of: &Source,
    out: &mut Teller<'_>,
    tell: impl FnOnce(&mut Dumper<'_, '_>) -> Told,
) -> Result<Told> {
    let doing = || Doing::Open(of.pool.clone());
    let no = |why: String| Error::cannot(doing(), Why::Damaged(why));
    let by_label = found.open_tree().map_err(|error| pool_error(doing(), error.into()))?;
    let newest = of.txg.unwrap_or(u64::MAX);
    let mut last = format!("no uberblock of txg {newest} or before");
    let mut uberblocks = found.uberblocks.iter().filter(|u| u.txg.get() <= newest);
    let (mos, uberblock) = loop {
        let Some(uberblock) = uberblocks.next() else { return Err(no(last)) };
        match Look::new(&by_label).objset(&uberblock.root) {
            Ok(mos) => break (mos, *uberblock),
            Err(why) => {
                last = format!("the uberblock of txg {} leads to no MOS: {why}", uberblock.txg);
                if out.wrong("uberblock", &last).is_err() {
                    return Ok(Err(Gone));
                }
            }
        }
    };
    let mut look = Look::new(&by_label);
    let directory = directory(&mut look, &mos);
    let config = directory.as_ref().map_err(Clone::clone);
    let config = config.and_then(|directory| read_config(&mut look, &mos, directory));
    let config = config.and_then(|list| Ok(PoolConfig::from_nvlist(&list)?));
    // The MOS has the final word on the vdevs; what it says may be what is damaged.
    let by_config = config.as_ref().ok().and_then(|c| found.open_tree_as(&c.vdev_tree).ok());
    let tree = by_config.as_ref().unwrap_or(&by_label);
    let mut dumper = Dumper {
        look: Look::new(tree),
        out: Teller { sink: &mut *out.sink, errors: 0, dataset: None, object: None },
        mos,
        uberblock,
        config: None,
        directory: BTreeMap::new(),
    };
    let told = dumper.prepare(directory, config).and_then(|()| tell(&mut dumper));
    let errors = dumper.out.errors;
    out.errors += errors;
    Ok(told)
}

/// The MOS directory.
fn directory(look: &mut Look<'_>, mos: &ObjsetPhys) -> Readable<BTreeMap<Vec<u8>, ZapValue>> {
    let dnode = look.expect(mos, 1)?;
    let mut all = BTreeMap::new();
    look.zap(&dnode, |entry| {
        all.extend(entry.ok().map(|entry| (entry.name, entry.value)));
        all.len() < DIRECTORY_MAX
    })?;
    Ok(all)
}

/// The pool's config, as the MOS has it.
fn read_config(
    look: &mut Look<'_>,
    mos: &ObjsetPhys,
    directory: &BTreeMap<Vec<u8>, ZapValue>,
) -> Readable<NvList> {
    let object = directory.get(key::CONFIG).and_then(ZapValue::as_u64);
    let object = object.ok_or_else(|| Unread("the MOS directory has no config".into()))?;
    let dnode = look.expect(mos, object)?;
    packed_list(look, &dnode)
}

/// The list that an object holds whose bonus is its size.
fn packed_list(look: &mut Look<'_>, dnode: &format::DnodePhys) -> Readable<NvList> {
    let size = dnode.bonus().first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
    let room = dnode.max_block().saturating_add(1).saturating_mul(dnode.block_size().into());
    if size > LIST_MAX.min(room) {
        return Err(Unread(format!("a list of {size} bytes in blocks of {room}")));
    }
    let bytes = look.range(dnode, 0, size as usize)?;
    Ok(NvList::parse(&bytes)?)
}

impl Dumper<'_, '_> {
    /// Takes what was read of the MOS; tells what could not be.
    fn prepare(
        &mut self,
        directory: Readable<BTreeMap<Vec<u8>, ZapValue>>,
        config: Readable<PoolConfig>,
    ) -> Told {
        match directory {
            Ok(directory) => self.directory = directory,
            Err(why) => self.out.wrong("MOS directory", why)?,
        }
        let salt = self.directory.get(key::CHECKSUM_SALT);
        if let Some(salt) = salt.and_then(ZapValue::as_bytes).and_then(|b| b.try_into().ok()) {
            self.look.set_salt(salt);
        }
        match config {
            Err(why) => self.out.wrong("pool config", why),
            Ok(config) => {
                for (id, top) in (0u32..).zip(&config.vdev_tree.children) {
                    if top.kind == VdevKind::Indirect
                        && let Err(why) = self.look.load_mapping(&self.mos, id, top)
                    {
                        self.out.wrong(format!("mapping of vdev {id}"), why)?;
                    }
                }
                self.config = Some(config);
                Ok(())
            }
        }
    }

    /// The object that a name in the MOS directory stands for.
    fn find(&self, name: &[u8]) -> Option<u64> {
        let value = self.directory.get(name).and_then(ZapValue::as_u64);
        value.filter(|object| *object != 0)
    }

    fn parts(&mut self, parts: &Parts) -> Told {
        if parts.uberblock {
            let uberblock = crate::dump::Value::Uberblock(Box::new(self.uberblock));
            self.out.tell(Fact::new("uberblock").with("uberblock", uberblock))?;
        }
        if parts.config {
            match read_config(&mut self.look, &self.mos, &self.directory) {
                Ok(list) => {
                    let list = crate::dump::Value::List(list);
                    self.out.tell(Fact::new("config").with("config", list))?;
                }
                Err(why) => self.out.wrong("pool config", why)?,
            }
        }
        if parts.overview {
            self.overview()?;
        }
        if parts.metaslabs > 0 {
            self.metaslabs(parts.metaslabs)?;
        }
        if parts.history {
            match self.find(key::HISTORY) {
                Some(object) => self.history(object)?,
                None => self.out.wrong("history", "the MOS directory has none")?,
            }
        }
        if parts.datasets > 0 || parts.intent_logs {
            self.datasets(parts)?;
        }
        Ok(())
    }
}
