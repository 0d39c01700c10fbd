//! What is drawn beside the lists or over them: details, the question, the keys.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::columns::shorten;
use super::state::State;
use super::view::{Palette, spoken};
use crate::output::age;
use crate::table::clean;

/// How many lines the details take, with their frame.
pub(super) const DETAILS: u16 = 13;

pub(super) fn details(
    state: &State,
    palette: Palette,
    now: Instant,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let room = usize::from(area.width.saturating_sub(6));
    let name = clean(state.chosen.as_deref().unwrap_or_default());
    let block = Block::bordered().title(format!(" {} ", shorten(&name, room)));
    let Some(lock) = state.chosen() else {
        let free = Paragraph::new("nobody holds it any more");
        frame.render_widget(free.block(block), area);
        return;
    };
    let owner = &lock.owner;
    let stranger = owner.host.is_none().then(|| "another client".to_owned());
    let left = match lock.left(now) {
        Some(left) => format!("{}, unless renewed", spoken(left)),
        None => "for ever: its key never expires".to_owned(),
    };
    let quorum = match lock.has_quorum {
        true => "",
        false => ", too few for a quorum",
    };
    let since = owner.since.and_then(age);
    let renewed = match lock.renewals {
        1 => "once while this was shown".to_owned(),
        times => format!("{times} times while this was shown"),
    };
    let name = (name.chars().count() > room).then_some(name);
    let rows = [
        ("name", name),
        ("held by", stranger),
        ("host", owner.host.clone()),
        ("pid", owner.pid.map(|pid| pid.to_string())),
        ("user", owner.user.clone()),
        ("program", owner.program.clone()),
        ("note", owner.note.clone()),
        ("since", since.map(|since| format!("{} ago", spoken(since)))),
        ("left", Some(left)),
        ("renewed", Some(renewed)),
        ("fence", lock.fence.map(|fence| fence.to_string())),
        (
            "nodes",
            Some(format!("{} of {}{quorum}", lock.on_nodes, lock.nodes)),
        ),
    ];
    let lines = rows.into_iter().filter_map(|(label, value)| {
        Some(Line::from(vec![
            Span::styled(format!("{label:<9}"), palette.dim()),
            Span::raw(clean(&value?)),
        ]))
    });
    let text = Paragraph::new(lines.collect::<Vec<_>>()).wrap(Wrap { trim: false });
    frame.render_widget(text.block(block), area);
}

pub(super) fn confirm(
    name: &str,
    whose: &str,
    palette: Palette,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let lines = vec![
        Line::from(vec![
            Span::raw("Take "),
            Span::styled(clean(name), palette.strong()),
            Span::raw(format!(" away from {}?", clean(whose))),
        ]),
        Line::raw(""),
        Line::raw(
            "The holder finds out when it renews; until then it goes on, beside whoever takes the lock next.",
        ),
        Line::raw(""),
        Line::styled("y takes it away, any other key does not", palette.strong()),
    ];
    over(" release by force ", lines, 64, palette.bad(), frame, area);
}

pub(super) fn help(frame: &mut Frame<'_>, area: Rect) {
    let keys = [
        ("↑ ↓ j k", "choose a lock"),
        ("PgUp PgDn", "ten at a time"),
        ("Home End", "the first, the last"),
        ("Enter", "its details"),
        ("/", "filter by name, host, user, program, note"),
        ("Esc", "back; take the filter away"),
        ("s S", "sort by the next, the previous column"),
        ("r", "the other way round"),
        ("x", "release it by force, after a question"),
        ("Ctrl-L", "draw all anew"),
        ("q", "quit"),
    ];
    let lines = keys.map(|(key, what)| Line::raw(format!("{key:<10} {what}")));
    over(
        " keys ",
        lines.to_vec(),
        56,
        Default::default(),
        frame,
        area,
    );
}

/// In the middle, over what is there.
fn over(
    title: &'static str,
    lines: Vec<Line<'static>>,
    width: u16,
    style: ratatui::style::Style,
    frame: &mut Frame<'_>,
    area: Rect,
) {
    let width = width.min(area.width);
    let room = usize::from(width.saturating_sub(2)).max(1);
    // Words that don't fit at the end of a line need a little more than their width.
    let rows = lines
        .iter()
        .map(|line| (line.width() * 9 / 8).div_ceil(room).max(1));
    let rows = u16::try_from(rows.sum::<usize>() + 2).unwrap_or(u16::MAX);
    let height = rows.min(area.height);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let block = Block::bordered().title(title).border_style(style);
    frame.render_widget(Clear, place);
    let text = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(text.block(block), place);
}
