//! Draws plots as SVG, on a ground of its own, so that they can be read on light
//! and on dark pages.

use std::fmt::Write;

use super::number::number;
use crate::stats::Summary;

/// Bars in panels below each other, all on one scale.
pub(super) struct Bars {
    pub(super) title: String,
    /// What is measured, and its unit.
    pub(super) unit: String,
    pub(super) logarithmic: bool,
    pub(super) panels: Vec<(String, Vec<Bar>)>,
}

pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: Summary,
    pub(super) tone: Tone,
}

#[derive(Clone, Copy)]
pub(super) enum Tone {
    Ours,
    Floor,
    Other,
}

/// Lines in panels beside each other, each with scales of its own.
pub(super) struct Lines {
    pub(super) title: String,
    pub(super) panels: Vec<Panel>,
}

pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x_label: String,
    /// Whether what is across grows tenfold from step to step.
    pub(super) logarithmic: bool,
    pub(super) series: Vec<Series>,
}

pub(super) struct Series {
    pub(super) name: String,
    pub(super) tone: Tone,
    pub(super) points: Vec<(f64, Summary)>,
}

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

const WIDTH: f64 = 780.0;
const MARGIN: f64 = 20.0;
const NAMES: f64 = 150.0;
/// Room for a value behind the longest bar.
const VALUES: f64 = 80.0;
const ROW: f64 = 20.0;
const PANEL_GAP: f64 = 34.0;
const HEAD: f64 = 56.0;

impl Bars {
    pub(super) fn draw(&self) -> String {
        let rows: usize = self.panels.iter().map(|(_, bars)| bars.len()).sum();
        let height = HEAD + rows as f64 * ROW + self.panels.len() as f64 * PANEL_GAP + 40.0;
        let mut svg = Svg::new(&self.title, height);
        svg.text(MARGIN, 44.0, "muted", "start", &self.unit);

        let values = || self.panels.iter().flat_map(|(_, bars)| bars);
        let high = values().map(|bar| bar.value.high).fold(0.0, f64::max);
        let low = values().map(|bar| bar.value.low).filter(|low| *low > 0.0);
        let low = low.fold(f64::INFINITY, f64::min);
        let (left, right) = (MARGIN + NAMES, WIDTH - MARGIN - VALUES);
        let scale = Scale::new(self.logarithmic, low, high, left, right);
        let mut y = HEAD;
        for (title, bars) in &self.panels {
            y += PANEL_GAP;
            svg.text(MARGIN, y - 8.0, "panel", "start", title);
            for x in scale.ticks().into_iter().map(|tick| scale.place(tick)) {
                svg.line(x, y, x, y + ROW * bars.len() as f64, "grid");
            }
            for bar in bars {
                let end = scale.place(bar.value.median).max(left + 1.0);
                svg.text(left - 8.0, y + 14.0, "", "end", &bar.name);
                svg.rectangle(left, y + 3.0, end - left, ROW - 6.0, bar.tone.class());
                let (from, to) = (scale.place(bar.value.low), scale.place(bar.value.high));
                if bar.value.low < bar.value.high {
                    svg.line(from, y + ROW / 2.0, to, y + ROW / 2.0, "spread");
                }
                let value = number(bar.value.median);
                svg.text(end.max(to) + 6.0, y + 14.0, "", "start", &value);
                y += ROW;
            }
        }
        for tick in scale.ticks() {
            svg.text(scale.place(tick), y + 18.0, "muted", "middle", &label(tick));
        }
        svg.finish()
    }
}

impl Lines {
    pub(super) fn draw(&self) -> String {
        let (top, bottom, height) = (92.0, 270.0, 320.0);
        let mut svg = Svg::new(&self.title, height);
        let each = (WIDTH - 2.0 * MARGIN) / self.panels.len().max(1) as f64;
        let mut names: Vec<(&str, Tone)> = Vec::new();
        for (at, panel) in self.panels.iter().enumerate() {
            let left = MARGIN + each * at as f64 + 46.0;
            let right = MARGIN + each * (at + 1) as f64 - 14.0;
            svg.text(left - 44.0, top - 16.0, "panel", "start", &panel.title);
            svg.text(
                (left + right) / 2.0,
                bottom + 34.0,
                "muted",
                "middle",
                &panel.x_label,
            );
            let points = || panel.series.iter().flat_map(|series| &series.points);
            let most = |get: fn(&(f64, Summary)) -> f64| points().map(get).fold(0.0, f64::max);
            let across = Scale::new(panel.logarithmic, 1.0, most(|point| point.0), left, right);
            let upright = Scale::new(false, 0.0, most(|point| point.1.high), bottom, top);
            for tick in upright.ticks() {
                let y = upright.place(tick);
                svg.line(left, y, right, y, "grid");
                svg.text(left - 6.0, y + 4.0, "muted", "end", &label(tick));
            }
            for tick in panel.steps(&across) {
                let x = across.place(tick);
                svg.line(x, bottom, x, bottom + 4.0, "grid");
                svg.text(x, bottom + 17.0, "muted", "middle", &label(tick));
            }
            for Series { name, tone, points } in &panel.series {
                if !names.iter().any(|(known, _)| known == name) {
                    names.push((name, *tone));
                }
                let place =
                    |(x, value): &(f64, Summary)| (across.place(*x), upright.place(value.median));
                let path: Vec<(f64, f64)> = points.iter().map(place).collect();
                svg.path(&path, *tone);
            }
        }
        let mut x = MARGIN;
        for (name, tone) in names {
            svg.rectangle(x, 41.0, 14.0, 4.0, tone.class());
            svg.text(x + 20.0, 48.0, "muted", "start", name);
            x += 40.0 + name.len() as f64 * 7.0;
        }
        svg.finish()
    }
}

impl Panel {
    /// What is marked across: powers of ten, or what was measured.
    fn steps(&self, scale: &Scale) -> Vec<f64> {
        let points = self.series.iter().map(|series| &series.points);
        match self.logarithmic {
            true => scale.ticks(),
            false => points
                .max_by_key(|points| points.len())
                .map(|points| points.iter().map(|(x, _)| *x).collect())
                .unwrap_or_default(),
        }
    }
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Floor => "floor",
            Self::Other => "other",
        }
    }
}

/// From values to places.
struct Scale {
    logarithmic: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn new(logarithmic: bool, low: f64, high: f64, from: f64, to: f64) -> Self {
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

    fn place(&self, value: f64) -> f64 {
        let part = match self.logarithmic {
            true => (value.max(self.low) / self.low).log10() / (self.high / self.low).log10(),
            false => value / self.high,
        };
        self.from + (self.to - self.from) * part
    }

    /// Round values that fit.
    fn ticks(&self) -> Vec<f64> {
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
fn label(value: f64) -> String {
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
struct Svg(String);

impl Svg {
    fn new(title: &str, height: f64) -> Self {
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

    fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let text = escape(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        self.add(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" class=\"{class}\"/>"
        ));
    }

    fn path(&mut self, points: &[(f64, f64)], tone: Tone) {
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

    fn finish(mut self) -> String {
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

    #[test]
    fn what_is_drawn_is_escaped() {
        let value = Summary::of(&[1.0, 2.0, 3.0]).expect("there are values");
        let bars = Bars {
            title: "a < b & c".to_owned(),
            unit: "µs".to_owned(),
            logarithmic: false,
            panels: vec![(
                "p".to_owned(),
                vec![Bar {
                    name: "<raw>".to_owned(),
                    value,
                    tone: Tone::Floor,
                }],
            )],
        };
        let svg = bars.draw();
        assert!(
            svg.contains("&lt;raw&gt;") && !svg.contains("<raw>"),
            "{svg}"
        );
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }
}
