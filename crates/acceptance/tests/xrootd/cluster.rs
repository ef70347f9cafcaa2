//! Many servers, and many clients: what a manager asks, and a queue that is long enough.

use std::fs;
use std::time::Duration;

use testkit::{free_port, noise};

use crate::gate::{Gate, ROOT, Site, tool, until, xrdcp};

/// A manager finds a server's files through the cmsd beside it, which has the plug-in too.
#[test]
fn a_manager_finds_the_files() {
    let site = Site::new();
    let common = format!(
        "all.manager localhost:{}\ncms.delay startup 2 servers 1 lookup 2\n\
         cms.space linger 0 recalc 2 min 1% 1m 2% 2m\n",
        free_port()
    );
    let mut manager = site.gate("manager", &format!("all.role manager\n{common}"));
    manager.join_cluster();
    let server = format!("all.role server\n{common}{}", site.osslib("pool=tank"));
    let mut server = site.gate("server", &server);
    server.join_cluster();
    let bytes = noise(1, 2_000_000);
    let from = site.file("data", &bytes);
    let logs = || format!("{}\n{}", manager.cluster_log(), server.cluster_log());
    // Until the server has joined, its manager has nowhere to send anybody.
    let up = || tool("xrdcp", &["--silent", "-f", &from, &manager.url("/there")], &[]).ok();
    until("nothing is stored through the manager", up, logs);
    let back = site.path("back");
    let to = back.to_str().unwrap();
    drop(tool("xrdcp", &["--silent", &manager.url("/there"), to], &[]).expect_ok());
    assert!(fs::read(&back).unwrap() == bytes);
    let found = manager.xrdfs(&["locate", "/there"]).expect_ok().out;
    assert!(found.contains(&format!(":{} ", server.port)), "{found}");
    assert_ne!(manager.xrdfs(&["stat", "/not-there"]).status, 0);
    assert!(server.cluster_log().contains("serves the tree tank"), "{}", server.cluster_log());
    drop((manager, server));
    site.end();
}

/// Two pools behind one manager: files go where there is room, come from where they are, and with one server gone the
/// other's still do.
#[test]
fn a_manager_has_two_servers() {
    const FILES: usize = 6;
    let sites = [Site::new(), Site::new()];
    let common = format!(
        "all.manager localhost:{}\ncms.delay startup 2 servers 1 lookup 1 drop 2\ncms.ping 1 log 10 usage 1\n\
         cms.space linger 0 recalc 1 min 1% 50m 2% 60m\n",
        free_port()
    );
    let mut manager = sites[0].gate("manager", &format!("all.role manager\n{common}"));
    manager.join_cluster();
    let open = |site: &Site| {
        let lines = format!("all.role server\n{common}{}", site.osslib("pool=tank"));
        let mut gate = site.gate("server", &lines);
        gate.join_cluster();
        gate
    };
    let [one, two] = sites.each_ref().map(open);
    let logs = || [&manager, &one, &two].map(Gate::cluster_log).join("\n");
    let both = || manager.xrdfs(&["locate", "*"]).out.lines().count() == 2;
    until("both have joined", both, logs);

    // New files go to both (the manager looks for each before); each is on one, and comes back through the manager.
    let name = |i: usize| format!("/up/{i}");
    let bytes = |i: usize| noise(i as u64, 200_000 + i);
    let store = |files: std::ops::Range<usize>| {
        std::thread::scope(|scope| {
            for i in files {
                let from = sites[0].file(&format!("data{i}"), &bytes(i));
                let to = manager.url(&name(i));
                scope.spawn(move || xrdcp(&[&from, &to]));
            }
        });
    };
    let fetch = |i: usize| {
        let back = sites[0].path("back");
        xrdcp(&["-f", &manager.url(&name(i)), back.to_str().unwrap()]);
        assert!(fs::read(&back).unwrap() == bytes(i), "{i}");
    };
    store(0..FILES);
    (0..FILES).for_each(fetch);
    let clients = sites.each_ref().map(|site| site.client("tank"));
    let has = |site: usize, i: usize| clients[site].stat(&ROOT, name(i).as_bytes(), true).is_ok();
    let on = |site: usize| (0..FILES).filter(|i| has(site, *i)).count();
    assert_eq!(on(0) + on(1), FILES);
    assert!(on(0) > 0 && on(1) > 0, "{} {}", on(0), on(1));
    let listed = manager.xrdfs(&["ls", "/up"]).expect_ok().out;
    assert_eq!(listed.lines().count(), FILES, "{listed}");
    // One that has come to a server by other means is found there.
    drop(sites[1].run(&["put", &sites[1].file("x", &bytes(77)), "tank:/up/77"]));
    fetch(77);

    // One that is nearly full gets no more, once the manager has been told: what is new goes to the other.
    drop(sites[0].run(&["zfs", "set", "quota=30M", "tank"]));
    let mut next = 100;
    let start = rt::time::now();
    loop {
        store(next..next + 4);
        if (next..next + 4).all(|i| has(1, i)) {
            break;
        }
        next += 4;
        assert!(start.elapsed() < Duration::from_secs(60), "a full server gets files\n{}", logs());
    }

    // One is gone, at once: the other's files still come, and new ones go there.
    drop(one);
    (0..FILES).filter(|i| has(1, *i)).for_each(fetch);
    store(200..202);
    assert!(has(1, 200) && has(1, 201));
    drop((manager, two, clients));
    sites.into_iter().for_each(Site::end);
}

/// The kernel keeps more connections waiting than XRootD asks for.
#[test]
fn the_queue_is_long() {
    let site = Site::new();
    let gate = site.gate("gate", &site.osslib("pool=tank backlog=1000"));
    let queue = || {
        let here = format!("sport = :{}", gate.port);
        let said = tool("ss", &["-H", "-ltn", &here], &[]).expect_ok().out;
        said.split_whitespace().nth(2).map(String::from)
    };
    until("the queue is as it was", || queue().as_deref() == Some("1000"), || gate.log());
    drop(gate);
    site.end();
}
