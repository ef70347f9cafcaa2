//! The tree of vdevs as `zpool status`, `zpool import` and `zpool list -v` draw it.

use std::os::unix::ffi::OsStrExt;

use verbs::disks::short_disk;
use verbs::layout::Class;
use verbs::pools::{Aux, State, Stats, Vdev, VdevKind};
use verbs::props::{PoolProp, nice_count};

use crate::columns::{left, right};

/// How vdevs are named.
#[derive(Clone, Copy, Debug, Default)]
pub struct Naming {
    /// By guid (`-g`).
    pub guids: bool,
    /// By the whole path (`-P`).
    pub full: bool,
    /// By what links lead to (`-L`).
    pub follow: bool,
}

/// Sections of a pool's tree below its data, in the order in which they are shown.
pub(super) const SECTIONS: [(Class, &str); 3] =
    [(Class::Dedup, "dedup"), (Class::Special, "special"), (Class::Log, "logs")];

/// A vdev's name.
#[must_use]
pub fn name(vdev: &Vdev, naming: Naming) -> Vec<u8> {
    if naming.guids || vdev.not_present {
        return vdev.guid.to_string().into_bytes();
    }
    let numbered = |word: &str| format!("{word}-{}", vdev.id).into_bytes();
    match (vdev.kind, &vdev.path) {
        (VdevKind::File, Some(path)) => path.as_os_str().as_bytes().to_vec(),
        (VdevKind::Disk, Some(path)) => {
            let resolved = naming.follow.then(|| std::fs::canonicalize(path).ok()).flatten();
            let path = resolved.as_ref().unwrap_or(path).as_os_str().as_bytes();
            if naming.full { path.to_vec() } else { short_disk(path, vdev.whole_disk) }
        }
        (VdevKind::File | VdevKind::Disk, None) => vdev.guid.to_string().into_bytes(),
        (VdevKind::Root, _) => b"root".to_vec(),
        (VdevKind::Mirror, _) => numbered("mirror"),
        (VdevKind::Raidz(parity), _) => numbered(&format!("raidz{parity}")),
        (VdevKind::Draid(parity), _) => numbered(&format!("draid{parity}")),
        (VdevKind::Replacing, _) => numbered("replacing"),
        (VdevKind::Spare, _) => numbered("spare"),
        (VdevKind::Missing, _) => numbered("missing"),
        (VdevKind::Hole, _) => numbered("hole"),
        (VdevKind::Indirect, _) => numbered("indirect"),
    }
}

/// Bytes of the widest name of a tree with its indentation, and of more vdevs below a heading.
#[must_use]
pub fn width(root: &[u8], tree: &Vdev, more: &[&[Vdev]], naming: Naming) -> usize {
    let mut widest = root.len();
    for child in &tree.children {
        widest = widest.max(widest_below(child, 2, naming));
    }
    for vdev in more.iter().flat_map(|list| list.iter()) {
        widest = widest.max(widest_below(vdev, 2, naming));
    }
    widest
}

fn widest_below(vdev: &Vdev, depth: usize, naming: Naming) -> usize {
    let own = depth + name(vdev, naming).len();
    let below = vdev.children.iter().map(|child| widest_below(child, depth + 2, naming));
    below.fold(own, usize::max)
}

/// Top-level vdevs of a section that are shown at all.
pub(super) fn of_class(tree: &Vdev, class: Class) -> impl Iterator<Item = &Vdev> {
    let shown = |v: &&Vdev| !matches!(v.kind, VdevKind::Hole | VdevKind::Indirect);
    tree.children.iter().filter(move |v| v.class == class).filter(shown)
}

/// The names of a tree's vdevs of a class, each in its row, indented (`zpool add -n`).
pub fn names(out: &mut Vec<u8>, tree: &Vdev, class: Class, naming: Naming) {
    of_class(tree, class).for_each(|vdev| name_row(out, vdev, naming));
}

/// The name of a vdev that is not below another, with those of all below it.
pub fn name_row(out: &mut Vec<u8>, vdev: &Vdev, naming: Naming) {
    named_below(out, vdev, 2, naming);
}

fn named_below(out: &mut Vec<u8>, vdev: &Vdev, depth: usize, naming: Naming) {
    out.push(b'\t');
    out.resize(out.len() + depth, b' ');
    out.extend_from_slice(&name(vdev, naming));
    out.push(b'\n');
    vdev.children.iter().for_each(|child| named_below(out, child, depth + 2, naming));
}

/// What follows a vdev's counters.
fn remark(vdev: &Vdev) -> Option<Vec<u8>> {
    if vdev.not_present {
        let path = vdev.path.as_ref()?;
        return Some([b"was ", path.as_os_str().as_bytes()].concat());
    }
    match (vdev.aux, &vdev.slow) {
        (Some(aux), _) => Some(aux_text(aux).into()),
        (None, Some(slow)) => Some(format!("slow: {slow}").into_bytes()),
        (None, None) => None,
    }
}

fn aux_text(aux: Aux) -> &'static str {
    match aux {
        Aux::CannotOpen => "cannot open",
        Aux::BadLabel => "invalid label",
        Aux::BadGuidSum => "missing device",
        Aux::NoReplicas => "insufficient replicas",
        Aux::TooManyErrors => "too many errors",
        Aux::External => "external device fault",
        Aux::Unsupported => "unsupported feature(s)",
        Aux::Split => "split into new pool",
        Aux::Spared => "currently in use",
        Aux::WrongLabel | Aux::TooSmall | Aux::CorruptData => "corrupted data",
    }
}

/// Style of `zpool status`.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusStyle {
    /// How vdevs are named.
    pub naming: Naming,
    /// Counts in full (`-p`).
    pub exact: bool,
    /// A column of slow operations (`-s`).
    pub slow: bool,
    /// Whether devices were initialized (`-i`).
    pub initialized: bool,
    /// Whether devices were trimmed (`-t`).
    pub trimmed: bool,
}

/// The configuration part of `zpool status`: heading, tree, spares, cache.
pub fn status(
    out: &mut Vec<u8>,
    pool: &str,
    tree: &Vdev,
    (spares, cache): (&[Vdev], &[Vdev]),
    style: StatusStyle,
) {
    let width = width(pool.as_bytes(), tree, &[spares, cache], style.naming).max(10);
    out.extend_from_slice(b"\t");
    left(out, b"NAME", width);
    out.extend_from_slice(b"  STATE     READ WRITE CKSUM");
    out.extend_from_slice(if style.slow { b"  SLOW\n" } else { b"\n" });
    status_row(out, pool.as_bytes(), tree, 0, width, style);
    for vdev in of_class(tree, Class::Normal) {
        status_tree(out, vdev, 2, width, style);
    }
    for (class, heading) in SECTIONS {
        let mut vdevs = of_class(tree, class).peekable();
        if vdevs.peek().is_some() {
            out.extend_from_slice(format!("\t{heading}\t\n").as_bytes());
        }
        vdevs.for_each(|vdev| status_tree(out, vdev, 2, width, style));
    }
    if !cache.is_empty() {
        out.extend_from_slice(b"\tcache\n");
        cache.iter().for_each(|vdev| status_tree(out, vdev, 2, width, style));
    }
    if !spares.is_empty() {
        out.extend_from_slice(b"\tspares\n");
        for vdev in spares {
            out.extend_from_slice(b"\t  ");
            left(out, &name(vdev, style.naming), width - 2);
            let state = match (vdev.state, vdev.aux) {
                (_, Some(Aux::Spared)) => "INUSE",
                (State::Online, _) => "AVAIL",
                (state, _) => state.name(),
            };
            out.extend_from_slice(b"  ");
            left(out, state.as_bytes(), 8);
            if let Some(remark) = remark(vdev) {
                out.extend_from_slice(b"  ");
                out.extend_from_slice(&remark);
            }
            marks(out, style);
            out.push(b'\n');
        }
    }
}

fn status_tree(out: &mut Vec<u8>, vdev: &Vdev, depth: usize, width: usize, style: StatusStyle) {
    status_row(out, &name(vdev, style.naming), vdev, depth, width, style);
    for child in &vdev.children {
        status_tree(out, child, depth + 2, width, style);
    }
}

fn status_row(
    out: &mut Vec<u8>,
    name: &[u8],
    vdev: &Vdev,
    depth: usize,
    width: usize,
    style: StatusStyle,
) {
    out.push(b'\t');
    out.resize(out.len() + depth, b' ');
    left(out, name, width - depth.min(width));
    out.extend_from_slice(b"  ");
    left(out, vdev.state.name().as_bytes(), 8);
    let stats = &vdev.stats;
    for count in [stats.read_errors, stats.write_errors, stats.checksum_errors] {
        out.push(b' ');
        right(out, counted(count, style.exact).as_bytes(), 5);
    }
    if style.slow {
        let leaf = vdev.children.is_empty() && vdev.kind != VdevKind::Root;
        let slow = if leaf { counted(stats.slow, style.exact) } else { "-".into() };
        out.push(b' ');
        right(out, slow.as_bytes(), 5);
    }
    if let Some(remark) = remark(vdev) {
        out.extend_from_slice(b"  ");
        out.extend_from_slice(&remark);
    }
    if vdev.children.is_empty() && vdev.kind != VdevKind::Root {
        marks(out, style);
    }
    out.push(b'\n');
}

fn marks(out: &mut Vec<u8>, style: StatusStyle) {
    if style.initialized {
        out.extend_from_slice(b"  (uninitialized)");
    }
    if style.trimmed {
        out.extend_from_slice(b"  (untrimmed)");
    }
}

fn counted(count: u64, exact: bool) -> String {
    if exact { count.to_string() } else { nice_count(count) }
}

/// The configuration part of `zpool import`.
pub fn found(out: &mut Vec<u8>, pool: &str, tree: &Vdev, spares: &[Vdev], cache: &[Vdev]) {
    let naming = Naming::default();
    let width = width(pool.as_bytes(), tree, &[], naming).max(10);
    found_row(out, pool.as_bytes(), tree, 0, width);
    for vdev in of_class(tree, Class::Normal) {
        found_tree(out, vdev, 2, width);
    }
    for (class, heading) in SECTIONS {
        let mut vdevs = of_class(tree, class).peekable();
        if vdevs.peek().is_some() {
            out.extend_from_slice(format!("\t{heading}\t\n").as_bytes());
        }
        vdevs.for_each(|vdev| found_tree(out, vdev, 2, width));
    }
    for (heading, vdevs) in [("cache", cache), ("spares", spares)] {
        if !vdevs.is_empty() {
            out.extend_from_slice(format!("\t{heading}\n").as_bytes());
        }
        for vdev in vdevs {
            out.extend_from_slice(b"\t  ");
            out.extend_from_slice(&name(vdev, naming));
            out.push(b'\n');
        }
    }
}

fn found_tree(out: &mut Vec<u8>, vdev: &Vdev, depth: usize, width: usize) {
    found_row(out, &name(vdev, Naming::default()), vdev, depth, width);
    for child in &vdev.children {
        found_tree(out, child, depth + 2, width);
    }
}

fn found_row(out: &mut Vec<u8>, name: &[u8], vdev: &Vdev, depth: usize, width: usize) {
    out.push(b'\t');
    out.resize(out.len() + depth, b' ');
    left(out, name, width - depth.min(width));
    out.extend_from_slice(format!("  {}", vdev.state.name()).as_bytes());
    if let Some(aux) = vdev.aux {
        out.extend_from_slice(format!("  {}", aux_text(aux)).as_bytes());
    }
    out.push(b'\n');
}

/// Style of `zpool list -v`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListStyle {
    /// How vdevs are named.
    pub naming: Naming,
    /// Numbers in full (`-p`).
    pub exact: bool,
    /// Tabs (`-H`).
    pub scripted: bool,
    /// Width of the names' column.
    pub width: usize,
}

/// The rows of `zpool list -v` below a pool's own.
pub fn list(out: &mut Vec<u8>, tree: &Vdev, spares: &[Vdev], cache: &[Vdev], style: ListStyle) {
    // What was removed has a row here, and here alone.
    let has_row = |vdev: &&Vdev| vdev.class == Class::Normal && vdev.kind != VdevKind::Hole;
    tree.children.iter().filter(has_row).for_each(|vdev| list_tree(out, vdev, 2, style));
    for (class, heading) in SECTIONS {
        let mut vdevs = of_class(tree, class).peekable();
        if vdevs.peek().is_some() {
            list_heading(out, heading, style.width);
        }
        vdevs.for_each(|vdev| list_tree(out, vdev, 2, style));
    }
    for (heading, vdevs) in [("cache", cache), ("spare", spares)] {
        if !vdevs.is_empty() {
            list_heading(out, heading, style.width);
        }
        for vdev in vdevs {
            let waiting = heading == "spare" && vdev.state == State::Online;
            list_row(out, vdev, 2, if waiting { "AVAIL" } else { vdev.state.name() }, style);
        }
    }
}

/// OpenZFS prints this line padded for scripts, too.
fn list_heading(out: &mut Vec<u8>, heading: &str, width: usize) {
    left(out, heading.as_bytes(), width);
    let dashes = b"      -      -      -        -         -      -      -      -  -\n";
    out.extend_from_slice(dashes);
}

fn list_tree(out: &mut Vec<u8>, vdev: &Vdev, depth: usize, style: ListStyle) {
    list_row(out, vdev, depth, vdev.state.name(), style);
    for child in &vdev.children {
        list_tree(out, child, depth + 2, style);
    }
}

fn list_row(out: &mut Vec<u8>, vdev: &Vdev, depth: usize, state: &str, style: ListStyle) {
    let state = if vdev.aux == Some(Aux::Spared) { "INUSE" } else { state };
    let name = name(vdev, style.naming);
    if style.scripted {
        out.push(b'\t');
        out.extend_from_slice(&name);
    } else {
        out.resize(out.len() + depth, b' ');
        left(out, &name, style.width - depth.min(style.width));
    }
    let Stats { allocated, space, device_size, .. } = vdev.stats;
    let top = space > 0;
    let size = |bytes: u64| if style.exact { bytes.to_string() } else { nice_count(bytes) };
    let if_any = |bytes: u64| if bytes == 0 { "-".into() } else { size(bytes) };
    let if_top = |text: String| if top { text } else { "-".into() };
    let leaf_size = if device_size > 0 && vdev.children.is_empty() { device_size } else { space };
    let fragmentation = match vdev.stats.fragmentation.filter(|_| top) {
        Some(percent) if style.exact => percent.to_string(),
        Some(percent) => format!("{percent}%"),
        None => "-".into(),
    };
    for (prop, value) in [
        (PoolProp::Size, if_any(leaf_size)),
        (PoolProp::Allocated, if_top(size(allocated))),
        (PoolProp::Free, if_top(size(space.saturating_sub(allocated)))),
        (PoolProp::Checkpoint, if_any(vdev.stats.checkpoint)),
        (PoolProp::Expandsize, if_any(vdev.stats.expand)),
        (PoolProp::Fragmentation, fragmentation),
        (PoolProp::Capacity, if_top(share(allocated, space, style.exact))),
        (PoolProp::Dedupratio, "-".into()),
        (PoolProp::Health, state.into()),
    ] {
        if style.scripted {
            out.push(b'\t');
            out.extend_from_slice(value.as_bytes());
        } else {
            out.extend_from_slice(b"  ");
            right(out, value.as_bytes(), prop.width());
        }
    }
    out.push(b'\n');
}

/// A share of space in percent, with as many digits as say something.
fn share(part: u64, whole: u64, exact: bool) -> String {
    let hundredths = if whole == 0 { 0 } else { u128::from(part) * 10_000 / u128::from(whole) };
    let percent = hundredths as f64 / 100.0;
    match hundredths {
        _ if exact => (hundredths / 100).to_string(),
        0..1000 => format!("{percent:.2}%"),
        1000..10_000 => format!("{percent:.1}%"),
        _ => format!("{percent:.0}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_the_digits_that_matter() {
        for (part, whole, text, exact) in [
            (0, 0, "0.00%", "0"),
            (4, 10_000, "0.04%", "0"),
            (9, 100, "9.00%", "9"),
            (12_345, 100_000, "12.3%", "12"),
            (1, 1, "100%", "100"),
        ] {
            assert_eq!(share(part, whole, false), text);
            assert_eq!(share(part, whole, true), exact);
        }
    }

    #[test]
    fn disks_have_short_names() {
        for (path, whole, short) in [
            ("/dev/sda1", true, "sda"),
            ("/dev/sda1", false, "sda1"),
            ("/dev/disk/by-id/scsi-X-part1", true, "scsi-X"),
            ("/dev/nvme0n1p1", true, "nvme0n1"),
            ("/elsewhere/d", false, "/elsewhere/d"),
        ] {
            assert_eq!(short_disk(path.as_bytes(), whole), short.as_bytes(), "{path}");
        }
    }
}
