//! Bars and lines, with their scales and names.

use super::number::number;
use super::svg::{MARGIN, Scale, Svg, Tone, WIDTH, label};
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

#[cfg(test)]
mod tests {
    use super::*;

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
