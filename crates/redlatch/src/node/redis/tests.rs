//! A real Redis held against the rules in Rust, reply by reply.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redlatch_core::request::Holder;
use redlatch_core::rules::Stored;
use redlatch_core::{Key, NodeState, Reply, Request, Token, Ttl};
use redlatch_testkit::RedisServer;

use super::borrowed::Borrowed;
use crate::node::Node;

/// What may happen to a node, in steps.
#[derive(Clone, Debug)]
enum Step {
    Ask(Request),
    /// The same again, as after a lost reply.
    AskTwice(Request),
    /// A stranger writes a string.
    Put(Key, String),
    /// A stranger writes something that is not a string.
    PutList(Key),
    /// The key's time is over.
    Expire(Key),
    Restart,
    FlushScripts,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || (0..3u8).prop_map(|n| Key::new(format!("k{n}")));
    let token = || (0..3u8).prop_map(|n| Token::parse(&format!("t{n} {{\"pid\":1}}")).unwrap());
    // Far enough apart that the time a test takes makes no difference.
    let ttl = || (1..5u64).prop_map(|n| Ttl::new(Duration::from_secs(600 * n)).unwrap());
    let acquire =
        (key(), token(), ttl()).prop_map(|(key, token, ttl)| Request::Acquire { key, token, ttl });
    let extend =
        (key(), token(), ttl()).prop_map(|(key, token, ttl)| Request::Extend { key, token, ttl });
    let release = (key(), token()).prop_map(|(key, token)| Request::Release { key, token });
    let force = key().prop_map(|key| Request::Force { key });
    let inspect = key().prop_map(|key| Request::Inspect { key });
    let request = prop_oneof![4 => acquire, 3 => extend, 3 => release, 1 => force, 3 => inspect];
    let step = prop_oneof![
        20 => request.clone().prop_map(Step::Ask),
        4 => request.prop_map(Step::AskTwice),
        2 => (key(), "[a-z]{0,3}").prop_map(|(key, value)| Step::Put(key, value)),
        2 => key().prop_map(Step::PutList),
        3 => key().prop_map(Step::Expire),
        1 => Just(Step::FlushScripts),
        // A restart takes a while, so it is rare.
        1 => prop::bool::weighted(0.1).prop_map(|restart| match restart {
            true => Step::Restart,
            false => Step::FlushScripts,
        }),
    ];
    prop::collection::vec(step, 1..60)
}

#[test]
fn scripts_on_redis_do_what_the_rules_say() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = RedisServer::start();
    let mut runner = TestRunner::new(Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    });
    let result = runner.run(&steps(), |steps| {
        server.command(&["FLUSHALL"]);
        runtime.block_on(compare(&server, steps))
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

async fn compare(server: &RedisServer, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut node = connect(server).await;
    let mut rules = NodeState::default();
    let now = 1_000_000;
    for step in steps {
        match step {
            Step::Ask(request) => same(&node, &mut rules, &request, now).await?,
            Step::AskTwice(request) => {
                same(&node, &mut rules, &request, now).await?;
                same(&node, &mut rules, &request, now).await?;
            }
            Step::Put(key, value) => {
                server.command(&["SET", key.as_str(), &value]);
                let value = Some(value.into_bytes());
                let last_millisecond = None;
                rules.put(
                    key,
                    Stored {
                        value,
                        last_millisecond,
                    },
                );
            }
            Step::PutList(key) => {
                server.command(&["DEL", key.as_str()]);
                server.command(&["RPUSH", key.as_str(), "x"]);
                let (value, last_millisecond) = (None, None);
                rules.put(
                    key,
                    Stored {
                        value,
                        last_millisecond,
                    },
                );
            }
            Step::Expire(key) => {
                server.command(&["PEXPIREAT", key.as_str(), "1"]);
                if let Some(stored) = rules.get(&key).cloned() {
                    let last_millisecond = Some(now - 1);
                    rules.put(
                        key,
                        Stored {
                            last_millisecond,
                            ..stored
                        },
                    );
                }
            }
            Step::FlushScripts => {
                server.command(&["SCRIPT", "FLUSH"]);
            }
            Step::Restart => {
                server.restart_empty();
                rules = NodeState::default();
                node = connect(server).await;
            }
        }
    }
    Ok(())
}

/// Through the code that also serves the library's own connections.
async fn connect(server: &RedisServer) -> impl Node {
    let client = redis::Client::open(server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    Borrowed::new("redis".into(), connection)
}

async fn same(
    node: &impl Node,
    rules: &mut NodeState,
    request: &Request,
    now: u64,
) -> Result<(), TestCaseError> {
    let limit = Duration::from_secs(5);
    let expected = round(rules.apply(request, now));
    let one = node.call(request.clone(), limit).await;
    prop_assert_eq!(round(one.unwrap()), expected.clone(), "{:?}", request);
    // The same request in a batch: idempotent, and over the other code path.
    if let Request::Extend { .. } | Request::Inspect { .. } = request {
        let all = node.call_all(vec![request.clone(); 2], limit).await;
        for reply in all {
            prop_assert_eq!(round(reply.unwrap()), expected.clone(), "{:?}", request);
        }
    }
    Ok(())
}

/// Redis' clock goes on while the rules' stands still: compare by the ten minutes.
fn round(reply: Reply) -> Reply {
    match reply {
        Reply::Holder(Holder { value, remaining }) => Reply::Holder(Holder {
            value,
            remaining: remaining.map(|left| {
                let tens = (left.as_secs() + 300) / 600;
                Duration::from_secs(600 * tens)
            }),
        }),
        other => other,
    }
}
