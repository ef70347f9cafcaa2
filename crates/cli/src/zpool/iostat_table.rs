//! The tables of `zpool iostat`: headings, rows, histograms.
//!
//! The one idea: a list of groups of columns, each with a heading over it, decides all widths; rows and headings go
//! through the same list.

use serde_json::{Map, Value as Json, json};
use verbs::meters::{CLASSES, Class, ClassMeters, Meters, SIZES, TIMES, Times, mean};
use verbs::props::nice_count;

use super::iostat::{Form, Line, Options};
use crate::columns::{left, right};

/// Width of a column of numbers.
const WIDTH: usize = 5;
/// The least size that has a row of its own: a sector's.
const SIZE_MIN: usize = 9;
/// Classes in the order of the columns. Nothing is trimmed here; OpenZFS has a column for it.
const ORDER: [Option<Class>; 6] = [
    Some(Class::SyncRead),
    Some(Class::SyncWrite),
    Some(Class::Read),
    Some(Class::Write),
    Some(Class::Scan),
    None,
];

/// What a vdev did in some time.
pub(crate) struct Row {
    pub(crate) name: Vec<u8>,
    pub(crate) depth: usize,
    /// Bytes allocated, and in all, of a pool or top-level vdev.
    pub(crate) space: Option<(u64, u64)>,
    pub(crate) meters: Meters,
    pub(crate) seconds: f64,
}

impl Row {
    fn per_second(&self, count: u64) -> u64 {
        if self.seconds > 0.0 { (count as f64 / self.seconds) as u64 } else { count }
    }

    fn class(&self, class: Option<Class>) -> ClassMeters {
        class.map(|class| self.meters.class(class).clone()).unwrap_or_default()
    }
}

/// A heading over columns of one width.
struct Group {
    heading: &'static str,
    columns: &'static [&'static str],
    width: usize,
}

const RW: &[&str] = &["read", "write"];

/// A heading and the columns below it.
type Heading = (&'static str, &'static [&'static str]);

/// The columns of a report.
pub(crate) struct Columns<'a> {
    options: &'a Options,
    groups: Vec<Group>,
    /// What rows are about: pools or vdevs.
    of: &'static str,
    /// Width of the names' column.
    width: usize,
}

impl<'a> Columns<'a> {
    pub(crate) fn new(options: &'a Options, of: &'static str, width: usize) -> Columns<'a> {
        let mut groups = Vec::new();
        let mut add = |width, headings: &[Heading]| {
            let group = |(heading, columns): &Heading| Group { heading, columns, width };
            groups.extend(headings.iter().map(group));
        };
        let wide = |exact| if options.exact { exact } else { WIDTH };
        match options.form {
            Form::Rows => {
                let capacity: &'static [&'static str] = &["alloc", "free"];
                let heads = [("capacity", capacity), ("operations", RW), ("bandwidth", RW)];
                add(wide(15), &heads);
                if options.latencies {
                    let waits = ["total_wait", "disk_wait", "syncq_wait", "asyncq_wait"];
                    add(wide(10), &waits.map(|wait| (wait, RW)));
                    add(wide(10), &[("scrub", &["wait"]), ("trim", &["wait"])]);
                }
                if options.queues {
                    let heads = [
                        "syncq_read",
                        "syncq_write",
                        "asyncq_read",
                        "asyncq_write",
                        "scrubq_read",
                        "trimq_write",
                    ];
                    add(wide(6), &heads.map(|head| (head, &["pend", "activ"] as &[_])));
                }
            }
            Form::Waits => {
                let waits = ["total_wait", "disk_wait", "syncq_wait", "asyncq_wait"];
                add(WIDTH, &waits.map(|wait| (wait, RW)));
                add(WIDTH, &[("", &["scrub"]), ("", &["trim"])]);
            }
            Form::Sizes => {
                let heads =
                    ["sync_read", "sync_write", "async_read", "async_write", "scrub", "trim"];
                add(WIDTH, &heads.map(|head| (head, &["ind", "agg"] as &[_])));
            }
        }
        Columns { options, groups, of, width }
    }

    /// The headings over the groups: in the middle of several columns, at the right of one.
    fn heads(&self, out: &mut Vec<u8>, name: &[u8]) {
        left(out, name, self.width);
        for group in self.groups.iter().filter(|group| !group.heading.is_empty()) {
            let count = group.columns.len();
            let width = group.width * count + 2 * (count - 1);
            let room = width.saturating_sub(group.heading.len());
            let before = if count == 1 { room } else { room.div_ceil(2) };
            out.resize(out.len() + 2 + before, b' ');
            out.extend_from_slice(group.heading.as_bytes());
            out.resize(out.len() + room - before, b' ');
        }
        out.push(b'\n');
    }

    fn cells<'t>(&self, out: &mut Vec<u8>, mut texts: impl Iterator<Item = &'t str>) {
        for group in &self.groups {
            for _ in group.columns {
                let Some(text) = texts.next() else { return };
                out.extend_from_slice(b"  ");
                right(out, text.as_bytes(), group.width);
            }
        }
    }

    fn names(&self, out: &mut Vec<u8>, first: &str) {
        left(out, first.as_bytes(), self.width);
        self.cells(out, self.groups.iter().flat_map(|group| group.columns.iter().copied()));
        out.push(b'\n');
    }

    fn rule(&self, out: &mut Vec<u8>) {
        out.resize(out.len() + self.width, b'-');
        for group in &self.groups {
            for _ in group.columns {
                out.extend_from_slice(b"  ");
                out.resize(out.len() + group.width, b'-');
            }
        }
        out.push(b'\n');
    }

    /// A row for each vdev.
    pub(crate) fn rows(&self, out: &mut Vec<u8>, lines: &[Line], head: bool) {
        let scripted = self.options.scripted;
        if head {
            self.heads(out, b"");
            self.names(out, self.of);
            self.rule(out);
        }
        for line in lines {
            match line {
                Line::Row(row) if scripted => {
                    out.extend_from_slice(&row.name);
                    for value in self.values(row) {
                        out.push(b'\t');
                        out.extend_from_slice(value.as_bytes());
                    }
                    out.push(b'\n');
                }
                Line::Row(row) => {
                    out.resize(out.len() + row.depth, b' ');
                    left(out, &row.name, self.width.saturating_sub(row.depth));
                    let values = self.values(row);
                    self.cells(out, values.iter().map(String::as_str));
                    out.push(b'\n');
                }
                // OpenZFS prints an empty line there for scripts.
                Line::Section(name) if scripted || name.is_empty() => out.push(b'\n'),
                Line::Section(name) => {
                    left(out, name.as_bytes(), self.width);
                    self.cells(out, std::iter::repeat("-"));
                    out.push(b'\n');
                }
                Line::Rule if scripted => {}
                Line::Rule => self.rule(out),
            }
        }
    }

    fn count(&self, count: u64) -> String {
        if self.options.exact { count.to_string() } else { nice_count(count) }
    }

    fn values(&self, row: &Row) -> Vec<String> {
        let mut values = match row.space {
            Some((allocated, size)) => {
                vec![self.count(allocated), self.count(size.saturating_sub(allocated))]
            }
            None if self.options.exact => vec!["0".into(), "0".into()],
            None => vec!["-".into(), "-".into()],
        };
        let ((reads, read), (writes, written)) = (row.meters.reads(), row.meters.writes());
        let rates = [reads, writes, read, written];
        values.extend(rates.map(|count| self.count(row.per_second(count))));
        if self.options.latencies {
            let wait = |times: &Times| match mean(times).map(|mean| mean.as_nanos() as u64) {
                None | Some(0) => "-".into(),
                Some(mean) if self.options.exact => mean.to_string(),
                Some(mean) => nice_time(mean),
            };
            values.extend(waits(row).iter().map(wait));
        }
        if self.options.queues {
            let queues = ORDER.iter().map(|class| row.class(*class));
            values.extend(
                queues.flat_map(|class| [self.count(class.waiting), self.count(class.active)]),
            );
        }
        values
    }

    /// A table for each vdev.
    pub(crate) fn tables(&self, out: &mut Vec<u8>, lines: &[Line]) {
        for line in lines {
            match line {
                Line::Row(row) => self.table(out, row),
                Line::Section(_) => out.push(b'\n'),
                Line::Rule => {}
            }
        }
    }

    fn table(&self, out: &mut Vec<u8>, row: &Row) {
        let (scripted, form) = (self.options.scripted, self.options.form);
        out.push(b'\n');
        if scripted {
            out.extend_from_slice(&row.name);
            out.push(b'\n');
        } else {
            self.heads(out, &row.name);
            self.names(out, if form == Form::Waits { "latency" } else { "req_size" });
            self.rule(out);
        }
        let columns: Vec<Vec<u64>> = match form {
            Form::Waits => waits(row).iter().map(|times| times.to_vec()).collect(),
            _ => {
                let classes = ORDER.iter().map(|class| row.class(*class));
                classes.flat_map(|class| [class.alone.to_vec(), class.joined.to_vec()]).collect()
            }
        };
        let steps = if form == Form::Waits { 0..TIMES } else { SIZE_MIN..SIZES };
        for step in steps {
            let counts = columns.iter().map(|column| column.get(step).copied().unwrap_or(0));
            let counts: Vec<String> = counts.map(|count| self.count(count)).collect();
            // Times go by the longest of a step, sizes by the least.
            let label = if form == Form::Waits { (2u64 << step) - 1 } else { 1 << step };
            let label = match (scripted, form) {
                (true, _) => label.to_string(),
                (false, Form::Waits) => nice_time(label),
                (false, _) => nice_count(label),
            };
            if scripted {
                out.extend_from_slice(label.as_bytes());
                counts
                    .iter()
                    .for_each(|count| out.extend_from_slice(format!("\t{count}").as_bytes()));
            } else {
                left(out, label.as_bytes(), self.width);
                self.cells(out, counts.iter().map(String::as_str));
            }
            out.push(b'\n');
        }
        if !scripted {
            let columns = self.groups.iter().map(|group| group.columns.len() * (group.width + 2));
            out.resize(out.len() + self.width + columns.sum::<usize>(), b'-');
            out.push(b'\n');
        }
    }
}

/// How long I/Os took and waited, in the order of the columns.
fn waits(row: &Row) -> Vec<Times> {
    let meters = &row.meters;
    let mut waits =
        vec![meters.total_reads, meters.total_writes, meters.disk_reads, meters.disk_writes];
    waits.extend(ORDER.iter().map(|class| row.class(*class).queued));
    waits
}

/// A time in whole nanoseconds, microseconds, milliseconds or seconds.
fn nice_time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000 => format!("{nanoseconds}ns"),
        1_000..1_000_000 => format!("{}us", nanoseconds / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", nanoseconds / 1_000_000),
        _ => format!("{}s", nanoseconds / 1_000_000_000),
    }
}

/// The rows as JSON: counts, not rates, with the seconds in which they were counted.
pub(crate) fn json<'r>(
    rows: impl Iterator<Item = &'r Row>,
    options: &Options,
    style: crate::json::Style,
) -> String {
    let number = |number: u64| crate::json::number(number, style);
    let list = |counts: &[u64]| counts.iter().map(|count| number(*count)).collect::<Json>();
    let names = ["sync_read", "sync_write", "async_read", "async_write", "scrub"];
    let classes: [Option<Class>; CLASSES] = std::array::from_fn(|i| ORDER[i]);
    let mut all = Vec::new();
    for row in rows {
        let mut entry = Map::new();
        let mut put = |key: &str, value: Json| entry.insert(key.into(), value);
        put("name", json!(String::from_utf8_lossy(&row.name)));
        put("depth", number(row.depth as u64 / 2));
        if let Some((allocated, size)) = row.space {
            put("alloc_space", number(allocated));
            put("total_space", number(size));
        }
        let ((reads, read), (writes, written)) = (row.meters.reads(), row.meters.writes());
        put("nanoseconds", number((row.seconds * 1e9) as u64));
        put("read_ops", number(reads));
        put("write_ops", number(writes));
        put("read_bytes", number(read));
        put("write_bytes", number(written));
        let of_class = |what: &dyn Fn(&ClassMeters) -> Json| {
            let each = names.iter().zip(classes);
            each.map(|(name, class)| ((*name).to_string(), what(&row.class(class)))).collect()
        };
        if options.latencies || options.form == Form::Waits {
            let meters = &row.meters;
            put("total_read_wait", list(&meters.total_reads));
            put("total_write_wait", list(&meters.total_writes));
            put("disk_read_wait", list(&meters.disk_reads));
            put("disk_write_wait", list(&meters.disk_writes));
            put("disk_flush_wait", list(&meters.disk_flushes));
            put("queue_wait", Json::Object(of_class(&|class| list(&class.queued))));
        }
        if options.queues {
            let queue = |class: &ClassMeters| json!({ "pend": number(class.waiting), "activ": number(class.active) });
            put("queues", Json::Object(of_class(&queue)));
        }
        if options.form == Form::Sizes {
            let sizes = |class: &ClassMeters| json!({ "ind": list(&class.alone), "agg": list(&class.joined) });
            put("request_sizes", Json::Object(of_class(&sizes)));
        }
        all.push(Json::Object(entry));
    }
    crate::json::document("zpool iostat", "vdevs", Json::Array(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole() {
        for (nanoseconds, text) in [
            (0, "0ns"),
            (511, "511ns"),
            (1023, "1us"),
            (65_535, "65us"),
            (1_949_434, "1ms"),
            (137_438_953_471, "137s"),
        ] {
            assert_eq!(nice_time(nanoseconds), text);
        }
    }
}
