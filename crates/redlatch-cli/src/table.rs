//! Aligned columns on stdout.

/// Rows under a headline, each column as wide as its widest cell.
pub(crate) struct Table {
    headline: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    paint: bool,
}

/// A text, and its colour on a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    color: Option<Color>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    Dim,
    Green,
    Yellow,
    Red,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self {
            text: clean(text.as_ref()),
            color: None,
        }
    }

    pub(crate) fn color(mut self, color: Color) -> Self {
        self.color = Some(color);
        self
    }
}

/// What others may have written, without anything that steers a terminal.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || is_invisible(c) {
            true => clean.extend(c.escape_default()),
            false => clean.push(c),
        }
    }
    clean
}

/// Signs that turn the direction of the text around.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

impl Table {
    pub(crate) fn new(headline: impl Into<Vec<&'static str>>, paint: bool) -> Self {
        Self {
            headline: headline.into(),
            rows: Vec::new(),
            paint,
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The whole table; columns that are empty in every row are left out.
    pub(crate) fn text(&self) -> String {
        let columns: Vec<(usize, usize)> = (0..self.headline.len())
            .filter_map(|at| {
                let widths = self.rows.iter().filter_map(|row| row.get(at));
                let widest = widths.map(|cell| cell.text.chars().count()).max()?;
                (widest > 0).then(|| (at, widest.max(self.headline[at].len())))
            })
            .collect();
        let headline = self
            .headline
            .iter()
            .map(|word| Cell::new(word).color(Color::Dim));
        let headline: Vec<Cell> = headline.collect();
        let mut text = String::new();
        for row in std::iter::once(&headline).chain(&self.rows) {
            let mut line = String::new();
            for (at, width) in &columns {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                let cell = &row[*at];
                let gap = " ".repeat(width.saturating_sub(cell.text.chars().count()));
                line.push_str(&paint(&cell.text, cell.color.filter(|_| self.paint)));
                line.push_str(&gap);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

fn paint(text: &str, color: Option<Color>) -> String {
    let number = match color {
        None => return text.to_owned(),
        Some(Color::Dim) => 2,
        Some(Color::Green) => 32,
        Some(Color::Yellow) => 33,
        Some(Color::Red) => 31,
    };
    format!("\x1b[{number}m{text}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(paint: bool) -> String {
        let mut table = Table::new(["NAME", "EMPTY", "LEFT"], paint);
        table.row(vec![Cell::new("a"), Cell::new(""), Cell::new("10 s")]);
        let red = Cell::new("1 s").color(Color::Red);
        table.row(vec![Cell::new("größer"), Cell::new(""), red]);
        table.text()
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        assert_eq!(table(false), "NAME    LEFT\na       10 s\ngrößer  1 s\n");
        assert!(table(true).contains("\x1b[31m1 s\x1b[0m"));
    }

    #[test]
    fn nothing_that_a_stranger_wrote_steers_the_terminal() {
        let cell = Cell::new("a\x1b[2Jb\n\u{202e}c");
        assert_eq!(cell.text, "a\\u{1b}[2Jb\\n\\u{202e}c");
    }
}
