//! Writes SVG, on a ground of its own, so that it can be read on light and on dark
//! pages.

use std::fmt::Write;

/// How something is coloured.
#[derive(Clone, Copy)]
pub(super) enum Tone {
    Ours,
    Floor,
    Other,
}

impl Tone {
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Floor => "floor",
            Self::Other => "other",
        }
    }
}

pub(super) const WIDTH: f64 = 780.0;
pub(super) const MARGIN: f64 = 20.0;

const STYLE: &str = "\
.ground{fill:#ffffff;stroke:#d0d7de}\
text{font-family:system-ui,-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:#1f2328}\
.title{font-size:15px;font-weight:600}.muted{fill:#59636e}.panel{font-weight:600}\
.grid{stroke:#d8dee4;stroke-width:1}.spread{stroke:#1f2328;stroke-width:1.2}\
.ours{fill:#0969da}.floor{fill:#8c959f}.other{fill:#bf8700}\
.line-ours{stroke:#0969da}.line-floor{stroke:#8c959f}.line-other{stroke:#bf8700}\
.line{fill:none;stroke-width:2}\
@media (prefers-color-scheme:dark){\
.ground{fill:#0d1117;stroke:#3d444d}text{fill:#f0f6fc}.muted{fill:#9198a1}\
.grid{stroke:#2f3640}.spread{stroke:#f0f6fc}\
.ours{fill:#4493f8}.floor{fill:#7d8590}.other{fill:#d29922}\
.line-ours{stroke:#4493f8}.line-floor{stroke:#7d8590}.line-other{stroke:#d29922}}";

/// From values to places.
pub(super) struct Scale {
    logarithmic: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    pub(super) fn new(logarithmic: bool, low: f64, high: f64, from: f64, to: f64) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let (low, high) = match logarithmic {
            // From a power of ten, so that the shortest bar has a length too.
            true => (power_below(if low.is_finite() { low } else { high }), high),
            false => (0.0, high),
        };
        Self {
            logarithmic,
            low,
            high: if high > low { high } else { low * 10.0 },
            from,
            to,
        }
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        let part = match self.logarithmic {
            true => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
            false => value / self.high,
        };
        self.from + (self.to - self.from) * part
    }

    /// Round values that fit.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let mut ticks = Vec::new();
        if self.logarithmic {
            let mut tick = self.low;
            while tick <= self.high * 1.001 {
                ticks.push(tick);
                tick *= 10.0;
            }
        } else {
            let power = power_below(self.high / 4.0);
            let fits = |factor: &&f64| *factor * power * 5.0 >= self.high;
            let step = power
                * [1.0, 2.0, 2.5, 5.0, 10.0]
                    .iter()
                    .find(fits)
                    .unwrap_or(&10.0);
            let count = (self.high / step * 1.001) as usize;
            ticks.extend((0..=count).map(|number| number as f64 * step));
        }
        ticks
    }
}

/// The power of ten that is not above `value`.
fn power_below(value: f64) -> f64 {
    10_f64.powf((value * 1.000_001).log10().floor())
}

/// A short text for a round value.
pub(super) fn label(value: f64) -> String {
    let trim = |value: f64| {
        let text = format!("{value:.2}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match value {
        1_000_000.0.. => format!("{} M", trim(value / 1_000_000.0)),
        1_000.0.. => format!("{} k", trim(value / 1_000.0)),
        _ => trim(value),
    }
}

/// Text that grows element by element.
pub(super) struct Svg(String);

impl Svg {
    pub(super) fn new(title: &str, height: f64) -> Self {
        let title = escape(title);
        let mut svg = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
            WIDTH - 1.0,
            height - 1.0
        ));
        svg.text(MARGIN, 26.0, "title", "start", &title);
        svg
    }

    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let text = escape(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    pub(super) fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        self.add(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    pub(super) fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" class=\"{class}\"/>"
        ));
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], tone: Tone) {
        let text: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let (text, class) = (text.join(" "), tone.class());
        self.add(format_args!(
            "<polyline points=\"{text}\" class=\"line line-{class}\"/>"
        ));
        for (x, y) in points {
            self.add(format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"{class}\"/>"
            ));
        }
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = writeln!(self.0, "{element}");
    }

    pub(super) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_reach_from_end_to_end() {
        let line = Scale::new(false, 3.0, 40.0, 100.0, 500.0);
        assert_eq!((line.place(0.0), line.place(40.0)), (100.0, 500.0));
        assert_eq!(line.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0]);
        let powers = Scale::new(true, 20.0, 1000.0, 0.0, 2.0);
        assert_eq!((powers.place(10.0), powers.place(100.0)), (0.0, 1.0));
        let ticks: Vec<String> = powers.ticks().into_iter().map(label).collect();
        assert_eq!(ticks, ["10", "100", "1 k"]);
        // Nothing to show is shown as nothing.
        assert!(
            Scale::new(true, f64::INFINITY, 0.0, 0.0, 1.0)
                .place(1.0)
                .is_finite()
        );
    }
}
