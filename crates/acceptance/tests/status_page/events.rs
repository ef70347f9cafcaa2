//! `zpool events`, and what is run on events.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use acceptance::thumper;
use testkit::{Ran, free_port};

use crate::browser::http;
use crate::site::{Site, put_program, until};

/// How soon a dead disk is to be known.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn what_happens_to_a_pool_is_told_in_openzfs_s_form() {
    let site = Site::new();
    let ran = site.try_run(&["zpool", "events"]);
    assert!(ran.status == 1 && ran.err.contains("no server is running"), "{ran}");
    let server = site.serve(&[]);
    assert_eq!(site.run(&["zpool", "events"]), "TIME                           CLASS\n");
    assert_eq!(site.run(&["zpool", "events", "-c"]), "cleared 0 events\n");
    site.create();
    drop(site.run(&["zfs", "create", "tank/a"]));
    let told = site.run(&["zpool", "events", "-v"]);
    // The lines that the kernel's have, and nothing but numbers differs.
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "TIME                           CLASS");
    let (time, class) = lines[1].split_at(31);
    assert_eq!(class, "sysevent.fs.zfs.pool_create", "{told}");
    // `May  1 2024 00:01:35.356002480 `
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert!(shape.ends_with(" 0000 00:00:00.000000000 "), "{time:?}");
    assert_eq!(
        lines[2..6],
        [
            "        version = 0x0",
            "        class = \"sysevent.fs.zfs.pool_create\"",
            "        pool = \"tank\"",
            &format!("        pool_guid = {:#x}", guid(&site)),
        ]
    );
    assert_eq!(lines[6..8], ["        pool_state = 0x0", "        pool_context = 0x0"]);
    assert!(lines[8].starts_with("        time = 0x") && lines[8].ends_with(' '), "{}", lines[8]);
    assert_eq!(lines[9..11], ["        eid = 0x1", ""]);
    assert!(told.contains("        history_command = \"zfs create tank/a\"\n"), "{told}");
    assert!(site.has_event("sysevent.fs.zfs.config_sync"));
    assert_eq!(site.run(&["zpool", "events", "-H", "other"]), "");
    assert_eq!(site.run(&["zpool", "events", "other"]), "TIME                           CLASS\n");
    for words in [&["-c", "tank"][..], &["-cf"], &["-Z"], &["a", "b"]] {
        let ran = site.try_run(&[&["zpool", "events"], words].concat());
        assert!(ran.status == 2 && ran.err.contains("\tevents [-vHf [pool] | -c]\n"), "{ran}");
    }
    let count = site.classes().len();
    assert_eq!(site.run(&["zpool", "events", "-c"]), format!("cleared {count} events\n"));
    drop(site.run(&["zpool", "export", "tank"]));
    assert_eq!(site.classes().last().unwrap(), "sysevent.fs.zfs.pool_export");
    let dir = site.images.path().to_str().unwrap().to_string();
    drop(site.run(&["zpool", "import", "-d", &dir, "tank"]));
    assert!(site.has_event("sysevent.fs.zfs.pool_import"));
    drop(site.run(&["zpool", "destroy", "tank"]));
    assert!(site.has_event("sysevent.fs.zfs.pool_destroy"));
    drop(server.stop());
}

fn guid(site: &Site) -> u64 {
    site.run(&["zpool", "get", "-Hpo", "value", "guid", "tank"]).trim().parse().unwrap()
}

#[test]
fn who_follows_hears_at_once_and_may_go() {
    let site = Site::new();
    let port = free_port();
    let server = site.serve(&["--listen-metrics", &port.to_string()]);
    site.create();
    let state = site.aside.path().join("pools");
    let mut command = thumper(&state);
    let mut following =
        command.args(["zpool", "events", "-fH", "tank"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().ends_with("sysevent.fs.zfs.pool_create"));
    drop(site.run(&["zfs", "create", "tank/later"]));
    let found = lines.any(|line| line.unwrap().ends_with("sysevent.fs.zfs.history_event"));
    assert!(found);
    following.kill().unwrap();
    following.wait().unwrap();
    for _ in 0..10 {
        let mut follower = thumper(&state);
        let mut follower =
            follower.args(["zpool", "events", "-fH"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(follower.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.contains("fs.zfs"), "{first:?}");
        follower.kill().unwrap();
        follower.wait().unwrap();
    }
    // It is noticed within half a second that one has gone.
    let none_runs = || {
        let metrics = http(port, "GET", "/metrics", "").unwrap().1;
        metrics.lines().any(|line| line == "thumper_commands_running 0")
    };
    until("none of them runs", SOON, none_runs);
    drop(server.stop());
}

#[test]
fn a_disk_that_goes_is_told_of_and_one_that_is_back_too() {
    let site = Site::new();
    let server = site.serve(&[]);
    site.create();
    drop(site.run(&["zpool", "events", "-c"]));
    let (disk, away) = (site.disk(2), site.aside.path().join("away"));
    fs::rename(&disk, &away).unwrap();
    let status = || site.run(&["zpool", "status", "tank"]);
    let is = |state: &str| {
        let name = disk.to_str().unwrap().to_string();
        status().lines().any(|line| line.contains(&name) && line.contains(state))
    };
    until("the disk is removed", SOON, || is("REMOVED"));
    let told = status();
    assert!(told.contains("state: DEGRADED") && told.contains("has been removed"), "{told}");
    assert!(site.has_event("resource.fs.zfs.removed"));
    let verbose = site.run(&["zpool", "events", "-v"]);
    assert!(verbose.contains("vdev_state = \"REMOVED\" (0x3)\n"), "{verbose}");
    assert!(verbose.contains("vdev_laststate = \"ONLINE\" (0x7)\n"), "{verbose}");
    fs::rename(&away, &disk).unwrap();
    until("the disk is back", SOON, || is("ONLINE"));
    assert!(status().contains("state: ONLINE"), "{}", status());
    drop(server.stop());
}

/// A spare that waits is looked for, too: nobody is to find out when it is needed.
#[test]
fn a_spare_that_goes_is_shown_so_and_one_that_is_back_too() {
    let site = Site::new();
    let port = free_port();
    let words = ["--listen-metrics", &port.to_string()];
    let server = site.serve(&words);
    let disks: Vec<String> =
        site.images.disks().iter().map(|disk| disk.display().to_string()).collect();
    let mut create = vec!["zpool", "create", "tank", "raidz1"];
    create.extend(disks[..4].iter().map(String::as_str));
    drop(site.run(&[&create[..], &["spare", &disks[4]]].concat()));
    let (spare, away) = (site.disk(4), site.aside.path().join("away"));
    let status = || site.run(&["zpool", "status", "tank"]);
    let is = |state: &str| {
        let said = status();
        said.lines().any(|line| line.contains(&disks[4]) && line.trim_end().ends_with(state))
    };
    let served = |state: &str| {
        let metrics = http(port, "GET", "/metrics", "").unwrap().1;
        let states = metrics.lines().filter(|line| line.starts_with("thumper_device_state{"));
        let mut states = states.filter(|line| line.contains(&disks[4]) && line.ends_with(" 1"));
        let page = http(port, "GET", "/status.json", "").unwrap().1;
        let page: serde_json::Value = serde_json::from_str(&page).unwrap();
        states.any(|line| line.contains(state)) && page["pools"][0]["spares"][0]["state"] == state
    };
    let told = |class: &str| site.classes().iter().filter(|other| **other == class).count();
    assert!(is("AVAIL"), "{}", status());
    fs::rename(&spare, &away).unwrap();
    until("the spare is gone", SOON, || is("UNAVAIL   cannot open") && served("UNAVAIL"));
    until("that is told", SOON, || told("resource.fs.zfs.statechange") == 1);
    let verbose = site.run(&["zpool", "events", "-v"]);
    for what in ["vdev_state = \"REMOVED\" (0x3)", &format!("vdev_path = \"{}\"", disks[4])] {
        assert!(verbose.lines().any(|line| line.trim() == what), "{what}: {verbose}");
    }
    fs::rename(&away, &spare).unwrap();
    until("the spare is back", SOON, || is("AVAIL") && served("ONLINE"));
    until("that is told, too", SOON, || told("resource.fs.zfs.statechange") == 2);
    // Whatever else happens to the pool, it is told once.
    drop(site.run(&["zfs", "create", "tank/later"]));
    rt::time::sleep(Duration::from_millis(2500));
    let often = ["removed", "statechange"].map(|class| told(&format!("resource.fs.zfs.{class}")));
    assert_eq!(often, [1, 2]);
    // A server that has never seen it.
    fs::rename(&spare, &away).unwrap();
    drop(server.stop());
    assert!(is("UNAVAIL   cannot open"), "{}", status());
    let server = site.serve(&words);
    until("the spare is not there", SOON, || is("UNAVAIL   cannot open"));
    fs::rename(&away, &spare).unwrap();
    until("the spare has come", SOON, || is("AVAIL"));
    drop(server.stop());
    assert!(is("AVAIL"), "{}", status());
    // Something else is where it was.
    fs::rename(&spare, &away).unwrap();
    fs::File::create(&spare).unwrap().set_len(128 << 20).unwrap();
    assert!(is("UNAVAIL   invalid label"), "{}", status());
}

/// Wrong bytes are counted, told, and at last too many; `zpool clear` forgets them.
#[test]
fn a_disk_that_lies_is_degraded_until_it_is_cleared() {
    let site = Site::new();
    let server = site.serve(&[]);
    site.create();
    let bytes = site.put("file", 3, 6_000_000);
    drop(server.stop());
    // All of its data is gone, and its labels say nothing of that.
    let disk = fs::File::options().write(true).open(site.disk(1)).unwrap();
    disk.write_all_at(&vec![0x5a; 100 << 20], 5 << 20).unwrap();
    let server = site.serve(&[]);
    drop(site.run(&["get", "tank:/file", "back"]));
    assert!(fs::read(site.aside.path().join("back")).unwrap() == bytes);
    assert!(site.has_event("ereport.fs.zfs.checksum"));
    let status = || site.run(&["zpool", "status", "tank"]);
    assert!(status().contains("too many errors"), "{}", status());
    assert!(site.has_event("resource.fs.zfs.statechange"));
    drop(site.run(&["zpool", "clear", "tank"]));
    assert!(!status().contains("too many errors"), "{}", status());
    assert!(site.has_event("sysevent.fs.zfs.vdev_clear"));
    drop(server.stop());
}

#[test]
fn programs_are_run_on_events_and_mail_is_sent() {
    let site = Site::new();
    let hooks = site.hooks_with_mail();
    let ran = hooks.join("ran");
    put_program(&hooks, "pool_create-note", &format!("#!/bin/sh\nenv > {}\n", ran.display()));
    put_program(&hooks, "all-broken", "#!/bin/sh\nexit 7\n");
    std::os::unix::fs::symlink("/nowhere", hooks.join("all-dangling")).unwrap();
    let server = site.serve(&["--hooks", hooks.to_str().unwrap()]);
    site.create();
    until("the program has run", SOON, || {
        fs::read_to_string(&ran).is_ok_and(|env| env.contains("ZEVENT_POOL=tank\n"))
    });
    let (disk, away) = (site.disk(0), site.aside.path().join("away"));
    fs::rename(&disk, &away).unwrap();
    let subject = format!("Subject: [thumper] tank: {} is REMOVED\n", disk.display());
    until("a mail says that it has gone", SOON, || site.mails().contains(&subject));
    fs::rename(&away, &disk).unwrap();
    let back = format!("Subject: [thumper] tank: {} is ONLINE\n", disk.display());
    until("a mail says that it is back", SOON, || site.mails().contains(&back));
    // The last word is what holds.
    fs::rename(&disk, &away).unwrap();
    until("a mail says that it has gone again", SOON, || {
        site.mails().matches(&subject).count() == 2
    });
    drop(site.run(&["zfs", "create", "tank/after"]));
    rt::time::sleep(Duration::from_millis(1500));
    assert_eq!(site.mails().matches("Subject: ").count(), 3, "{}", site.mails());
    assert!(site.mails().starts_with("To: admin@example.org\n"), "{}", site.mails());
    let log = server.stop();
    assert!(log.contains("all-broken: ended with status 7"), "{log}");
}

/// What is said of a disk or a pool is said once, until something else is said of it.
#[test]
fn mails_say_what_holds() {
    let site = Site::new();
    let hooks = site.hooks_with_mail();
    let told = |subclass: &str, values: &[(&str, &str)]| {
        let before = site.mails().matches("Subject: ").count();
        let mut script = Command::new(hooks.join("all-mail.sh"));
        script.env("ZED_ZEDLET_DIR", &hooks).env("ZEVENT_SUBCLASS", subclass);
        script.env("ZEVENT_POOL", "tank").env("ZEVENT_POOL_GUID", "0x17");
        script.envs(values.iter().copied());
        drop(Ran::of(&mut script).expect_ok());
        let mails = site.mails();
        let new = mails.lines().filter_map(|line| line.strip_prefix("Subject: [thumper] tank: "));
        new.skip(before).map(str::to_owned).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    let pool = [("ZEVENT_VDEV_GUID", "0x17"), ("ZEVENT_VDEV_STATE_STR", "ONLINE")];
    assert_eq!(told("io_failure", &[]), ["the pool is suspended"]);
    assert_eq!(told("io_failure", &[]), none);
    assert_eq!(told("statechange", &pool), ["the pool is ONLINE"]);
    assert_eq!(told("io_failure", &[]), ["the pool is suspended"]);
    let disk = ("ZEVENT_VDEV_PATH", "/dev/sdc");
    let slow = [
        disk,
        ("ZEVENT_SLOW_WHAT", "reads"),
        ("ZEVENT_ZIO_DELAY", "9000000"),
        ("ZEVENT_SLOW_SIBLINGS_DELAY", "2000000"),
    ];
    let is_slow = "/dev/sdc is slow: its reads take 9 ms, its siblings' 2 ms";
    assert_eq!(told("delay", &slow), [is_slow]);
    assert_eq!(told("vdev_clear", &slow), ["/dev/sdc keeps up again"]);
    assert_eq!(told("vdev_clear", &[disk]), ["errors of /dev/sdc are forgotten"]);
    assert_eq!(told("delay", &slow), [is_slow]);
    assert_eq!(told("delay", &slow), none);
}
