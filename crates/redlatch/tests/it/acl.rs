//! The rights that docs/operations.md asks for are enough, and none is too many.

use std::fmt::Display;
use std::time::Duration;

use redlatch::node::NodeErrorKind;
use redlatch::{Builder, Guard, Redlatch};
use redlatch_testkit::RedisServer;

use crate::support::{KEY, LONG, eventually, no_quorum};

/// The rules are read from the document itself, so it can't go stale.
const DOCUMENT: &str = include_str!("../../../../docs/operations.md");

const TTL: Duration = Duration::from_secs(1);

/// What the user of a rule does with locks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    Guarded,
    Unguarded,
    Plain,
}

#[tokio::test]
async fn the_documented_rights_are_enough_and_none_is_too_many() {
    for (name, usage) in [
        ("guarded", Use::Guarded),
        ("unguarded", Use::Unguarded),
        ("plain", Use::Plain),
    ] {
        let rule = rule(name);
        let enough = live(&rule, usage).await;
        assert_eq!(enough, Ok(()), "{name}: {rule:?}");
        let rights = rule.iter().filter(|word| word.starts_with(['+', '~', '&']));
        for right in rights {
            let fewer: Vec<&str> = rule.iter().copied().filter(|word| word != right).collect();
            let broken = live(&fewer, usage).await;
            assert!(broken.is_err(), "{name}: {right} is not needed");
        }
    }
}

#[tokio::test]
async fn a_key_that_the_user_may_not_touch_is_told_as_denied() {
    let server = RedisServer::start();
    let builder = as_user(&server, &rule("unguarded")).prefix("other:");
    let latch = builder.build().await.unwrap();
    let error = no_quorum(latch.mutex("job").try_lock().await);
    assert_eq!(error.failures[0].1.kind(), NodeErrorKind::Denied);
}

#[tokio::test]
async fn a_database_other_than_0_needs_select() {
    let server = RedisServer::start();
    let mut rule = rule("unguarded");
    grant(&server, &rule);
    let url = format!("redis://locker:secret@127.0.0.1:{}/5", server.port());
    let error = Redlatch::connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("'select'"), "{error}");
    rule.push("+select");
    grant(&server, &rule);
    let latch = Redlatch::connect(&url).await.unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_list_needs_scan() {
    let server = RedisServer::start();
    let mut rule = rule("unguarded");
    let latch = as_user(&server, &rule).build().await.unwrap();
    let _guard = latch.mutex("job").lock().await.unwrap();
    let error = no_quorum(latch.locks("*").await);
    assert_eq!(error.failures[0].1.kind(), NodeErrorKind::Denied);
    assert!(error.to_string().contains("'scan'"), "{error}");
    for (right, total) in [("+scan", false), ("+dbsize", true)] {
        rule.push(right);
        grant(&server, &rule);
        let latch = as_user(&server, &rule).build().await.unwrap();
        let mut told = false;
        let listing = latch.locks_with_progress("*", |progress| told |= progress.total.is_some());
        assert_eq!(listing.await.unwrap().locks.len(), 1);
        assert_eq!(told, total, "{right}");
    }
}

#[tokio::test]
async fn a_right_that_a_script_lacks_is_told_as_denied() {
    // Without GET a script can't tell whose the key is, and must not guess.
    for right in ["+hset", "+get"] {
        let server = RedisServer::start();
        if right == "+get" {
            server.command(&["SET", KEY, "somebody else"]);
        }
        let mut rule = rule("unguarded");
        rule.retain(|word| *word != right);
        let latch = as_user(&server, &rule).build().await.unwrap();
        let error = no_quorum(latch.mutex("job").try_lock().await);
        assert_eq!(error.failures[0].1.kind(), NodeErrorKind::Denied);
        assert!(error.to_string().contains("operations.md"), "{error}");
    }
}

#[tokio::test]
async fn a_waiter_that_may_not_be_told_asks_again() {
    for missing in ["+client|tracking", "+client|caching"] {
        let server = RedisServer::start();
        let mut rule = rule("unguarded");
        rule.retain(|word| *word != missing);
        let builder = || as_user(&server, &rule).ttl(LONG);
        let latch = builder().build().await.unwrap();
        let guard = latch.mutex("job").lock().await.unwrap();
        let other = builder().build().await.unwrap();
        let waiter = tokio::spawn(async move { other.mutex("job").lock().await.unwrap() });
        eventually("the look", || server.calls("get") >= 2).await;
        guard.release().await.unwrap();
        // Where nodes tell, nobody looks again before three seconds are over.
        let soon = tokio::time::timeout(Duration::from_millis(2900), waiter).await;
        let guard = soon.expect("it waits in vain").unwrap();
        guard.release().await.unwrap();
    }
}

/// The words of the rule in the document's code block with this name.
fn rule(name: &str) -> Vec<&'static str> {
    let start = format!("<!-- acl: {name} -->\n```text\n");
    let (_, block) = DOCUMENT.split_once(&start).expect("the document has it");
    let (block, _) = block.split_once("```").expect("the block ends");
    let words: Vec<&str> = block.split_whitespace().collect();
    assert_eq!(words[..2], ["ACL", "SETUSER"]);
    words
}

/// A client of this server with the rights of the rule with this name, and no others.
pub(crate) fn user_of(server: &RedisServer, name: &str) -> Builder {
    as_user(server, &rule(name))
}

/// A client of this server with the rights of this rule, and no others.
fn as_user(server: &RedisServer, rule: &[&str]) -> Builder {
    grant(server, rule);
    let password = rule.iter().find_map(|word| word.strip_prefix('>'));
    let (user, password) = (rule[2], password.expect("it has one"));
    let url = format!("redis://{user}:{password}@127.0.0.1:{}", server.port());
    Redlatch::builder()
        .nodes([url])
        .ttl(TTL)
        .max_ttl(2 * TTL)
        .node_timeout(Duration::from_millis(300))
        .outage_patience(Duration::ZERO)
}

/// Gives the user the rights of this rule, and takes away all others.
fn grant(server: &RedisServer, rule: &[&str]) {
    server.command(&["ACL", "DELUSER", rule[2]]);
    let reply = server.command(rule);
    assert!(!reply.is_error(), "{reply}");
}

/// The whole life of a lock on a new server; says where it ends, if it does.
async fn live(rule: &[&str], usage: Use) -> Result<(), String> {
    let server = RedisServer::start();
    let builder = || as_user(&server, rule).restart_guard(usage == Use::Guarded);
    if usage == Use::Guarded {
        let admin = builder().admin().await.map_err(at("admin"))?;
        let statuses = [admin.assume_fresh().await, admin.status().await].concat();
        for status in statuses {
            check(status.is_armed(), status)?;
        }
    }
    let latch = builder().build().await.map_err(at("build"))?;
    let other = builder().build().await.map_err(at("build"))?;
    let fencing = usage != Use::Plain;
    let job = latch.mutex("job").fencing(fencing);
    let contender = other.mutex("job").fencing(fencing);

    let guard = job.lock().await.map_err(at("lock"))?;
    check(guard.fence() > 0 || !fencing, "it has no fence")?;
    // The first look comes a few milliseconds after it was refused, or never.
    let mut tries = 0..100;
    while server.calls("client|caching") == 0 {
        let look = tries.next();
        check(look.is_some(), "waiters have to ask again and again")?;
        let timeout = contender.lock_timeout(TTL / 50).await.unwrap_err();
        check(timeout.is_timeout(), timeout)?;
    }
    let listening = server.command(&["PUBSUB", "CHANNELS", "redlatch:__call:*"]);
    check(listening.as_array().len() == 2, "waiters can't be called")?;
    let mut looks = 0..200;
    while !server.queue("job").is_empty() {
        let look = looks.next();
        check(
            look.is_some(),
            "one who waits no longer still has its place",
        )?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    renewed(&server, &guard).await?;
    guard.renew(2 * TTL).await.map_err(at("renew"))?;
    let waiter = contender.clone();
    let waiter = tokio::spawn(async move { waiter.lock().await });
    eventually("one who waits", || !server.queue("job").is_empty()).await;
    guard.release().await.map_err(at("release"))?;
    check(server.calls("publish") > 0, "nobody is called")?;
    let guard = waiter.await.unwrap().map_err(at("wait"))?;
    guard.release().await.map_err(at("release after a wait"))?;
    check(server.locks().is_empty(), "the key is still there")?;

    // A server that has forgotten its scripts, as after a restart.
    server.command(&["SCRIPT", "FLUSH"]);
    let guard = contender.lock().await.map_err(at("lock again"))?;
    if usage == Use::Plain {
        return guard.release().await.map_err(at("release again"));
    }
    let held = latch.inspect("job").await.map_err(at("inspect"))?;
    check(held.is_some(), "nobody holds it")?;
    let forced = latch.force_release("job").await.map_err(at("force"))?;
    check(forced, "nobody held it")?;
    check(guard.release().await.is_err(), "it was taken away")?;
    latch.close().await;
    Ok(())
}

/// Waits until the lease was renewed in the background.
async fn renewed(server: &RedisServer, guard: &Guard) -> Result<(), String> {
    let mut before = i64::MAX;
    loop {
        let left = server.pttl(KEY);
        if left > before {
            return Ok(());
        }
        before = left;
        guard.ensure_held().map_err(at("renewal"))?;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn check(holds: bool, otherwise: impl Display) -> Result<(), String> {
    holds.then_some(()).ok_or_else(|| otherwise.to_string())
}

fn at<E: Display>(step: &str) -> impl Fn(E) -> String {
    move |error| format!("{step}: {error}")
}
