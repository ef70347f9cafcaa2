//! Reports as JSON (`-j`), in the shape that OpenZFS gives them since its version 2.3.
//!
//! Numbers are text unless `--json-int` asks otherwise: many readers of JSON lose digits of guids.

use serde_json::{Map, Value as Json, json};
use verbs::datasets::DatasetReport;
use verbs::files::{FileKind, FileReport};
use verbs::judge::{Verdict, VerifyReport};
use verbs::layout::Class;
use verbs::pools::{FoundPool, PoolReport, Vdev, VdevKind};
use verbs::props::{Key, Kind, PoolKey, Prop, Source};

use crate::getopt::Opt;
use crate::zfs::Cell;
use crate::zpool::vdevs::{self, Naming, StatusStyle};
use crate::zpool::{values, words as advice};

/// How numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// As numbers.
    pub integers: bool,
}

/// The style that options ask for.
#[must_use]
pub fn style(opts: &[Opt]) -> Style {
    Style { integers: opts.contains(&Opt::Long("json-int".into())) }
}

fn text(bytes: &[u8]) -> Json {
    Json::String(String::from_utf8_lossy(bytes).into_owned())
}

pub(crate) fn number(number: u64, style: Style) -> Json {
    if style.integers { json!(number) } else { Json::String(number.to_string()) }
}

/// A text that is a number, as one where numbers are asked for.
fn maybe_number(value: &str, style: Style) -> Json {
    match value.parse::<u64>() {
        Ok(parsed) if style.integers => json!(parsed),
        _ => json!(value),
    }
}

pub(crate) fn document(command: &str, key: &str, body: Json) -> String {
    let version = json!({ "command": command, "vers_major": 0, "vers_minor": 1 });
    let mut document = Map::new();
    document.insert("output_version".into(), version);
    document.insert(key.into(), body);
    // Maps with text keys and no foreign types: this cannot fail.
    let text = serde_json::to_string_pretty(&Json::Object(document)).unwrap_or_default();
    text + "\n"
}

/// A range that `thumper get --salvage` could not read, on one line.
#[must_use]
pub fn lost(lost: &verbs::files::Lost) -> String {
    json!({ "file": lost.place, "offset": lost.offset, "length": lost.len }).to_string() + "\n"
}

/// `thumper rescue scan`.
#[must_use]
pub fn remains(pools: &[verbs::rescue::Remains]) -> String {
    let txg = |left: &verbs::rescue::TxgLeft| json!({ "txg": left.txg, "time": left.time, "problem": left.problem });
    let pool = |pool: &verbs::rescue::Remains| {
        let txgs: Vec<Json> = pool.txgs.iter().map(txg).collect();
        json!({ "name": pool.name, "guid": pool.guid.to_string(), "txgs": txgs })
    };
    let pools: Vec<Json> = pools.iter().map(pool).collect();
    document("thumper rescue scan", "pools", Json::Array(pools))
}

/// `thumper top`: one document, on one line.
#[must_use]
pub fn memory(report: &verbs::memory::Report) -> String {
    let holding = |holding: &rt::mem::Holding| {
        let bytes = json!({ "bytes": holding.bytes, "bytes_max": holding.bytes_max });
        (holding.holder.name().to_string(), bytes)
    };
    let holders: Map<String, Json> = report.holdings().map(holding).collect();
    let account = &report.account;
    let document = json!({
        "cap": account.cap,
        "used": account.used,
        "used_max": account.used_max,
        "waited_for": account.waited_for,
        "resident": report.resident,
        "unaccounted": report.unaccounted(),
        "holders": holders,
    });
    document.to_string() + "\n"
}

fn source(source: &Source) -> Json {
    let (kind, data) = match source {
        Source::None => ("NONE", "-"),
        Source::Default => ("DEFAULT", "-"),
        Source::Local => ("LOCAL", "-"),
        Source::Inherited(from) => ("INHERITED", from.as_str()),
        Source::Received => ("RECEIVED", "-"),
        Source::Temporary => ("TEMPORARY", "-"),
    };
    json!({ "type": kind, "data": data })
}

fn source_of_text(source: &str) -> Json {
    let kind = if source == "-" { "NONE".into() } else { source.to_ascii_uppercase() };
    json!({ "type": kind, "data": "-" })
}

fn pool_head(pool: &PoolReport, style: Style) -> Map<String, Json> {
    let mut head = Map::new();
    head.insert("name".into(), json!(pool.name));
    head.insert("type".into(), json!("POOL"));
    head.insert("state".into(), json!(pool.health()));
    head.insert("pool_guid".into(), number(pool.guid, style));
    head.insert("txg".into(), number(pool.txg, style));
    head.insert("spa_version".into(), number(pool.version, style));
    head.insert("zpl_version".into(), number(5, style));
    head
}

fn pool_properties(pool: &PoolReport, keys: Option<&[PoolKey]>, exact: bool, style: Style) -> Json {
    let keys = keys.map_or_else(|| values::all(pool), <[PoolKey]>::to_vec);
    let mut properties = Map::new();
    for key in keys {
        if let Some((value, from)) = values::text(pool, &key, exact) {
            let entry =
                json!({ "value": maybe_number(&value, style), "source": source_of_text(&from) });
            properties.insert(key.name(), entry);
        }
    }
    Json::Object(properties)
}

fn pools(
    command: &str,
    pools: &[PoolReport],
    style: Style,
    add: impl Fn(&PoolReport, &mut Map<String, Json>),
) -> String {
    let mut all = Map::new();
    for pool in pools {
        let mut entry = pool_head(pool, style);
        add(pool, &mut entry);
        all.insert(pool.name.clone(), Json::Object(entry));
    }
    document(command, "pools", Json::Object(all))
}

/// `zpool list -j`.
#[must_use]
pub fn list(all: &[PoolReport], keys: Option<&[PoolKey]>, exact: bool, style: Style) -> String {
    pools("zpool list", all, style, |pool, entry| {
        entry.insert("properties".into(), pool_properties(pool, keys, exact, style));
    })
}

/// `zpool get -j`.
#[must_use]
pub fn pool_get(all: &[PoolReport], keys: Option<&[PoolKey]>, exact: bool, style: Style) -> String {
    pools("zpool get", all, style, |pool, entry| {
        entry.insert("properties".into(), pool_properties(pool, keys, exact, style));
    })
}

/// `zpool status -j`.
#[must_use]
pub fn status(all: &[PoolReport], how: StatusStyle, style: Style) -> String {
    pools("zpool status", all, style, |pool, entry| {
        if let Some(advice) = advice::open(&pool.condition) {
            entry.insert("status".into(), json!(advice.status.replace("\n\t", " ")));
            entry.insert("action".into(), json!(advice.action.replace("\n\t", " ")));
            if let Some(article) = advice.article {
                entry.insert("msgid".into(), json!(article));
                let address = format!("{}{article}", advice::ARTICLES);
                entry.insert("moreinfo".into(), json!(address));
            }
        }
        if let Some(why) = &pool.readonly {
            entry.insert("readonly".into(), json!(why));
        }
        let root = tree(&pool.tree, pool.name.as_bytes(), how.naming, style);
        let normal = Class::Normal;
        entry.insert("vdevs".into(), json!({ (pool.name.as_str()): below(root, normal) }));
        let classes = [(Class::Log, "logs"), (Class::Special, "special"), (Class::Dedup, "dedup")];
        for (class, key) in classes {
            let vdevs: Vec<_> = pool.tree.children.iter().filter(|v| v.class == class).collect();
            add_vdevs(entry, key, &vdevs, how.naming, style);
        }
        add_vdevs(entry, "l2cache", &pool.cache.iter().collect::<Vec<_>>(), how.naming, style);
        add_vdevs(entry, "spares", &pool.spares.iter().collect::<Vec<_>>(), how.naming, style);
        if let Some(count) = pool.error_count {
            entry.insert("error_count".into(), number(count, style));
        }
        if !pool.damaged.is_empty() {
            let names = pool.damaged.iter().map(|damaged| json!(damaged.name));
            entry.insert("errlist".into(), names.collect());
            let ranges = |damaged: &verbs::pools::Damaged| json!({ "name": damaged.name, "ranges": damaged.ranges });
            entry.insert("damaged".into(), pool.damaged.iter().map(ranges).collect());
        }
    })
}

fn add_vdevs(
    entry: &mut Map<String, Json>,
    key: &str,
    vdevs: &[&Vdev],
    naming: Naming,
    style: Style,
) {
    if vdevs.is_empty() {
        return;
    }
    let mut map = Map::new();
    for vdev in vdevs {
        let name = vdevs::name(vdev, naming);
        let value = tree(vdev, &name, naming, style);
        map.insert(String::from_utf8_lossy(&name).into_owned(), value);
    }
    entry.insert(key.into(), Json::Object(map));
}

/// Drops from a root what is shown in sections of its own.
fn below(mut root: Json, class: Class) -> Json {
    if let Some(Json::Object(children)) = root.get_mut("vdevs") {
        children.retain(|_, vdev| vdev.get("class") == Some(&json!(class_name(class))));
    }
    root
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Normal => "normal",
        Class::Log => "log",
        Class::Special => "special",
        Class::Dedup => "dedup",
    }
}

fn tree(vdev: &Vdev, name: &[u8], naming: Naming, style: Style) -> Json {
    let kind = match vdev.kind {
        VdevKind::Root => "root",
        VdevKind::Disk => "disk",
        VdevKind::File => "file",
        VdevKind::Mirror => "mirror",
        VdevKind::Raidz(_) => "raidz",
        VdevKind::Draid(_) => "draid",
        VdevKind::Replacing => "replacing",
        VdevKind::Spare => "spare",
        VdevKind::Missing => "missing",
        VdevKind::Hole => "hole",
        VdevKind::Indirect => "indirect",
    };
    let stats = &vdev.stats;
    let mut map = Map::new();
    map.insert("name".into(), text(name));
    map.insert("vdev_type".into(), json!(kind));
    map.insert("guid".into(), number(vdev.guid, style));
    if let Some(path) = &vdev.path {
        map.insert("path".into(), json!(path.to_string_lossy()));
    }
    map.insert("class".into(), json!(class_name(vdev.class)));
    map.insert("state".into(), json!(vdev.state.name()));
    if stats.space > 0 {
        map.insert("alloc_space".into(), number(stats.allocated, style));
        map.insert("total_space".into(), number(stats.space, style));
    }
    if stats.device_size > 0 {
        map.insert("phys_space".into(), number(stats.device_size, style));
    }
    map.insert("read_errors".into(), number(stats.read_errors, style));
    map.insert("write_errors".into(), number(stats.write_errors, style));
    map.insert("checksum_errors".into(), number(stats.checksum_errors, style));
    if let Some(slow) = &vdev.slow {
        let nanoseconds = |time: std::time::Duration| number(time.as_nanos() as u64, style);
        let verdict = json!({
            "what": slow.what.name(),
            "count": number(slow.count, style),
            "mean_ns": nanoseconds(slow.time),
            "siblings_mean_ns": nanoseconds(slow.siblings),
            "since": number(slow.since.as_secs(), style),
        });
        map.insert("slow".into(), verdict);
    }
    if vdev.not_present {
        map.insert("not_present".into(), number(1, style));
    }
    let children: Vec<_> = vdev.children.iter().collect();
    add_vdevs(&mut map, "vdevs", &children, naming, style);
    Json::Object(map)
}

/// `zpool import -j`: what could be imported, by guid.
#[must_use]
pub fn found(found: &[FoundPool], style: Style) -> String {
    let mut all = Map::new();
    for pool in found {
        let (status, action, article) = advice::found(&pool.condition, pool.hopeless);
        let root = tree(&pool.tree, pool.name.as_bytes(), Naming::default(), style);
        let entry = json!({
            "name": pool.name,
            "pool_guid": number(pool.guid, style),
            "state": pool.tree.state.name(),
            "destroyed": pool.destroyed,
            "status": status.map(|text| text.replace("\n\t", " ")),
            "action": action.replace("\n\t", " "),
            "msgid": article,
            "comment": pool.comment,
            "vdevs": { (pool.name.as_str()): root },
        });
        all.insert(pool.guid.to_string(), entry);
    }
    document("zpool import", "pools", Json::Object(all))
}

/// `zfs list -j` and `zfs get -j`: the data sets, each with what their tables show of it.
pub(crate) fn datasets(
    command: &str,
    told: &[(&DatasetReport, Vec<Cell<'_>>)],
    style: Style,
) -> String {
    let mut map = Map::new();
    for (dataset, cells) in told {
        let mut properties = Map::new();
        for cell in cells.iter().filter(|cell| cell.key != Key::Native(Prop::Name)) {
            let value = String::from_utf8_lossy(&cell.value).into_owned();
            let value = maybe_number(&value, style);
            let entry = json!({ "value": value, "source": source(cell.source) });
            properties.insert(cell.key.name(), entry);
        }
        let pool = dataset.name.split(['/', '@', '#']).next().unwrap_or_default();
        let mut entry = Map::new();
        entry.insert("name".into(), json!(dataset.name));
        entry.insert("type".into(), json!(dataset.kind.name().to_ascii_uppercase()));
        entry.insert("pool".into(), json!(pool));
        entry.insert("createtxg".into(), number(dataset.createtxg, style));
        if let (Kind::Snapshot, Some((of, name))) = (dataset.kind, dataset.name.split_once('@')) {
            entry.insert("dataset".into(), json!(of));
            entry.insert("snapshot_name".into(), json!(name));
        }
        entry.insert("properties".into(), Json::Object(properties));
        map.insert(dataset.name.clone(), Json::Object(entry));
    }
    document(command, "datasets", Json::Object(map))
}

/// One file, as a line of `thumper ls -j`. Bytes that are no UTF-8 are written as `%XX`, and `%`
/// as `%25`.
#[must_use]
pub fn file(directory: Option<&[u8]>, file: &FileReport) -> String {
    let time = |t: &verbs::files::Time| format!("{}.{:09}", t.seconds, t.nanos);
    let (kind, device) = match file.kind {
        FileKind::File => ("file", None),
        FileKind::Directory => ("dir", None),
        FileKind::Link => ("link", None),
        FileKind::Fifo => ("fifo", None),
        FileKind::Socket => ("socket", None),
        FileKind::Char(major, minor) => ("char", Some([major, minor])),
        FileKind::Block(major, minor) => ("block", Some([major, minor])),
    };
    let mut entry = Map::new();
    if let Some(directory) = directory {
        entry.insert("directory".into(), json!(escaped(directory)));
    }
    entry.insert("name".into(), json!(escaped(&file.name)));
    entry.insert("type".into(), json!(kind));
    entry.insert("ino".into(), json!(file.object));
    entry.insert("mode".into(), json!(format!("{:04o}", file.mode)));
    entry.insert("nlink".into(), json!(file.links));
    entry.insert("uid".into(), json!(file.uid));
    entry.insert("gid".into(), json!(file.gid));
    entry.insert("size".into(), json!(file.size));
    entry.insert("allocated".into(), json!(file.allocated));
    entry.insert("atime".into(), json!(time(&file.atime)));
    entry.insert("mtime".into(), json!(time(&file.mtime)));
    entry.insert("ctime".into(), json!(time(&file.ctime)));
    if let Some(target) = &file.target {
        entry.insert("target".into(), json!(escaped(target)));
    }
    if let Some(device) = device {
        entry.insert("rdev".into(), json!(device));
    }
    Json::Object(entry).to_string() + "\n"
}

/// A name: UTF-8 as it is, `%`, control characters and other bytes as `%XX`.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '%' => out += "%25",
                c if c.is_ascii_control() => out += &format!("%{:02X}", u32::from(c)),
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| out += &format!("%{byte:02X}"));
    }
    out
}

/// `thumper verify -j`.
#[must_use]
pub fn verify(report: &VerifyReport) -> String {
    let verdict = match report.verdict {
        Verdict::Clean => "clean",
        Verdict::Whole => "damaged but whole",
        Verdict::Lost => "data lost",
    };
    let devices: Vec<_> = report
        .devices
        .iter()
        .map(|device| {
            json!({
                "device": device.device,
                "guid": device.guid.to_string(),
                "missing": device.missing,
                "bad_labels": device.labels,
                "bad_rings": device.rings,
                "read_errors": device.read_errors,
                "bad_blocks": device.bad_blocks,
                "lacks_txgs": device.lacks_txgs,
            })
        })
        .collect();
    let files: Vec<_> = report
        .files
        .iter()
        .map(|file| json!({ "dataset": file.dataset, "path": file.path, "bytes": file.bytes }))
        .collect();
    let body = json!({
        "pool": report.name,
        "verdict": verdict,
        "txg": report.txg,
        "blocks": report.blocks,
        "bytes": report.bytes,
        "datasets": report.datasets,
        "encrypted": report.encrypted,
        "devices": devices,
        "files": files,
        "findings": report.findings,
        "notes": report.notes,
    });
    document("thumper verify", "verify", body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_bytes_survive() {
        assert_eq!(escaped(b"a%b\xff\n\xc3\xa4"), "a%25b%FF%0Aä");
    }

    #[test]
    fn numbers_are_text_unless_asked() {
        let int = Style { integers: true };
        assert_eq!(maybe_number("12", int), json!(12));
        assert_eq!(maybe_number("12", Style::default()), json!("12"));
        assert_eq!(maybe_number("12K", int), json!("12K"));
        assert_eq!(number(u64::MAX, Style::default()), json!("18446744073709551615"));
    }
}
