//! Rust source with comments and literals blanked out, so that a word in a sentence is not taken
//! for a word in code. Lines stay where they are.

/// The code of `source` alone: comments and the insides of strings and characters become spaces.
pub(crate) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end > at {
            for byte in out.iter_mut().take(end).skip(at).filter(|b| **b != b'\n') {
                *byte = b' ';
            }
            at = end;
        } else {
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Where the comment or literal ends that begins at `at`; `at` itself if none does.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let before = at.checked_sub(1).and_then(|i| bytes.get(i)).copied().unwrap_or(b' ');
    let in_word = before.is_ascii_alphanumeric() || before == b'_';
    let length = match rest {
        [b'/', b'/', ..] => rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => quoted(rest),
        [b'r' | b'b' | b'c', ..] if !in_word => raw_string(rest),
        [b'\'', b'\\', ..] => character(rest),
        // a lifetime has no second quote
        [b'\'', first, ..] if *first != b'\'' => {
            let width = str::from_utf8(rest.get(1..5.min(rest.len())).unwrap_or_default())
                .map_or_else(|e| e.valid_up_to(), str::len);
            let text = str::from_utf8(rest.get(1..=width).unwrap_or_default()).unwrap_or("");
            let first = text.chars().next().map_or(1, char::len_utf8);
            if rest.get(1 + first) == Some(&b'\'') { first + 2 } else { 0 }
        }
        _ => 0,
    };
    at + length
}

/// Length of a block comment, nested ones included.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest.get(at..) {
            Some([b'/', b'*', ..]) => (depth, at) = (depth + 1, at + 2),
            Some([b'*', b'/', ..]) => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a string that begins with a quote.
fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a character that begins with a backslash.
fn character(rest: &[u8]) -> usize {
    let close = rest.iter().skip(3).position(|b| *b == b'\'');
    close.map_or(rest.len(), |i| i + 4)
}

/// Length of a raw, byte or C string, 0 if it is none (a plain word that begins with that letter).
fn raw_string(rest: &[u8]) -> usize {
    let letters = rest.iter().take_while(|b| matches!(b, b'r' | b'b' | b'c')).count().min(2);
    let raw = rest.iter().take(letters).any(|b| *b == b'r');
    let tail = rest.get(letters..).unwrap_or_default();
    if !raw {
        return match tail {
            [b'"', ..] => letters + quoted(tail),
            [b'\'', b'\\', ..] => letters + character(tail),
            [b'\'', _, b'\'', ..] => letters + 3,
            _ => 0,
        };
    }
    let hashes = tail.iter().take_while(|b| **b == b'#').count();
    if tail.get(hashes) != Some(&b'"') {
        return 0;
    }
    let mut close = vec![b'"'];
    close.extend(std::iter::repeat_n(b'#', hashes));
    let body = tail.get(hashes + 1..).unwrap_or_default();
    let found = body.windows(close.len()).position(|w| w == close);
    found.map_or(rest.len(), |i| letters + hashes + 1 + i + close.len())
}

/// Lines (from 1) of `text` where `needle` stands as a word: if it begins or ends with a letter, no
/// letter goes on there.
pub(crate) fn lines_with<'a>(text: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.lines().enumerate().filter(move |(_, line)| has_word(line, needle)).map(|(i, _)| i + 1)
}

fn has_word(line: &str, needle: &str) -> bool {
    let part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(needle).any(|(at, _)| {
        let (before, after) = (line.get(..at), line.get(at + needle.len()..));
        let goes_before = part(before.and_then(|s| s.chars().next_back()));
        let goes_after = part(after.and_then(|s| s.chars().next()));
        let goes_on = part(needle.chars().next()) && goes_before
            || part(needle.chars().next_back()) && goes_after;
        !goes_on
    })
}

/// The lines of `code` (as [`code_only`] gives it) before its test module.
pub(crate) fn without_tests(code: &str) -> &str {
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        let next = code.get(at + line.len()..).unwrap_or("").trim_start();
        let opens = next.starts_with("mod ") || next.starts_with("pub(crate) mod ");
        if line.trim_start().starts_with("#[cfg(test)]") && (opens || next.starts_with("#[")) {
            return code.get(..at).unwrap_or(code);
        }
        at += line.len();
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank() {
        let cases = [
            ("a // unsafe\nb", "a          \nb"),
            ("/* x /* y */ unsafe */z", "                      z"),
            (r#"f("unsafe \" x", y)"#, r#"f(             , y)"#),
            ("r#\"a \" unsafe\"# z", "                z"),
            ("br\"x\" b'x' b\"u\" 'x' '\\'' '\\u{41}' z", "                                  z"),
            ("fn f<'a>(x: &'a str) 'é' z", "fn f<'a>(x: &'a str)      z"),
            ("for r in bar {}", "for r in bar {}"),
        ];
        for (source, code) in cases {
            assert_eq!(code_only(source), code, "{source}");
        }
    }

    #[test]
    fn words_have_ends() {
        assert!(has_word("unsafe {", "unsafe"));
        assert!(!has_word("#![allow(unsafe_code)]", "unsafe"));
        assert!(has_word("x = std::thread::spawn", "std::thread"));
        assert!(has_word(" /mnt/x", "/mnt/"));
        assert_eq!(lines_with("a\nb todo!()\n", "todo!").collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn tests_are_cut_off() {
        let code = "fn a() {}\n#[cfg(test)]\nuse x;\nfn b() {}\n#[cfg(test)]\nmod tests {\n}\n";
        assert_eq!(without_tests(code), "fn a() {}\n#[cfg(test)]\nuse x;\nfn b() {}\n");
    }
}
