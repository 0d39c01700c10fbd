//! Columns that fit into a width.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::table::clean;

/// What is between two columns.
const GAP: usize = 2;

/// What a column that may give way keeps at least.
const LEAST: usize = 12;

/// A text and how it looks.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    text: String,
    style: Style,
    is_right: bool,
}

impl Cell {
    pub(super) fn new(text: impl AsRef<str>) -> Self {
        Self {
            text: clean(text.as_ref()),
            style: Style::new(),
            is_right: false,
        }
    }

    /// On the right side of its column, as numbers are.
    pub(super) fn right(text: impl AsRef<str>) -> Self {
        Self {
            is_right: true,
            ..Self::new(text)
        }
    }

    pub(super) fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }
}

/// The first row is the headline. Columns that are empty below it are left out;
/// then those in `spare`, one after the other, until the rest fits while the
/// column `elastic` has at least [`LEAST`]; it has what the others leave. In the
/// end the line is cut.
pub(super) fn fit(
    rows: Vec<Vec<Cell>>,
    spare: &[usize],
    elastic: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let count = rows.first().map_or(0, Vec::len);
    let mut widths: Vec<Option<usize>> = (0..count)
        .map(|at| {
            let below = rows[1..].iter().map(|row| width(&row[at].text)).max()?;
            (below > 0).then(|| below.max(width(&rows[0][at].text)))
        })
        .collect();
    let least = |widths: &[Option<usize>]| -> usize {
        let shown = widths.iter().enumerate();
        let shown = shown.filter_map(|(at, wide)| {
            let wide = (*wide)?;
            Some(GAP + if at == elastic { wide.min(LEAST) } else { wide })
        });
        shown.sum::<usize>().saturating_sub(GAP)
    };
    for at in spare {
        if least(&widths) <= room {
            break;
        }
        widths[*at] = None;
    }
    if let Some(wide) = widths.get(elastic).copied().flatten() {
        let others = least(&widths) - wide.min(LEAST);
        widths[elastic] = Some(wide.min(room.saturating_sub(others)));
    }
    rows.into_iter()
        .map(|row| line(row, &widths, room))
        .collect()
}

fn line(row: Vec<Cell>, widths: &[Option<usize>], room: usize) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    let mut used = 0;
    for (cell, wide) in row.into_iter().zip(widths) {
        let Some(wide) = *wide else { continue };
        if used >= room {
            break;
        }
        if used > 0 {
            spans.push(Span::raw(" ".repeat(GAP)));
            used += GAP;
        }
        let wide = wide.min(room.saturating_sub(used));
        let text = shorten(&cell.text, wide);
        let gap = Span::raw(" ".repeat(wide.saturating_sub(width(&text))));
        let text = Span::styled(text, cell.style);
        match cell.is_right {
            true => spans.extend([gap, text]),
            false => spans.extend([text, gap]),
        }
        used += wide;
    }
    Line::from(spans)
}

/// How many places of a terminal a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text, or as much of it as there is room for.
pub(super) fn shorten(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]));
        if used > room {
            break;
        }
        short.push(c);
    }
    if room > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(room: usize) -> Vec<String> {
        let row = |name: &str, host: &str, left: &str| {
            vec![
                Cell::new(name),
                Cell::new(host),
                Cell::new(""),
                Cell::right(left),
            ]
        };
        let rows = vec![
            row("NAME", "HOST", "LEFT"),
            row("a-lock-with-a-long-name", "web-1", "9 s"),
            row("größe", "w", "10 s"),
        ];
        let lines = fit(rows, &[1], 0, room);
        lines.iter().map(Line::to_string).collect()
    }

    #[test]
    fn columns_give_way_in_order() {
        assert_eq!(
            texts(80),
            [
                "NAME                     HOST   LEFT",
                "a-lock-with-a-long-name  web-1   9 s",
                "größe                    w      10 s",
            ]
        );
        // First the elastic one, then the spare one, then all that is too much.
        assert_eq!(texts(28)[1], "a-lock-with-a-…  web-1   9 s");
        assert_eq!(texts(20)[1], "a-lock-with-a…   9 s");
        for room in 0..60 {
            for text in texts(room) {
                assert!(width(text.trim_end()) <= room, "{room}: {text:?}");
            }
        }
    }

    #[test]
    fn wide_characters_take_two_places() {
        assert_eq!(shorten("日本語", 6), "日本語");
        assert_eq!(shorten("日本語", 5), "日本…");
        assert_eq!(shorten("日本語", 4), "日…");
        assert_eq!(shorten("abc", 0), "");
    }
}
