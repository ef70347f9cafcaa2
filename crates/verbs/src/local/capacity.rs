//! What `zpool create -n` says beyond the layout: how much the pool would hold.
//!
//! A line of the report is for people to choose a layout by; OpenZFS has nothing like it.

use device::{Device, ReadFile};
use pool::capacity::{PlannedTop, foretell};
use pool::props::nice_bytes;

use crate::layout::Class;
use crate::pools::Create;
use crate::{Doing, Error, Result, Why};

/// The lines of the report; none if the pool could not be made.
pub(super) fn foretold(request: &Create) -> Result<Vec<String>> {
    let mut tops = Vec::new();
    let mut sector = None;
    for group in request.layout.groups.iter().filter(|group| group.class == Class::Normal) {
        let joined = super::lifecycle::joined(group.kind);
        let mut device_bytes = Vec::new();
        for path in &group.devices {
            let file = ReadFile::open(path).map_err(|e| {
                Error::cannot(Doing::Create(request.name.clone()), Why::Host(e.to_string()))
            })?;
            device_bytes.push(file.size());
            sector = sector.max(Some(file.sector_size()));
        }
        tops.push(PlannedTop { joined, device_bytes });
    }
    let Some(told) = foretell(&tops, super::lifecycle::ashift(request, sector)) else {
        return Ok(Vec::new());
    };
    let mut lines = vec![
        String::new(),
        format!(
            "usable space: {} of {} ({} more is kept free)",
            nice_bytes(told.usable),
            nice_bytes(told.size),
            nice_bytes(told.slop)
        ),
        "uncompressed data that fits, and what padding loses, by record size:".into(),
        String::new(),
        "\tRECORD     FITS  PADDING".into(),
    ];
    for row in told.records {
        let padding = format!("{}.{}%", row.padding_permille / 10, row.padding_permille % 10);
        let (record, data) = (nice_bytes(row.record), nice_bytes(row.data));
        lines.push(format!("\t{record:>6}  {data:>7}  {padding:>7}"));
    }
    Ok(lines)
}
