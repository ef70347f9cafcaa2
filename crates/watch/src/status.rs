//! `/status.json`: what the page shows, for the page.
//!
//! The one idea: states and counters as they are now, and what happened in each second since the one that the page
//! has last. Its shape is the page's own affair: programs read `/metrics`.

use serde_json::{Value as Json, json};
use verbs::events::Event;
use verbs::meters::Times;
use verbs::pools::{Condition, Vdev, VdevKind};

use crate::metrics::{health, idle_spares, name, space};
use crate::view::{Pool, View};

/// Events that the page shows.
const EVENTS_MAX: usize = 30;

/// All of it; of the seconds, those after number `after`.
pub(crate) fn status(view: &View, after: u64) -> Json {
    let pools = view.pools();
    let clients = view.clients();
    let memory = view.memory();
    let pools: Vec<Json> = pools.iter().map(|pool| of_pool(view, pool, after)).collect();
    let events = view.held.events().after(0);
    let events = events.iter().rev().filter(|event| is_news(event)).take(EVENTS_MAX);
    let now = rt::time::wall_clock();
    json!({
        "time_ms": u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        "up_seconds": rt::time::now().since_start().as_secs(),
        "clients": {
            "sessions": clients.sessions,
            "connections": clients.connections,
            "commands": clients.commands,
            "read_bytes": clients.read_bytes,
            "written_bytes": clients.written_bytes,
        },
        "memory": { "used": memory.account.used, "cap": memory.account.cap },
        "pools": pools,
        "events": events.map(|event| of_event(event)).collect::<Vec<_>>(),
    })
}

/// Is it for people who look at a page? What was typed is not, nor what another event says as well.
fn is_news(event: &Event) -> bool {
    let class = event.class();
    ![".history_event", ".config_sync", ".removed"].iter().any(|end| class.ends_with(end))
}

fn of_event(event: &Event) -> Json {
    let text = |name: &str| event.values.text(name).map(|text| text.into_owned());
    json!({
        "number": event.number,
        "time_ms": u64::try_from(event.time.as_millis()).unwrap_or(u64::MAX),
        "class": event.class(),
        "pool": event.pool(),
        "device": text("vdev_path"),
        "state": event.values.u64("vdev_state"),
        "reason": text("reason"),
        "slow": text("slow_what"),
    })
}

fn of_pool(view: &View, pool: &Pool, after: u64) -> Json {
    let report = &pool.report;
    let (size, allocated) = space(pool);
    let seconds = view.seconds(&report.name, after);
    let seconds = seconds.iter().map(|s| {
        json!([s.number, s.reads, s.writes, s.read_bytes, s.write_bytes, s.read_us, s.write_us])
    });
    json!({
        "name": report.name,
        "state": health(pool),
        "suspended": pool.suspended,
        "remark": remark(&report.condition),
        "txg": report.txg,
        "size": size,
        "allocated": allocated,
        "open_seconds": report.open_for.as_secs(),
        "vdevs": report.tree.children.iter().map(of_vdev).collect::<Vec<_>>(),
        "spares": idle_spares(pool).map(of_vdev).collect::<Vec<_>>(),
        "seconds": seconds.collect::<Vec<_>>(),
    })
}

/// What is most urgently wrong, in short; `zpool status` has it at length.
fn remark(condition: &Condition) -> Option<&'static str> {
    Some(match condition {
        Condition::Fine | Condition::FeaturesOff | Condition::OldVersion => return None,
        Condition::MissingReplaceable | Condition::Missing => "Disks are missing.",
        Condition::Removed => "A disk has gone from the system.",
        Condition::FailingDevice => "Disks gave errors, and all were corrected.",
        Condition::FaultedReplaceable | Condition::Faulted => "Disks gave too many errors.",
        Condition::SlowDevice => "A disk is much slower than its siblings.",
        Condition::CorruptData => "Files are damaged.",
        Condition::Offline => "A disk was taken out of use.",
        Condition::Resilvering => "A disk is being filled.",
        _ => "Something is wrong: see zpool status.",
    })
}

fn of_vdev(vdev: &Vdev) -> Json {
    let meters = &vdev.meters;
    let ((reads, read_bytes), (writes, write_bytes)) = (meters.reads(), meters.writes());
    let (times, stats) = ((&meters.total_reads, &meters.total_writes), &vdev.stats);
    let slow = vdev.slow.as_ref().map(|slow| {
        let millis = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        json!({
            "what": slow.what.name(),
            "ms": millis(slow.time),
            "siblings_ms": millis(slow.siblings),
        })
    });
    json!({
        "name": name(vdev),
        "guid": vdev.guid.to_string(),
        "leaf": matches!(vdev.kind, VdevKind::Disk | VdevKind::File),
        "state": vdev.state.name(),
        "slow": slow,
        "size": if stats.space > 0 { stats.space } else { stats.device_size },
        "allocated": stats.allocated,
        "errors": [stats.read_errors, stats.write_errors, stats.checksum_errors],
        "reads": reads,
        "writes": writes,
        "read_bytes": read_bytes,
        "write_bytes": write_bytes,
        "read_ns": nanos(times.0),
        "write_ns": nanos(times.1),
        "children": vdev.children.iter().map(of_vdev).collect::<Vec<_>>(),
    })
}

/// All times together: each counts as the middle of its step.
fn nanos(times: &Times) -> u64 {
    let sum = times.iter().enumerate().map(|(step, count)| u128::from(*count) * (3 << step) / 2);
    u64::try_from(sum.sum::<u128>()).unwrap_or(u64::MAX)
}
