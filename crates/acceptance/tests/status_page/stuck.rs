//! A pool that waits for its disks keeps those waiting who ask something of it, and nobody else: neither who writes to other
//! pools, nor who changes or serves them.

use std::thread::ScopedJoinHandle;
use std::time::Duration;

use acceptance::Server;
use acceptance::disks::Disks;
use client::{Client, Open, Options, Subject};
use rt::sync::Arc;
use testkit::noise;

use crate::site::{Site, until};
use crate::troubles::wanted;

const ROOT: Subject = Subject::ROOT;
const ANY: Open = Open { write: true, create: true, ..Open::READ };
/// Bytes of a write.
const PIECE: usize = 1 << 20;
/// Who write to the pool that waits: more than there is memory for.
const WRITERS: u64 = 64;
/// How long a call of the others may take.
const SOON: Duration = Duration::from_secs(8);

/// Three disks, a pool `tank` on them, and its server.
fn tank_on_disks(size: u64, words: &[&str]) -> (Disks, Site, Server) {
    let disks = Disks::new(3, size, Duration::ZERO);
    let site = Site::new();
    let server = site.serve(words);
    site.create_on(&disks.paths());
    (disks, site, server)
}

/// A disk for another pool.
fn beside(site: &Site, number: usize) -> String {
    site.disk(number).display().to_string()
}

/// Does a thread end, if it is waited for as long as something may take that waits for nothing?
fn ends<T>(thread: &ScopedJoinHandle<'_, T>) -> bool {
    let start = rt::time::now();
    while !thread.is_finished() && start.elapsed() < SOON * 4 {
        rt::time::sleep(Duration::from_millis(50));
    }
    thread.is_finished()
}

/// Writes to a pool and reads from it, anew each time; how long one of it took at most.
fn use_pool(client: &Arc<Client>) -> Duration {
    let file = client.open(&ROOT, b"/file", ANY, 0o644).unwrap();
    let (mut longest, mut back) = (Duration::ZERO, noise(0, PIECE));
    for round in 0..10 {
        let bytes = noise(round, PIECE);
        let start = rt::time::now();
        file.write(round << 20, &bytes).unwrap();
        let got = file.read(round << 20, &mut back).unwrap();
        longest = longest.max(start.elapsed());
        assert!(got == bytes.len() && back == bytes);
    }
    longest
}

#[test]
fn writers_of_a_pool_that_waits_leave_memory_to_others() {
    if !wanted("a pool of a server that waits for its disks, beside another") {
        return;
    }
    let (disks, site, server) = tank_on_disks(512 << 20, &["--memory", "64M"]);
    drop(site.run(&["zpool", "create", "other", &beside(&site, 0)]));
    let options = |tree: &str| Options { lanes_max: 80, ..Options::new(server.socket(), tree) };
    let (tank, other) =
        (Client::connect(options("tank")).unwrap(), Client::connect(options("other")).unwrap());
    (0..3).for_each(|disk| disks.fail(disk, true));
    let took = std::thread::scope(|scope| {
        for number in 0..WRITERS {
            let tank = tank.clone();
            scope.spawn(move || {
                let name = format!("/written{number}");
                let file = tank.open(&ROOT, name.as_bytes(), ANY, 0o644).unwrap();
                file.write(0, &noise(number, PIECE)).unwrap();
            });
        }
        let status = || site.run(&["zpool", "status", "tank"]);
        let waits = |status: String| status.contains(" state: SUSPENDED\n");
        until("it waits", Duration::from_secs(60), || waits(status()));
        assert!(status().contains("connected, then run 'zpool clear'."), "{}", status());
        assert_eq!(site.run(&["zpool", "list", "-H", "-o", "health", "tank"]), "SUSPENDED\n");
        // They come to where they wait.
        rt::time::sleep(Duration::from_secs(2));
        let others = scope.spawn(|| use_pool(&other));
        ends(&others);
        (0..3).for_each(|disk| disks.fail(disk, false));
        others.join().unwrap()
    });
    assert!(took < SOON, "{took:?}");
    drop((tank, other));
    drop(server.stop());
}

/// Seen red: pools were opened one after the other, and the end was not heard meanwhile.
#[test]
fn a_pool_whose_disks_do_not_answer_keeps_no_other_from_being_served() {
    if !wanted("a server with a pool whose disks do not answer, beside another") {
        return;
    }
    let (disks, site, server) = tank_on_disks(128 << 20, &[]);
    // The last in each list.
    drop(site.run(&["zpool", "create", "zone", &beside(&site, 0)]));
    drop(server.stop());
    disks.hide(true);
    let server = site.serve(&[]);
    // One that an early end leaves unopened is not closed either.
    until("the other is there", SOON * 3, || server.said().contains("'zone' is served"));
    server.interrupt();
    until("the other is closed", SOON, || server.said().contains("'zone' is closed"));
    // The system ends no process of which a call is not answered.
    disks.hide(false);
    let (status, log) = server.ended();
    assert!(status.success(), "{status}: {log}");
    disks.hide(true);
    let server = site.serve(&[]);
    assert_eq!(site.run(&["zfs", "list", "-H", "-o", "name", "zone"]), "zone\n");
    let said = server.said();
    assert!(said.contains("'tank' is not served before its devices have answered"), "{said}");
    disks.hide(false);
    let comes = || server.said().contains("'tank' has come and is served");
    until("it comes", Duration::from_secs(60), comes);
    drop(site.run(&["ls", "tank:/"]));
    drop(server.stop());
}

/// Seen red: one command at a time changed the disks of any pool.
#[test]
fn a_change_of_disks_that_waits_keeps_other_pools_from_nothing() {
    if !wanted("a change of the disks of a pool that waits for them, beside other pools") {
        return;
    }
    let (disks, site, server) = tank_on_disks(128 << 20, &[]);
    let others = [0, 1].map(|number| beside(&site, number));
    (0..3).for_each(|disk| disks.fail(disk, true));
    let away = disks.path(0).display().to_string();
    std::thread::scope(|scope| {
        let offline = scope.spawn(|| site.try_run(&["zpool", "offline", "tank", &away]));
        let waits = || site.run(&["zpool", "list", "-H", "-o", "health", "tank"]) == "SUSPENDED\n";
        until("it waits", Duration::from_secs(60), waits);
        let changes = scope.spawn(|| {
            drop(site.run(&["zpool", "create", "other", "mirror", &others[0], &others[1]]));
            drop(site.run(&["zpool", "offline", "other", &others[0]]));
            drop(site.run(&["zpool", "export", "other"]));
        });
        let (are_done, still_waits) = (ends(&changes), !offline.is_finished());
        (0..3).for_each(|disk| disks.fail(disk, false));
        changes.join().unwrap();
        drop(offline.join().unwrap());
        assert!(are_done && still_waits);
    });
    drop(server.stop());
}
