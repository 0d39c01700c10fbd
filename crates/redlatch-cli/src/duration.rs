//! Lengths of time as people write them.

use std::time::Duration;

/// Reads `1500ms`, `10s`, `5m`, `2h`, `1d` or a bare number of seconds, each
/// also with a decimal point.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    // The value is not repeated: who mixes up two settings has put a password here.
    let wrong =
        || "no length of time: write 1500ms, 10s, 5m, 2h, or a number of seconds".to_owned();
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let end = text.find(|c| !digits(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit.trim_start() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(wrong()),
    };
    // Rounded to what is meant: 1500 * 0.001 is not quite 1.5.
    let millis = (number * seconds * 1000.0).round();
    if millis > 1e15 {
        return Err("longer than anybody can wait".into());
    }
    Ok(Duration::from_millis(millis as u64))
}

/// The same the other way round: `1500ms`, `10s`, `5m`.
pub(crate) fn format(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".into(),
        _ if !millis.is_multiple_of(1000) => format!("{millis}ms"),
        _ if !millis.is_multiple_of(60_000) => format!("{}s", millis / 1000),
        _ if !millis.is_multiple_of(3_600_000) => format!("{}m", millis / 60_000),
        _ => format!("{}h", millis / 3_600_000),
    }
}

/// For a sentence: `12.3 s`, `4 min`, `3 h`.
pub(crate) fn spoken(duration: Duration) -> String {
    match duration.as_secs() {
        0..=9 if duration.subsec_millis() > 0 => format!("{:.1} s", duration.as_secs_f64()),
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds @ 7200..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("1500ms", 1500),
            ("10s", 10_000),
            ("10", 10_000),
            ("0.5", 500),
            ("1.5s", 1500),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "s",
            "-1",
            "10 parsecs",
            "1e3",
            "1..2s",
            "inf",
            "99999999999d",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        for text in ["1500ms", "10s", "5m", "2h", "0s", "90s"] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
    }
}
