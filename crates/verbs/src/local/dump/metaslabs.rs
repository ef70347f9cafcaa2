//! Metaslabs: where the maps of free space are, what they say of themselves, their entries; and
//! the logs of changes that are not in them yet.

use format::config::{VdevConfig, VdevKind};
use format::mos_directory as key;
use format::space_map::{self, Action, Geometry, Item, SpaceMapPhys};
use format::{BLOCK_SIZE_MAX, DnodePhys};
use verify::Unread;

use super::{Dumper, Readable, Told};
use crate::dump::{Fact, Value};

/// Metaslabs of one vdev that are believed: OpenZFS makes an eighth of that.
const METASLABS_MAX: u64 = 1 << 20;
/// How much is told of a map.
const HEADERS: u8 = 2;
const ENTRIES: u8 = 3;

/// The arrays that belong to the metaslabs of one top-level vdev.
struct Slabs {
    id: u32,
    ashift: u32,
    shift: u32,
    count: u64,
    array: u64,
    unflushed: u64,
}

impl Dumper<'_, '_> {
    /// Tells the metaslabs of all vdevs.
    pub(super) fn metaslabs(&mut self, detail: u8) -> Told {
        let Some(config) = self.config.clone() else {
            return self.out.wrong("metaslabs", "the config could not be read");
        };
        for (id, top) in (0u32..).zip(&config.vdev_tree.children) {
            if top.kind == VdevKind::Indirect {
                self.removed(id, top, detail >= ENTRIES)?;
                continue;
            }
            match self.slabs(id, top) {
                Ok(None) => {}
                Ok(Some(slabs)) => {
                    self.vdev_slabs(&slabs, detail)?;
                    if detail >= HEADERS {
                        self.vdev_map(
                            id,
                            top,
                            key::TOP_CHECKPOINT_MAP,
                            slabs.ashift,
                            detail >= ENTRIES,
                        )?;
                    }
                }
                Err(why) => self.out.wrong(format!("vdev {id}: metaslabs"), why)?,
            }
        }
        self.logs(detail)
    }

    fn slabs(&mut self, id: u32, vdev: &VdevConfig) -> Readable<Option<Slabs>> {
        let Some(top) = &vdev.top else { return Ok(None) };
        if matches!(vdev.kind, VdevKind::Hole | VdevKind::Indirect | VdevKind::Missing) {
            return Ok(None);
        }
        let (shift, ashift) = (top.metaslab_shift, top.ashift);
        let count = top.asize.checked_shr(shift.try_into().unwrap_or(64)).unwrap_or(0);
        if !(9..=20).contains(&ashift) || shift <= ashift || shift > 40 || count > METASLABS_MAX {
            let text = format!("{count} metaslabs of 2^{shift} bytes, ashift {ashift}");
            return Err(Unread(text));
        }
        let unflushed = match vdev.zap_top.filter(|object| *object != 0) {
            Some(object) => self.lookup(object, key::TOP_UNFLUSHED_TXGS)?.unwrap_or(0),
            None => 0,
        };
        let (ashift, shift) = (ashift as u32, shift as u32);
        Ok(Some(Slabs { id, ashift, shift, count, array: top.metaslab_array, unflushed }))
    }

    /// A word of an array that may be shorter than asked for, or not there.
    fn word(&mut self, object: u64, index: u64) -> Readable<u64> {
        if object == 0 {
            return Ok(0);
        }
        let dnode = self.look.expect(&self.mos, object)?;
        if index * 8 / u64::from(dnode.block_size()) > dnode.max_block() {
            return Ok(0);
        }
        let bytes = self.look.range(&dnode, index * 8, 8)?;
        Ok(bytes.first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b)))
    }

    fn vdev_slabs(&mut self, slabs: &Slabs, detail: u8) -> Told {
        let fact = Fact::new("metaslabs")
            .number("vdev", slabs.id)
            .number("count", slabs.count)
            .number("array", slabs.array)
            .number("unflushed_object", slabs.unflushed);
        self.out.tell(fact)?;
        for index in 0..slabs.count {
            let place = || format!("vdev {} metaslab {index}", slabs.id);
            let (start, size) = (index << slabs.shift, 1u64 << slabs.shift);
            let mut fact = Fact::new("metaslab")
                .number("vdev", slabs.id)
                .number("metaslab", index)
                .hex("offset", start)
                .hex("size", size);
            let read = self.word(slabs.array, index).and_then(|object| {
                let since = self.word(slabs.unflushed, index)?;
                let map = if object == 0 { None } else { Some(self.map(object)?) };
                Ok((object, since, map))
            });
            let (object, since, map) = match read {
                Ok(read) => read,
                Err(why) => {
                    self.out.wrong(place(), why)?;
                    continue;
                }
            };
            fact = fact.number("spacemap", object);
            let alloc = map.as_ref().map_or(0, |(_, phys, _)| phys.alloc.get());
            let free = i64::try_from(size).unwrap_or(i64::MAX).saturating_sub(alloc);
            fact = fact.with("free", Value::Signed(free));
            if slabs.unflushed != 0 {
                fact = fact.number("unflushed_txg", since);
            }
            self.out.tell(fact)?;
            if let Some((dnode, phys, has_histogram)) = map
                && detail >= HEADERS
            {
                let geometry = Geometry::metaslab(start, size, slabs.ashift);
                self.space_map_header(object, &phys, has_histogram, slabs.ashift)?;
                if detail >= ENTRIES {
                    self.space_map_entries(object, &dnode, &phys, geometry)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn map(&mut self, object: u64) -> Readable<(DnodePhys, SpaceMapPhys, bool)> {
        let dnode = self.look.expect(&self.mos, object)?;
        let (phys, has_histogram) = SpaceMapPhys::parse(dnode.bonus())?;
        Ok((dnode, phys, has_histogram))
    }

    /// Tells what a space map says of itself.
    pub(super) fn space_map_header(
        &mut self,
        object: u64,
        phys: &SpaceMapPhys,
        has_histogram: bool,
        shift: u32,
    ) -> Told {
        let mut fact = Fact::new("space-map").hex("smp_length", phys.length.get());
        fact = fact.hex("smp_alloc", phys.alloc.get().cast_unsigned());
        fact.object = Some(object);
        if has_histogram {
            let counts: Vec<u64> = phys.histogram.iter().map(|word| word.get()).collect();
            let used = counts.iter().rposition(|count| *count != 0).map_or(0, |last| last + 1);
            let counts = counts.into_iter().take(used).collect();
            fact = fact.number("histogram_shift", shift);
            fact = fact.with("histogram", Value::Numbers(counts));
        }
        self.out.tell(fact)
    }

    /// Tells the entries of a space map, as they are read.
    pub(super) fn space_map_entries(
        &mut self,
        object: u64,
        dnode: &DnodePhys,
        phys: &SpaceMapPhys,
        geometry: Geometry,
    ) -> Told {
        let place = || format!("space map {object}");
        let size = u64::from(dnode.block_size());
        let length = phys.length.get();
        if size > BLOCK_SIZE_MAX || !size.is_multiple_of(8) {
            return self.out.wrong(place(), format!("blocks of {size} bytes"));
        }
        if length.div_ceil(size) > dnode.max_block().saturating_add(1) {
            return self.out.wrong(place(), format!("{length} bytes, beyond its last block"));
        }
        let (mut at, mut index) = (0, 0u64);
        while at < length {
            // A map has no holes: one that claims to be endless ends here.
            let hole = self.look.pointer(dnode, at / size).map(|bp| bp.is_hole());
            let block = match hole {
                Ok(true) => Err(Unread("a hole".into())),
                Ok(false) => self.look.block(dnode, at / size),
                Err(why) => Err(why),
            };
            let block = match block {
                Ok(block) => block,
                Err(why) => return self.out.wrong(format!("{}: byte {at}", place()), why),
            };
            let valid = (length - at).min(size) as usize;
            for item in space_map::items(block.get(..valid).unwrap_or_default(), geometry) {
                let mut fact = match item {
                    Ok(Item::Padding) => Fact::new("padding").number("index", index),
                    Ok(Item::Debug { action, pass, txg }) => Fact::new("batch")
                        .number("index", index)
                        .word("action", word(action))
                        .number("txg", txg)
                        .number("pass", pass),
                    Ok(Item::Run(run)) => {
                        let fact = Fact::new("run")
                            .number("index", index)
                            .word("action", word(run.action))
                            .hex("offset", run.offset)
                            .hex("size", run.size);
                        match run.vdev {
                            Some(vdev) => fact.number("vdev", vdev).number("words", 2u64),
                            None => fact.number("words", 1u64),
                        }
                    }
                    Err(why) => {
                        self.out.wrong(format!("{}: byte {at}", place()), why)?;
                        break;
                    }
                };
                index += 1;
                fact.object = Some(object);
                self.out.tell(fact)?;
            }
            at += size;
        }
        Ok(())
    }

    /// Tells the logs of changes, oldest first.
    fn logs(&mut self, detail: u8) -> Told {
        let Some(zap) = self.find(key::LOG_SPACEMAP_ZAP) else { return Ok(()) };
        let mut list = Vec::new();
        let listed = self.look.expect(&self.mos, zap).and_then(|dnode| {
            self.look.zap(&dnode, |entry| {
                let entry = entry.ok();
                let txg = entry.as_ref().and_then(|e| std::str::from_utf8(&e.name).ok());
                let txg = txg.and_then(|name| u64::from_str_radix(name, 16).ok());
                list.extend(txg.zip(entry.and_then(|e| e.value.as_u64())));
                list.len() < 1 << 20
            })
        });
        if let Err(why) = listed {
            self.out.wrong("log space maps", why)?;
        }
        list.sort_unstable();
        for (txg, object) in list {
            let mut fact = Fact::new("log-space-map").number("txg", txg);
            fact.object = Some(object);
            self.out.tell(fact)?;
            match self.map(object) {
                Err(why) => self.out.wrong(format!("log space map of txg {txg}"), why)?,
                Ok((dnode, phys, has_histogram)) if detail >= HEADERS => {
                    self.space_map_header(object, &phys, has_histogram, Geometry::LOG.shift)?;
                    if detail >= ENTRIES {
                        self.space_map_entries(object, &dnode, &phys, Geometry::LOG)?;
                    }
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// What the units of a space map mean: it is a metaslab's, a log or a DTL.
    pub(super) fn geometry(&mut self, object: u64) -> Option<Geometry> {
        let config = self.config.clone()?;
        if config.vdev_tree.walk().any(|vdev| vdev.dtl == Some(object)) {
            return Some(Geometry::DTL);
        }
        for (id, top) in (0u32..).zip(&config.vdev_tree.children) {
            if let (Some(zap), Some(top)) = (top.zap_top.filter(|zap| *zap != 0), &top.top) {
                let maps = [
                    (key::TOP_OBSOLETE_MAP, 0),
                    (key::TOP_CHECKPOINT_MAP, top.ashift.min(20) as u32),
                ];
                for (key, shift) in maps {
                    if self.lookup(zap, key) == Ok(Some(object)) {
                        return Some(Geometry { start: 0, size: top.asize, shift });
                    }
                }
            }
            let Ok(Some(slabs)) = self.slabs(id, top) else { continue };
            for index in 0..slabs.count {
                if self.word(slabs.array, index) == Ok(object) {
                    let (start, size) = (index << slabs.shift, 1 << slabs.shift);
                    return Some(Geometry::metaslab(start, size, slabs.ashift));
                }
            }
        }
        let mut is_log = false;
        let dnode = self.look.expect(&self.mos, self.find(key::LOG_SPACEMAP_ZAP)?).ok()?;
        let listed = self.look.zap(&dnode, |entry| {
            is_log |= entry.is_ok_and(|entry| entry.value.as_u64() == Some(object));
            !is_log
        });
        (listed.is_ok() && is_log).then_some(Geometry::LOG)
    }
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Alloc => "ALLOC",
        Action::Free => "FREE",
    }
}
