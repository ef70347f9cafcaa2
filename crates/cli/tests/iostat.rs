//! `zpool iostat` from the figures that the OpenZFS kernel counted: the histograms of its devices are read from the
//! transcript, and everything else that it printed of them must come out again, to the byte.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use support::{STAGE, Told, cases, run, words};
use verbs::layout::Class as Use;
use verbs::meters::{Class, Meters};
use verbs::pools::{Condition, PoolReport, State, Stats, Vdev, VdevKind};
use verbs::props::{PoolKey, PoolProp, Source, Value};

/// The columns of a table of each vdev, by its name.
fn tables(command: &str) -> BTreeMap<String, Vec<Vec<u64>>> {
    let case = cases("iostat").into_iter().find(|case| case.command == command).unwrap();
    let mut all: BTreeMap<String, Vec<Vec<u64>>> = BTreeMap::new();
    let mut name = String::new();
    for line in case.out.lines() {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let numbers: Vec<u64> = cells.iter().skip(1).filter_map(|cell| cell.parse().ok()).collect();
        match (cells.first(), numbers.is_empty()) {
            (Some(first), true) if line.contains("total_wait") || line.contains("sync_read") => {
                name = (*first).to_string();
            }
            (Some(_), false) => {
                assert_eq!(numbers.len(), cells.len() - 1, "{line}");
                all.entry(name.clone()).or_default().push(numbers);
            }
            _ => {}
        }
    }
    assert!(all.len() > 2, "{command}");
    all
}

/// What the kernel has counted for a device.
fn counted(name: &str) -> Meters {
    let mut meters = Meters::default();
    for (step, row) in tables("zpool iostat -vw tank")[name].iter().enumerate() {
        meters.total_reads[step] = row[0];
        meters.total_writes[step] = row[1];
        meters.disk_reads[step] = row[2];
        meters.disk_writes[step] = row[3];
        let classes = [Class::SyncRead, Class::SyncWrite, Class::Read, Class::Write, Class::Scan];
        for (column, class) in (4..).zip(classes) {
            meters.classes[class as usize].queued[step] = row[column];
        }
    }
    for (step, row) in (9..).zip(&tables("zpool iostat -vr tank")[name]) {
        let classes = [Class::SyncRead, Class::SyncWrite, Class::Read, Class::Write, Class::Scan];
        for (column, class) in (0..).step_by(2).zip(classes) {
            let class = &mut meters.classes[class as usize];
            (class.alone[step], class.joined[step]) = (row[column], row[column + 1]);
        }
    }
    meters
}

fn vdev(kind: VdevKind, id: u64, stats: Stats, children: Vec<Vdev>) -> Vdev {
    let mut meters = Box::<Meters>::default();
    children.iter().for_each(|child| meters.add(&child.meters));
    Vdev {
        kind,
        id,
        guid: 1000 + id,
        path: None,
        whole_disk: false,
        not_present: false,
        class: Use::Normal,
        state: State::Online,
        aux: None,
        stats,
        meters,
        slow: None,
        children,
    }
}

fn leaf(name: &str, meters: Meters) -> Vdev {
    let guid = u64::from(name.as_bytes()[1]);
    let path = Some(PathBuf::from(format!("{STAGE}/{name}")));
    Vdev {
        guid,
        path,
        meters: Box::new(meters),
        ..vdev(VdevKind::File, 0, Stats::default(), vec![])
    }
}

fn space(allocated: u64, space: u64) -> Stats {
    Stats { allocated, space, ..Stats::default() }
}

fn report(tops: Vec<Vdev>, cache: Vec<Vdev>, allocated: u64, size: u64) -> PoolReport {
    let fact = |prop, number| (PoolKey::Native(prop), Value::Number(number), Source::None);
    PoolReport {
        name: "tank".into(),
        guid: 7,
        txg: 9,
        version: 5000,
        condition: Condition::Fine,
        readonly: None,
        tree: vdev(VdevKind::Root, 9, Stats::default(), tops),
        spares: Vec::new(),
        cache,
        scan: None,
        removal: None,
        checkpoint: None,
        error_count: Some(0),
        damaged: Vec::new(),
        opened: Duration::ZERO,
        open_for: Duration::from_secs(1),
        properties: vec![fact(PoolProp::Allocated, allocated), fact(PoolProp::Size, size)],
    }
}

/// The pool of the transcript, with what the kernel has counted. Its space is that of these exact figures:
/// `zpool iostat -lp`, and `-vlqHp` for the vdevs.
fn kernels() -> PoolReport {
    let exact = answer("zpool iostat -vlqHp tank");
    let space_of = |name: &str| {
        let line = exact.lines().find(|line| line.starts_with(&format!("{name}\t"))).unwrap();
        let cells: Vec<u64> =
            line.split('\t').skip(1).take(2).map(|n| n.parse().unwrap()).collect();
        (cells[0], cells[0] + cells[1])
    };
    let leaves = |names: &[&str]| -> Vec<Vdev> {
        names.iter().map(|name| leaf(name, counted(&format!("{STAGE}/{name}")))).collect()
    };
    let top = |kind, id, name: &str, names: &[&str]| {
        let (allocated, size) = space_of(name);
        vdev(kind, id, space(allocated, size), leaves(names))
    };
    let tops = vec![
        top(VdevKind::Raidz(1), 0, "raidz1-0", &["d1", "d2", "d3"]),
        top(VdevKind::Mirror, 1, "mirror-1", &["d4", "d5"]),
    ];
    let (allocated, size) = space_of("tank");
    report(tops, Vec::new(), allocated, size)
}

fn answer(command: &str) -> String {
    cases("iostat").into_iter().find(|case| case.command == command).expect(command).out
}

fn ours(engine: &mut Told, command: &str) -> String {
    let (out, err, status) = run(engine, &words(command));
    assert_eq!((err.as_str(), status), ("", 0), "{command}");
    out
}

#[test]
fn tables_are_the_kernel_s() {
    let mut engine = Told { pools: vec![kernels()], ..Told::default() };
    for command in [
        "zpool iostat -w tank",
        "zpool iostat -wH tank",
        "zpool iostat -wp tank",
        "zpool iostat -wHp tank",
        "zpool iostat -vw tank",
        "zpool iostat -wy tank 1 2",
        "zpool iostat -r tank",
        "zpool iostat -rH tank",
        "zpool iostat -rp tank",
        "zpool iostat -rHp tank",
        "zpool iostat -vr tank",
        "zpool iostat -w tank $D/d1",
        "zpool iostat -r $D/d1",
        "zpool iostat -y tank 1 2",
    ] {
        assert_eq!(ours(&mut engine, command), answer(command), "{command}");
    }
}

/// The rates depend on the time since the import: the four of a row are left out, and nothing else.
#[test]
fn rows_are_the_kernel_s() {
    let mut engine = Told { pools: vec![kernels()], ..Told::default() };
    for command in [
        "zpool iostat -vlqHp tank",
        "zpool iostat -lp tank",
        "zpool iostat -qp tank",
        "zpool iostat -lH tank",
        "zpool iostat -qH tank",
        "zpool iostat -vlq",
        "zpool iostat -lq",
        "zpool iostat -l",
        "zpool iostat -q",
        "zpool iostat -l $D/d1 $D/d2",
        "zpool iostat -v 1 2",
        "zpool iostat -Hv tank 1 2",
        "zpool iostat -l tank 1 2",
    ] {
        let rated = |text: &str| -> Vec<String> {
            let cells = |line: &str| -> Vec<String> {
                let is_rate = |(i, cell): &(usize, &str)| {
                    (3..7).contains(i) && cell.starts_with(|c: char| c.is_ascii_digit())
                };
                let cells = line.split_whitespace().enumerate().filter(|cell| !is_rate(cell));
                cells.map(|(_, cell)| cell.to_string()).collect()
            };
            // Headings and rules have none: they are compared as they are.
            let is_heading = |line: &str| line.contains("alloc") || line.contains("capacity");
            let line = |line: &str| match is_heading(line) || line.starts_with("---") {
                true => format!("0 {line}"),
                false => format!("{} {:?}", line.len(), cells(line)),
            };
            text.lines().map(line).collect()
        };
        let without_length = |lines: Vec<String>| -> Vec<String> {
            // Without columns a rate's digits show in a line's length.
            let scripted = command.contains("H");
            let cut = |line: &String| line.split_once(' ').map_or("", |(_, rest)| rest).to_string();
            lines.iter().map(|line| if scripted { cut(line) } else { line.clone() }).collect()
        };
        let out = ours(&mut engine, command);
        assert_eq!(
            without_length(rated(&out)),
            without_length(rated(&answer(command))),
            "{command}:\n{out}"
        );
    }
}

#[test]
fn rates_are_per_second() {
    let mut pool = kernels();
    pool.open_for = Duration::from_millis(500);
    let bytes = 2 * (1 << 20);
    pool.tree.meters.bytes_written = bytes;
    let ((reads, _), (writes, _)) = (pool.tree.meters.reads(), pool.tree.meters.writes());
    assert!(reads > 10 && writes > 100);
    let mut engine = Told { pools: vec![pool], ..Told::default() };
    let out = ours(&mut engine, "zpool iostat -Hp");
    let cells: Vec<&str> = out.trim_end().split('\t').skip(3).collect();
    assert_eq!(cells, [2 * reads, 2 * writes, 0, 2 * bytes].map(|rate| rate.to_string()));
}

/// Seen red: the guid was an interval of as many seconds.
#[test]
fn a_guid_is_no_interval() {
    let mut pool = kernels();
    pool.tree.children[0].children[0].guid = 1;
    let mut engine = Told { pools: vec![pool], ..Told::default() };
    let first = |out: String| -> Vec<String> {
        out.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    };
    let mut names = |command| first(ours(&mut engine, command));
    assert_eq!(names("zpool iostat -gHp tank 50 1"), ["1", "50"]);
    assert_eq!(names("zpool iostat -Hp tank 50 1"), ["tank"]);
}

/// Seen red: nothing was printed, or a time without its zone.
#[test]
fn the_time_is_told_before_each_report() {
    let mut engine = Told { pools: vec![kernels()], ..Told::default() };
    for verb in ["status", "list", "iostat"] {
        let mut first = |letter| {
            let out = ours(&mut engine, &format!("zpool {verb} -T {letter} tank"));
            out.lines().next().unwrap().to_owned()
        };
        let seconds = first("u");
        assert!(seconds.parse::<u64>().is_ok_and(|now| now > 1_700_000_000), "{verb}: {seconds}");
        let date = first("d");
        let words: Vec<_> = date.split_whitespace().collect();
        assert!(words.len() == 6 && words[3].matches(':').count() == 2, "{verb}: {date}");
    }
}

#[test]
fn sections_are_the_kernel_s() {
    let size = 117_440_512;
    let class = |class, vdev: Vdev| Vdev { class, ..vdev };
    let single = |name: &str, allocated, size| Vdev {
        stats: space(allocated, size),
        ..leaf(name, Meters::default())
    };
    let pair = vec![leaf("d1", Meters::default()), leaf("d2", Meters::default())];
    let tops = vec![
        vdev(VdevKind::Mirror, 0, space(0, size), pair),
        class(Use::Log, single("d3", 0, size)),
        class(Use::Special, single("d4", 139_776, 117_300_736 + 139_776)),
    ];
    let report = report(tops, vec![single("d5", 0, 129_498_624)], 139_776, 234_741_248 + 139_776);
    let mut engine = Told { pools: vec![report], ..Told::default() };
    let all = cases("iostat-sections");
    assert!(all.len() >= 8);
    for case in all {
        assert_eq!(ours(&mut engine, &case.command), case.out, "{}", case.command);
    }
}
