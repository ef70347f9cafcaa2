//! Checks of all text files, of their sizes, and of markdown.

use super::code::lines_with;
use super::rules;
use super::tree::Tree;
use super::{Finding, finding};

/// Leftovers, and what is true on one machine only.
pub(crate) fn check_words(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.texts("") {
        if rules::TEXT_BANS_SKIP.contains(&path) {
            continue;
        }
        for (head, tail, instead) in rules::TEXT_BANS {
            let banned = format!("{head}{tail}");
            for line in lines_with(text, &banned) {
                // a/work/b is no path of a machine, and neither is $x/root/b
                let absolute = banned.starts_with('/');
                let here = text.lines().nth(line - 1).unwrap_or("");
                if absolute && !here.match_indices(&banned).any(|(at, _)| starts_a_path(here, at)) {
                    continue;
                }
                found.push(finding(path, line, format!("`{banned}`: {instead}")));
            }
        }
    }
    found
}

fn starts_a_path(line: &str, at: usize) -> bool {
    let before = line.get(..at).and_then(|s| s.chars().next_back());
    before.is_none_or(|c| c.is_whitespace() || "\"'`=(:<>|".contains(c))
}

/// One file, and all of them together.
pub(crate) fn check_sizes(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mib = |bytes: u64| bytes as f64 / (1u64 << 20) as f64;
    for (path, file) in &tree.files {
        if file.bytes > rules::FILE_BYTES_MAX {
            let max = mib(rules::FILE_BYTES_MAX);
            let what = format!("{:.1} MiB, a tracked file has at most {max}", mib(file.bytes));
            found.push(finding(path, 0, what));
        }
    }
    let all = tree.files.values().map(|file| file.bytes).sum();
    if all > rules::TREE_BYTES_MAX {
        let max = mib(rules::TREE_BYTES_MAX);
        found.push(finding(".", 0, format!("{:.1} MiB tracked, at most {max}", mib(all))));
    }
    found
}

/// Markdown: one title, on the first line; links inside the repository lead somewhere.
pub(crate) fn check_markdown(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.texts(".md") {
        let prose = without_fences(text);
        if !text.starts_with("# ") {
            found.push(finding(path, 1, "begin with the title: `# ...`"));
        }
        for (line, _) in prose.iter().filter(|(_, l)| l.starts_with("# ")).skip(1) {
            found.push(finding(path, *line, "one title a document: make this a `##`"));
        }
        for (line, content) in &prose {
            for target in links(content) {
                if let Some(what) = broken(tree, path, target) {
                    found.push(finding(path, *line, what));
                }
            }
        }
    }
    found
}

/// Lines with their numbers, those in code fences left out.
fn without_fences(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let keep = |(i, line): (usize, &'_ str)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((i + 1, i))
    };
    let kept: Vec<_> = text.lines().enumerate().filter_map(keep).collect();
    let lines: Vec<&str> = text.lines().collect();
    kept.into_iter().filter_map(|(number, i)| Some((number, *lines.get(i)?))).collect()
}

/// The targets of `[text](target)` in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, mark)| {
        let rest = line.get(at + mark.len()..)?;
        rest.split_once(')').map(|(target, _)| target)
    })
}

fn broken(tree: &Tree, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { from.to_string() } else { resolve(from, file) };
    if !tree.has(&path) {
        return Some(format!("link to {target}: there is no {path}"));
    }
    let text = tree.files.get(&path).and_then(|f| f.text.as_deref()).unwrap_or("");
    let known = |text: &str| without_fences(text).iter().any(|(_, l)| slug(l) == anchor);
    (!anchor.is_empty() && !known(text)).then(|| format!("link to {target}: no such heading"))
}

/// The path of `link` as written in the file `from`.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchor of a heading, empty for other lines.
fn slug(line: &str) -> String {
    let title = line.trim_start_matches('#');
    if title.len() == line.len() {
        return String::new();
    }
    let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// ARCHITECTURE.md names every crate, and has every invariant that code cites.
pub(crate) fn check_architecture(tree: &Tree) -> Vec<Finding> {
    const MAP: &str = "ARCHITECTURE.md";
    let text = tree.files.get(MAP).and_then(|f| f.text.as_deref()).unwrap_or("");
    let mut found = Vec::new();
    for storey in rules::STOREYS {
        if lines_with(text, &format!("`{}`", storey.name)).next().is_none() {
            found.push(finding(MAP, 0, format!("the code map does not name `{}`", storey.name)));
        }
    }
    for (path, source) in tree.texts(".rs") {
        for (number, line) in source.lines().enumerate() {
            for (at, mark) in line.match_indices("INV-") {
                let rest = line.get(at + mark.len()..).unwrap_or("");
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                let heading = format!("**INV-{digits} ");
                if !digits.is_empty() && !text.contains(&heading) {
                    let what = format!("INV-{digits} is not in {MAP}");
                    found.push(finding(path, number + 1, what));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::show;
    use super::super::tree::Tracked;
    use super::*;

    #[test]
    fn planted_words_are_found() {
        let plant =
            |i: usize| format!("fine\nsee {}{}x\n", rules::TEXT_BANS[i].0, rules::TEXT_BANS[i].1);
        for (i, (head, tail, _)) in rules::TEXT_BANS.iter().enumerate() {
            let text = plant(i).replace("x\n", " \n");
            let tree = Tree::of(&[("a/b.sh", &text)]);
            let found = show(check_words(&tree));
            assert_eq!(found.len(), 1, "{head}{tail}: {found:?}");
            assert!(found[0].starts_with("a/b.sh:2: "), "{found:?}");
        }
        let fine = Tree::of(&[("c", "mir/work/docs $w/root/x TODOS\n")]);
        assert_eq!(show(check_words(&fine)), [""; 0]);
    }

    #[test]
    fn sizes_are_bounded() {
        let mut tree = Tree::of(&[]);
        for i in 0..11 {
            let bytes = rules::FILE_BYTES_MAX - u64::from(i != 0);
            tree.files.insert(format!("f{i}"), Tracked { bytes, text: None });
        }
        assert_eq!(show(check_sizes(&tree)), [".: 44.0 MiB tracked, at most 40"]);
        tree.files.retain(|name, _| name == "f0");
        tree.files.values_mut().for_each(|file| file.bytes += 1);
        assert_eq!(show(check_sizes(&tree)), ["f0: 4.0 MiB, a tracked file has at most 4"]);
    }

    #[test]
    fn markdown_is_checked() {
        let tree = Tree::of(&[
            ("docs/a.md", "# A\n\n## The end, at last\n```\n# no title\n[x](nowhere)\n```\n"),
            (
                "b.md",
                "# B\n[1](docs/a.md#the-end-at-last) [2](docs) [3](#b) [4](https://x.y/z)\n\
                 [5](docs/c.md) [6](docs/a.md#x)\n# C\n",
            ),
            ("docs/d.md", "no title [1](../b.md)\n"),
        ]);
        let expected = [
            "b.md:3: link to docs/a.md#x: no such heading",
            "b.md:3: link to docs/c.md: there is no docs/c.md",
            "b.md:4: one title a document: make this a `##`",
            "docs/d.md:1: begin with the title: `# ...`",
        ];
        assert_eq!(show(check_markdown(&tree)), expected);
    }

    #[test]
    fn the_map_is_complete() {
        let names: Vec<String> = rules::STOREYS.iter().map(|s| format!("`{}`", s.name)).collect();
        let map = format!("# Map\n{}\n**INV-1 No.**\n", names[1..].join("\n"));
        let tree = Tree::of(&[("ARCHITECTURE.md", &map), ("x.rs", "// INV-1, INV-12\n")]);
        let expected = [
            "ARCHITECTURE.md: the code map does not name `rt`",
            "x.rs:1: INV-12 is not in ARCHITECTURE.md",
        ];
        assert_eq!(show(check_architecture(&tree)), expected);
    }
}
