//! ZAPs: are tables of names in order?
//!
//! FORMAT: section 6. Every entry must be found where its hash leads, and all counts must be right.
//! The check itself is the format's own; here it is bounded by what the object can hold.

use crate::object;
use crate::report::FindingKind;
use crate::walk::{Scope, Walk, named};
use format::DnodePhys;
use format::zap::check::{Problem, check};
use format::zap::{Kind, Reader};

/// Examines the ZAP in an object that the walk has seen.
pub(crate) fn check_object(walk: &mut Walk<'_>, scope: Scope, number: u64, dnode: &DnodePhys) {
    let blocks = &mut walk.blocks;
    let table = Reader::open(|number| object::block(blocks, dnode, number)).ok().and_then(|zap| {
        let head = (zap.kind() == Kind::Fat).then(|| zap.header().copied()).flatten()?;
        Some(8u64.checked_shl(head.table_shift.get() as u32).unwrap_or(u64::MAX))
    });
    let room = dnode.max_block().saturating_add(1).saturating_mul(dnode.block_size().into());
    let list = match table {
        Some(table) if table > room => {
            Err(format!("a pointer table of {table} bytes, the object has {room}"))
        }
        _ => Ok(check(|number| object::block(blocks, dnode, number), dnode.max_block())),
    };
    let mut tell = |text: String| {
        walk.findings.add(FindingKind::Zap, || {
            format!("{} object {number}: {text}", named(&walk.names, scope.dataset))
        });
    };
    match list {
        Err(text) => tell(text),
        Ok(list) => {
            for finding in list {
                // What cannot be read has been told of by the walk.
                if !matches!(finding.problem, Problem::Unreadable(_)) {
                    tell(finding.to_string());
                }
            }
        }
    }
}
