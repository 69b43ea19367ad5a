//! Numbers as OpenNebula reads them: strict about the whole text, yet a refused text leaves a residue.
//!
//! The residue is what counts when no level gives a good number: the leading digits (`7k` leaves 7), 0 when
//! there are none, the limit of the type when the digits are too many.

/// What reading a text as a number gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parsed<T> {
    /// The number; the residue when the text is none.
    pub value: T,
    /// Whether the whole text is a number within the type.
    pub valid: bool,
}

/// Reads a 32-bit whole number: optional white space, optional sign, digits, end.
#[must_use]
pub fn int(text: &str) -> Parsed<i32> {
    let (negative, digits, rest) = split(text);
    let mut value: i64 = 0;
    for digit in digits.bytes() {
        value = (value * 10 + i64::from(digit - b'0')).min(1 << 40);
    }
    if negative {
        value = -value;
    }
    let clamped = value.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
    Parsed {
        value: i32::try_from(clamped).unwrap_or(0),
        valid: !digits.is_empty() && rest.is_empty() && clamped == value,
    }
}

/// Reads an unsigned whole number up to `limit`, in the form of [`int`]. A text whose first character behind
/// white space is `-` is refused outright and leaves `initial`.
#[must_use]
pub fn unsigned(text: &str, limit: u64, initial: u64) -> Parsed<u64> {
    let (negative, digits, rest) = split(text);
    if negative {
        return Parsed { value: initial, valid: false };
    }
    let mut value: u128 = 0;
    for digit in digits.bytes() {
        value = (value * 10 + u128::from(digit - b'0')).min(1 << 100);
    }
    let fits = value <= u128::from(limit);
    Parsed {
        value: if fits { u64::try_from(value).unwrap_or(limit) } else { limit },
        valid: !digits.is_empty() && rest.is_empty() && fits,
    }
}

/// Reads a 32-bit float: optional white space, sign, decimal notation with an optional exponent, end. Words
/// such as `inf` and hexadecimal notation are none.
#[must_use]
pub fn float(text: &str) -> Parsed<f32> {
    let text = trim_start(text);
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let mut end = digits(sign);
    let mut any = end > sign;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        any |= fraction > end + 1;
        end = fraction;
    }
    let mut complete = any;
    if any && matches!(bytes.get(end), Some(b'e' | b'E')) {
        let signed = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end = digits(signed);
        complete = end > signed;
    }
    if !complete {
        return Parsed { value: 0.0, valid: false };
    }
    let value: f32 = text[..end].parse().unwrap_or(0.0);
    let fits = value.is_finite();
    let value = if fits { value } else { f32::MAX.copysign(value) };
    Parsed { value, valid: fits && end == text.len() }
}

/// White space of the C library: blank, tab, line feed, vertical tab, form feed, carriage return.
fn trim_start(text: &str) -> &str {
    text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r'])
}

/// Sign, leading digits and what is behind them.
fn split(text: &str) -> (bool, &str, &str) {
    let text = trim_start(text);
    let negative = text.starts_with('-');
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    (negative, &text[..end], &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_strict_and_leave_their_leading_digits() {
        for (text, value, valid) in [
            ("7", 7, true),
            (" 7", 7, true),
            ("\t\n+7", 7, true),
            ("007", 7, true),
            ("-7", -7, true),
            ("7 ", 7, false),
            ("7.0", 7, false),
            ("7k", 7, false),
            ("-7k", -7, false),
            ("0x10", 0, false),
            ("", 0, false),
            ("k", 0, false),
            ("+-7", 0, false),
            ("2147483647", i32::MAX, true),
            ("2147483648", i32::MAX, false),
            ("-2147483649", i32::MIN, false),
            ("99999999999999999999999999", i32::MAX, false),
        ] {
            assert_eq!(int(text), Parsed { value, valid }, "{text:?}");
        }
    }

    #[test]
    fn unsigned_numbers_refuse_a_minus_outright() {
        let limit = u64::from(u32::MAX);
        assert_eq!(unsigned("-5", limit, 9), Parsed { value: 9, valid: false });
        assert_eq!(unsigned(" 5", limit, 9), Parsed { value: 5, valid: true });
        assert_eq!(unsigned("5x", limit, 9), Parsed { value: 5, valid: false });
        assert_eq!(unsigned("4294967296", limit, 9), Parsed { value: limit, valid: false });
        assert_eq!(unsigned("99999999999", u64::MAX, 0), Parsed { value: 99_999_999_999, valid: true });
    }

    #[test]
    fn floats_are_decimal_only() {
        for (text, value, valid) in [
            ("0.3", 0.3, true),
            ("1.", 1.0, true),
            (".5", 0.5, true),
            ("1e2", 100.0, true),
            (" -2.5E-1", -0.25, true),
            ("1e", 0.0, false),
            ("inf", 0.0, false),
            ("nan", 0.0, false),
            ("0x10", 0.0, false),
            ("1 ", 1.0, false),
            ("1.5x", 1.5, false),
            (".", 0.0, false),
            ("", 0.0, false),
            ("1e99", f32::MAX, false),
        ] {
            assert_eq!(float(text), Parsed { value, valid }, "{text:?}");
        }
    }
}
