//! The common form of names that a ZAP treats as one: in upper case, composed or decomposed.
//!
//! The one idea: the form is Unicode's, by its version 5.0 and by simple case mappings; and a form that
//! is not known for sure is no form at all. Then the entry is found as it is spelled and none is made.
//! `tests/zap/names.rs` shows that these are the forms of OpenZFS, by hashes that its kernel made.
//! FORMAT: section 6.1.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::canonical_combining_class;

use super::hash::NormFlags;
use super::{NAME_MAX, unicode5};

/// The most marks on one character with which the form is known: OpenZFS cuts longer sequences.
const MARKS_MAX: usize = 12;
/// In upper case it becomes a letter; where that is put among other marks is not known.
const IOTA_BELOW: char = '\u{345}';

/// The form of `name` that is hashed in a ZAP with these `normflags`.
///
/// `None`: the form is not known here. In a ZAP that does not normalize, every name is its own form.
pub fn normalized(name: &[u8], normflags: u64) -> Option<Cow<'_, [u8]>> {
    if normflags == 0 {
        return Some(Cow::Borrowed(name));
    }
    if normflags & !NormFlags::KNOWN != 0 {
        return None;
    }
    let upper = normflags & NormFlags::TOUPPER != 0;
    let form = normflags & !NormFlags::TOUPPER;
    if name.is_ascii() {
        return Some(if upper { name.to_ascii_uppercase().into() } else { name.into() });
    }
    // What OpenZFS makes of bytes that are no characters is not known.
    let mut text = Cow::Borrowed(str::from_utf8(name).ok()?);
    if upper {
        if form != 0 && text.contains(IOTA_BELOW) {
            return None;
        }
        text = text.chars().map(upper_case).collect::<String>().into();
    }
    if form != 0 {
        text = in_form(&text, form)?.into();
    }
    let bytes: Cow<'_, [u8]> = match text {
        Cow::Borrowed(text) => text.as_bytes().into(),
        Cow::Owned(text) => text.into_bytes().into(),
    };
    // OpenZFS refuses a name whose form is longer than a name can be.
    (bytes.len() <= NAME_MAX).then_some(bytes)
}

/// The simple upper case of a character.
fn upper_case(c: char) -> char {
    let code = u32::from(c);
    // These have a longer upper case, too, and only that is in the library.
    let simple = match code {
        0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7 => Some(code + 8),
        0x1fb3 | 0x1fc3 | 0x1ff3 => Some(code + 9),
        _ => None,
    };
    if let Some(simple) = simple.and_then(char::from_u32) {
        return simple;
    }
    let mut letters = c.to_uppercase();
    match (letters.next(), letters.next()) {
        (Some(single), None) if unicode5::has(c) && unicode5::has(single) => single,
        _ => c,
    }
}

/// A text in one of Unicode's forms. Characters that came after Unicode 5.0 stay as they are.
fn in_form(text: &str, form: u64) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let known = rest.find(|c| !unicode5::has(c)).unwrap_or(rest.len());
        let (run, tail) = rest.split_at(known);
        let mut marks = 0;
        for c in run.nfkd() {
            marks = if canonical_combining_class(c) == 0 { 0 } else { marks + 1 };
            if marks > MARKS_MAX {
                return None;
            }
        }
        match form {
            NormFlags::NFD => out.extend(run.nfd()),
            NormFlags::NFC => out.extend(run.nfc()),
            NormFlags::NFKD => out.extend(run.nfkd()),
            NormFlags::NFKC => out.extend(run.nfkc()),
            _ => return None,
        }
        let mut newer = tail.chars();
        out.extend(newer.next());
        rest = newer.as_str();
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_the_common_ones() {
        let form = |name: &str, flags: u64| {
            let form = normalized(name.as_bytes(), flags)?;
            Some(String::from_utf8(form.into_owned()).unwrap())
        };
        let is = |name: &str, flags, expected: &str| {
            assert_eq!(form(name, flags).as_deref(), Some(expected), "{name} {flags:#x}");
        };
        is("caf\u{e9}", NormFlags::NFD, "cafe\u{301}");
        is("cafe\u{301}", NormFlags::NFC, "caf\u{e9}");
        is("\u{fb01}le", NormFlags::NFKC, "file");
        is("\u{fb01}le", NormFlags::NFC, "\u{fb01}le");
        is("Stra\u{df}e", NormFlags::TOUPPER, "STRA\u{df}E");
        is("\u{b5}", NormFlags::TOUPPER, "\u{39c}");
        is("\u{1f80}", NormFlags::TOUPPER, "\u{1f88}");
        is("\u{e9}", NormFlags::TOUPPER | NormFlags::NFD, "E\u{301}");
        // The turned alpha has an upper case since Unicode 5.1.
        is("\u{250}", NormFlags::TOUPPER, "\u{250}");
        assert_eq!(form("a\u{345}", NormFlags::TOUPPER | NormFlags::NFC), None);
        let marks = |count| "\u{301}".repeat(count);
        assert!(form(&marks(MARKS_MAX), NormFlags::NFD).is_some());
        assert_eq!(form(&marks(MARKS_MAX + 1), NormFlags::NFD), None);
        assert_eq!(form(&"\u{fdfa}".repeat(80), NormFlags::NFKD), None, "too long");
        assert_eq!(normalized(b"\xff", NormFlags::TOUPPER), None);
        assert_eq!(form("\u{e9}", 0x30), None, "no such form");
    }
}
