//! The file held against the rules in Rust, and what happens to files.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redlatch_core::{Ballot, Key, NodeState, Policy, Reply, Request, Scene, Token, Ttl, fence};
use rusqlite::Connection;

use super::clock::{Boot, time_of_day};
use super::file::BookFile;
use super::ledger::{Ledger, SCHEMA};
use super::store::Store;
use crate::node::redis::tests::{policy, requests};
use crate::node::{Charter, NodeErrorKind, Pattern};

/// What may happen to a node, in steps.
#[derive(Clone, Debug)]
enum Step {
    Ask(Request),
    /// The same again, as after a lost reply.
    AskTwice(Request),
    /// So many milliseconds pass.
    Pass(u64),
    /// The client now names another deployment, or none.
    Deployment(u8),
    /// The machine was booted anew.
    Boot(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        60 => requests().prop_map(Step::Ask),
        8 => requests().prop_map(Step::AskTwice),
        10 => (0..3_000u64).prop_map(Step::Pass),
        // Beyond every ttl and quarantine.
        4 => (0..5_000_000u64).prop_map(Step::Pass),
        3 => (0..6u8).prop_map(Step::Deployment),
        2 => (0..3u8).prop_map(Step::Boot),
    ];
    prop::collection::vec(step, 1..80)
}

#[test]
fn the_file_does_what_the_rules_say() {
    let mut runner = TestRunner::new(Config {
        cases: 500,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&(steps(), any::<bool>()), |(steps, guarded)| {
        let mut pair = Pair {
            file: Connection::open_in_memory().unwrap(),
            rules: NodeState::default(),
            run: "boot-0".into(),
            policy: guarded.then(|| policy(0)),
            now: 20_000,
        };
        pair.file.execute_batch(SCHEMA).unwrap();
        steps.into_iter().try_for_each(|step| pair.step(step))
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

/// The file and the reference, side by side.
struct Pair {
    file: Connection,
    rules: NodeState,
    run: Arc<str>,
    policy: Option<Policy>,
    now: u64,
}

impl Pair {
    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Ask(request) => self.ask(&request)?,
            Step::AskTwice(request) => {
                self.ask(&request)?;
                self.ask(&request)?;
            }
            Step::Pass(millis) => self.now += millis,
            Step::Deployment(5) => self.policy = None,
            Step::Deployment(number) => self.policy = Some(policy(number / 4)),
            Step::Boot(number) => self.run = format!("boot-{number}").into(),
        }
        Ok(())
    }

    fn ask(&mut self, request: &Request) -> Result<(), TestCaseError> {
        let scene = Scene::new(self.now, &self.run, self.policy.as_ref());
        // It keeps no queue, so to it nobody has a ticket.
        let mut plain = request.clone();
        if let Request::Acquire { ticket, .. } = &mut plain {
            *ticket = None;
        }
        let expected = self.rules.apply(&plain, &scene);
        let transaction = self.file.transaction().unwrap();
        let ledger = Ledger {
            transaction: &transaction,
            service: "redlatch:",
            policy: self.policy.as_ref(),
            run: &self.run,
            floor: Ballot::default(),
            now: self.now,
        };
        let reply = ledger.apply(request).unwrap();
        prop_assert_eq!(reply, expected, "{:?}", request);
        let mut stored = ledger.everything(&keys()).unwrap();
        transaction.commit().unwrap();
        let mut expected = self.rules.clone();
        stored.sweep(self.now);
        expected.sweep(self.now);
        prop_assert_eq!(stored, expected);
        Ok(())
    }
}

fn keys() -> [Key; 3] {
    [0, 1, 2].map(|number| Key::new(format!("k{number}")))
}

/// A store over a file in this directory, in this boot of the machine.
fn store(directory: &Path, boot: &Boot) -> Store {
    let file = BookFile::new(directory.join("locks.db"));
    Store::new(file, boot.clone(), &charter())
}

fn charter() -> Charter {
    Charter {
        policy: None,
        service_prefix: "redlatch:".into(),
        strict: false,
        client: "".into(),
        turn: Duration::ZERO,
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn acquire(key: &str, token: &str, ballot: Ballot) -> Request {
    Request::Acquire {
        key: Key::new(key),
        token: Token::parse(token).unwrap(),
        ttl: Ttl::new(Duration::from_secs(3600)).unwrap(),
        ballot: Some(ballot),
        ticket: None,
    }
}

fn ask(store: &mut Store, request: Request) -> Reply {
    store.apply(&[request], soon()).unwrap().remove(0)
}

fn ballot_now() -> Ballot {
    Ballot::at(u64::try_from(time_of_day()).unwrap(), 1)
}

#[test]
fn after_a_boot_leases_run_on_and_fences_grow() {
    let directory = tempfile::tempdir().unwrap();
    let boot = Boot::read().unwrap();
    let granted = ballot_now();
    let mut before = store(directory.path(), &boot);
    assert_eq!(
        ask(&mut before, acquire("k", "t0", granted)),
        Reply::Granted
    );
    drop(before);
    // The time since boot begins anew, at next to nothing.
    let reboot = boot.again("another boot", -boot.age() + 5);
    let mut after = store(directory.path(), &reboot);
    let held = ask(&mut after, acquire("k", "t1", ballot_now()));
    assert!(matches!(held, Reply::Held(Some(_))), "{held:?}");
    let low = ask(&mut after, acquire("other", "t2", ballot_now()));
    let Reply::Low { seen, now } = low else {
        panic!("below what may have been granted and forgotten: {low:?}");
    };
    assert!(seen > granted && Ballot::at(now, 1023) >= seen);
    assert_eq!(
        ask(&mut after, acquire("other", "t2", seen.next())),
        Reply::Granted
    );
}

#[test]
fn what_was_granted_before_a_power_failure_is_below_what_is_granted_after() {
    let directory = tempfile::tempdir().unwrap();
    let boot = Boot::read().unwrap();
    let mut before = store(directory.path(), &boot);
    before.identity(soon()).unwrap();
    // All that is not forced to the disk is lost: only the mark survives.
    let copy = tempfile::tempdir().unwrap();
    for name in ["locks.db", "locks.db-wal"] {
        std::fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
    }
    // As far ahead as is granted at all.
    let granted = Ballot::at(ballot_now().millis() + 9_900, 0);
    assert_eq!(
        ask(&mut before, acquire("k", "t0", granted)),
        Reply::Granted
    );
    let reboot = boot.again("another boot", 0);
    let mut after = store(copy.path(), &reboot);
    let low = ask(&mut after, acquire("k", "t1", ballot_now()));
    let Reply::Low { seen, .. } = low else {
        panic!("fences went back: {low:?}");
    };
    assert!(seen > granted);
}

#[test]
fn the_mark_above_all_ballots_is_raised_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let boot = Boot::read().unwrap();
    let mut store = store(directory.path(), &boot);
    store.identity(soon()).unwrap();
    let mark = |directory: &Path| -> i64 {
        let connection = Connection::open(directory.join("locks.db")).unwrap();
        let read = "SELECT reserved FROM clock";
        connection.query_row(read, [], |row| row.get(0)).unwrap()
    };
    let first = mark(directory.path());
    let mut later = Store::new(
        BookFile::new(directory.path().join("locks.db")),
        boot.again(&boot.id, 3_600_000),
        &charter(),
    );
    let ballot = Ballot::at(ballot_now().millis() + 3_600_000, 0);
    assert_eq!(ask(&mut later, acquire("k", "t", ballot)), Reply::Granted);
    let second = mark(directory.path());
    assert!(second >= first + 3_500_000, "{first} {second}");
    assert!(Ballot::at(second.try_into().unwrap(), 0) > ballot);
    later.look_after();
    assert_eq!(mark(directory.path()), second, "not more often than needed");
}

#[test]
fn keys_that_nobody_asks_for_again_do_not_pile_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store(directory.path(), &Boot::read().unwrap());
    let brief = |number: u32| Request::Acquire {
        key: Key::new(format!("k{number}")),
        token: Token::parse("t").unwrap(),
        ttl: Ttl::new(Duration::from_millis(1)).unwrap(),
        ballot: None,
        ticket: None,
    };
    for number in 0..300 {
        ask(&mut store, brief(number));
    }
    std::thread::sleep(Duration::from_millis(5));
    for number in 300..500 {
        ask(&mut store, brief(number));
        std::thread::sleep(Duration::from_micros(100));
    }
    let total = store
        .scan(&Pattern::new("", "*"), None, soon())
        .unwrap()
        .total;
    assert!(total.unwrap() < 100, "{total:?}");
}

#[test]
fn what_is_appended_does_not_grow_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store(directory.path(), &Boot::read().unwrap());
    for number in 0..2000 {
        let request = acquire(&format!("k{number}"), "t", ballot_now());
        store.apply(&[request], soon()).unwrap();
        store.look_after();
    }
    let appended = directory.path().join("locks.db-wal").metadata().unwrap();
    // More than three times as much was written.
    assert!(appended.len() < 8 << 20, "{}", appended.len());
}

#[test]
fn pages_follow_each_other_and_what_has_expired_is_on_none() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store(directory.path(), &Boot::read().unwrap());
    let plain = |number: u32, ttl: u64| Request::Acquire {
        key: Key::new(format!("p:{number:04}")),
        token: Token::parse("t").unwrap(),
        ttl: Ttl::new(Duration::from_secs(ttl)).unwrap(),
        ballot: None,
        ticket: None,
    };
    let mut requests: Vec<Request> = (0..2500).map(|number| plain(number, 3600)).collect();
    requests.push(plain(9990, 1));
    store.apply(&requests, soon()).unwrap();
    // One has expired, in a time that only this client has seen pass.
    let boot = Boot::read().unwrap();
    let mut store = self::store(directory.path(), &boot.again(&boot.id, 2000));
    let pattern = Pattern::new("p:", "*[05]");
    let (mut after, mut found, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = store.scan(&pattern, after.as_deref(), soon()).unwrap();
        found.extend(page.keys);
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((found.len(), pages), (500, 3));
    assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn a_file_that_was_deleted_is_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    let boot = Boot::read().unwrap();
    let mut one = store(directory.path(), &boot);
    assert_eq!(
        ask(&mut one, acquire("k", "t0", ballot_now())),
        Reply::Granted
    );
    for name in ["locks.db", "locks.db-wal", "locks.db-shm"] {
        std::fs::remove_file(directory.path().join(name)).unwrap();
    }
    let mut other = store(directory.path(), &boot);
    assert_eq!(
        ask(&mut other, acquire("k", "t1", ballot_now())),
        Reply::Granted
    );
    // It must not go on in a file that nobody else sees.
    let reply = ask(&mut one, acquire("k", "t0", ballot_now()));
    assert!(matches!(reply, Reply::Held(_)), "{reply:?}");
}

#[test]
fn a_file_of_another_program_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.db");
    let theirs = Connection::open(&path).unwrap();
    theirs.execute_batch("CREATE TABLE t (a)").unwrap();
    drop(theirs);
    let before = std::fs::read(&path).unwrap();
    let mut store = store(directory.path(), &Boot::read().unwrap());
    let error = store.identity(soon()).unwrap_err();
    assert_eq!(error.kind(), NodeErrorKind::Misconfigured);
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_of_a_newer_redlatch_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store(directory.path(), &Boot::read().unwrap());
    store.identity(soon()).unwrap();
    drop(store);
    let connection = Connection::open(directory.path().join("locks.db")).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    let mut store = self::store(directory.path(), &Boot::read().unwrap());
    let error = store.identity(soon()).unwrap_err();
    assert!(error.to_string().contains("newer"), "{error}");
}

impl Ledger<'_> {
    /// All that is stored about these keys.
    fn everything(&self, keys: &[Key]) -> rusqlite::Result<NodeState> {
        let mut state = NodeState::default();
        for key in keys {
            self.load_lock(key, &mut state)?;
            self.load_slot(fence::slot(key), &mut state)?;
        }
        state.set_guard(self.load_guard()?);
        Ok(state)
    }
}

#[test]
fn a_value_that_is_no_token_is_a_strangers() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = store(directory.path(), &Boot::read().unwrap());
    store.identity(soon()).unwrap();
    let connection = Connection::open(directory.path().join("locks.db")).unwrap();
    let put = "INSERT INTO locks (key, value, last) VALUES ('k', NULL, NULL)";
    connection.execute(put, []).unwrap();
    let Reply::Held(Some(holder)) = ask(&mut store, acquire("k", "t", ballot_now())) else {
        panic!("it is there");
    };
    assert_eq!((holder.value, holder.remaining), (None, None));
}
