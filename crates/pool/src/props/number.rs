//! Numbers as people write and read them: `128K`, `1.5G`, `1.23x`.
//!
//! Rounding and suffixes are OpenZFS's to the digit, because scripts and eyes compare the columns.

/// What follows a number in a shortened form, by power of 1024.
const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// A count in at most about five characters: `105K`, `9.76K`, `1023`.
#[must_use]
pub fn nice_count(number: u64) -> String {
    nice(number, "")
}

/// A size in bytes in at most about five characters: `105K`, `0B`, `512B`.
#[must_use]
pub fn nice_bytes(number: u64) -> String {
    nice(number, "B")
}

fn nice(number: u64, unit_of_small: &str) -> String {
    let mut whole = number;
    let mut power = 0;
    while whole >= 1024 && power + 1 < UNITS.len() {
        whole /= 1024;
        power += 1;
    }
    let unit = UNITS.get(power).copied().unwrap_or_default();
    if power == 0 {
        return format!("{number}{unit_of_small}");
    }
    let scale = 1u64 << (10 * power);
    if number.is_multiple_of(scale) {
        return format!("{whole}{unit}");
    }
    // As many digits as keep the whole within five characters.
    let value = number as f64 / scale as f64;
    for digits in [2, 1] {
        let text = format!("{value:.digits$}{unit}");
        if text.len() <= 5 {
            return text;
        }
    }
    format!("{value:.0}{unit}")
}

/// A ratio kept in hundredths: `123` is `1.23x`.
#[must_use]
pub fn ratio(hundredths: u64) -> String {
    format!("{}.{:02}x", hundredths / 100, hundredths % 100)
}

/// Why a number could not be read. The wording is the reason alone: who asks says for what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// The text does not start as a number does.
    #[error("bad numeric value '{0}'")]
    Bad(String),
    /// What follows the digits is no unit.
    #[error("invalid numeric suffix '{0}'")]
    Suffix(String),
    /// The value does not fit into 64 bits.
    #[error("numeric value is too large")]
    TooLarge,
}

/// Reads `16384`, `16K`, `1.5G`, `128KiB`: digits, an optional fraction, an optional unit.
///
/// A fraction is cut off at the byte (`1.9` is 1). Units are powers of 1024 in either case.
///
/// # Errors
/// [`NumberError`] says what is wrong with the text.
pub fn parse_number(text: &[u8]) -> Result<u64, NumberError> {
    let shown = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    if !text.first().is_some_and(|c| c.is_ascii_digit() || *c == b'.') {
        return Err(NumberError::Bad(shown(text)));
    }
    let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
    let (whole, rest) = text.split_at(digits);
    let (fraction, suffix) = match rest.strip_prefix(b".") {
        Some(after) => {
            let len = after.iter().take_while(|c| c.is_ascii_digit()).count();
            let (fraction, suffix) = after.split_at(len);
            (Some(fraction), suffix)
        }
        None => (None, rest),
    };
    let shift = shift_of(suffix).ok_or_else(|| NumberError::Suffix(shown(suffix)))?;
    let Some(fraction) = fraction else {
        let mut number: u64 = 0;
        for digit in whole {
            number = number
                .checked_mul(10)
                .and_then(|n| n.checked_add(u64::from(digit - b'0')))
                .ok_or(NumberError::TooLarge)?;
        }
        let fits = shift < 64 && (number << shift) >> shift == number;
        return if fits { Ok(number << shift) } else { Err(NumberError::TooLarge) };
    };
    // With a fraction, binary floating point, as OpenZFS: the same text gives the same bytes.
    let text = format!("{}.{}", shown(whole), shown(fraction));
    let value: f64 = format!("0{text}0").parse().map_err(|_| NumberError::Bad(text))?;
    let value = value * 2f64.powi(shift as i32);
    if value >= 18_446_744_073_709_551_616.0 {
        return Err(NumberError::TooLarge);
    }
    Ok(value as u64)
}

/// The power of two of a unit: `K`, `KB` and `KiB` are 10.
fn shift_of(suffix: &[u8]) -> Option<u32> {
    let Some((unit, rest)) = suffix.split_first() else { return Some(0) };
    let power = b"BKMGTPEZ".iter().position(|u| *u == unit.to_ascii_uppercase())?;
    let known = rest.is_empty()
        || power > 0 && (rest.eq_ignore_ascii_case(b"B") || rest.eq_ignore_ascii_case(b"IB"));
    known.then_some(power as u32 * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line as OpenZFS 2.1.11 prints it.
    const SHORT: &[(u64, &str)] = &[
        (0, "0B"),
        (1, "1B"),
        (1000, "1000B"),
        (1023, "1023B"),
        (1024, "1K"),
        (1025, "1.00K"),
        (1030, "1.01K"),
        (1075, "1.05K"),
        (1535, "1.50K"),
        (1536, "1.50K"),
        (9999, "9.76K"),
        (10239, "10.0K"),
        (10240, "10K"),
        (10241, "10.0K"),
        (10292, "10.1K"),
        (99999, "97.7K"),
        (102400, "100K"),
        (102401, "100K"),
        (999_999, "977K"),
        (1_023_576, "1000K"),
        (1_047_553, "1023K"),
        (1_048_063, "1023K"),
        (1_048_064, "1024K"),
        (1_048_575, "1024K"),
        (1_048_576, "1M"),
        (9_999_999, "9.54M"),
        (1 << 63, "8E"),
        (15 << 60, "15E"),
        ((15 << 60) + 1, "15.0E"),
        (u64::MAX, "16.0E"),
    ];

    #[test]
    fn short_forms_are_openzfs_s() {
        for (number, text) in SHORT {
            assert_eq!(nice_bytes(*number), *text, "{number}");
            assert_eq!(nice_count(*number), text.trim_end_matches('B'), "{number}");
        }
        assert_eq!(ratio(100), "1.00x");
        assert_eq!(ratio(12345), "123.45x");
    }

    #[test]
    fn numbers_are_read_as_openzfs_reads_them() {
        let good: &[(&str, u64)] = &[
            ("1", 1),
            ("0", 0),
            ("010", 10),
            ("1k", 1024),
            ("1.5K", 1536),
            ("1.9", 1),
            (".5K", 512),
            ("0.0001K", 0),
            ("1.", 1),
            ("1.B", 1),
            ("1b", 1),
            ("1kb", 1024),
            ("1KiB", 1024),
            ("1EiB", 1 << 60),
            ("15.9E", 18_331_451_923_248_867_328),
            ("15.999999E", 18_446_742_920_788_047_872),
            ("16383P", 18_445_618_173_802_708_992),
            ("18446744073709551615", u64::MAX),
        ];
        for (text, number) in good {
            assert_eq!(parse_number(text.as_bytes()), Ok(*number), "{text}");
        }
        let bad = |t: &str| Err(NumberError::Bad(t.into()));
        let suffix = |t: &str| Err(NumberError::Suffix(t.into()));
        let large = Err(NumberError::TooLarge);
        let table = [
            ("", bad("")),
            ("-1", bad("-1")),
            ("+1", bad("+1")),
            ("abc", bad("abc")),
            ("1e3", suffix("e3")),
            ("1Ki", suffix("Ki")),
            ("1KK", suffix("KK")),
            ("1BB", suffix("BB")),
            ("1Q", suffix("Q")),
            ("1 K", suffix(" K")),
            ("0x10", suffix("x10")),
            ("1..5", suffix(".5")),
            ("1K5", suffix("K5")),
            ("18446744073709551616", large.clone()),
            ("16E", large.clone()),
            ("16.0E", large.clone()),
            ("16384P", large.clone()),
            ("1Z", large.clone()),
            ("0Z", large),
        ];
        for (text, error) in table {
            assert_eq!(parse_number(text.as_bytes()), error, "{text}");
        }
        assert_eq!(
            parse_number(b"ten").map_err(|e| e.to_string()),
            Err("bad numeric value 'ten'".into())
        );
    }
}
