//! What keys do.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::state::{Column, State};

/// What is on the screen beside the lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Browse,
    /// The filter is being typed; what it was before.
    Filter(String),
    Details,
    /// Whether this lock may be taken away from this lease.
    Confirm {
        name: String,
        lease: u64,
        whose: String,
        /// Where the question was asked.
        in_details: bool,
    },
    Help,
}

impl Mode {
    /// Whether another lock may be chosen when this one was freed.
    pub(super) fn is_free_to_choose(&self) -> bool {
        matches!(self, Self::Browse | Self::Filter(_) | Self::Help)
    }
}

/// What has to be done outside of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    /// Ctrl-C: as a signal would.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    /// Everything anew: something else has written on the screen.
    Redraw,
    /// Take the lock away from this lease.
    Release {
        name: String,
        lease: u64,
    },
    /// Something is not possible; why.
    Refuse(&'static str),
}

/// How far PgUp and PgDn go.
const PAGE: isize = 10;

pub(super) fn press(state: &mut State, key: KeyEvent) -> Action {
    if key.kind == KeyEventKind::Release {
        return Action::Nothing;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        match key.code {
            KeyCode::Char('c') => return Action::Interrupt,
            KeyCode::Char('z') => return Action::Suspend,
            KeyCode::Char('l') => return Action::Redraw,
            // Typed into the filter it would be a letter.
            KeyCode::Char('u') if matches!(state.mode, Mode::Filter(_)) => {}
            _ => return Action::Nothing,
        }
    }
    match state.mode.clone() {
        Mode::Filter(before) => {
            type_filter(state, key, before);
            Action::Nothing
        }
        Mode::Confirm {
            name,
            lease,
            in_details,
            ..
        } => {
            state.mode = match in_details {
                true => Mode::Details,
                false => Mode::Browse,
            };
            // Nothing but this one key, and Enter least of all.
            match key.code {
                KeyCode::Char('y' | 'Y') => Action::Release { name, lease },
                _ => Action::Refuse("nothing was released"),
            }
        }
        Mode::Help => {
            state.mode = Mode::Browse;
            match key.code {
                KeyCode::Char('q') => Action::Quit,
                _ => Action::Nothing,
            }
        }
        Mode::Details => match key.code {
            KeyCode::Esc | KeyCode::Enter => {
                state.mode = Mode::Browse;
                if state.position().is_none() {
                    state.choose(0);
                }
                Action::Nothing
            }
            _ => browse(state, key),
        },
        Mode::Browse => browse(state, key),
    }
}

fn browse(state: &mut State, key: KeyEvent) -> Action {
    match key.code {
        KeyCode::Char('q') => return Action::Quit,
        KeyCode::Char('x') | KeyCode::Delete => return ask(state),
        KeyCode::Up | KeyCode::Char('k') => step(state, -1),
        KeyCode::Down | KeyCode::Char('j') => step(state, 1),
        KeyCode::PageUp => step(state, -PAGE),
        KeyCode::PageDown => step(state, PAGE),
        KeyCode::Home | KeyCode::Char('g') => state.choose(0),
        KeyCode::End | KeyCode::Char('G') => state.choose(usize::MAX),
        KeyCode::Enter if state.chosen.is_some() => state.mode = Mode::Details,
        KeyCode::Char('/') => state.mode = Mode::Filter(state.filter.clone()),
        KeyCode::Char('?') => state.mode = Mode::Help,
        KeyCode::Char('s') => sort(state, 1),
        KeyCode::Char('S') => sort(state, Column::ALL.len() - 1),
        KeyCode::Char('r') => state.is_reversed = !state.is_reversed,
        KeyCode::Esc if !state.filter.is_empty() => {
            state.filter.clear();
        }
        _ => {}
    }
    Action::Nothing
}

fn step(state: &mut State, by: isize) {
    let at = state.position().unwrap_or(0);
    state.choose(at.saturating_add_signed(by));
}

fn sort(state: &mut State, by: usize) {
    let columns = Column::ALL;
    let at = columns.iter().position(|column| *column == state.sort);
    state.sort = columns[(at.unwrap_or(0) + by) % columns.len()];
}

fn ask(state: &mut State) -> Action {
    if state.readonly {
        return Action::Refuse("--readonly: nothing can be released from here");
    }
    let Some(lock) = state.chosen() else {
        return Action::Refuse("there is no lock to release");
    };
    let whose = match lock.owner.to_string() {
        text if text.is_empty() => "another client".to_owned(),
        text => text,
    };
    state.mode = Mode::Confirm {
        name: lock.name.clone(),
        lease: lock.lease,
        whose,
        in_details: state.mode == Mode::Details,
    };
    Action::Nothing
}

fn type_filter(state: &mut State, key: KeyEvent, before: String) {
    match key.code {
        KeyCode::Enter => state.mode = Mode::Browse,
        KeyCode::Esc => {
            state.filter = before;
            state.mode = Mode::Browse;
        }
        KeyCode::Backspace => {
            state.filter.pop();
        }
        KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            state.filter.clear();
        }
        KeyCode::Char(c) => state.filter.push(c),
        _ => {}
    }
    if state.position().is_none() {
        state.choose(0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::state::tests::{lock, state};
    use super::*;

    fn key(state: &mut State, code: KeyCode) -> Action {
        press(state, KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn write(state: &mut State, text: &str) -> Action {
        let keys = text.chars().map(KeyCode::Char);
        keys.map(|code| key(state, code))
            .last()
            .unwrap_or(Action::Nothing)
    }

    #[test]
    fn a_lock_is_released_only_after_a_yes() {
        let now = Instant::now();
        let mut state = state(&["a", "b"], now);
        key(&mut state, KeyCode::Down);
        assert_eq!(write(&mut state, "x"), Action::Nothing);
        assert!(matches!(&state.mode, Mode::Confirm { name, .. } if name == "b"));
        for code in [KeyCode::Enter, KeyCode::Char('n'), KeyCode::Esc] {
            assert!(matches!(key(&mut state, code), Action::Refuse(_)));
            assert_eq!(state.mode, Mode::Browse);
            write(&mut state, "x");
        }
        // What is asked about stays the same when the list changes meanwhile.
        state.listed(vec![lock("a", 1, 1, now), lock("b", 7, 1, now)], None);
        let release = Action::Release {
            name: "b".into(),
            lease: 2,
        };
        assert_eq!(write(&mut state, "y"), release);
        assert_eq!(state.mode, Mode::Browse);
    }

    #[test]
    fn nothing_is_released_where_that_is_switched_off() {
        let mut state = state(&["a"], Instant::now());
        state.readonly = true;
        assert!(matches!(write(&mut state, "x"), Action::Refuse(_)));
        assert_eq!(state.mode, Mode::Browse);
    }

    #[test]
    fn keys_are_letters_while_a_filter_is_typed() {
        let mut state = state(&["queue", "sku", "x"], Instant::now());
        write(&mut state, "/qu");
        assert_eq!(state.filter, "qu");
        assert_eq!(state.chosen.as_deref(), Some("queue"));
        key(&mut state, KeyCode::Enter);
        assert_eq!(write(&mut state, "/x"), Action::Nothing);
        assert_eq!((&*state.filter, state.chosen.clone()), ("qux", None));
        key(&mut state, KeyCode::Esc);
        assert_eq!(state.filter, "qu", "as it was before");
        key(&mut state, KeyCode::Esc);
        assert_eq!(state.filter, "");
        assert_eq!(write(&mut state, "q"), Action::Quit);
    }

    #[test]
    fn control_keys_work_everywhere() {
        let mut state = state(&["a"], Instant::now());
        for opening in ["", "/", "?", "x"] {
            write(&mut state, opening);
            for (c, action) in [('c', Action::Interrupt), ('z', Action::Suspend)] {
                let key = KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
                assert_eq!(press(&mut state, key), action, "after {opening:?}");
            }
            key(&mut state, KeyCode::Esc);
        }
    }

    #[test]
    fn choosing_and_sorting_stay_within_what_there_is() {
        let mut state = state(&["a", "b", "c"], Instant::now());
        for (code, chosen) in [
            (KeyCode::Up, "a"),
            (KeyCode::End, "c"),
            (KeyCode::Down, "c"),
            (KeyCode::PageUp, "a"),
            (KeyCode::Char('j'), "b"),
        ] {
            key(&mut state, code);
            assert_eq!(state.chosen.as_deref(), Some(chosen), "{code:?}");
        }
        write(&mut state, "S");
        assert_eq!(state.sort, Column::Nodes);
        write(&mut state, "s");
        assert_eq!(state.sort, Column::Name);
        write(&mut state, "r");
        assert!(state.is_reversed);
    }
}
