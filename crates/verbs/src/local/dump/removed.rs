//! A vdev that was removed: where its space is now, when it was copied, and what of it is obsolete.

use format::config::VdevConfig;
use format::indirect::{MappingPhys, birth_entries, check_order, mapping_entries};
use format::mos_directory as key;
use format::space_map::Geometry;

use super::contents::covered;
use super::{Dumper, Readable, Told};
use crate::dump::Fact;

/// Entries that are read at once.
const AT_ONCE: u64 = 1024;

impl Dumper<'_, '_> {
    /// Tells what is kept of a removed vdev.
    pub(super) fn removed(&mut self, id: u32, vdev: &VdevConfig, entries: bool) -> Told {
        let place = || format!("vdev {id}, removed");
        if let Some(indirect) = &vdev.indirect {
            if let Some(births) = indirect.births.filter(|object| *object != 0) {
                match self.births(id, births) {
                    Ok(told) => told?,
                    Err(why) => self.out.wrong(place(), why)?,
                }
            }
            match self.mapping(id, indirect.object) {
                Ok(told) => told?,
                Err(why) => self.out.wrong(place(), why)?,
            }
        }
        // In bytes, not in sectors as the maps of metaslabs.
        self.vdev_map(id, vdev, key::TOP_OBSOLETE_MAP, 0, entries)
    }

    /// Tells a space map of a whole vdev, if it has that one: its units are `1 << shift` bytes.
    pub(super) fn vdev_map(
        &mut self,
        id: u32,
        vdev: &VdevConfig,
        key: &[u8],
        shift: u32,
        entries: bool,
    ) -> Told {
        let Some(zap) = vdev.zap_top.filter(|object| *object != 0) else { return Ok(()) };
        let found = self.lookup(zap, key).and_then(|object| match object {
            Some(object) => Ok(Some((object, self.map(object)?))),
            None => Ok(None),
        });
        match found {
            Ok(None) => Ok(()),
            Err(why) => self.out.wrong(format!("vdev {id}: {}", String::from_utf8_lossy(key)), why),
            Ok(Some((object, (dnode, phys, has_histogram)))) => {
                let size = vdev.top.as_ref().map_or(u64::MAX, |top| top.asize);
                let geometry = Geometry { start: 0, size, shift };
                self.space_map_header(object, &phys, has_histogram, shift)?;
                if !entries {
                    return Ok(());
                }
                self.space_map_entries(object, &dnode, &phys, geometry)
            }
        }
    }

    fn births(&mut self, id: u32, object: u64) -> Readable<Told> {
        let dnode = self.look.expect(&self.mos, object)?;
        let count = dnode.bonus().first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
        covered(&dnode, count, 16)?;
        let mut fact = Fact::new("births").number("vdev", id).number("count", count);
        fact.object = Some(object);
        if self.out.tell(fact).is_err() {
            return Ok(Err(super::Gone));
        }
        for at in (0..count).step_by(AT_ONCE as usize) {
            let part = (count - at).min(AT_ONCE);
            let bytes = self.look.range(&dnode, at * 16, part as usize * 16)?;
            for entry in birth_entries(&bytes, part)? {
                let fact = Fact::new("born").number("vdev", id).hex("end", entry.end_offset.get());
                if self.out.tell(fact.number("txg", entry.physical_birth_txg.get())).is_err() {
                    return Ok(Err(super::Gone));
                }
            }
        }
        Ok(Ok(()))
    }

    fn mapping(&mut self, id: u32, object: u64) -> Readable<Told> {
        let dnode = self.look.expect(&self.mos, object)?;
        let phys = MappingPhys::parse(dnode.bonus())?;
        let count = phys.num_entries.get();
        covered(&dnode, count, 24)?;
        let mut fact = Fact::new("mapping")
            .number("vdev", id)
            .hex("max_offset", phys.max_offset.get())
            .hex("bytes_mapped", phys.bytes_mapped.get())
            .number("count", count)
            .number("counts_object", phys.counts_object.get());
        fact.object = Some(object);
        if self.out.tell(fact).is_err() {
            return Ok(Err(super::Gone));
        }
        for at in (0..count).step_by(AT_ONCE as usize) {
            let part = (count - at).min(AT_ONCE);
            let bytes = self.look.range(&dnode, at * 24, part as usize * 24)?;
            let entries = mapping_entries(&bytes, part)?;
            check_order(entries)?;
            for entry in entries {
                let to = entry.dst();
                let fact = Fact::new("moved")
                    .number("vdev", id)
                    .hex("from", entry.offset())
                    .hex("size", to.asize)
                    .number("to_vdev", to.vdev)
                    .hex("to", to.offset);
                if self.out.tell(fact).is_err() {
                    return Ok(Err(super::Gone));
                }
            }
        }
        Ok(Ok(()))
    }
}
