//! Numbers as a reader wants them.

use crate::stats::Summary;

/// Three digits that matter, or all of a whole number.
pub(super) fn number(value: f64) -> String {
    let digits = match value.abs() {
        // As it would be rounded.
        99.95.. => return whole_signed(value),
        9.995.. => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// A whole number, with commas.
pub(super) fn whole(value: usize) -> String {
    whole_signed(value as f64)
}

fn whole_signed(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A median, and how far the rounds lie apart.
pub(super) fn spread(summary: Summary, scale: f64) -> String {
    let Summary { median, low, high } = summary;
    let middle = number(median * scale);
    match low < high {
        true => format!(
            "{middle} ({}–{})",
            number(low * scale),
            number(high * scale)
        ),
        false => middle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_matter() {
        for (value, text) in [
            (0.0, "0.00"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (99.99, "100"),
            (123.4, "123"),
            (1234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
            (-123.0, "-123"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(whole(64), "64");
    }

    #[test]
    fn a_spread_is_shown_where_there_is_one() {
        let summary = |median, low, high| Summary { median, low, high };
        assert_eq!(spread(summary(2.0, 1.0, 3.0), 1.0), "2.00 (1.00–3.00)");
        assert_eq!(spread(summary(2000.0, 2000.0, 2000.0), 0.001), "2.00");
    }
}
