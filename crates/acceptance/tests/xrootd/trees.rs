//! ROOT's trees: what uproot has written comes back through root://, value by value.

use crate::gate::{Site, tool, xrdcp};

/// The python with uproot that `cargo xtask test` has made, beside what cargo has built.
#[expect(clippy::print_stderr, reason = "what was left out must be seen")]
fn python() -> Option<String> {
    if std::env::var("THUMPER_NO_UPROOT").is_ok_and(|value| !value.is_empty()) {
        eprintln!("NOT RUN, THUMPER_NO_UPROOT is set: that uproot reads a tree");
        return None;
    }
    let python = testkit::paths::cache().with_file_name("uproot").join("bin/python");
    assert!(
        python.exists(),
        "{} is missing: `cargo xtask test` makes it, or\n  \
         python3 -m venv {} && {} -m pip install uproot fsspec-xrootd\n\
         with THUMPER_NO_UPROOT=1 this test says that it does not run, and ends",
        python.display(),
        python.parent().unwrap().parent().unwrap().display(),
        python.display()
    );
    Some(python.to_str().unwrap().into())
}

#[test]
fn uproot_reads_a_tree() {
    let Some(python) = python() else { return };
    let site = Site::new();
    let gate = site.gate("gate", &site.osslib("pool=tank"));
    let script = site.file("tree.py", include_bytes!("tree.py"));
    let tree = site.path("tree.root");
    let tree = tree.to_str().unwrap();
    drop(tool(&python, &[&script, "write", tree], &[]).expect_ok());
    xrdcp(&["--cksum", "adler32", tree, &gate.url("/data/tree.root")]);
    drop(tool(&python, &[&script, "read", &gate.url("/data/tree.root")], &[]).expect_ok());
    // It has asked for many pieces at once.
    let told = gate.xrdfs(&["query", "stats", "a"]).expect_ok().out;
    let vectors = told.split("<rv>").nth(1).and_then(|rest| rest.split('<').next());
    assert!(vectors.is_some_and(|n| n.parse::<u64>().unwrap() > 0), "{told}");
    drop(gate);
    site.end();
}
