//! The page of the README that leads from disks to a served pool: every command of it is run.
//!
//! Seen red: with a wrong word in any command, with a unit whose server does not start.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write as _;
use std::process::Command;

use acceptance::mounts::Tidy;
use acceptance::{Server, Stage, thumper};
use testkit::{Ran, free_port, paths, tool};

/// The commands of the page, as they stand there.
fn commands(readme: &str) -> Vec<&str> {
    let (_, page) = readme.split_once("## From disks to a served pool").unwrap();
    let (page, _) = page.split_once("\n## ").unwrap();
    page.lines().filter_map(|line| line.strip_prefix("    ")).collect()
}

#[test]
fn the_way_of_the_readme_leads_to_a_served_pool() {
    if std::env::var_os("THUMPER_NO_MOUNT").is_some_and(|v| !v.is_empty()) {
        let line = "the way of the README: NOT shown (THUMPER_NO_MOUNT is set)";
        drop(writeln!(std::io::stderr(), "{line}"));
        return;
    }
    let stage = Stage::new(6, 128 << 20);
    let readme = std::fs::read_to_string(paths::repository().join("README.md")).unwrap();
    let unit = paths::repository().join("tools/systemd/thumper.service");
    let unit = std::fs::read_to_string(unit).unwrap();
    let port = free_port();
    let top = stage.aside("srv");
    std::fs::create_dir(&top).unwrap();
    let _tidy = Tidy(top.clone());
    let here = |line: &str| {
        let disks = stage.images.path().display().to_string();
        let line = line.replace("/dev/disk/by-id", &disks).replace("9100", &port.to_string());
        line.replace("/srv", &top.display().to_string())
    };
    let (setup, rest): (Vec<&str>, Vec<&str>) = commands(&readme)
        .into_iter()
        .filter(|line| !line.is_empty())
        .partition(|line| ["cargo ", "install ", "systemctl "].iter().any(|w| line.starts_with(w)));
    assert_eq!((setup.len(), rest.len() > 15), (3, true), "{setup:?} {rest:?}");

    // What systemd would start.
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/thumper serve "));
    let words = here(line.expect("the unit starts the server"));
    let words: Vec<&str> = words.split(' ').collect();
    let mut server = Some(Server::start_with(&stage.aside("pools"), &words));
    for line in rest {
        let line = here(line);
        let ran = match line.strip_prefix("thumper ") {
            Some(words) => Ran::of(thumper(&stage.aside("pools")).args(words.split(' '))),
            None => Ran::of(Command::new("sh").args(["-c", &line])),
        };
        assert_eq!((ran.status, ran.err.as_str()), (0, ""), "{line}: {}", ran.out);
        let quiet = ["cp ", "chown "].iter().any(|word| line.starts_with(word))
            || ["zfs create", "zfs snapshot", "-m ", "export", "import"]
                .iter()
                .any(|word| line.contains(word));
        assert_eq!(ran.out.is_empty(), quiet, "{line}: {}", ran.out);
    }
    let license = top.join("tank/atlas/common-licenses/GPL-3");
    assert!(license.exists(), "what was stored is back after the import");
    drop(server.take().unwrap().stop());
    tool::zdb_content(stage.images.path(), "tank");
}

#[test]
fn the_unit_is_one_to_systemd() {
    let unit = paths::repository().join("tools/systemd/thumper.service");
    let dir = testkit::temp_dir();
    // The program need not be installed here.
    let text = std::fs::read_to_string(unit).unwrap().replace("/usr/bin/thumper", "/bin/true");
    let copy = dir.path().join("thumper.service");
    std::fs::write(&copy, text).unwrap();
    let program = tool::program("systemd-analyze", "systemd");
    let ran = Ran::of(Command::new(program).arg("verify").arg(&copy)).expect_ok();
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
}
