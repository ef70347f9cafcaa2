//! Checks of Rust files: head, length, `unsafe`, and words that are not ours to say.

use super::code::{code_only, lines_with, without_tests};
use super::rules::{self, Scope};
use super::tree::Tree;
use super::{Finding, finding};

/// True for code that is tests from its first line to its last.
fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "benches" || part == "fuzz")
        || path.ends_with("/tests.rs")
        || ["crates/testkit/", "crates/acceptance/"].iter().any(|dir| path.starts_with(dir))
}

/// True for code that ships, `rt` excepted: there the words of `std` become ours.
fn is_product(path: &str) -> bool {
    path.starts_with("crates/") && !path.starts_with("crates/rt/") && !is_test(path)
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.texts(".rs") {
        let code = code_only(text);
        let product = without_tests(&code);
        // tests beside their module need no introduction
        if !text.starts_with("//! ") && !path.ends_with("/tests.rs") {
            found.push(finding(path, 1, "begin with `//!` and say what this file is for"));
        }
        if !is_test(path) {
            check_length(path, product.lines().count(), &mut found);
        }
        // the first is enough: a file is listed or it is not
        let opened = lines_with(&code, "unsafe").next();
        if let Some(line) = opened.filter(|_| !rules::UNSAFE.contains(&path)) {
            let what = "`unsafe` is kept to the files of docs/decisions/0002-unsafe.md";
            found.push(finding(path, line, what));
        }
        for ban in rules::BANS {
            let code = match ban.scope {
                Scope::Everywhere => &code,
                Scope::Product if is_product(path) => product,
                Scope::Product => continue,
            };
            if ban.text == "process::Command" && rules::RUNS_PROGRAMS.contains(&path) {
                continue;
            }
            for line in lines_with(code, ban.text) {
                found.push(finding(path, line, format!("`{}`: {}", ban.text, ban.instead)));
            }
        }
    }
    found
}

fn check_length(path: &str, lines: usize, found: &mut Vec<Finding>) {
    let listed = rules::LONG_FILES.iter().find(|(file, _)| *file == path).map(|(_, n)| *n);
    let what = match listed {
        None if lines > rules::LINES_MAX => {
            format!(
                "{lines} lines without its tests, at most {}: is it still one idea?",
                rules::LINES_MAX
            )
        }
        Some(max) if lines > max => {
            format!("{lines} lines without its tests, {max} when it was listed")
        }
        Some(_) if lines <= rules::LINES_MAX => "short enough now: take it off LONG_FILES".into(),
        Some(max) if lines < max => format!("shrunk: make its entry in LONG_FILES {lines}"),
        _ => return,
    };
    found.push(finding(path, 0, what));
}

/// Entries of the tables that name files which are gone or have no need of them any more.
pub(crate) fn check_tables(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for path in rules::UNSAFE {
        let text = tree.files.get(*path).and_then(|file| file.text.as_deref()).unwrap_or("");
        if lines_with(&code_only(text), "unsafe").next().is_none() {
            found.push(finding(path, 0, "on the list UNSAFE without need: take it off"));
        }
    }
    for (path, _) in rules::LONG_FILES {
        if !tree.has(path) {
            found.push(finding(path, 0, "on LONG_FILES, but gone: take it off"));
        }
    }
    found
}

/// Tests in what cargo builds without its tests: they would never run.
pub(crate) fn check_untested(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (manifest, text) in tree.texts("Cargo.toml") {
        let sources = format!("{}src/", manifest.trim_end_matches("Cargo.toml"));
        let untested = |section: &&str| section.lines().any(|line| line == "test = false");
        for section in text.split("\n[").filter(untested) {
            let is_beside_a_library =
                section.starts_with("[bin]]") && tree.has(&format!("{sources}lib.rs"));
            let main = if is_beside_a_library { "main.rs" } else { "" };
            for (path, text) in tree.texts(".rs") {
                let first = lines_with(&code_only(text), "#[cfg(test)]").next();
                if let Some(line) = first.filter(|_| path.starts_with(&format!("{sources}{main}")))
                {
                    let what = format!("never run: {manifest} says `test = false`");
                    found.push(finding(path, line, what));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::show;
    use super::*;

    #[test]
    fn planted_violations_are_found() {
        let long = format!("//! x\n{}", "fn f() {}\n".repeat(rules::LINES_MAX));
        let tree = Tree::of(&[
            ("crates/vdev/src/a.rs", "use x;\n"),
            ("crates/vdev/src/b.rs", "//! b\nlet x = unsafe { y };\n"),
            (
                "crates/vdev/src/c.rs",
                "//! c\nuse std::thread;\nlet t = std::time::Instant::now();\n",
            ),
            ("crates/vdev/src/d.rs", "//! d\nfn f() { todo!() }\nlet m = HashMap::new();\n"),
            ("crates/vdev/src/e.rs", &long),
            ("crates/vdev/tests/f.rs", "//! f\n#[ignore]\nfn f() {}\n"),
            ("crates/cli/src/g.rs", "//! g\nuse std::process::Command;\n"),
        ]);
        let expected = [
            "crates/cli/src/g.rs:2: `process::Command`",
            "crates/vdev/src/a.rs:1: begin with",
            "crates/vdev/src/b.rs:2: `unsafe`",
            "crates/vdev/src/c.rs:2: `std::thread`",
            "crates/vdev/src/c.rs:3: `Instant::now`",
            "crates/vdev/src/d.rs:2: `todo!`",
            "crates/vdev/src/d.rs:3: `HashMap::new(`",
            "crates/vdev/src/e.rs: 701 lines",
            "crates/vdev/tests/f.rs:2: `#[ignore`",
        ];
        assert_finds(&show(check(&tree)), &expected);
    }

    #[test]
    fn what_is_allowed_stays_silent() {
        let tree = Tree::of(&[
            ("crates/rt/src/sync.rs", "//! rt\npub use std::sync::Mutex;\n"),
            ("crates/vdev/src/a.rs", "//! std::thread, todo!\n// unsafe\nlet x = \"unsafe\";\n"),
            (
                "crates/vdev/src/b.rs",
                "//! b\n#[cfg(test)]\nmod tests {\n use std::thread;\n let m = HashMap::new();\n}\n",
            ),
            ("crates/vdev/tests/c.rs", "//! c\nuse std::process::Command;\n"),
        ]);
        assert_finds(&show(check(&tree)), &[]);
    }

    #[test]
    fn stale_entries_are_found() {
        let tree = Tree::of(&[(rules::UNSAFE[0], "//! nothing\n")]);
        assert_eq!(check_tables(&tree).len(), rules::UNSAFE.len());
    }

    #[test]
    fn tests_that_never_run_are_found() {
        const WITHOUT: &str = "[package]\nname = \"x\"\n\n[lib]\ntest = false\n";
        const BESIDE: &str = "[lib]\npath = \"src/lib.rs\"\n\n[[bin]]\ntest = false\n";
        const TEST: &str = "//! x\n#[cfg(test)]\nmod tests {}\n";
        let tree = Tree::of(&[
            ("crates/a/Cargo.toml", WITHOUT),
            ("crates/a/src/deep/b.rs", TEST),
            ("crates/a/src/c.rs", "//! c\n"),
            ("crates/a/tests/d.rs", TEST),
            ("crates/ab/Cargo.toml", BESIDE),
            ("crates/ab/src/lib.rs", TEST),
            ("crates/ab/src/main.rs", TEST),
            ("crates/b/Cargo.toml", "[[bin]]\nname = \"b\"\ntest = false\n"),
            ("crates/b/src/part.rs", TEST),
            ("crates/c/Cargo.toml", "[package]\n"),
            ("crates/c/src/lib.rs", TEST),
        ]);
        let expected = [
            "crates/a/src/deep/b.rs:2: never run",
            "crates/ab/src/main.rs:2: never run",
            "crates/b/src/part.rs:2: never run",
        ];
        assert_finds(&show(check_untested(&tree)), &expected);
    }

    fn assert_finds(found: &[String], starts: &[&str]) {
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        for (finding, start) in found.iter().zip(starts) {
            assert!(finding.starts_with(start), "{finding} is not {start}");
        }
    }
}
