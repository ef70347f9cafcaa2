//! A disk that is slow, and one that fails: in status, events, mail, metrics and on the page, soon enough.

use std::time::Duration;

use acceptance::disks::Disks;
use testkit::free_port;

use crate::browser::{Browser, http};
use crate::page::{Load, is_red, row};
use crate::site::{Site, until};

/// How soon a slow disk is to be known.
const SLOW_WITHIN: Duration = Duration::from_secs(60);
/// How soon a dead one.
const DEAD_WITHIN: Duration = Duration::from_secs(10);
/// How long an operation of a good disk takes here.
const TIME: Duration = Duration::from_millis(2);

/// False, and said so, where there is no /dev/fuse for the disks.
#[expect(clippy::print_stderr, reason = "what was left out must be seen")]
pub(crate) fn wanted(what: &str) -> bool {
    let off = std::env::var_os("THUMPER_NO_MOUNT").is_some_and(|v| !v.is_empty());
    if off {
        eprintln!("NOT RUN, there is no /dev/fuse for it: {what}");
    }
    !off
}

#[test]
fn one_of_ten_that_is_slow_and_one_that_fails_are_told_of_everywhere() {
    if !wanted("slow and failing disks of a server") {
        return;
    }
    let disks = Disks::new(10, 128 << 20, TIME);
    let site = Site::new();
    let hooks = site.hooks_with_mail();
    let port = free_port();
    let words = ["--hooks", hooks.to_str().unwrap(), "--listen-metrics", &port.to_string()];
    let server = site.serve(&words);
    site.create_on(&disks.paths());
    let load = Load::start(&site, 2);
    let browser = Browser::start(false);
    browser.open(&format!("http://127.0.0.1:{port}/"), (1100, 1100));
    let shown = |disk: usize| row(&browser, disks.path(disk).to_str().unwrap());
    until("the page shows the disks", DEAD_WITHIN, || shown(9)["tone"] == "good");
    let status = || site.run(&["zpool", "status", "tank"]);

    disks.take(6, TIME * 5);
    let name = disks.path(6).display().to_string();
    let took =
        until("an event of the slow disk", SLOW_WITHIN, || site.has_event("ereport.fs.zfs.delay"));
    let left = SLOW_WITHIN.saturating_sub(took);
    let mail = format!("tank: {name} is slow: its ");
    until("a mail of the slow disk", left, || site.mails().contains(&mail));
    until("the page has the slow disk", left, || {
        let told = shown(6);
        told["tone"] == "warn" && told["cells"][1].as_str().is_some_and(|s| s.starts_with("SLOW"))
    });
    let told = status();
    assert!(told.contains("take much longer than their siblings"), "{told}");
    let metrics = http(port, "GET", "/metrics", "").unwrap().1;
    let slow: Vec<_> = metrics
        .lines()
        .filter(|line| line.starts_with("thumper_device_slow{") && line.ends_with(" 1"))
        .collect();
    assert!(slow.len() == 1 && slow[0].contains(&name), "{slow:?}");
    let mails = site.mails();
    let subjects = mails.lines().filter(|l| l.starts_with("Subject: ") && l.contains(" is slow: "));
    assert_eq!(subjects.count(), 1, "{mails}");

    disks.fail(2, true);
    let name = disks.path(2).display().to_string();
    let took = until("status gives it up", DEAD_WITHIN, || {
        status().lines().any(|line| line.contains(&name) && line.contains("FAULTED"))
    });
    let left = DEAD_WITHIN.saturating_sub(took);
    until("the page has it in red", left, || {
        let told = shown(2);
        told["cells"][1] == "FAULTED" && is_red(told["colour"].as_str().unwrap_or_default())
    });
    let mail = format!("Subject: [thumper] tank: {name} is FAULTED\n");
    until("a mail says so", left, || site.mails().contains(&mail));
    assert!(status().contains("too many errors") && site.has_event("ereport.fs.zfs.io"));
    // Nobody who moves files has noticed.
    let (read, written) = load.end();
    assert!(read > 0 && written > 0);
    drop(server.stop());
}

/// Beyond redundancy the pool waits, and everybody is told, at once; it goes on when the disks are back.
#[test]
fn a_pool_that_waits_for_its_disks_says_so_and_goes_on() {
    if !wanted("a pool of a server that waits for its disks") {
        return;
    }
    let disks = Disks::new(5, 128 << 20, Duration::ZERO);
    let site = Site::new();
    let hooks = site.hooks_with_mail();
    let port = free_port();
    let words = ["--hooks", hooks.to_str().unwrap(), "--listen-metrics", &port.to_string()];
    let server = site.serve(&words);
    site.create_on(&disks.paths());
    let load = Load::stubborn(&site, 2);
    let browser = Browser::start(false);
    browser.open(&format!("http://127.0.0.1:{port}/"), (1100, 900));
    let badge = || browser.script("return document.querySelector('.badge')?.textContent");
    until("the page is there", DEAD_WITHIN, || badge() == "ONLINE");
    (0..3).for_each(|disk| disks.fail(disk, true));
    let state = |state: &str| {
        let metrics = http(port, "GET", "/metrics", "").unwrap().1;
        let pool = metrics.lines().filter(|line| line.starts_with("thumper_pool_state{"));
        pool.filter(|line| line.ends_with(" 1")).any(|line| line.contains(state))
    };
    until("the metrics say that it waits", DEAD_WITHIN, || state("SUSPENDED"));
    until("the page says that it waits", DEAD_WITHIN, || badge() == "SUSPENDED");
    let tone = browser.script("return document.querySelector('section.pool').dataset.tone");
    assert_eq!(tone, "bad");
    let told =
        |subject: &str| site.mails().contains(&format!("Subject: [thumper] tank: {subject}"));
    until("a mail says that it waits", DEAD_WITHIN, || told("the pool is suspended\n"));
    assert!(site.has_event("ereport.fs.zfs.io_failure"));
    (0..3).for_each(|disk| disks.fail(disk, false));
    until("it goes on", DEAD_WITHIN * 2, || badge() == "ONLINE" && state("ONLINE"));
    until("a mail says that it goes on", DEAD_WITHIN, || told("the pool is ONLINE\n"));
    let (read, written) = load.end();
    assert!(read > 0 && written > 0);
    drop(server.stop());
}
