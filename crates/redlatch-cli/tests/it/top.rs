//! `top`: the live screen on a real terminal, and the snapshot without one.

use redlatch_testkit::RedisServer;
use rustix::process::{Signal, kill_process};

use crate::looking::hold;
use crate::support::{armed, eventually, pid, redlatch, text};
use crate::terminal::{CTRL_C, CTRL_Z, Session};

const ROWS: u16 = 24;
const COLUMNS: u16 = 120;

/// A terminal of a known size whose settings are remembered.
fn session(server: &RedisServer) -> Session {
    let mut session = Session::start(server);
    let line = format!("export TERM=xterm; stty rows {ROWS} cols {COLUMNS}; before=$(stty -g)");
    session.run(&format!("{line}; echo go''od"), "good");
    session
}

/// What a person sees.
fn screen(session: &Session) -> vt100::Screen {
    let mut parser = vt100::Parser::new(ROWS, COLUMNS, 0);
    parser.process(session.written().as_bytes());
    parser.screen().clone()
}

/// Waits until the live screen shows all of this.
#[track_caller]
fn expect(session: &Session, texts: &[&str]) {
    let mut last = String::new();
    let is_shown = || {
        let screen = screen(session);
        last = screen.contents();
        screen.alternate_screen() && texts.iter().all(|text| last.contains(text))
    };
    let look = std::panic::AssertUnwindSafe(|| eventually("the screen", is_shown));
    if std::panic::catch_unwind(look).is_err() {
        panic!("never on the screen: {texts:?}, but\n{last}");
    }
}

/// The screen was left with this code, and the shell asks for the next line:
/// what is typed earlier is still read by the screen.
#[track_caller]
fn expect_left(session: &mut Session, code: i32) {
    session.expect("\x1b[?1049l");
    session.expect("$ ");
    session.expect_code(code);
}

/// The terminal is as it was, and the shell goes on.
#[track_caller]
fn expect_restored(session: &mut Session) {
    let line = "[ \"$before\" = \"$(stty -g)\" ] && echo as be''fore";
    session.run(line, "as before");
    let screen = screen(session);
    assert!(!screen.alternate_screen(), "{}", screen.contents());
    assert!(!screen.hide_cursor(), "{}", screen.contents());
}

#[test]
fn a_lock_is_seen_found_and_released() {
    let server = RedisServer::start();
    let servers = std::slice::from_ref(&server);
    let (apple, zebra) = (hold(servers, "apple"), hold(servers, "zebra"));
    let pids = [&apple, &zebra].map(|holder| holder.pid().to_string());
    let mut session = session(&server);
    session.keys("$REDLATCH top\n");
    expect(
        &session,
        &["1/1 node up  2 locks", "apple", "zebra", &pids[0], &pids[1]],
    );

    session.keys("/ZEB\r");
    expect(&session, &["1 of 2 locks", "filter: ZEB", "zebra"]);
    assert!(!screen(&session).contents().contains("apple"));

    // What is not a yes is a no.
    session.keys("x");
    expect(
        &session,
        &["release by force", "Take zebra away from host", &pids[1]],
    );
    session.keys("\r");
    expect(&session, &["nothing was released"]);
    assert_eq!(server.locks().len(), 2);
    session.keys("x");
    expect(&session, &["release by force"]);
    session.keys("y");
    expect(
        &session,
        &["released zebra, which was held by", "0 of 1 locks"],
    );
    assert_eq!(server.locks(), ["redlatch:apple"]);

    session.keys("q");
    expect_left(&mut session, 0);
    expect_restored(&mut session);
}

#[test]
fn nothing_can_be_released_readonly() {
    let server = RedisServer::start();
    let _held = hold(std::slice::from_ref(&server), "job");
    let mut session = session(&server);
    session.keys("$REDLATCH top --readonly\n");
    expect(&session, &["1 lock", "readonly"]);
    session.keys("xy");
    expect(&session, &["--readonly: nothing can be released from here"]);
    session.keys("q");
    expect_left(&mut session, 0);
    assert_eq!(server.locks().len(), 1);
}

#[test]
fn after_ctrl_z_the_screen_comes_back() {
    let server = RedisServer::start();
    let mut session = session(&server);
    session.keys("$REDLATCH top\n");
    expect(&session, &["1/1 node up", "nobody holds a lock"]);
    session.keys(CTRL_Z);
    session.expect("\x1b[?1049l");
    session.expect("Stopped");
    expect_restored(&mut session);
    session.keys("fg\n");
    expect(&session, &["1/1 node up", "nobody holds a lock"]);
    session.keys(CTRL_C);
    expect_left(&mut session, 130);
    expect_restored(&mut session);
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let server = RedisServer::start();
    let mut session = session(&server);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let line = format!("sh -c 'echo $$ > {}; exec $REDLATCH top'\n", file.display());
        session.keys(&line);
        expect(&session, &["nobody holds a lock"]);
        let number = std::fs::read_to_string(&file).unwrap();
        kill_process(pid(number.trim().parse().unwrap()), signal).unwrap();
        expect_left(&mut session, code);
        expect_restored(&mut session);
    }
}

#[cfg(feature = "planted")]
#[test]
fn a_panic_leaves_the_terminal_as_it_was_and_can_be_read() {
    let server = RedisServer::start();
    let mut session = session(&server);
    for place in ["the screen", "the background"] {
        // A backtrace is longer than the screen.
        let settings = format!("RUST_BACKTRACE=0 REDLATCH_PLANTED='{place}'");
        session.keys(&format!("{settings} $REDLATCH top\n"));
        session.expect("\x1b[?1049h");
        session.expect("\x1b[?1049l");
        let message = format!("planted in {place}");
        session.expect(&message);
        session.expect("$ ");
        session.expect_code(125);
        expect_restored(&mut session);
        let shown = screen(&session).contents();
        assert!(shown.contains(&message), "{shown}");
    }
}

#[test]
fn servers_that_die_and_return_are_shown_as_that() {
    let server = RedisServer::start();
    let mut session = session(&server);
    server.kill();
    session.keys("$REDLATCH top --interval 100ms\n");
    expect(
        &session,
        &["0/1 node up", "DOWN", "the locks are not known"],
    );
    server.restart();
    expect(&session, &["1/1 node up", "nobody holds a lock"]);
    server.kill();
    expect(&session, &["0/1 node up", "DOWN"]);
    session.keys("q");
    expect_left(&mut session, 0);
    let written = session.written();
    assert!(
        !written.contains("redlatch: "),
        "only the screen: {written:?}"
    );
}

#[test]
fn without_a_terminal_there_is_one_snapshot() {
    let fleet = armed(3);
    let _held = hold(&fleet, "job");
    fleet[2].kill();
    let snapshot = |args: &[&str]| {
        let output = redlatch(&fleet).arg("top").args(args).output().unwrap();
        let code = output.status.code().unwrap();
        (text(&output.stdout), text(&output.stderr), code)
    };
    let (table, errors, code) = snapshot(&[]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(!table.contains('\x1b'), "{table:?}");
    assert_eq!(table.matches("armed").count(), 2, "{table}");
    assert_eq!(table.matches("down").count(), 1, "{table}");
    assert!(table.contains("job") && table.contains("2/3"), "{table}");

    let (lines, _, code) = snapshot(&["--json"]);
    assert_eq!(code, 0);
    let objects = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let objects: Vec<serde_json::Value> = objects.collect();
    assert_eq!(objects.len(), 4, "{lines}");
    assert_eq!(
        (&objects[0]["kind"], &objects[0]["up"]),
        (&"node".into(), &true.into())
    );
    assert_eq!(objects[2]["up"], false);
    assert_eq!(
        (&objects[3]["kind"], &objects[3]["name"]),
        (&"lock".into(), &"job".into())
    );
    assert!(objects[3]["remaining_ms"].as_u64().unwrap() > 0);

    let (lines, ..) = snapshot(&["--json", "other*"]);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    fleet[1].kill();
    let (table, errors, code) = snapshot(&[]);
    assert_eq!(code, 69, "{errors}");
    assert_eq!(table.matches("down").count(), 2, "{table}");
    assert_eq!(snapshot(&["--interval", "0"]).2, 64);
}
