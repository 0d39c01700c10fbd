//! How the state looks: the whole screen.
//!
//! `columns.rs` fits the lists into the width, `panes.rs` has what is drawn over them.

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::columns::{Cell, fit, shorten, width};
use super::input::Mode;
use super::panes;
use super::state::{Column, Condition, Lock, Node, State};
use crate::duration;
use crate::output::age;
use crate::table::clean;

/// Fewer lines than this are left to the locks, and nodes share one.
const FEW_LINES: u16 = 8;

/// Styles; without colours where those are not wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    pub(super) paint: bool,
}

impl Palette {
    pub(super) fn color(self, color: Color) -> Style {
        match self.paint {
            true => Style::new().fg(color),
            false => Style::new(),
        }
    }

    pub(super) fn good(self) -> Style {
        self.color(Color::Green)
    }

    pub(super) fn odd(self) -> Style {
        self.color(Color::Yellow)
    }

    pub(super) fn bad(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }
}

pub(super) fn draw(state: &State, palette: Palette, now: Instant, frame: &mut Frame<'_>) {
    let area = frame.area();
    let details = match state.mode {
        Mode::Details => panes::DETAILS.min(area.height / 2),
        _ => 0,
    };
    let room = Rect {
        height: area.height - details,
        ..area
    };
    let nodes = nodes(state, palette, room);
    let gap = u16::from(area.height >= 2 * FEW_LINES);
    let rows = u16::try_from(nodes.len()).unwrap_or(u16::MAX);
    let [title, _, top, _, list, below, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(gap),
        Constraint::Length(rows),
        Constraint::Length(gap),
        Constraint::Min(0),
        Constraint::Length(details),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(headline(state, palette, title.width), title);
    paint(frame, top, nodes);
    locks(state, palette, now, frame, list);
    if state.mode == Mode::Details {
        panes::details(state, palette, now, frame, below);
    }
    frame.render_widget(footer(state, palette, now, foot.width), foot);
    match &state.mode {
        Mode::Confirm { name, whose, .. } => panes::confirm(name, whose, palette, frame, area),
        Mode::Help => panes::help(frame, area),
        _ => {}
    }
}

fn paint(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>) {
    for (line, row) in lines.into_iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}

fn headline(state: &State, palette: Palette, room: u16) -> Line<'static> {
    let up = state.nodes.iter().filter(|node| node.is_up()).count();
    let nodes = state.nodes.len();
    let shown = state.shown().len();
    let locks = match (state.is_listed, shown == state.count()) {
        (false, _) => String::new(),
        (true, true) => format!("  {shown} {}", plural(shown, "lock")),
        (true, false) => format!("  {shown} of {} locks", state.count()),
    };
    let is_asked = state
        .nodes
        .iter()
        .any(|node| node.condition != Condition::Unknown);
    let style = match up {
        _ if !is_asked => palette.dim(),
        up if up == nodes => palette.good(),
        up if up > nodes / 2 => palette.odd(),
        _ => palette.bad(),
    };
    let mut spans = vec![
        Span::styled("redlatch top", palette.strong()),
        Span::styled(
            format!("  {up}/{nodes} {} up", plural(nodes, "node")),
            style,
        ),
        Span::raw(locks),
    ];
    if state.readonly {
        spans.push(Span::styled("  readonly", palette.dim()));
    }
    if !state.filter.is_empty() && !matches!(state.mode, Mode::Filter(_)) {
        let filter = format!("  filter: {}", clean(&state.filter));
        spans.push(Span::styled(filter, palette.odd()));
    }
    let used: usize = spans.iter().map(Span::width).sum();
    if let Some(trouble) = &state.trouble {
        let room = usize::from(room).saturating_sub(used + 2);
        spans.push(Span::raw("  "));
        spans.push(Span::styled(shorten(&clean(trouble), room), palette.bad()));
    }
    Line::from(spans)
}

fn plural(count: usize, word: &str) -> String {
    match count {
        1 => word.to_owned(),
        _ => format!("{word}s"),
    }
}

impl Node {
    fn is_up(&self) -> bool {
        !matches!(self.condition, Condition::Down(_) | Condition::Unknown)
    }
}

/// A table of the nodes; where there is little room, only those that are not well.
fn nodes(state: &State, palette: Palette, area: Rect) -> Vec<Line<'static>> {
    let is_tight = usize::from(area.height) < state.nodes.len() + usize::from(FEW_LINES) + 4;
    let is_unwell =
        |node: &&Node| !matches!(node.condition, Condition::Armed | Condition::Unguarded);
    let listed: Vec<&Node> = match is_tight {
        true => state.nodes.iter().filter(is_unwell).collect(),
        false => state.nodes.iter().collect(),
    };
    let room = usize::from(area.height / 4).max(1);
    if is_tight && (listed.is_empty() || listed.len() >= room) {
        return Vec::new();
    }
    let mut rows = vec![["NODE", "UP", "LATENCY", "GUARD"].map(Cell::new).to_vec()];
    rows.extend(listed.into_iter().map(|node| {
        let (up, guard) = describe(&node.condition, palette);
        let latency = match node.is_up() {
            true => format!("{:.1} ms", node.took.as_secs_f64() * 1000.0),
            false => String::new(),
        };
        vec![Cell::new(&node.name), up, Cell::right(latency), guard]
    }));
    let mut lines = fit(rows, &[3, 2, 1], 0, usize::from(area.width));
    if let Some(headline) = lines.first_mut() {
        *headline = std::mem::take(headline).style(palette.dim());
    }
    lines
}

fn describe(condition: &Condition, palette: Palette) -> (Cell, Cell) {
    let up = Cell::new("up").style(palette.good());
    match condition {
        Condition::Armed => (up, Cell::new("armed")),
        Condition::Unguarded => (up, Cell::new("off").style(palette.dim())),
        Condition::New => {
            let text = "new: a quarantine begins with the first lock";
            (up, Cell::new(text).style(palette.odd()))
        }
        Condition::Quarantine(left) => {
            let text = format!("in quarantine for {}", spoken(*left));
            (up, Cell::new(text).style(palette.odd()))
        }
        Condition::Down(error) => (
            Cell::new("DOWN").style(palette.bad()),
            Cell::new(error).style(palette.bad()),
        ),
        Condition::Unknown => (Cell::new("…"), Cell::new("")),
    }
}

/// Columns that go first when there is no room.
const SPARE: [Column; 8] = [
    Column::Fence,
    Column::User,
    Column::Renewals,
    Column::Pid,
    Column::Program,
    Column::Age,
    Column::Nodes,
    Column::Host,
];

fn locks(state: &State, palette: Palette, now: Instant, frame: &mut Frame<'_>, area: Rect) {
    let shown = state.shown();
    if shown.is_empty() {
        let line = Line::from(Span::styled(nothing(state), palette.dim()));
        frame.render_widget(line, area.rows().next().unwrap_or_default());
        return;
    }
    let at = state.position().unwrap_or(0);
    let room = usize::from(area.height.saturating_sub(1)).max(1);
    // The chosen one is in sight, with as much of what is above it as there is room for.
    let first = at
        .saturating_sub(room / 2)
        .min(shown.len().saturating_sub(room));
    let headline = Column::ALL.iter().map(|column| {
        let mark = match (*column == state.sort, state.is_reversed) {
            (false, _) => "",
            (true, false) => "▼",
            (true, true) => "▲",
        };
        let text = format!("{}{mark}", column.headline());
        match is_number(*column) {
            true => Cell::right(text),
            false => Cell::new(text),
        }
    });
    let mut rows: Vec<Vec<Cell>> = vec![headline.collect()];
    let visible = shown.iter().skip(first).take(room);
    rows.extend(visible.map(|lock| row(lock, palette, now)));
    let places = SPARE.map(place);
    let mut lines = fit(rows, &places, place(Column::Name), usize::from(area.width));
    if let Some(headline) = lines.first_mut() {
        *headline = std::mem::take(headline).style(palette.dim());
    }
    if let Some(chosen) = lines
        .get_mut(1 + at - first)
        .filter(|_| state.chosen.is_some())
    {
        let gap = usize::from(area.width).saturating_sub(chosen.width());
        chosen.push_span(Span::raw(" ".repeat(gap)));
        *chosen = std::mem::take(chosen).style(Modifier::REVERSED);
    }
    paint(frame, area, lines);
}

fn place(column: Column) -> usize {
    let place = Column::ALL.iter().position(|other| *other == column);
    place.unwrap_or(0)
}

fn is_number(column: Column) -> bool {
    matches!(
        column,
        Column::Pid | Column::Age | Column::Left | Column::Renewals | Column::Fence | Column::Nodes
    )
}

fn nothing(state: &State) -> String {
    match (&state.progress, state.is_listed) {
        (_, true) if state.count() > 0 => "no lock passes the filter; Esc takes it away".into(),
        (_, true) if state.trouble.is_some() => "the locks are not known".into(),
        (_, true) => "nobody holds a lock".into(),
        (Some(progress), false) => match progress.total {
            Some(total) => format!("looked at {} of {total} keys …", progress.looked_at),
            None => format!("looked at {} keys …", progress.looked_at),
        },
        (None, false) => "asking the nodes …".into(),
    }
}

fn row(lock: &Lock, palette: Palette, now: Instant) -> Vec<Cell> {
    let owner = &lock.owner;
    let text = |text: &Option<String>| Cell::new(text.as_deref().unwrap_or_default());
    let number = |number: Option<String>| Cell::right(number.unwrap_or_default());
    let left = match lock.left(now) {
        None => Cell::right("for ever").style(palette.bad()),
        Some(left) if left < Duration::from_secs(3) => {
            Cell::right(spoken(left)).style(palette.odd())
        }
        Some(left) => Cell::right(spoken(left)),
    };
    let nodes = Cell::right(format!("{}/{}", lock.on_nodes, lock.nodes));
    let nodes = match lock.has_quorum {
        true if lock.on_nodes == lock.nodes => nodes,
        true => nodes.style(palette.odd()),
        false => nodes.style(palette.bad()),
    };
    let host = match &owner.host {
        Some(host) => Cell::new(host),
        None => Cell::new("(another client)").style(palette.dim()),
    };
    vec![
        Cell::new(&lock.name),
        host,
        number(owner.pid.map(|pid| pid.to_string())),
        text(&owner.user),
        text(&owner.program),
        number(owner.since.and_then(age).map(spoken)),
        left,
        Cell::right(lock.renewals.to_string()),
        number(lock.fence.map(|fence| fence.to_string())),
        nodes,
    ]
}

/// In whole seconds: tenths would flicker.
pub(super) fn spoken(time: Duration) -> String {
    duration::spoken(Duration::from_secs(time.as_secs()))
}

fn footer(state: &State, palette: Palette, now: Instant, room: u16) -> Line<'static> {
    let room = usize::from(room);
    if let Mode::Filter(_) = state.mode {
        let filter = clean(&state.filter);
        let hint = "  Enter keeps it, Esc takes it back";
        let hint = match width(&filter) + width(hint) + 2 <= room {
            true => hint,
            false => "",
        };
        return Line::from(vec![
            Span::styled("/", palette.strong()),
            Span::raw(filter),
            Span::styled(" ", Modifier::REVERSED),
            Span::styled(hint, palette.dim()),
        ]);
    }
    if let Some(notice) = state.notice(now) {
        let style = match notice.is_bad {
            true => palette.bad(),
            false => palette.good(),
        };
        return Line::from(Span::styled(shorten(&clean(&notice.text), room), style));
    }
    let release = match state.readonly {
        true => "",
        false => "x release  ",
    };
    let keys = match state.mode {
        Mode::Details => format!("Esc back  ↑↓ choose  {release}? keys  q quit"),
        _ => format!("q quit  / filter  Enter details  {release}s sort  r reverse  ? keys"),
    };
    Line::from(Span::styled(shorten(&keys, room), palette.dim()))
}

#[cfg(test)]
mod tests;
