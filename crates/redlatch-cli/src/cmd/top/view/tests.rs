//! The screen as people see it, without a terminal.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::input::press;
use super::super::state::tests::{lock, state};
use super::*;

fn screen(state: &State, width: u16, height: u16, now: Instant) -> Vec<String> {
    let terminal = terminal(state, width, height, now, true);
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(usize::from(width.max(1)));
    rows.map(|row| {
        let text: String = row.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    })
    .collect()
}

fn terminal(
    state: &State,
    width: u16,
    height: u16,
    now: Instant,
    paint: bool,
) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let palette = Palette { paint };
    terminal
        .draw(|frame| draw(state, palette, now, frame))
        .unwrap();
    terminal
}

fn sample(now: Instant) -> State {
    let mut state = state(&["backup", "a-very-long-name-of-a-lock-that-goes-on"], now);
    let node = |name: &str, condition| Node {
        name: name.into(),
        took: Duration::from_micros(1240),
        condition,
    };
    state.nodes = vec![
        node("redis://a", Condition::Armed),
        node("redis://b", Condition::Quarantine(Duration::from_secs(42))),
        node("redis://c", Condition::Down("connection refused".into())),
    ];
    state
}

#[test]
fn nodes_and_locks_are_shown() {
    let now = Instant::now();
    let rows = screen(&sample(now), 120, 16, now);
    let expected = [
        "redlatch top  2/3 nodes up  2 locks",
        "",
        "NODE       UP    LATENCY  GUARD",
        "redis://a  up     1.2 ms  armed",
        "redis://b  up     1.2 ms  in quarantine for 42 s",
        "redis://c  DOWN           connection refused",
        "",
        "NAME▼                                    HOST    PID  USER  PROGRAM  LEFT  RENEWED                FENCE  NODES",
        "a-very-long-name-of-a-lock-that-goes-on  web-3  4711  ada   backup   30 s        0  1881973518912344066    3/3",
        "backup                                   web-3  4711  ada   backup   30 s        0  1881973518912344065    3/3",
    ];
    assert_eq!(rows[..expected.len()], expected, "{rows:#?}");
    assert!(rows[15].starts_with("q quit  / filter"), "{rows:#?}");
}

#[test]
fn a_narrow_terminal_keeps_what_matters() {
    let now = Instant::now();
    let rows = screen(&sample(now), 40, 24, now);
    let text = rows.join("\n");
    for word in ["backup", "30 s", "DOWN", "LEFT"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!text.contains("FENCE"), "{text}");
}

#[test]
fn no_size_is_too_small() {
    let now = Instant::now();
    let mut state = sample(now);
    for opening in ['q', '?', 'x', '/', '\n'] {
        let code = match opening {
            '\n' => KeyCode::Enter,
            c => KeyCode::Char(c),
        };
        press(&mut state, KeyEvent::new(code, KeyModifiers::NONE));
        for width in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 200] {
            for height in [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 29, 60] {
                terminal(&state, width, height, now, true);
            }
        }
        press(&mut state, KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    }
}

#[test]
fn the_question_names_the_lock_and_its_holder() {
    let now = Instant::now();
    let mut state = sample(now);
    press(
        &mut state,
        KeyEvent::new(KeyCode::Char('x'), KeyModifiers::NONE),
    );
    let text = screen(&state, 80, 24, now).join(" ");
    for word in ["Take", "backup", "web-3", "4711", "y takes it away"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn details_stay_when_the_lock_is_freed() {
    let now = Instant::now();
    let mut state = sample(now);
    press(
        &mut state,
        KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE),
    );
    let text = screen(&state, 80, 30, now).join("\n");
    assert!(text.contains("│program  backup"), "{text}");
    state.listed(vec![lock("other", 5, 1000, now)], None);
    let text = screen(&state, 80, 30, now).join("\n");
    assert!(text.contains("nobody holds it any more"), "{text}");
}

#[test]
fn details_leave_room_for_the_list_on_a_small_terminal() {
    let now = Instant::now();
    let mut state = sample(now);
    press(
        &mut state,
        KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE),
    );
    let text = screen(&state, 80, 24, now).join("\n");
    for word in ["a-very-long", "\nbackup", "redis://c", "│fence"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!text.contains("redis://a"), "it is well: {text}");
}

#[test]
fn many_locks_are_scrolled_to_the_chosen_one() {
    let now = Instant::now();
    let names: Vec<String> = (0..100).map(|number| format!("lock-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut state = state(&names, now);
    for at in [0, 42, 99] {
        state.choose(at);
        let text = screen(&state, 80, 20, now).join("\n");
        assert!(text.contains(&format!("lock-{at:02}")), "{at}: {text}");
    }
}

#[test]
fn nothing_steers_the_terminal_and_nothing_is_painted_unasked() {
    let now = Instant::now();
    let mut state = sample(now);
    let mut evil = lock("evil\u{1b}[2J", 9, 900, now);
    evil.remaining = None;
    state.listed(vec![evil], None);
    let terminal = terminal(&state, 100, 24, now, false);
    for cell in &terminal.backend().buffer().content {
        assert!(!cell.symbol().contains('\u{1b}'));
        assert_eq!(cell.fg, Color::Reset, "{cell:?}");
    }
}
