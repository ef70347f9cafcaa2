//! Reports are laid out as OpenZFS lays them out: the transcripts' tables from hand-made reports.

mod support;

use std::path::PathBuf;

use support::{Case, STAGE, Told, cases, run, words};
use verbs::layout::Class;
use verbs::pools::{
    Aux, Condition, Event, FoundPool, HistoryReport, PoolReport, Scan, State, Stats, Vdev,
    VdevKind, What,
};
use verbs::props::{Key, Kind, PoolKey, PoolProp, Prop, Source, Value};

fn leaf(name: &str) -> Vdev {
    Vdev {
        kind: VdevKind::File,
        id: 0,
        guid: 0,
        path: Some(PathBuf::from(format!("{STAGE}/{name}"))),
        whole_disk: false,
        not_present: false,
        class: Class::Normal,
        state: State::Online,
        aux: None,
        stats: Stats { device_size: 128 << 20, ..Stats::default() },
        meters: Box::default(),
        slow: None,
        children: Vec::new(),
    }
}

fn group(kind: VdevKind, id: u64, class: Class, stats: Stats, leaves: &[&str]) -> Vdev {
    let children = leaves.iter().map(|name| leaf(name)).collect();
    Vdev { kind, id, class, stats, children, path: None, ..leaf("") }
}

fn space(allocated: u64, space: u64, fragmentation: u64) -> Stats {
    Stats { allocated, space, fragmentation: Some(fragmentation), ..Stats::default() }
}

fn gone(vdev: Vdev, guid: u64) -> Vdev {
    let stats = Stats::default();
    Vdev {
        guid,
        not_present: true,
        state: State::Unavail,
        aux: Some(Aux::CannotOpen),
        stats,
        ..vdev
    }
}

fn properties(
    size: u64,
    allocated: u64,
    fragmentation: u64,
    health: &str,
) -> Vec<(PoolKey, Value, Source)> {
    use PoolProp::*;
    let number = |prop, n| (PoolKey::Native(prop), Value::Number(n), Source::None);
    let mut list = vec![
        number(Size, size),
        number(Allocated, allocated),
        number(Free, size - allocated),
        number(Capacity, allocated * 100 / size),
        number(Fragmentation, fragmentation),
        number(Dedupratio, 100),
        number(Checkpoint, 0),
        number(Expandsize, 0),
        number(Guid, 13_475_047_493_276_494_266),
        number(Freeing, 0),
        number(Leaked, 0),
        number(Readonly, 0),
        number(LoadGuid, 4_277_946_011_240_598_830),
        (PoolKey::Native(Health), Value::text(health), Source::None),
        (PoolKey::Native(Compatibility), Value::text("off"), Source::Default),
        (PoolKey::Native(Version), Value::Number(5000), Source::Default),
    ];
    let default = |prop, n| (PoolKey::Native(prop), Value::Number(n), Source::Default);
    list.extend([
        default(Delegation, 1),
        default(Autoreplace, 0),
        default(Failmode, 0),
        default(Listsnapshots, 0),
        default(Autoexpand, 0),
        default(Ashift, 0),
        default(Multihost, 0),
        default(Autotrim, 0),
    ]);
    let active = [
        "lz4_compress",
        "spacemap_histogram",
        "enabled_txg",
        "hole_birth",
        "extensible_dataset",
        "embedded_data",
        "userobj_accounting",
        "project_quota",
        "spacemap_v2",
        "log_spacemap",
    ];
    for feature in format::features::Feature::ALL.map(|feature| feature.name()) {
        let state = if active.contains(&feature) { "active" } else { "enabled" };
        list.push((PoolKey::Feature(feature.into()), Value::text(state), Source::Local));
    }
    list
}

fn pool(
    tree: Vdev,
    spares: Vec<Vdev>,
    cache: Vec<Vdev>,
    size: u64,
    allocated: u64,
    fragmentation: u64,
) -> PoolReport {
    let health = tree.state.name();
    PoolReport {
        name: "tank".into(),
        guid: 13_475_047_493_276_494_266,
        txg: 9,
        version: 5000,
        condition: Condition::Fine,
        readonly: None,
        properties: properties(size, allocated, fragmentation, health),
        tree,
        spares,
        cache,
        scan: None,
        removal: None,
        checkpoint: None,
        error_count: Some(0),
        damaged: Vec::new(),
        opened: std::time::Duration::ZERO,
        open_for: std::time::Duration::ZERO,
    }
}

fn root(children: Vec<Vdev>) -> Vdev {
    Vdev { kind: VdevKind::Root, path: None, children, stats: Stats::default(), ..leaf("") }
}

/// The pool of the first half of `lifecycle`.
fn raidz2() -> PoolReport {
    let names = ["d0", "d1", "d2", "d3", "d4"];
    let stats = space(274_944, 603_979_776, 0);
    let top = group(VdevKind::Raidz(2), 0, Class::Normal, stats, &names);
    pool(root(vec![top]), vec![leaf("d5")], Vec::new(), 603_979_776, 274_944, 0)
}

/// The recorded answer of the n-th run of a command.
fn recorded(transcript: &str, command: &str, nth: usize) -> Case {
    let mut matching = cases(transcript).into_iter().filter(|case| case.command == command);
    matching.nth(nth).unwrap_or_else(|| panic!("{command} is not in {transcript}"))
}

fn check(engine: &mut Told, transcript: &str, command: &str, nth: usize) {
    let case = recorded(transcript, command, nth);
    let (out, err, status) = run(engine, &words(command));
    assert_eq!(out, case.out, "{transcript}: {command}");
    assert_eq!((err, status), (case.err, case.status), "{transcript}: {command}");
}

#[test]
fn a_healthy_pool_is_shown_in_every_form() {
    let mut engine = Told { pools: vec![raidz2()], ..Told::default() };
    for command in [
        "zpool status",
        "zpool status tank",
        "zpool status -v tank",
        "zpool status -x",
        "zpool status -x tank",
        "zpool status -p",
        "zpool status -P tank",
        "zpool status -L tank",
        "zpool status -s tank",
        "zpool status -i tank",
        "zpool status -t tank",
        "zpool status tank nosuch",
        "zpool list",
        "zpool list -H",
        "zpool list -p",
        "zpool list -Hp",
        "zpool list -v",
        "zpool list -vp",
        "zpool list -vH",
        "zpool list -vHp",
        "zpool list -vP tank",
        "zpool list -o name",
        "zpool list -o name,size,health -H",
        "zpool list -o name,size,cap,alloc,free,frag,dedup,health,guid -H",
        "zpool list -o name,feature@lz4_compress,ashift",
        "zpool list -o all",
        "zpool get -Hp size,capacity,health,ashift tank",
        "zpool get -o name,value size tank",
        "zpool get -o property,value,source,name ashift,autoexpand tank",
        "zpool get size",
        "zpool get all tank",
        "zpool get -H all tank",
        "zpool get size nosuch",
    ] {
        // The first runs of these two were without a pool.
        let later = ["zpool status", "zpool status tank", "zpool list", "zpool list -H"];
        let nth = usize::from(later.contains(&command));
        check(&mut engine, "lifecycle", command, nth);
    }
}

#[test]
fn nothing_is_shown_as_openzfs_shows_it() {
    let mut engine = Told::default();
    for command in [
        "zpool status",
        "zpool list",
        "zpool list -H",
        "zpool status tank",
        "zpool list tank",
        "zpool history",
        "zpool import",
        "zpool import -d $D",
    ] {
        check(&mut engine, "lifecycle", command, 0);
    }
    check(&mut engine, "dataset", "zfs list -t bookmark", 0);
}

#[test]
fn sections_follow_each_other() {
    let log = group(VdevKind::Mirror, 2, Class::Log, space(0, 117_440_512, 0), &["d2", "d3"]);
    let single = |name: &str, allocated: u64| Vdev {
        stats: Stats { device_size: 128 << 20, ..space(allocated, 117_440_512, 1) },
        ..leaf(name)
    };
    let tree = root(vec![single("d0", 77_824), single("d1", 74_240), log]);
    let cache = Stats { device_size: 128 << 20, ..space(0, 129_236_992, 0) };
    let cache = vec![Vdev { stats: cache, ..leaf("d4") }];
    let report = pool(tree, vec![leaf("d5"), leaf("d6")], cache, 234_881_024, 152_064, 1);
    let mut engine = Told { pools: vec![report], ..Told::default() };
    check(&mut engine, "lifecycle", "zpool list -v tank", 0);
    let case = cases("lifecycle").into_iter().find(|case| case.out.contains("mirror-2")).unwrap();
    assert_eq!(run(&mut engine, &words("zpool status tank")).0, case.out);
    let raidz = |id, names: &[&str]| {
        group(VdevKind::Raidz(1), id, Class::Normal, space(0, 369_098_752, 0), names)
    };
    let mirror = |id, class, allocated, fragmentation, names: &[&str]| {
        let stats = space(allocated, 117_440_512, fragmentation);
        group(VdevKind::Mirror, id, class, stats, names)
    };
    let tree = root(vec![
        raidz(0, &["d0", "d1", "d2"]),
        raidz(1, &["d3", "d4", "d5"]),
        mirror(2, Class::Special, 159_744, 2, &["d6", "d7"]),
        mirror(3, Class::Dedup, 0, 0, &["d8", "d9"]),
    ]);
    let report = pool(tree, Vec::new(), Vec::new(), 973_078_528, 159_744, 0);
    let mut engine = Told { pools: vec![report], ..Told::default() };
    check(&mut engine, "lifecycle", "zpool list -v tank", 1);
}

#[test]
fn missing_devices_are_named_by_what_they_were() {
    let mut report = raidz2();
    let guid = recorded("hurt", "zpool status tank", 0);
    let guid = guid.out.lines().find_map(|l| l.split_once("  UNAVAIL")).unwrap().0;
    let guid: u64 = guid.trim().parse().unwrap();
    let allocated = 403_968;
    report.properties = properties(603_979_776, allocated, 0, "DEGRADED");
    report.condition = Condition::MissingReplaceable;
    report.tree.state = State::Degraded;
    let top = &mut report.tree.children[0];
    top.state = State::Degraded;
    top.stats.allocated = allocated;
    top.children[1] = gone(leaf("d1"), guid);
    let mut engine = Told { pools: vec![report], ..Told::default() };
    for command in [
        "zpool status tank",
        "zpool status -x",
        "zpool list -v tank",
        "zpool list -vHp tank",
        "zpool get -H health tank",
    ] {
        check(&mut engine, "hurt", command, 0);
    }
}

fn found(tree: Vdev, condition: Condition) -> FoundPool {
    FoundPool {
        name: "tank".into(),
        guid: 0,
        destroyed: false,
        condition,
        hopeless: false,
        foreign: None,
        more_missing: false,
        comment: None,
        tree,
        spares: Vec::new(),
        cache: Vec::new(),
    }
}

/// Compares a listing of what could be imported with a recorded one, guids aside.
fn check_found(pool: FoundPool, transcript: &str, command: &str, nth: usize) {
    let case = recorded(transcript, command, nth);
    let guid = case.out.lines().find_map(|line| line.strip_prefix("     id: ")).expect("an id");
    let mut engine = Told {
        found: vec![FoundPool { guid: guid.parse().expect("a guid"), ..pool }],
        ..Told::default()
    };
    let (out, err, status) = run(&mut engine, &words(command));
    assert_eq!(out, case.out, "{command} {nth}");
    assert_eq!((err.as_str(), status), ("", 0));
}

#[test]
fn pools_that_could_be_imported_are_listed() {
    let names = ["d0", "d1", "d2", "d3", "d4"];
    let tree = || root(vec![group(VdevKind::Raidz(2), 0, Class::Normal, Stats::default(), &names)]);
    let spares = vec![leaf("d5")];
    let import = "zpool import -d $D";
    let whole = FoundPool {
        comment: Some("a comment".into()),
        spares: spares.clone(),
        ..found(tree(), Condition::Fine)
    };
    check_found(whole.clone(), "lifecycle", import, 1);
    let destroyed = FoundPool { destroyed: true, comment: Some("no".into()), ..whole };
    check_found(destroyed, "lifecycle", "zpool import -d $D -D", 0);
    let unavailable = |vdev: &mut Vdev, aux| {
        (vdev.state, vdev.aux) = (State::Unavail, Some(aux));
    };
    let mut hurt = FoundPool { spares, ..found(tree(), Condition::MissingReplaceable) };
    hurt.tree.state = State::Degraded;
    hurt.tree.children[0].state = State::Degraded;
    unavailable(&mut hurt.tree.children[0].children[1], Aux::CannotOpen);
    check_found(hurt.clone(), "hurt", import, 0);
    let case = recorded("hurt", import, 1);
    let guid = case.out.lines().find_map(|l| l.split_once("  UNAVAIL  cannot open")).unwrap().0;
    hurt.tree.children[0].children[1].guid = guid.trim().parse().unwrap();
    hurt.tree.children[0].children[1].not_present = true;
    unavailable(&mut hurt.tree.children[0].children[2], Aux::BadLabel);
    check_found(hurt, "hurt", import, 1);
    let mirror =
        |id, names: &[&str]| group(VdevKind::Mirror, id, Class::Normal, Stats::default(), names);
    let mut gone =
        found(root(vec![mirror(0, &["d0", "d1"]), mirror(1, &["d2", "d3"])]), Condition::Missing);
    unavailable(&mut gone.tree, Aux::NoReplicas);
    unavailable(&mut gone.tree.children[1], Aux::NoReplicas);
    gone.tree.children[1].children.iter_mut().for_each(|v| unavailable(v, Aux::CannotOpen));
    check_found(gone, "hurt", import, 3);
    let mut log = leaf("d1");
    log.class = Class::Log;
    unavailable(&mut log, Aux::CannotOpen);
    let mut log = found(root(vec![leaf("d0"), log]), Condition::BadGuidSum);
    unavailable(&mut log.tree, Aux::BadGuidSum);
    log.more_missing = true;
    check_found(log, "hurt", import, 5);
    let names = ["d0", "d1", "d2"];
    let raidz = group(VdevKind::Raidz(1), 0, Class::Normal, Stats::default(), &names);
    check_found(found(root(vec![raidz.clone()]), Condition::Fine), "hurt", import, 6);
    check_found(found(root(vec![raidz]), Condition::OtherSystem), "hurt", import, 7);
}

#[test]
fn a_plan_is_drawn_without_making_it() {
    let dir = std::env::temp_dir().join(format!("thumper-plan-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    (0..10).for_each(|i| std::fs::write(dir.join(format!("d{i}")), "").unwrap());
    let mut checked = 0;
    for case in cases("lifecycle") {
        if !case.command.starts_with("zpool create -n") {
            continue;
        }
        let stage = dir.to_str().unwrap();
        let (out, err, status) =
            run(&mut Told::default(), &words(&case.command.replace("$D", stage)));
        assert_eq!(out.replace(stage, STAGE), case.out, "{}", case.command);
        assert_eq!((err.as_str(), status), ("", 0), "{}", case.command);
        checked += 1;
    }
    assert_eq!(checked, 4);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn scans_are_told_as_by_openzfs() {
    let mut report = raidz2();
    let scan = Scan {
        resilver: false,
        start: 1_714_521_641,
        end: Some(1_714_521_642),
        cancelled: false,
        paused: None,
        processed: 36_864,
        to_examine: 0,
        examined: 0,
        pass: (0, 0),
        errors: 0,
    };
    let mut line = |scan: Scan| {
        report.scan = Some(scan);
        let mut engine = Told { pools: vec![report.clone()], ..Told::default() };
        let command: Vec<_> = words("zpool status");
        let (out, _, _) = run(&mut engine, &command);
        out.lines().find_map(|line| line.strip_prefix("  scan: ").map(String::from)).unwrap()
    };
    let done = line(scan);
    assert!(done.starts_with("scrub repaired 36K in 00:00:01 with 0 errors on "), "{done}");
    let resilver = Scan { resilver: true, end: Some(scan.start + 90_061), ..scan };
    let done = line(resilver);
    assert!(done.starts_with("resilvered 36K in 1 days 01:01:01 with 0 errors on "), "{done}");
    let stopped = Scan { cancelled: true, ..scan };
    assert!(line(stopped).starts_with("scrub canceled on "));
    let running = Scan { end: None, ..scan };
    assert!(line(running).starts_with("scrub in progress since "));
    let mut lines = |scan: Scan| {
        report.scan = Some(scan);
        let mut engine = Told { pools: vec![report.clone()], ..Told::default() };
        let (out, _, _) = run(&mut engine, &words("zpool status"));
        let lines = out.lines().skip_while(|line| !line.starts_with("  scan: "));
        lines.take(3).map(String::from).collect::<Vec<_>>()
    };
    let gib = 1 << 30;
    let half = Scan { to_examine: 2 * gib, examined: gib, pass: (gib, 10), ..running };
    assert_eq!(
        lines(half)[1..],
        [
            "\t1G scanned at 102M/s, 1G issued at 102M/s, 2G total",
            "\t36K repaired, 50.00% done, 00:00:10 to go"
        ]
    );
    let slow = Scan { pass: (5 << 20, 10), resilver: true, ..half };
    assert_eq!(
        lines(slow)[1..],
        [
            "\t1G scanned at 512K/s, 1G issued at 512K/s, 2G total",
            "\t36K resilvered, 50.00% done, no estimated completion time"
        ]
    );
    let paused = lines(Scan { paused: Some(half.start), ..half });
    assert!(paused[0].starts_with("  scan: scrub paused since "), "{paused:?}");
    assert!(paused[1].starts_with("\tscrub started on "), "{paused:?}");
    assert_eq!(paused[2], "\t1G scanned, 1G issued, 2G total");
}

#[test]
fn histories_are_told_in_all_their_forms() {
    let event = |what| Event {
        time: 0,
        what,
        user: Some((0, Some("root".into()))),
        host: Some("thumper".into()),
        zone: Some("linux".into()),
    };
    let command = event(What::Command("zpool create tank /d/d00".into()));
    let internal = Event {
        user: None,
        zone: None,
        ..event(What::Internal {
            txg: 20,
            name: "set".into(),
            dataset: Some(("tank/a".into(), 84)),
            text: "compression=13".into(),
        })
    };
    let call = event(What::Call {
        name: "create".into(),
        input: vec!["        type: 2".into()],
        output: Vec::new(),
        errno: None,
        elapsed: Some(160_500_000),
    });
    let history = HistoryReport { name: "tank".into(), events: vec![command, internal, call] };
    let mut engine = Told { histories: vec![history], ..Told::default() };
    let mut text = |words_: &str| {
        let out = run(&mut engine, &words(words_)).0;
        // The zone decides on the time of 1970-01-01.
        out.lines()
            .map(|line| match line.split_once(' ') {
                Some((time, rest)) if time.len() == 19 && time.contains('.') => {
                    format!("T {rest}\n")
                }
                _ => format!("{line}\n"),
            })
            .collect::<String>()
    };
    assert_eq!(text("zpool history"), "History for 'tank':\nT zpool create tank /d/d00\n\n");
    assert_eq!(
        text("zpool history -il"),
        "History for 'tank':\n\
         T zpool create tank /d/d00 [user 0 (root) on thumper:linux]\n\
         T [txg:20] set tank/a (84) compression=13 [on thumper]\n\
         T (160ms) ioctl create\n    input:\n        type: 2\n \
         [user 0 (root) on thumper:linux]\n\n"
    );
    assert!(
        text("zpool history -i")
            .contains("T (160ms) ioctl create\n    input:\n        type: 2\n\n")
    );
}

/// A data set of the transcript `columns`.
fn dataset(
    name: &str,
    kind: Kind,
    txg: u64,
    values: &[(Prop, Value, Source)],
) -> verbs::datasets::DatasetReport {
    verbs::datasets::DatasetReport {
        name: name.into(),
        kind,
        createtxg: txg,
        properties: values
            .iter()
            .map(|(prop, value, source)| (Key::Native(*prop), value.clone(), source.clone()))
            .collect(),
        received: Vec::new(),
    }
}

fn sizes(used: u64, available: u64, referenced: u64) -> Vec<(Prop, Value, Source)> {
    let fact = |prop, n| (prop, Value::Number(n), Source::None);
    vec![
        fact(Prop::Used, used),
        fact(Prop::Available, available),
        fact(Prop::Referenced, referenced),
    ]
}

fn mounted_at(place: &str, source: Source) -> (Prop, Value, Source) {
    (Prop::Mountpoint, Value::text(place), source)
}

#[test]
fn data_sets_are_listed_in_columns() {
    let k = 1 << 10;
    let above = || Source::Inherited("pond".into());
    let place = format!("{STAGE}/mp");
    let pond = |name: &str, used: u64, place: &str, source: Source| {
        let mut values = sizes(used, 58_510_336, 24 * k);
        values.push(mounted_at(place, source));
        dataset(name, Kind::Filesystem, 1, &values)
    };
    let mut engine = Told {
        datasets: vec![
            pond("pond/off", 24 * k, &format!("{place}/off"), above()),
            pond("pond/leg", 24 * k, "legacy", Source::Local),
            pond("pond/home", 24 * k, &format!("{place}/home"), above()),
            pond("pond", 212 * k, &place, Source::Local),
        ],
        ..Told::default()
    };
    let whole = recorded("columns", "zfs list", 0);
    let theirs: Vec<_> = whole.out.lines().take(5).collect();
    let ours = run(&mut engine, &words("zfs list")).0;
    // The widths of the recorded table come from another pool's names.
    let squeeze = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    for (ours, theirs) in ours.lines().zip(theirs) {
        assert_eq!(squeeze(ours), squeeze(theirs));
    }
    check(
        &mut engine,
        "columns",
        "zfs get -o value,source,name mountpoint pond/home pond/leg pond pond/off",
        0,
    );
    let first = ours.lines().nth(1).unwrap();
    assert_eq!(first, "pond        212K  55.8M       24K  /tmp/t-0000000/mp");
    let exact = run(&mut engine, &words("zfs list -Hp pond")).0;
    assert_eq!(exact, format!("pond\t{}\t58510336\t24576\t{place}\n", 212 * k));
}

#[test]
fn values_without_a_source_are_dashes() {
    let compression =
        |value: u64, source: Source| vec![(Prop::Compression, Value::Number(value), source)];
    let mut engine = Told {
        datasets: vec![
            dataset("tank", Kind::Filesystem, 1, &compression(2, Source::Default)),
            dataset("tank/z5", Kind::Filesystem, 2, &compression(656, Source::Local)),
            dataset("tank/zf", Kind::Filesystem, 3, &compression(14352, Source::Local)),
            dataset("tank/vol", Kind::Volume, 4, &[]),
        ],
        ..Told::default()
    };
    for command in [
        "zfs get compression tank tank/z5 tank/zf",
        "zfs get -s local -H all tank/z5",
        "zfs get -o name,value compression tank/z5",
        "zfs get -o all compression tank/z5",
        "zfs get -o value -H compression tank/z5",
        "zfs get -o property,received,source compression tank/z5",
        "zfs get recordsize tank/vol",
    ] {
        check(&mut engine, "dataset", command, 0);
    }
}

#[test]
fn json_says_what_the_columns_say() {
    let mut engine = Told { pools: vec![raidz2()], ..Told::default() };
    let mut parse = |command: &str| -> serde_json::Value {
        let (out, err, status) = run(&mut engine, &words(command));
        assert_eq!((err.as_str(), status), ("", 0), "{command}");
        serde_json::from_str(&out).expect(command)
    };
    let list = parse("zpool list -j -o name,size,health");
    assert_eq!(list["output_version"]["command"], "zpool list");
    assert_eq!(list["pools"]["tank"]["properties"]["size"]["value"], "576M");
    let list = parse("zpool list --json --json-int -p");
    assert_eq!(list["pools"]["tank"]["properties"]["size"]["value"], 603_979_776);
    let status = parse("zpool status -j");
    let tree = &status["pools"]["tank"]["vdevs"]["tank"]["vdevs"]["raidz2-0"];
    assert_eq!(tree["state"], "ONLINE");
    assert_eq!(tree["vdevs"].as_object().unwrap().len(), 5);
    assert_eq!(status["pools"]["tank"]["spares"].as_object().unwrap().len(), 1);
    let get = parse("zpool get -j ashift tank");
    assert_eq!(get["pools"]["tank"]["properties"]["ashift"]["source"]["type"], "DEFAULT");
}

/// JSON did not know `-s` once, nor properties without a value.
#[test]
fn json_tells_of_data_sets_what_the_tables_tell() {
    let local = (Prop::Compression, Value::Number(2), Source::Local);
    let default = (Prop::Compression, Value::Number(2), Source::Default);
    let mut engine = Told {
        datasets: vec![
            dataset("tank", Kind::Filesystem, 1, &[default]),
            dataset("tank/a", Kind::Filesystem, 2, &[local]),
        ],
        ..Told::default()
    };
    let mut parse = |command: &str| -> serde_json::Value {
        let (out, err, status) = run(&mut engine, &words(command));
        assert_eq!((err.as_str(), status), ("", 0), "{command}");
        serde_json::from_str(&out).expect(command)
    };
    let get = parse("zfs get -j -s local org:x,compression,origin tank tank/a");
    assert_eq!(get["datasets"].as_object().unwrap().len(), 1);
    let of_a = &get["datasets"]["tank/a"]["properties"];
    assert_eq!(of_a.as_object().unwrap().len(), 1);
    assert_eq!(of_a["compression"]["source"]["type"], "LOCAL");
    let get = parse("zfs get -j origin tank");
    assert_eq!(get["datasets"]["tank"]["properties"]["origin"]["source"]["type"], "NONE");
    let list = parse("zfs list -j -o name,origin");
    assert_eq!(list["datasets"]["tank"]["properties"]["origin"]["value"], "-");
}

/// OpenZFS has no word for it; the figures stand where it says what is wrong with a device.
#[test]
fn a_slow_device_is_named() {
    let mut report = raidz2();
    report.condition = Condition::SlowDevice;
    report.tree.children[0].children[1].slow = Some(verbs::meters::Slow {
        guid: 0,
        name: "d1".into(),
        what: verbs::meters::What::Reads,
        count: 77,
        time: std::time::Duration::from_millis(41),
        siblings: std::time::Duration::from_micros(8_250),
        since: std::time::Duration::from_secs(1_714_521_680),
        sits_out: false,
    });
    let mut engine = Told { pools: vec![report], ..Told::default() };
    let (out, err, status) = run(&mut engine, &words("zpool status tank"));
    assert_eq!((err.as_str(), status), ("", 0));
    let row = format!(
        "\t    {STAGE}/d1  ONLINE       0     0     0  slow: reads take 41ms, those of its siblings 8250us\n"
    );
    assert!(out.contains(&row), "{out}");
    assert!(
        out.contains("status: One or more devices take much longer than their siblings"),
        "{out}"
    );
    assert!(out.contains("action: Check the device with 'zpool iostat -lv'"), "{out}");
    let (out, ..) = run(&mut engine, &words("zpool status -x"));
    assert!(out.contains("slow: reads"), "{out}");
    let (out, ..) = run(&mut engine, &words("zpool status -j --json-int"));
    let verdict = out.split("\"slow\": {").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    let verdict: Vec<&str> = verdict.split(|c: char| c.is_whitespace() || c == ',').collect();
    for word in ["\"reads\"", "77", "41000000", "8250000", "1714521680"] {
        assert!(verdict.contains(&word), "{word}: {verdict:?}");
    }
}
