//! Hot spares, by hand and by themselves, with zdb, poolaudit, `verify` and the OpenZFS kernel as witnesses.

#![allow(clippy::unwrap_used)]

mod by_hand;
mod by_itself;

/// The tree of `zpool status`, and its spares: each with its state.
fn shown(said: &str) -> Vec<String> {
    let rows = said.lines().skip_while(|line| !line.contains("NAME ")).skip(1);
    let words = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.rsplit('/').next()?.to_owned();
        Some(format!("{name} {}", words.next().unwrap_or_default()).trim_end().to_owned())
    };
    rows.map_while(words).collect()
}

/// Names as they are shown when each is online, spares after a bar: those in use with a star.
#[track_caller]
fn assert_shown(said: &str, expected: &str) {
    assert_eq!(shown(said), rows(expected), "{said}");
}

/// The rows that it is short for.
fn rows(expected: &str) -> Vec<String> {
    let (tree, spares) = expected.split_once(" |").unwrap_or((expected, ""));
    let mut rows: Vec<String> = tree.split(' ').map(|name| format!("{name} ONLINE")).collect();
    rows.extend((!spares.is_empty()).then(|| "spares".to_owned()));
    rows.extend(spares.split_whitespace().map(|name| match name.strip_suffix('*') {
        Some(name) => format!("{name} INUSE"),
        None => format!("{name} AVAIL"),
    }));
    rows
}
