//! `release`: taking a lock away.

use redlatch_testkit::RedisServer;

use crate::looking::hold;
use crate::support::{KEY, armed, redlatch, text};
use crate::terminal::Session;

fn release(servers: &[RedisServer], args: &[&str]) -> (String, String, i32) {
    let mut command = redlatch(servers);
    let output = command
        .args(["release", "job"])
        .args(args)
        .output()
        .unwrap();
    let code = output.status.code().unwrap();
    (text(&output.stdout), text(&output.stderr), code)
}

#[test]
fn a_lock_is_released_by_its_token_only() {
    let fleet = armed(3);
    let mut held = hold(&fleet, "job");
    let token = text(&fleet[0].get(KEY).unwrap());
    let (_, errors, code) = release(&fleet, &["--owner", "somebody-else"]);
    assert_eq!(code, 75);
    assert!(
        errors.contains("another lease") && errors.contains("--force"),
        "{errors}"
    );
    assert!(fleet.iter().all(|server| server.get(KEY).is_some()));
    let id = token.split(' ').next().unwrap();
    let (said, errors, code) = release(&fleet, &["--owner", id]);
    assert_eq!(code, 0, "{errors}");
    assert!(said.contains(&format!("pid {}", held.pid())), "{said}");
    assert!(fleet.iter().all(|server| server.get(KEY).is_none()));
    assert_eq!(held.code(), 79, "the holder is told that it was lost");
    let (said, errors, code) = release(&fleet, &["--owner", &token]);
    assert_eq!((said.as_str(), code), ("", 0));
    assert!(errors.contains("nobody holds job"), "{errors}");
}

#[test]
fn force_needs_a_yes() {
    let server = RedisServer::start();
    let servers = std::slice::from_ref(&server);
    server.command(&["SET", KEY, "somebody"]);
    let (_, errors, code) = release(servers, &["--force"]);
    assert_eq!(code, 64);
    assert!(
        errors.contains("--yes") && errors.contains("another client"),
        "{errors}"
    );
    assert!(server.get(KEY).is_some());
    let (said, errors, code) = release(servers, &["--force", "--yes"]);
    assert_eq!(code, 0, "{errors}");
    assert!(said.contains("held by another client"), "{said}");
    assert!(server.get(KEY).is_none());
    assert_eq!(release(servers, &[]).2, 64);
    assert_eq!(release(servers, &["--force", "--owner", "x"]).2, 64);
}

#[test]
fn on_a_terminal_it_asks_first() {
    let server = RedisServer::start();
    server.command(&["SET", KEY, "somebody"]);
    let mut session = Session::start(&server);
    session.run("$REDLATCH release job --force", "[y/N]");
    session.run("", "nothing was released");
    session.expect_code(75);
    assert!(server.get(KEY).is_some());
    session.run("$REDLATCH release job --force", "[y/N]");
    session.run("y", "released job");
    session.expect_code(0);
    assert!(server.get(KEY).is_none());
}
