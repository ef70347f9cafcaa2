//! Options as OpenZFS's programs read them: bundles of letters (`-Hp`), values that follow or are
//! attached (`-o name`, `-oname`), operands and options in any order, `--` ends the options.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// One option as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opt {
    /// A letter without a value.
    Flag(char),
    /// A letter with its value.
    Value(char, OsString),
    /// A long option (`--json`), the name alone.
    Long(String),
    /// A long option with its value (`--memory 1G`, `--memory=1G`).
    LongValue(String, OsString),
    /// A long option that needs a value and has none.
    LongMissing(String),
    /// A letter that needs a value and has none.
    Missing(char),
    /// A letter that is no option; `-` for a long one.
    Unknown(char),
}

/// Options in their order, then operands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// The options.
    pub opts: Vec<Opt>,
    /// The operands.
    pub operands: Vec<OsString>,
}

/// Sorts words into options and operands. `letters` are the options, each followed by `:` if it
/// takes a value; `long` the names of long options, none of which takes one.
#[must_use]
pub fn sort(words: &[OsString], letters: &str, long: &[&str]) -> Words {
    let mut sorted = Words::default();
    let mut rest: VecDeque<&OsString> = words.iter().collect();
    while let Some(word) = rest.pop_front() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            sorted.operands.extend(rest.drain(..).cloned());
        } else if let Some(name) = bytes.strip_prefix(b"--") {
            sorted.opts.push(sort_long(name, long, &mut rest));
        } else if let (Some(bundle), true) = (bytes.strip_prefix(b"-"), bytes.len() > 1) {
            sort_bundle(bundle, letters, &mut rest, &mut sorted.opts);
        } else {
            sorted.operands.push(word.clone());
        }
    }
    sorted
}

fn sort_long(word: &[u8], long: &[&str], rest: &mut VecDeque<&OsString>) -> Opt {
    let mut parts = word.splitn(2, |byte| *byte == b'=');
    let name = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let attached = parts.next().map(|value| OsStr::from_bytes(value).to_owned());
    if long.iter().any(|known| known.strip_suffix(':') == Some(&name)) {
        return match attached.or_else(|| rest.pop_front().cloned()) {
            Some(value) => Opt::LongValue(name, value),
            None => Opt::LongMissing(name),
        };
    }
    match long.contains(&name.as_str()) && attached.is_none() {
        true => Opt::Long(name),
        false => Opt::Unknown('-'),
    }
}

fn sort_bundle(
    mut bundle: &[u8],
    letters: &str,
    rest: &mut VecDeque<&OsString>,
    opts: &mut Vec<Opt>,
) {
    while let Some((first, after)) = bundle.split_first() {
        let letter = char::from(*first);
        let mut following = letters.split(letter);
        let known = letter != ':' && letter.is_ascii() && letters.contains(letter);
        let takes_value = known && following.nth(1).is_some_and(|after| after.starts_with(':'));
        bundle = after;
        if !known {
            opts.push(Opt::Unknown(letter));
        } else if !takes_value {
            opts.push(Opt::Flag(letter));
        } else if !after.is_empty() {
            opts.push(Opt::Value(letter, OsStr::from_bytes(after).to_owned()));
            return;
        } else {
            opts.push(match rest.pop_front() {
                Some(value) => Opt::Value(letter, value.clone()),
                None => Opt::Missing(letter),
            });
        }
    }
}

/// The parts of a list with commas, as `-o` and `-t` take it. A comma at the end is no part.
#[must_use]
pub fn list(value: &OsStr) -> Vec<OsString> {
    let mut parts: Vec<_> =
        value.as_bytes().split(|c| *c == b',').map(|p| OsString::from_vec(p.to_vec())).collect();
    if parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(words: &[&str], letters: &str) -> (Vec<Opt>, Vec<String>) {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let sorted = sort(&words, letters, &["json", "memory:"]);
        let operands = sorted.operands.iter().map(|o| o.to_string_lossy().into_owned()).collect();
        (sorted.opts, operands)
    }

    #[test]
    fn options_are_found_wherever_they_are() {
        let value = |c, v: &str| Opt::Value(c, v.into());
        assert_eq!(
            sorted(&["-Hpo", "name", "tank", "-r", "-tall", "--", "-x"], "Hpo:rt:"),
            (
                vec![
                    Opt::Flag('H'),
                    Opt::Flag('p'),
                    value('o', "name"),
                    Opt::Flag('r'),
                    value('t', "all")
                ],
                vec!["tank".into(), "-x".into()]
            )
        );
        assert_eq!(sorted(&["-", "-o", "-H"], "Ho:"), (vec![value('o', "-H")], vec!["-".into()]));
        assert_eq!(sorted(&["-o"], "o:"), (vec![Opt::Missing('o')], vec![]));
        assert_eq!(sorted(&["-qH"], "H"), (vec![Opt::Unknown('q'), Opt::Flag('H')], vec![]));
        assert_eq!(sorted(&["-:"], "o:"), (vec![Opt::Unknown(':')], vec![]));
        assert_eq!(
            sorted(&["--json", "--help"], ""),
            (vec![Opt::Long("json".into()), Opt::Unknown('-')], vec![])
        );
        let long = |v: &str| Opt::LongValue("memory".into(), v.into());
        assert_eq!(
            sorted(&["--memory", "1G", "--memory=2=3", "--json=1", "x", "--memory"], ""),
            (
                vec![long("1G"), long("2=3"), Opt::Unknown('-'), Opt::LongMissing("memory".into())],
                vec!["x".into()]
            )
        );
    }

    #[test]
    fn lists_are_split() {
        let parts = |text: &str| list(OsStr::new(text)).len();
        assert_eq!((parts("a,b"), parts("a,"), parts(""), parts(",a")), (2, 1, 0, 2));
    }
}
