//! Blocks that were on removed vdevs: their pieces, wherever they are now.
//!
//! The one idea: only the whole has a checksum. So the different bytes that leaves have for each piece are put
//! together until the whole is right; with the right bytes known, every leaf's piece is compared with them.
//! FORMAT: section 13.5.

use crate::block::{Audit, Blocks};
use crate::mos::Mos;
use crate::object::{self, Unread};
use crate::pending;
use crate::report::FindingKind;
use crate::walk::{MOS, Scope, Walk};
use format::Dva;
use format::config::{VdevConfig, VdevKind};
use format::indirect::{self, MappingEntry, MappingPhys, Piece, mapping_entries};
use std::collections::BTreeMap;
use vdev::FaultKind;

/// Mappings that lead to removed vdevs: how far that is followed.
const DEPTH_MAX: usize = 8;
/// Combinations of pieces that are tried, and bytes that are looked at for them.
const TRIED_MAX: usize = 4096;
const TRIED_BYTES_MAX: usize = 64 << 20;

/// What the leaves have for a piece: each different version once.
type Versions = Vec<Vec<u8>>;

impl Blocks<'_> {
    /// Where the pieces of a range of a removed vdev are.
    fn pieces(&self, dva: Dva, size: u64) -> Result<Vec<Piece>, String> {
        let whole = Piece { inner: 0, vdev: dva.vdev, offset: dva.offset, size };
        let (mut todo, mut out) = (vec![(whole, 0)], Vec::new());
        while let Some((piece, depth)) = todo.pop() {
            let Some(entries) = self.mappings.get(&piece.vdev) else {
                out.push(piece);
                continue;
            };
            if depth > DEPTH_MAX {
                return Err("mappings of removed vdevs nested too deep".into());
            }
            let found = indirect::pieces(entries, piece.offset, piece.size);
            let parts = found.map_err(|e| e.to_string())?.into_iter().rev();
            todo.extend(
                parts.map(|part| (Piece { inner: piece.inner + part.inner, ..part }, depth + 1)),
            );
        }
        Ok(out)
    }

    /// Notes the space of a copy that was on a removed vdev.
    pub(crate) fn moved_segments(&self, dva: Dva, audit: &mut Audit) -> Result<(), String> {
        let pieces = self.pieces(dva, dva.asize)?;
        audit.segments.extend(pieces.iter().map(|piece| (piece.vdev, piece.offset, piece.size)));
        Ok(())
    }

    /// A copy that was on a removed vdev; with an audit all leaves' pieces of it are looked at.
    pub(crate) fn moved(
        &mut self,
        dva: Dva,
        birth: u64,
        out: &mut [u8],
        mut audit: Option<&mut Audit>,
        check: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), String> {
        let pieces = self.pieces(dva, dva.asize.max(out.len() as u64))?;
        if let Some(audit) = audit.as_deref_mut() {
            let segments = pieces.iter().map(|piece| (piece.vdev, piece.offset, piece.size));
            audit.segments.extend(segments);
        }
        let size = out.len() as u64;
        let with_data = pieces.into_iter().filter(|piece| piece.inner < size);
        let pieces: Vec<Piece> = with_data
            .map(|piece| Piece { size: piece.size.min(size - piece.inner), ..piece })
            .collect();
        if let [piece] = pieces[..] {
            return self.piece(piece, birth, out, audit, check);
        }
        let mut all = Vec::with_capacity(pieces.len());
        let mut first = Audit::default();
        for piece in &pieces {
            all.push(self.versions(*piece, birth, part(out, piece), &mut first));
        }
        let tried = self.put_together(&pieces, &all, out, check)?;
        let Some(audit) = audit else { return tried.map(|_| ()).ok_or_else(mismatch) };
        match tried {
            Some(1) => {
                audit.missing += first.missing;
                audit.faults.append(&mut first.faults);
            }
            Some(_) => {
                for piece in &pieces {
                    let right = part(out, piece).to_vec();
                    let mut bytes = vec![0; right.len()];
                    let is_right = &mut |seen: &[u8]| *seen == *right;
                    self.piece(*piece, birth, &mut bytes, Some(&mut *audit), is_right)?;
                }
            }
            None => {
                // Which of the others is wrong cannot be told.
                first.faults.retain(|fault| matches!(fault.kind, FaultKind::Read(_)));
                audit.missing += first.missing;
                audit.faults.append(&mut first.faults);
                return Err(mismatch());
            }
        }
        Ok(())
    }

    /// A piece with a check of its own; with an audit from a look at all leaves.
    fn piece(
        &mut self,
        piece: Piece,
        birth: u64,
        out: &mut [u8],
        audit: Option<&mut Audit>,
        check: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), String> {
        let (tree, Piece { vdev, offset, .. }) = (self.tree(), piece);
        let Some(audit) = audit else {
            let read = tree.read_with(vdev, offset, birth, out, &mut self.scratch, check);
            return read.map(|_| ()).map_err(|e| e.to_string());
        };
        let found = tree.examine(vdev, offset, birth, out, &mut self.scratch, check);
        let found = found.map_err(|e| e.to_string())?;
        audit.missing += found.missing;
        audit.faults.extend(found.faults);
        found.lost.map_or(Ok(()), |e| Err(e.to_string()))
    }

    /// What the leaves have for a piece; `audit` gets the faults there are if the first is right.
    fn versions(
        &mut self,
        piece: Piece,
        birth: u64,
        out: &mut [u8],
        audit: &mut Audit,
    ) -> Versions {
        let mut versions = Versions::new();
        let mut keep = |bytes: &[u8]| {
            if !versions.iter().any(|version| version == bytes) {
                versions.push(bytes.to_vec());
            }
            true
        };
        // Of what cannot be read there is no version: the whole is then lost.
        drop(self.piece(piece, birth, out, Some(audit), &mut keep));
        versions
    }

    /// Tries combinations of versions until the whole is right: how many that took.
    fn put_together(
        &mut self,
        pieces: &[Piece],
        all: &[Versions],
        out: &mut [u8],
        check: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Option<usize>, String> {
        if let Some((piece, _)) = pieces.iter().zip(all).find(|(_, versions)| versions.is_empty()) {
            let Piece { vdev, offset, size, .. } = piece;
            return Err(format!("no leaf gives {size} bytes at vdev {vdev} offset {offset:#x}"));
        }
        let most = TRIED_MAX.min(TRIED_BYTES_MAX / out.len().max(1)).max(1);
        // One digit for each piece of which there are several versions: which of them is taken.
        let mut digits: BTreeMap<usize, usize> = BTreeMap::new();
        digits.extend(all.iter().enumerate().filter(|(_, v)| v.len() > 1).map(|(at, _)| (at, 0)));
        for (piece, versions) in pieces.iter().zip(all) {
            part(out, piece).copy_from_slice(&versions[0]);
        }
        for tried in 1..=most {
            self.pulse()?;
            if check(out) {
                return Ok(Some(tried));
            }
            let mut carry = true;
            for (at, digit) in &mut digits {
                if !carry {
                    break;
                }
                *digit = (*digit + 1) % all[*at].len();
                carry = *digit == 0;
                part(out, &pieces[*at]).copy_from_slice(&all[*at][*digit]);
            }
            if carry {
                break;
            }
        }
        Ok(None)
    }
}

/// Claims what was copied so far of a vdev that is being removed: blocks still lead to where it was.
/// Of what was freed meanwhile the copy is free, too.
pub(crate) fn claim(walk: &mut Walk<'_>, mos: &Mos, child: &VdevConfig, most: u64) {
    let Some(indirect) = &child.indirect else { return };
    let removing = child.top.is_some_and(|top| top.removing);
    if !removing || child.kind == VdevKind::Indirect || indirect.object == 0 {
        return;
    }
    match mapping(&mut walk.blocks, mos, indirect.object, most) {
        Ok(Ok(entries)) => {
            let scope = Scope { dying: true, ..Scope::whole(MOS) };
            for dst in entries.iter().map(MappingEntry::dst) {
                let segment = (dst.vdev, dst.offset, dst.asize);
                walk.claim(scope, pending::PENDING, false, &[segment]);
            }
        }
        Ok(Err(count)) => {
            walk.incomplete = true;
            walk.findings.add(FindingKind::Unjudged, || {
                format!(
                    "vdev {} is being removed, and {count} pieces were copied: more memory is \
                     needed to judge space",
                    child.guid
                )
            });
        }
        Err(why) => {
            walk.incomplete = true;
            walk.findings.add(FindingKind::LostMetadata, || {
                format!("mapping of vdev {}, which is being removed: {why}", child.guid)
            });
        }
    }
}

/// Reads where the space of a removed vdev is now, if it has no more than `left` entries; else how
/// many it has.
pub(crate) fn load(
    walk: &mut Walk<'_>,
    mos: &Mos,
    id: u32,
    child: &VdevConfig,
    left: &mut u64,
) -> Result<Option<u64>, Unread> {
    let Some(indirect) = &child.indirect else { return Ok(None) };
    if child.kind != VdevKind::Indirect || indirect.object == 0 {
        return Ok(None);
    }
    let blocks = &mut walk.blocks;
    Ok(match mapping(blocks, mos, indirect.object, *left)? {
        Ok(entries) => {
            *left -= entries.len() as u64;
            blocks.set_mapping(id, entries);
            None
        }
        Err(count) => Some(count),
    })
}

/// The entries of a mapping, if they are no more than `most`; else how many they are.
fn mapping(
    blocks: &mut Blocks<'_>,
    mos: &Mos,
    object: u64,
    most: u64,
) -> Result<Result<Vec<MappingEntry>, u64>, Unread> {
    let dnode = mos.expect(blocks, object)?;
    let phys = MappingPhys::parse(dnode.bonus())?;
    let count = phys.num_entries.get();
    let room = dnode.max_block().saturating_add(1).saturating_mul(dnode.block_size().into());
    if count.saturating_mul(24) > room {
        return Err(Unread(format!("{count} entries")));
    }
    if count > most {
        return Ok(Err(count));
    }
    let bytes = object::range(blocks, &dnode, 0, count as usize * 24)?;
    Ok(Ok(mapping_entries(&bytes, count)?.to_vec()))
}

/// The bytes of a piece within its block.
fn part<'a>(out: &'a mut [u8], piece: &Piece) -> &'a mut [u8] {
    &mut out[piece.inner as usize..][..piece.size as usize]
}

fn mismatch() -> String {
    "checksum mismatch".into()
}
