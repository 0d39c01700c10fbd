//! Requests that go out as one command.

use redlatch_core::{Ballot, Ballots, Key, Token, Ttl};

use super::*;
use crate::node::Charter;

fn dialect() -> Arc<Dialect> {
    let charter = Charter {
        policy: None,
        service_prefix: "redlatch:".into(),
        strict: false,
        client: "".into(),
        turn: Duration::from_millis(200),
    };
    Arc::new(Dialect::new(&charter, "", true))
}

fn token(lock: &str) -> Token {
    Token::parse(&format!("token-of-{lock}")).unwrap()
}

fn acquire(lock: &str) -> Request {
    Request::Acquire {
        key: Key::new(lock),
        token: token(lock),
        ttl: Ttl::new(Duration::from_secs(10)).unwrap(),
        ballot: Some(Ballot::at(1, 0)),
        ticket: None,
    }
}

fn acquire_plain(lock: &str) -> Request {
    let Request::Acquire {
        key, token, ttl, ..
    } = acquire(lock)
    else {
        unreachable!()
    };
    Request::Acquire {
        key,
        token,
        ttl,
        ballot: None,
        ticket: None,
    }
}

fn release(lock: &str) -> Request {
    Request::Release {
        key: Key::new(lock),
        token: token(lock),
        ballots: Some(Ballots::one(Ballot::at(1, 0))),
        leaves: None,
        unparks: None,
    }
}

/// A line over which something is under way already.
async fn busy_line() -> (Line, DuplexStream, Answer<Value>) {
    let (line, mut server, _heard) = narrow_line();
    let first = ask(&line, "FIRST");
    assert_eq!(next_command(&mut server).await, "FIRST");
    (line, server, first)
}

/// Asks all of them at the same moment.
fn ask_requests(line: &Line, requests: &[Request]) -> Vec<Answer<Share>> {
    let dialect = dialect();
    let ask = |request| line.ask_with_others(&dialect, request);
    requests.iter().map(ask).collect()
}

/// Whether it is for many; else it is for the first lock.
fn is_bundle(words: &[String]) -> bool {
    words[3] == "redlatch:__fence"
}

/// The locks that a command is about.
fn locks(words: &[String]) -> Vec<&str> {
    let count: usize = words[2].parse().unwrap();
    let keys = words[3..3 + count].iter().map(String::as_str);
    keys.filter(|key| !key.starts_with("redlatch:__")).collect()
}

#[tokio::test]
async fn what_is_asked_on_an_idle_line_goes_by_itself() {
    let (line, mut server, _heard) = narrow_line();
    let mut shares = ask_requests(&line, &[acquire("a")]);
    let words = next_words(&mut server).await;
    assert!(!is_bundle(&words), "{words:?}");
    server.write_all(b"+GRANTED\r\n").await.unwrap();
    let share = shares.remove(0).await.unwrap();
    assert_eq!(share, Share::Answer(text("GRANTED")));
}

#[tokio::test]
async fn what_comes_together_goes_out_as_one_and_each_gets_its_own_answer() {
    let (line, mut server, first) = busy_line().await;
    let requests = [release("a"), acquire("b"), release("c"), acquire("d")];
    let shares = ask_requests(&line, &requests);
    let words = next_words(&mut server).await;
    assert!(is_bundle(&words));
    // Those that acquire come first.
    assert_eq!(locks(&words), ["b", "d", "a", "c"]);
    let answers = b"+first\r\n*4\r\n+of b\r\n_\r\n+of a\r\n*2\r\n+of\r\n+c\r\n";
    server.write_all(answers).await.unwrap();
    assert_eq!(first.await.unwrap(), text("first"));
    let mut expected = vec![
        Share::Answer(text("of a")),
        Share::Answer(text("of b")),
        Share::Answer(Value::Array(vec![text("of"), text("c")])),
        Share::Nothing,
    ];
    for share in shares {
        assert_eq!(share.await.unwrap(), expected.remove(0));
    }
}

#[tokio::test]
async fn no_request_overtakes_another_about_the_same_lock() {
    let (line, mut server, _first) = busy_line().await;
    let requests = [acquire("a"), acquire("b"), release("a"), acquire("c")];
    let _shares = ask_requests(&line, &requests);
    let (before, after) = (next_words(&mut server).await, next_words(&mut server).await);
    assert_eq!(locks(&before), ["a", "b"]);
    assert_eq!(locks(&after), ["c", "a"]);
}

#[tokio::test]
async fn a_plain_acquire_goes_by_itself_before_all_but_those_of_its_own_lock() {
    let (line, mut server, _first) = busy_line().await;
    let requests = [
        release("a"),
        acquire_plain("b"),
        release("c"),
        acquire_plain("a"),
        release("d"),
    ];
    let _shares = ask_requests(&line, &requests);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let words = next_words(&mut server).await;
        seen.push(match &*words[0] {
            "SET" => format!("SET {}", words[1]),
            _ => locks(&words).join(" "),
        });
    }
    assert_eq!(seen, ["SET b", "a c", "SET a", "d"]);
}

#[tokio::test]
async fn other_commands_stay_in_their_place() {
    let (line, mut server, _first) = busy_line().await;
    let _before = ask_requests(&line, &[acquire("a"), acquire("b")]);
    let _other = ask(&line, "OTHER");
    let _after = ask_requests(&line, &[acquire("c"), acquire("d")]);
    assert_eq!(locks(&next_words(&mut server).await), ["a", "b"]);
    assert_eq!(next_words(&mut server).await, ["OTHER"]);
    assert_eq!(locks(&next_words(&mut server).await), ["c", "d"]);
}

#[tokio::test]
async fn no_more_than_sixteen_go_together() {
    let (line, mut server, _first) = busy_line().await;
    let requests: Vec<_> = (0..33).map(|n| acquire(&format!("lock{n}"))).collect();
    let _shares = ask_requests(&line, &requests);
    let mut counts = Vec::new();
    for _ in 0..3 {
        counts.push(locks(&next_words(&mut server).await).len());
    }
    assert_eq!(counts, [16, 16, 1]);
}

#[tokio::test]
async fn a_server_that_forgot_the_script_is_told_it_again() {
    let (line, mut server, _first) = busy_line().await;
    let requests = [acquire("a"), acquire("b")];
    for (name, answer) in [
        ("EVALSHA", "-NOSCRIPT No matching script.\r\n"),
        ("EVAL", "*2\r\n+one\r\n+other\r\n"),
        ("EVALSHA", "*2\r\n+one\r\n+other\r\n"),
    ] {
        let busy = ask(&line, "BUSY");
        let shares = ask_requests(&line, &requests);
        assert_eq!(next_words(&mut server).await, ["BUSY"]);
        let words = next_words(&mut server).await;
        assert_eq!(words[0], name);
        assert!(is_bundle(&words));
        let said = match name {
            "EVALSHA" if answer.starts_with('-') => format!("+first\r\n+busy\r\n{answer}"),
            _ => format!("+busy\r\n{answer}"),
        };
        server.write_all(said.as_bytes()).await.unwrap();
        busy.await.unwrap();
        for share in shares {
            // Whoever was not answered has had nothing done.
            let is_answered = share.await.unwrap() != Share::Nothing;
            assert_eq!(is_answered, !answer.starts_with('-'));
        }
    }
}

#[tokio::test]
async fn after_a_bundle_that_was_refused_requests_go_by_themselves_for_a_while() {
    let (line, mut server, _first) = busy_line().await;
    let refused = ask_requests(&line, &[acquire("a"), release("b")]);
    assert!(is_bundle(&next_words(&mut server).await));
    let answers = b"+first\r\n-NOPERM no right to do that\r\n";
    server.write_all(answers).await.unwrap();
    for share in refused {
        assert_eq!(share.await.unwrap(), Share::Nothing);
    }
    let serve = |count: usize| {
        let names: Vec<_> = (0..count).map(|n| acquire(&format!("lock{n}"))).collect();
        ask_requests(&line, &names)
    };
    let _singly = serve(1000);
    for _ in 0..1000 {
        assert!(!is_bundle(&next_words(&mut server).await));
    }
    let _together = serve(2);
    assert!(is_bundle(&next_words(&mut server).await));
}

#[tokio::test]
async fn a_lock_that_could_not_be_answered_for_goes_by_itself_for_a_while() {
    let (line, mut server, _first) = busy_line().await;
    let requests = [release("a"), release("b")];
    let mut shares = ask_requests(&line, &requests);
    assert!(is_bundle(&next_words(&mut server).await));
    let answers = b"+first\r\n*2\r\n_\r\n+RELEASED\r\n";
    server.write_all(answers).await.unwrap();
    assert_eq!(shares.remove(0).await.unwrap(), Share::Nothing);
    // Somebody waits for it, perhaps. With the others nothing is wrong.
    let _busy = ask(&line, "BUSY");
    assert_eq!(next_command(&mut server).await, "BUSY");
    for _ in 0..15 {
        let _shares = ask_requests(&line, &[acquire("c"), acquire("a"), acquire("d")]);
        assert_eq!(locks(&next_words(&mut server).await), ["c"]);
        assert_eq!(locks(&next_words(&mut server).await), ["a"]);
        assert_eq!(locks(&next_words(&mut server).await), ["d"]);
    }
    let _shares = ask_requests(&line, &[acquire("c"), acquire("a"), acquire("d")]);
    assert_eq!(locks(&next_words(&mut server).await), ["c", "a", "d"]);
}

#[tokio::test]
async fn all_who_share_are_told_that_the_server_hung_up() {
    let (line, mut server, _first) = busy_line().await;
    let sent = ask_requests(&line, &[acquire("a"), acquire("b")]);
    assert!(is_bundle(&next_words(&mut server).await));
    let unsent = ask_requests(&line, &[acquire("c"), acquire("d")]);
    drop(server);
    for share in sent.into_iter().chain(unsent) {
        let error = share.await.unwrap_err();
        assert!(error.is_unrecoverable_error(), "{error}");
    }
}
