//! The status page in a real browser, and the metrics under a real parser, while a load runs.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use client::{Client, Open, Options, Subject};
use rt::sync::Arc;
use rt::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use serde_json::{Value, json};
use testkit::free_port;
use testkit::random::Rng;

use crate::browser::{Browser, http};
use crate::site::{Site, until};

const SOON: Duration = Duration::from_secs(10);
const ROOT: Subject = Subject::ROOT;
const ANEW: Open = Open { write: true, create: true, truncate: true, ..Open::READ };

fn metrics(port: u16) -> String {
    let (status, text) = http(port, "GET", "/metrics", "").unwrap();
    assert_eq!(status, 200, "{text}");
    text
}

/// The sum of all samples of a name that have all of these labels.
fn sum(text: &str, name: &str, labels: &[&str]) -> f64 {
    let is_it = |line: &&str| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    };
    let values = text.lines().filter(is_it).map(|line| line.rsplit(' ').next().unwrap());
    values.map(|value| value.parse::<f64>().unwrap()).sum()
}

/// Has the text read by Prometheus's own parser of the format; what it found, families by name.
fn parsed(text: &str) -> Vec<String> {
    let script = "import sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
        for family in parse(sys.stdin.read()):\n    print(family.type, family.name, len(family.samples))\n";
    let mut python = Command::new("/usr/bin/python3");
    let python = python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.stderr(Stdio::piped()).spawn().unwrap();
    python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "Debian's python3-prometheus-client: {said}\n{text}");
    String::from_utf8_lossy(&output.stdout).lines().map(Into::into).collect()
}

/// Clients that write and read files of their own until they are told to end.
pub(crate) struct Load {
    end: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
    threads: Vec<rt::thread::JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(site: &Site, clients: usize) -> Load {
        Load::begin(site, clients, false)
    }

    /// Where disks are gone beyond redundancy for a while: a write waits for them, and a read, which fails, is
    /// tried again.
    pub(crate) fn stubborn(site: &Site, clients: usize) -> Load {
        Load::begin(site, clients, true)
    }

    fn begin(site: &Site, clients: usize, stubborn: bool) -> Load {
        let (end, written, read) = (Arc::default(), Arc::default(), Arc::default());
        let mut load = Load { end, written, read, threads: Vec::new() };
        for number in 0..clients {
            let socket = site.aside.path().join("pools.socket");
            let (end, written, read) = (load.end.clone(), load.written.clone(), load.read.clone());
            load.threads.push(rt::thread::spawn("client", move || {
                let client = Client::connect(Options::new(socket, "tank")).unwrap();
                let mut bytes = vec![0; 1 << 20];
                Rng::of(number as u64, 4).fill(&mut bytes);
                let name = format!("/load{number}");
                while !end.load(Ordering::Relaxed) {
                    let file = client.open(&ROOT, name.as_bytes(), ANEW, 0o644).unwrap();
                    for i in 0..4 {
                        file.write(i << 20, &bytes).unwrap();
                        written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    }
                    file.sync().unwrap();
                    let mut back = vec![0; 1 << 20];
                    for i in 0..4 {
                        let got = loop {
                            match file.read(i << 20, &mut back) {
                                Err(error) if stubborn && error.errno == 5 => {
                                    rt::time::sleep(Duration::from_millis(50));
                                }
                                got => break got.unwrap(),
                            }
                        };
                        read.fetch_add(got as u64, Ordering::Relaxed);
                        assert!(got == back.len() && back == bytes);
                    }
                }
            }));
        }
        load
    }

    /// Ends it; bytes that were read and written.
    pub(crate) fn end(self) -> (u64, u64) {
        self.end.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(rt::thread::JoinHandle::join);
        (self.read.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed))
    }
}

#[test]
fn metrics_are_as_the_format_has_them_and_add_up() {
    let site = Site::new();
    let port = free_port();
    let server = site.serve(&["--listen-metrics", &port.to_string()]);
    assert!(parsed(&metrics(port)).contains(&"info thumper_build 1".to_string()));
    site.create();
    let before = metrics(port);
    let load = Load::start(&site, 3);
    rt::time::sleep(Duration::from_secs(2));
    let during = metrics(port);
    assert!(sum(&during, "thumper_client_sessions", &[]) >= 3.0, "{during}");
    let (read, written) = load.end();
    drop(site.run(&["zfs", "create", "tank/settles"]));
    // What is told of a pool may be half a second old.
    rt::time::sleep(Duration::from_millis(700));
    let after = metrics(port);
    let families = parsed(&after);
    for family in [
        "stateset thumper_pool_state 7",
        "stateset thumper_device_state 30",
        "counter thumper_device_bytes 10",
        "gauge thumper_pool_allocated_bytes 1",
        "gauge thumper_memory_cap_bytes 1",
    ] {
        assert!(families.iter().any(|line| line == family), "no {family} in {families:?}");
    }
    assert!(families.iter().any(|line| line.starts_with("histogram thumper_device_io_seconds ")));
    // Each holder has a part of what is used.
    let (held, used) = ("thumper_memory_held_bytes", "thumper_memory_used_bytes");
    assert!(sum(&during, used, &[]) > 0.0, "{during}");
    assert_eq!(sum(&during, held, &[]), sum(&during, used, &[]));
    let grown =
        |name: &str, labels: &[&str]| sum(&after, name, labels) - sum(&before, name, labels);
    // What clients moved is told to the byte.
    assert_eq!(grown("thumper_client_read_bytes_total", &[]), read as f64);
    assert_eq!(grown("thumper_client_written_bytes_total", &[]), written as f64);
    // On five disks with two of parity each byte is written five thirds times, at least once, and a log block first.
    let to_disks = grown("thumper_device_bytes_total", &["operation=\"write\""]);
    assert!(to_disks >= written as f64 * 5.0 / 3.0, "{to_disks} of {written}");
    let operations = grown("thumper_device_operations_total", &[]);
    let labels = |operation| [format!("operation=\"{operation}\"")];
    let timed: f64 = ["read", "write"]
        .iter()
        .map(|operation| grown("thumper_device_io_seconds_count", &[&labels(operation)[0]]))
        .sum();
    assert_eq!(timed, operations);
    assert_eq!(sum(&after, "thumper_pool_state", &["ONLINE"]), 1.0);
    fs::remove_file(site.disk(4)).unwrap();
    until("the metrics know of the disk", SOON, || {
        let text = metrics(port);
        sum(&text, "thumper_device_state", &["REMOVED"]) == 1.0
            && sum(&text, "thumper_pool_state", &["DEGRADED"]) == 1.0
    });
    drop(server.stop());
}

#[test]
fn the_listener_is_loopback_and_takes_nothing_but_questions() {
    let site = Site::new();
    let port = free_port();
    let server = site.serve(&["--listen-metrics", &port.to_string()]);
    // Of all addresses of this machine that port is open at one.
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let (here, port_hex) = (format!("0100007F:{port:04X}"), format!(":{port:04X}"));
    let listening = table.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, _, state) = (words.next()?, words.next()?, words.next()?);
        (state == "0A" && local.ends_with(&port_hex)).then(|| local.to_string())
    });
    assert_eq!(listening.collect::<Vec<_>>(), [here]);
    let table = fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    assert!(
        !table.lines().any(|line| line.contains(&format!("{port_hex} ")) && line.contains(" 0A "))
    );
    for (method, path, status) in
        [("GET", "/", 200), ("GET", "/../etc/passwd", 404), ("POST", "/", 405), ("GET", "/x", 404)]
    {
        assert_eq!(http(port, method, path, "").unwrap().0, status, "{method} {path}");
    }
    let ran = site.try_run(&["serve", "--listen-metrics", "everywhere"]);
    assert!(ran.status == 2 && ran.err.contains("is no port"), "{ran}");
    drop(server.stop());
}

/// The cells of the row of a disk, and its colours.
pub(crate) fn row(browser: &Browser, disk: &str) -> Value {
    browser.script(&format!(
        "const row = [...document.querySelectorAll('tr.disk')].find(r => r.cells[0].textContent === {});
         if (!row) return null;
         const colour = getComputedStyle(row.querySelector('td.state')).color;
         return {{cells: [...row.cells].map(c => c.textContent), tone: row.dataset.tone, colour}};",
        json!(disk)
    ))
}

/// Is `rgb(r, g, b)` a red?
pub(crate) fn is_red(colour: &str) -> bool {
    let numbers: Vec<u32> = colour
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    matches!(numbers[..], [r, g, b, ..] if r > 150 && r > g + 50 && r > b + 50)
}

#[test]
fn a_browser_sees_the_load_and_the_disk_that_dies() {
    let site = Site::new();
    let port = free_port();
    let server = site.serve(&["--listen-metrics", &port.to_string()]);
    site.create();
    let load = Load::start(&site, 2);
    let browser = Browser::start(false);
    browser.open(&format!("http://127.0.0.1:{port}/"), (1100, 900));
    let text = |selector: &str| {
        let found = browser
            .script(&format!("return document.querySelector({})?.textContent", json!(selector)));
        found.as_str().unwrap_or_default().to_string()
    };
    until("the page is live", SOON, || text("#link") == "live");
    assert_eq!(text("h2 span"), "tank");
    assert_eq!(text(".badge"), "ONLINE");
    let disk = site.disk(3).display().to_string();
    let cell = |index: usize| {
        row(&browser, &disk)["cells"][index].as_str().unwrap_or_default().to_string()
    };
    until("the disk writes", SOON, || cell(3).ends_with("MiB/s"));
    // Numbers and lines move.
    let line = || {
        browser
            .script("return document.querySelector('svg path.write:not(.fill)').getAttribute('d')")
    };
    let mut seen = std::collections::BTreeSet::new();
    until("four different figures", SOON * 3, || {
        seen.insert((cell(3), line().to_string(), text("#server")));
        seen.len() >= 4
    });
    let healthy = row(&browser, &disk);
    assert!(healthy["tone"] == "good" && !is_red(healthy["colour"].as_str().unwrap()), "{healthy}");
    until("a chart with something in it", SOON * 3, || {
        line().to_string().matches('L').count() >= 12
    });
    let pictures = testkit::paths::cache().join("page");
    fs::create_dir_all(&pictures).unwrap();
    browser.picture(&pictures.join("live.png"));
    fs::remove_file(&disk).unwrap();
    let took = until("the disk is red", SOON, || {
        let dead = row(&browser, &disk);
        dead["tone"] == "bad" && is_red(dead["colour"].as_str().unwrap_or_default())
    });
    assert!(took < SOON);
    assert_eq!((cell(1), text(".badge")), ("REMOVED".into(), "DEGRADED".into()));
    assert!(text("#events").contains(&format!("{disk} of tank has gone")), "{}", text("#events"));
    assert!(text("title").starts_with("tank DEGRADED"), "{}", text("title"));
    assert_eq!(text("#news"), "Pool tank is DEGRADED");
    browser.picture(&pictures.join("disk-gone.png"));
    // In the dark, and on a phone, where nothing may be wider than the screen.
    let scheme = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    browser.devtools("Emulation.setEmulatedMedia", &scheme);
    browser.open(&format!("http://127.0.0.1:{port}/"), (390, 844));
    until("the page is live on the phone", SOON, || text("#link") == "live" && !cell(1).is_empty());
    let wide = browser.script("return document.documentElement.scrollWidth > innerWidth");
    assert_eq!(wide, json!(false));
    let paper = browser.script("return getComputedStyle(document.body).backgroundColor");
    assert_eq!(paper, json!("rgb(23, 22, 20)"));
    assert!(is_red(row(&browser, &disk)["colour"].as_str().unwrap()), "{}", row(&browser, &disk));
    browser.picture(&pictures.join("phone-dark.png"));
    assert_eq!(browser.complaints(), Vec::<String>::new());
    // Nothing was asked of anybody else.
    let origins = browser.script(
        "return [...new Set(performance.getEntriesByType('resource').map(e => new URL(e.name).origin))]",
    );
    assert_eq!(origins, json!([format!("http://127.0.0.1:{port}")]));
    let (read, written) = load.end();
    assert!(read > 0 && written > 0);
    drop(server.stop());
    until("the page says that nobody answers", SOON * 2, || text("#link").starts_with("no answer"));
}
