//! `/metrics`: counters and states in the text form of OpenMetrics 1.0.
//!
//! The one idea: families are written one after the other, each with all its samples, as the format wants it; what a
//! family is, is said in one place. Times of I/Os are known by powers of two, so their sums are estimates (each counts
//! as the middle of its step), and their buckets are exact.

use std::fmt::Write as _;

use verbs::layout::Class;
use verbs::memory::Report;
use verbs::meters::Times;
use verbs::pools::{Aux, State, Vdev, VdevKind};

use crate::view::{Clients, Pool, View};

/// What the answer is.
pub(crate) const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The first step of times with a bucket of its own, 2^13 ns: what is faster is nobody's trouble.
const STEP_MIN: usize = 12;

/// States of vdevs.
const STATES: [State; 6] = [
    State::Online,
    State::Degraded,
    State::Faulted,
    State::Offline,
    State::Removed,
    State::Unavail,
];

/// A text in the making.
#[derive(Default)]
struct Text(String);

/// Labels of a sample, names and values.
type Labels<'a> = [(&'a str, &'a str)];

impl Text {
    /// Begins a family. `unit` is the end of its name, if it has one.
    fn family(&mut self, name: &str, kind: &str, unit: Option<&str>, help: &str) {
        // Text that is written to a string always fits.
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if let Some(unit) = unit {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {}", escaped(help));
    }

    fn sample(&mut self, name: &str, labels: &Labels<'_>, value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let sign = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{sign}{label}=\"{}\"", escaped(text));
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn gauge(&mut self, name: &str, unit: Option<&str>, help: &str, value: u64) {
        self.family(name, "gauge", unit, help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, unit: Option<&str>, help: &str, value: u64) {
        self.family(name, "counter", unit, help);
        self.sample(&format!("{name}_total"), &[], value);
    }

    /// A sample for each state, of which one holds.
    fn states(&mut self, name: &str, labels: &Labels<'_>, states: &[&str], now: &str) {
        for state in states {
            let labels = [labels, &[(name, state)]].concat();
            self.sample(name, &labels, u8::from(*state == now));
        }
    }

    fn histogram(&mut self, name: &str, labels: &Labels<'_>, times: &Times) {
        let (mut count, mut nanos) = (0u64, 0f64);
        for (step, more) in times.iter().enumerate() {
            count += more;
            nanos += *more as f64 * 1.5 * (1u64 << step) as f64;
            // The last step has no end.
            if step >= STEP_MIN && step + 1 < times.len() {
                let end = format!("{:?}", (1u64 << (step + 1)) as f64 / 1e9);
                let labels = [labels, &[("le", end.as_str())]].concat();
                self.sample(&format!("{name}_bucket"), &labels, count);
            }
        }
        let labels_all = [labels, &[("le", "+Inf")]].concat();
        self.sample(&format!("{name}_bucket"), &labels_all, count);
        self.sample(&format!("{name}_count"), labels, count);
        self.sample(&format!("{name}_sum"), labels, format_args!("{:?}", nanos / 1e9));
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A device and where it is.
struct Device<'a> {
    pool: &'a str,
    vdev: String,
    name: String,
    guid: String,
    leaf: &'a Vdev,
}

impl Device<'_> {
    fn labels(&self) -> [(&str, &str); 4] {
        [("pool", self.pool), ("vdev", &self.vdev), ("device", &self.name), ("guid", &self.guid)]
    }

    fn with<'a>(&'a self, label: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
        [&self.labels()[..], &[(label, value)]].concat()
    }
}

fn devices<'a>(pools: &'a [Pool], found: &mut Vec<Device<'a>>) {
    fn below<'a>(pool: &'a str, vdev: &str, at: &'a Vdev, found: &mut Vec<Device<'a>>) {
        if matches!(at.kind, VdevKind::Disk | VdevKind::File) {
            let (name, guid) = (name(at), at.guid.to_string());
            found.push(Device { pool, vdev: vdev.into(), name, guid, leaf: at });
        }
        at.children.iter().for_each(|child| below(pool, vdev, child, found));
    }
    for pool in pools {
        for top in &pool.report.tree.children {
            below(&pool.report.name, &name(top), top, found);
        }
        for spare in idle_spares(pool) {
            below(&pool.report.name, "spares", spare, found);
        }
    }
}

/// Spares that wait. One that stands in is among the other devices, with what it does there.
pub(crate) fn idle_spares(pool: &Pool) -> impl Iterator<Item = &Vdev> {
    pool.report.spares.iter().filter(|spare| spare.aux != Some(Aux::Spared))
}

/// What a vdev is called.
pub(crate) fn name(vdev: &Vdev) -> String {
    let numbered = |word: &str| format!("{word}-{}", vdev.id);
    match (vdev.kind, &vdev.path) {
        (VdevKind::Disk | VdevKind::File, Some(path)) => path.display().to_string(),
        (VdevKind::Disk | VdevKind::File, None) => vdev.guid.to_string(),
        (VdevKind::Root, _) => "root".into(),
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

/// What a pool is, in a word.
pub(crate) fn health(pool: &Pool) -> &'static str {
    if pool.suspended.is_some() { "SUSPENDED" } else { pool.report.health() }
}

/// Size and allocated bytes of a pool, as they are listed: what is on log devices is no data.
pub(crate) fn space(pool: &Pool) -> (u64, u64) {
    let tops = pool.report.tree.children.iter().filter(|top| top.class != Class::Log);
    let sum = |of: fn(&Vdev) -> u64| tops.clone().map(of).sum();
    (sum(|top| top.stats.space), sum(|top| top.stats.allocated))
}

/// The whole text.
pub(crate) fn exposition(view: &View) -> String {
    let pools = &view.pools();
    let mut text = Text::default();
    text.family("thumper_build", "info", None, "The program that runs.");
    text.sample("thumper_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    of_pools(pools, &mut text);
    let mut found = Vec::new();
    devices(pools, &mut found);
    of_devices(&found, &mut text);
    of_clients(view.clients(), &mut text);
    of_memory(&view.memory(), &mut text);
    let events = view.held.events().last();
    text.counter("thumper_events", None, "Events that were told of.", events);
    text.0 + "# EOF\n"
}

fn of_pools(pools: &[Pool], text: &mut Text) {
    let mut words: Vec<&str> = STATES.iter().map(|state| state.name()).collect();
    text.family("thumper_vdev_state", "stateset", None, "State of a top-level vdev.");
    for pool in pools {
        for top in &pool.report.tree.children {
            let labels = [("pool", &*pool.report.name), ("vdev", &*name(top))];
            text.states("thumper_vdev_state", &labels, &words, top.state.name());
        }
    }
    words.push("SUSPENDED");
    text.family("thumper_pool_state", "stateset", None, "State of a pool.");
    for pool in pools {
        let labels = [("pool", &*pool.report.name)];
        text.states("thumper_pool_state", &labels, &words, health(pool));
    }
    let each = |text: &mut Text, name: &str, unit, help: &str, value: &dyn Fn(&Pool) -> u64| {
        text.family(name, "gauge", unit, help);
        for pool in pools {
            text.sample(name, &[("pool", &pool.report.name)], value(pool));
        }
    };
    let bytes = Some("bytes");
    each(text, "thumper_pool_size_bytes", bytes, "Space of its vdevs, parity included.", &|pool| {
        space(pool).0
    });
    each(text, "thumper_pool_allocated_bytes", bytes, "Space in use, parity included.", &|pool| {
        space(pool).1
    });
    each(text, "thumper_pool_txg", None, "The transaction group that is on disk.", &|pool| {
        pool.report.txg
    });
    let name = "thumper_pool_open_seconds";
    each(text, name, Some("seconds"), "How long the pool has been open.", &|pool| {
        pool.report.open_for.as_secs()
    });
    let of_tops = |text: &mut Text, family: &str, help: &str, value: fn(&Vdev) -> u64| {
        text.family(family, "gauge", Some("bytes"), help);
        for pool in pools {
            for top in &pool.report.tree.children {
                let vdev = self::name(top);
                text.sample(family, &[("pool", &pool.report.name), ("vdev", &vdev)], value(top));
            }
        }
    };
    of_tops(text, "thumper_vdev_size_bytes", "Space of a top-level vdev.", |top| top.stats.space);
    of_tops(text, "thumper_vdev_allocated_bytes", "Space of it that is in use.", |top| {
        top.stats.allocated
    });
}

fn of_devices(devices: &[Device<'_>], text: &mut Text) {
    let words: Vec<&str> = STATES.iter().map(|state| state.name()).collect();
    text.family("thumper_device_state", "stateset", None, "State of a device.");
    for device in devices {
        let state = device.leaf.state.name();
        text.states("thumper_device_state", &device.labels(), &words, state);
    }
    text.family("thumper_device_slow", "gauge", None, "1: it takes much longer than its siblings.");
    for device in devices {
        let slow = u8::from(device.leaf.slow.is_some());
        text.sample("thumper_device_slow", &device.labels(), slow);
    }
    text.family("thumper_device_errors", "counter", None, "Errors since they were cleared.");
    for device in devices {
        let stats = &device.leaf.stats;
        for (kind, count) in [
            ("read", stats.read_errors),
            ("write", stats.write_errors),
            ("checksum", stats.checksum_errors),
        ] {
            text.sample("thumper_device_errors_total", &device.with("kind", kind), count);
        }
    }
    let both = |device: &Device<'_>| {
        let meters = &device.leaf.meters;
        [("read", meters.reads()), ("write", meters.writes())]
    };
    text.family("thumper_device_operations", "counter", None, "I/Os that ended well.");
    for device in devices {
        for (operation, (count, _)) in both(device) {
            let labels = device.with("operation", operation);
            text.sample("thumper_device_operations_total", &labels, count);
        }
    }
    text.family("thumper_device_bytes", "counter", Some("bytes"), "Bytes of these I/Os.");
    for device in devices {
        for (operation, (_, bytes)) in both(device) {
            let labels = device.with("operation", operation);
            text.sample("thumper_device_bytes_total", &labels, bytes);
        }
    }
    let help = "Time that the device took for an I/O; sums are estimated.";
    text.family("thumper_device_io_seconds", "histogram", Some("seconds"), help);
    for device in devices {
        let meters = &device.leaf.meters;
        for (operation, times) in [
            ("read", &meters.disk_reads),
            ("write", &meters.disk_writes),
            ("flush", &meters.disk_flushes),
        ] {
            let labels = device.with("operation", operation);
            text.histogram("thumper_device_io_seconds", &labels, times);
        }
    }
}

fn of_clients(clients: Clients, text: &mut Text) {
    let Clients { sessions, connections, commands, read_bytes, written_bytes, requests } = clients;
    text.gauge("thumper_client_sessions", None, "Programs that use files of the pools.", sessions);
    text.gauge("thumper_client_connections", None, "Their connections.", connections);
    text.gauge("thumper_commands_running", None, "Commands that run.", commands);
    text.counter("thumper_client_requests", None, "Requests of clients.", requests);
    let bytes = Some("bytes");
    text.counter("thumper_client_read_bytes", bytes, "Bytes that clients have read.", read_bytes);
    let help = "Bytes that clients have written.";
    text.counter("thumper_client_written_bytes", bytes, help, written_bytes);
}

fn of_memory(memory: &Report, text: &mut Text) {
    let (bytes, account) = (Some("bytes"), &memory.account);
    text.gauge("thumper_memory_cap_bytes", bytes, "The most that pools take.", account.cap);
    text.gauge("thumper_memory_used_bytes", bytes, "What they have of it.", account.used);
    let waited = account.waited_for;
    text.gauge("thumper_memory_waited_for_bytes", bytes, "What is waited for.", waited);
    let resident = memory.resident;
    let help = "Memory of the process that is backed by no file.";
    text.gauge("thumper_memory_resident_bytes", bytes, help, resident);
    text.family("thumper_memory_held_bytes", "gauge", bytes, "Who has it.");
    for holding in memory.holdings() {
        let labels = [("holder", holding.holder.name())];
        text.sample("thumper_memory_held_bytes", &labels, holding.bytes);
    }
}

#[cfg(test)]
mod tests {
    use rt::sync::Arc;
    use verbs::layout::{Group, GroupKind, Layout};
    use verbs::state::StateFile;
    use verbs::{Engine, Held, Local, pools};

    use super::*;

    /// Seen red: the room of a log device counted, as if data could be put there.
    #[test]
    fn a_pool_is_as_large_as_it_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        let image = |name: &str| {
            let path = dir.path().join(name);
            std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
            path
        };
        let group =
            |class, name| Group { kind: GroupKind::Single, class, devices: vec![image(name)] };
        let groups = vec![group(Class::Normal, "disk"), group(Class::Log, "log")];
        let layout = Layout { groups, ..Layout::default() };
        let held = Arc::new(Held::default());
        let mut engine = Local::new(StateFile::new(dir.path().join("pools"))).holding(held.clone());
        let create = pools::Create { name: "tank".into(), layout, ..pools::Create::default() };
        engine.pool_create(&create).unwrap();
        let pool = held.pool("tank").unwrap().space().unwrap();
        let view = View::new(engine.clone(), held.clone(), Arc::new(Clients::default));
        let told: Vec<_> = view.pools().iter().map(space).collect();
        assert_eq!(told, [(pool.size, pool.allocated)]);
        drop(view);
        assert!(held.close(engine.state()).is_empty());
    }

    #[test]
    fn labels_are_escaped_and_histograms_add_up() {
        let mut text = Text::default();
        text.sample("x", &[("a", "b\"c\\d\ne"), ("f", "")], 7);
        assert_eq!(text.0, "x{a=\"b\\\"c\\\\d\\ne\",f=\"\"} 7\n");
        let mut times = [0; verbs::meters::TIMES];
        (times[3], times[20], times[36]) = (5, 2, 1);
        let mut text = Text::default();
        text.histogram("h", &[("a", "b")], &times);
        let lines: Vec<&str> = text.0.lines().collect();
        assert_eq!(lines[0], "h_bucket{a=\"b\",le=\"8.192e-6\"} 5");
        assert_eq!(lines[8], "h_bucket{a=\"b\",le=\"0.002097152\"} 7");
        let last = &lines[lines.len() - 3..];
        assert_eq!(last[..2], ["h_bucket{a=\"b\",le=\"+Inf\"} 8", "h_count{a=\"b\"} 8"]);
        assert!(last[2].starts_with("h_sum{a=\"b\"} 103.0"), "{}", last[2]);
    }
}
