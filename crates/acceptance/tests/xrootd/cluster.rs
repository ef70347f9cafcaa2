//! Many servers, and many clients: what a manager asks, and a queue that is long enough.

use std::fs;

use crate::gate::{Site, free_port, noise, tool, until};

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
