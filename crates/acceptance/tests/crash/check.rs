//! Is what a crash left the state that was acknowledged, or the next one?

use std::collections::BTreeMap;

use device::sim::SimSet;
use fs::{Filesystem, mode};
use pool::{Pool, PoolError, Stored};
use rt::sync::Arc;
use testkit::model::{Content, Form, Node, Tree};
use testkit::truth::UNKNOWN_TIME;
use vdev::import::Scan;
use verify::FindingKind;

use crate::rig;
use crate::story::{Files, History, NAMES, State};

/// Opens the pool of `disks` to read and compares all of it with the state of the last mark, or
/// the one after it. Returns the pool, and the number of the state that it is in; `None`: there is
/// no pool, and none was acknowledged.
pub(crate) fn check(
    set: &SimSet,
    disks: &[usize],
    history: &History,
    mark: Option<usize>,
) -> Result<Option<usize>, String> {
    check_found(set, &rig::scan(set, disks), history, mark)
}

/// The same, of what a scan of the disks has found.
pub(crate) fn check_found(
    set: &SimSet,
    scan: &Scan,
    history: &History,
    mark: Option<usize>,
) -> Result<Option<usize>, String> {
    let before = set.writes();
    let (pool, held) = match (rig::open_found(scan, u64::MAX), mark) {
        (Ok(Some(opened)), _) => opened,
        (Ok(None), None) => return Ok(None),
        (Ok(None), Some(_)) => return Err("no pool was found".into()),
        (Err(e), _) => return Err(format!("the pool does not open: {e}")),
    };
    let number = which(&pool, history, mark)?;
    holds(&pool, &history.states[number])?;
    let state = &history.states[number];
    if held != state.held {
        return Err(format!("labels say {held:x?}, not {:x?}", state.held));
    }
    pool.close().map_err(|e| e.to_string())?;
    let writes = set.writes() - before;
    if writes != 0 {
        return Err(format!("a read-only open wrote {writes} times (INV-4)"));
    }
    Ok(Some(number))
}

/// The uberblock before the newest one, and the one before that, still open, with all that they
/// held (INV-1): a txg that goes wrong can be gone back from, also in a new process.
pub(crate) fn rewinds(
    set: &SimSet,
    disks: &[usize],
    history: &History,
    newest: usize,
) -> Result<usize, String> {
    let mut count = 0;
    for number in newest.saturating_sub(2)..newest {
        let state = &history.states[number];
        let wrong = |e: String| format!("txg {} behind {newest}: {e}", newest - number);
        let opened = rig::open_to_read(set, disks, state.txg).map_err(wrong)?;
        let (pool, _) = opened.ok_or_else(|| wrong("no uberblock".into()))?;
        if pool.txg() != state.txg {
            return Err(wrong(format!("it opened at txg {}, not {}", pool.txg(), state.txg)));
        }
        holds(&pool, state).map_err(wrong)?;
        count += 1;
    }
    Ok(count)
}

/// Does our own judge find every block, all accounts, all labels and their rings right? (A half of the labels, or
/// a slot of the rings, in the middle of which the power went is a note to it.)
pub(crate) fn verified(set: &SimSet, disks: &[usize]) -> Result<(), String> {
    verified_found(&rig::scan(set, disks))
}

/// The same, of what a scan of the disks has found.
pub(crate) fn verified_found(scan: &Scan) -> Result<(), String> {
    let report = report_found(scan)?;
    let verify::Report { verdict, findings, devices, .. } = report;
    // What a disk lacks, and knows to lack, is not wrong.
    let wrong = devices.iter().find(|d| {
        let labels = d.labels.len() + d.rings.len();
        d.missing || labels > 0 || d.read_errors + d.bad_blocks > 0
    });
    if report.blocks == 0 || report.lost_blocks > 0 || !findings.is_empty() || wrong.is_some() {
        return Err(format!("verify: {verdict:?}, {findings:?}, {wrong:?}"));
    }
    Ok(())
}

/// The judgement on the pool of these disks.
pub(crate) fn report(set: &SimSet, disks: &[usize]) -> Result<verify::Report, String> {
    report_found(&rig::scan(set, disks))
}

fn report_found(scan: &Scan) -> Result<verify::Report, String> {
    let found = scan.pools.iter().find(|pool| pool.name() == rig::POOL).ok_or("no pool")?;
    verify::verify_pool(found, &verify::Options::default(), &mut |_| true)
        .map_err(|e| e.to_string())
}

/// The judge finds nothing but labels, and no disk that gives anything wrong or not at all, those in want aside.
pub(crate) fn is_sound(set: &SimSet, disks: &[usize], wanting: &[usize]) -> Result<(), String> {
    let report = report(set, disks)?;
    let other = report.findings.iter().find(|finding| finding.kind != FindingKind::Label);
    let excused: Vec<String> = wanting.iter().map(|disk| format!("d{disk:02}")).collect();
    let device = report.devices.iter().find(|device| {
        let excused = excused.iter().any(|name| device.device.ends_with(name));
        !excused && device.read_errors + device.bad_blocks > 0
    });
    if report.blocks == 0 || report.lost_blocks > 0 || other.is_some() || device.is_some() {
        return Err(format!("verify: {:?}, {other:?}, {device:?}", report.verdict));
    }
    Ok(())
}

/// The state that the pool's txg belongs to: that of the mark or the next.
fn which(pool: &Pool, history: &History, mark: Option<usize>) -> Result<usize, String> {
    let states = &history.states;
    let (txg, next) = (pool.txg(), mark.map_or(0, |mark| mark + 1));
    if let Some(mark) = mark
        && states[mark].txg == txg
    {
        return Ok(mark);
    }
    let newest = mark.map_or(0, |mark| states[mark].txg);
    match states.get(next) {
        // What was never acknowledged has no txg that we know of.
        Some(state) if state.txg == txg || (state.txg == 0 && txg > newest) => Ok(next),
        _ => Err(format!(
            "it opened at txg {txg}; acknowledged was {newest} (state {mark:?}), in flight was {:?}",
            states.get(next).map(|s| s.txg)
        )),
    }
}

/// Is the pool in this state? Reads every file and every space map.
pub(crate) fn holds(pool: &Arc<Pool>, state: &State) -> Result<(), String> {
    pool.space().map_err(|e| format!("space: {e}"))?;
    let props = pool.pool_properties().map_err(|e| e.to_string())?;
    let replaces = props.contains(&("autoreplace".into(), Stored::Number(1)));
    if replaces != state.autoreplace {
        return Err(format!("pool properties are {props:?}"));
    }
    for name in NAMES {
        match (state.filesystems.get(name), Filesystem::open(pool, name)) {
            (Some(files), Ok(fs)) => {
                same(&fs, files).map_err(|e| format!("{name}: {e}"))?;
                snapshots(pool, name, files)?;
            }
            (None, Err(fs::FsError::Pool(PoolError::NoDataset { .. }))) => {}
            (None, Ok(_)) => return Err(format!("{name} must not be there")),
            (_, Err(e)) => return Err(format!("{name}: {e}")),
        }
    }
    Ok(())
}

/// Has the file system the snapshots that it must have, and do they hold what they must?
fn snapshots(pool: &Arc<Pool>, name: &str, files: &Files) -> Result<(), String> {
    let all = pool::dsl::lookup::walk(pool.mos(), rig::POOL).map_err(|e| e.to_string())?;
    let prefix = format!("{name}@");
    let have: Vec<&str> = all.iter().filter_map(|f| f.name.strip_prefix(&prefix)).collect();
    let want: Vec<&str> = files.snapshots.iter().map(|(snapshot, _)| *snapshot).collect();
    if have != want {
        return Err(format!("{name} has snapshots {have:?}, not {want:?}"));
    }
    for (snapshot, tree) in &files.snapshots {
        let full = format!("{name}@{snapshot}");
        let fs = Filesystem::open(pool, &full).map_err(|e| format!("{full}: {e}"))?;
        same_tree(&fs, tree).map_err(|e| format!("{full}: {e}"))?;
    }
    Ok(())
}

fn same(fs: &Filesystem, files: &Files) -> Result<(), String> {
    let record = fs.record_size();
    if record != files.record {
        return Err(format!("recordsize is {record}, not {}", files.record));
    }
    same_tree(fs, &files.tree)
}

pub(crate) fn same_tree(fs: &Filesystem, tree: &Tree) -> Result<(), String> {
    let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut links: BTreeMap<u64, u64> = BTreeMap::new();
    let mut todo = vec![(Vec::new(), fs.root())];
    while let Some((path, object)) = todo.pop() {
        let attrs = fs.attrs(object).map_err(|e| format!("{}: {e}", shown(&path)))?;
        if attrs.is_dir() {
            for entry in fs.read_dir(object).map_err(|e| format!("{}: {e}", shown(&path)))? {
                let sep: &[u8] = if path.is_empty() { b"" } else { b"/" };
                todo.push(([&path, sep, &entry.name].concat(), entry.object));
            }
        } else {
            *links.entry(object).or_default() += 1;
        }
        seen.insert(path, object);
    }
    let wanted: BTreeMap<Vec<u8>, &Node> = tree.paths().into_iter().collect();
    if let Some(path) = wanted.keys().find(|path| !seen.contains_key(*path)) {
        return Err(format!("{} is not there", shown(path)));
    }
    if let Some(path) = seen.keys().find(|path| !wanted.contains_key(*path)) {
        return Err(format!("{} is there", shown(path)));
    }
    for (path, node) in wanted {
        let object = seen[&path];
        let same = same_node(fs, object, node, links.get(&object).copied());
        same.map_err(|e| format!("{}: {e}", shown(&path)))?;
    }
    Ok(())
}

fn shown(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}

fn same_node(fs: &Filesystem, object: u64, node: &Node, links: Option<u64>) -> Result<(), String> {
    let attrs = fs.attrs(object).map_err(|e| e.to_string())?;
    let (kind, size) = match &node.form {
        Form::File(content) => (mode::FILE, content.size()),
        Form::Dir(names) => (mode::DIR, 2 + names.len() as u64),
        Form::Link(target) => (mode::SYMLINK, target.len() as u64),
        Form::Fifo => (mode::FIFO, 0),
    };
    let owner = (u64::from(node.owner.0), u64::from(node.owner.1));
    let (have, want) =
        ((attrs.uid, attrs.gid, attrs.mode as u32), (owner.0, owner.1, kind | node.mode));
    if have != want {
        return Err(format!("uid, gid, mode are {have:?}, not {want:?}"));
    }
    if attrs.size != size {
        return Err(format!("{} bytes long, not {size}", attrs.size));
    }
    if links.is_some_and(|links| links != attrs.links) {
        return Err(format!("link count {}, names {links:?}", attrs.links));
    }
    let mtime = (attrs.mtime.secs, attrs.mtime.nanos);
    if node.mtime != UNKNOWN_TIME && mtime != node.mtime {
        return Err(format!("mtime {mtime:?}, not {:?}", node.mtime));
    }
    let xattrs = fs.xattrs(object).map_err(|e| e.to_string())?;
    if !xattrs.iter().map(|(n, v)| (n, v)).eq(&node.xattrs) {
        return Err(format!("{} xattrs that are not those of the model", xattrs.len()));
    }
    match &node.form {
        Form::Link(target) if attrs.target.as_ref() != Some(target) => Err("target".into()),
        Form::File(content) => same_content(fs, object, content),
        _ => Ok(()),
    }
}

fn same_content(fs: &Filesystem, object: u64, content: &Content) -> Result<(), String> {
    const STEP: u64 = 1 << 20;
    let mut buf = vec![0; content.size().min(STEP) as usize];
    let mut at = 0;
    while at < content.size() {
        let len = (content.size() - at).min(STEP);
        let buf = &mut buf[..len as usize];
        let got = fs.read(object, at, buf).map_err(|e| format!("at {at}: {e}"))?;
        let (mut rest, mut equal) = (&buf[..got], got as u64 == len);
        content.read(at, len, |part| {
            let (now, later) = rest.split_at(part.len().min(rest.len()));
            equal &= now == part;
            rest = later;
        });
        if !equal {
            return Err(format!("other bytes between {at} and {}", at + len));
        }
        at += len;
    }
    Ok(())
}
