//! A command that reads for long ends when whoever typed it has gone, though it prints nothing meanwhile.

use std::process::Stdio;
use std::time::Duration;

use acceptance::disks::Disks;
use acceptance::thumper;
use testkit::free_port;

use crate::browser::http;
use crate::site::{Site, until};
use crate::troubles::wanted;

/// How soon that is to be noticed.
const SOON: Duration = Duration::from_secs(3);

#[test]
fn a_judgement_that_nobody_waits_for_is_given_up() {
    if !wanted("a server gives up a judgement that nobody waits for") {
        return;
    }
    let disks = Disks::new(5, 128 << 20, Duration::ZERO);
    let site = Site::new();
    let port = free_port();
    let server = site.serve(&["--listen-metrics", &port.to_string()]);
    site.create_on(&disks.paths());
    drop(site.put("file", 1, 100 << 20));
    drop(site.run(&["zpool", "export", "tank"]));
    // The whole takes half a minute.
    (0..5).for_each(|disk| disks.take(disk, Duration::from_millis(20)));
    let runs = || {
        let metrics = http(port, "GET", "/metrics", "").unwrap().1;
        metrics.lines().any(|line| line == "thumper_commands_running 1")
    };
    let mut command = thumper(&site.aside.path().join("pools"));
    let places = disks.paths().into_iter().flat_map(|path| ["-d".into(), path]);
    let command = command.arg("verify").args(places).arg("tank").stdout(Stdio::null());
    let mut judge = command.spawn().unwrap();
    until("it judges", SOON, runs);
    rt::time::sleep(Duration::from_secs(2));
    assert!(runs(), "it was too fast to be given up");
    judge.kill().unwrap();
    judge.wait().unwrap();
    until("it is given up", SOON, || !runs());
    drop(server.stop());
}
