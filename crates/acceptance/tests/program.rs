//! The program itself, before any pool.

use testkit::{Ran, temp_dir};

#[test]
fn it_runs_from_an_empty_directory() {
    let dir = temp_dir();
    let mut command = acceptance::thumper(dir.path());
    let ran = Ran::of(command.current_dir(dir.path()).arg("--help"));
    assert!(ran.ok(), "{ran}");
}

/// Each pass of a txg writes copies to other vdevs than the last one, unless it is kept from it.
#[test]
fn a_stripe_of_many_disks_comes_to_rest() {
    for count in [8, 13] {
        let images = testkit::fresh_images(count, 64 << 20);
        let state = temp_dir();
        let run = |words: &[&str]| {
            let mut command = acceptance::thumper(&state.path().join("pools"));
            Ran::of(command.args(words)).expect_ok()
        };
        let paths: Vec<String> = images.disks().iter().map(|d| d.display().to_string()).collect();
        let mut words = vec!["zpool", "create", "-f", "tank"];
        words.extend(paths.iter().map(String::as_str));
        drop(run(&words));
        for name in ["a", "b", "c"] {
            drop(run(&["zfs", "create", &format!("tank/{name}")]));
        }
        let program = acceptance::thumper_path();
        drop(run(&["put", &program.display().to_string(), "tank/b:/program"]));
        drop(run(&["zfs", "snapshot", "-r", "tank@all"]));
        let ran = run(&["verify", "tank"]);
        assert!(ran.out.contains("clean"), "{ran}");
    }
}

/// `verify -s FILE` keeps its state there while it works; a file that is something else is named and left alone.
#[test]
fn a_judgement_keeps_its_state_in_a_file() {
    let images = testkit::Images::copy_of(&testkit::golden("rz1"));
    let state = temp_dir();
    let kept = state.path().join("kept");
    let dir = images.path().display().to_string();
    let run = || {
        let mut command = acceptance::thumper(&state.path().join("pools"));
        Ran::of(command.args(["verify", "-d", &dir, "-s"]).arg(&kept).arg("rz1"))
    };
    let ran = run();
    assert!(ran.ok() && ran.out.contains("clean") && !kept.exists(), "{ran}");
    std::fs::write(&kept, "notes of mine\n").unwrap();
    let ran = run();
    assert!(ran.status == 3 && ran.err.contains("kept': line 1 is not"), "{ran}");
    assert!(ran.err.contains("remove it to begin anew"), "{ran}");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "notes of mine\n");
}
