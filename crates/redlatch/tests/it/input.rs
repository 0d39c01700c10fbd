//! Bad input gets its own clear error at the earliest moment, and changes nothing.

use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use redlatch::node::NodeErrorKind;
use redlatch::{Builder, ConfigError, Error, Exported, Redlatch};
use redlatch_testkit::RedisServer;

use crate::support::client;

async fn refused(builder: Builder) -> ConfigError {
    match builder.build().await {
        Err(Error::Config(error)) => *error,
        other => panic!("not refused: {other:?}"),
    }
}

fn config<T: std::fmt::Debug>(result: redlatch::Result<T>) -> ConfigError {
    match result {
        Err(Error::Config(error)) => *error,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_client_needs_a_node() {
    assert_eq!(refused(Redlatch::builder()).await, ConfigError::NoNode);
    let many = (0..65).map(|port| format!("redis://127.0.0.1:{}", 1000 + port));
    let error = refused(Redlatch::builder().nodes(many)).await;
    assert_eq!(error, ConfigError::TooManyNodes(65));
}

#[tokio::test]
async fn the_same_node_twice_is_refused_by_name_and_by_what_it_says_of_itself() {
    let server = RedisServer::start();
    let url = server.url();
    let same = refused(Redlatch::builder().nodes([url.clone(), format!("{url}/3")])).await;
    assert!(matches!(same, ConfigError::SameNodeTwice(..)), "{same}");

    let alias = format!("redis://localhost:{}", server.port());
    let same = refused(Redlatch::builder().nodes([url, alias])).await;
    assert!(matches!(same, ConfigError::SameNodeTwice(..)), "{same}");
    assert!(same.to_string().contains("the same server"), "{same}");
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_before_any_other_is_used() {
    let server = RedisServer::start();
    let before = server.calls("hello");
    let builder = Redlatch::builder().nodes([server.url(), "localhost:6379".into()]);
    let error = refused(builder).await;
    assert!(
        matches!(error, ConfigError::Address { node: 2, .. }),
        "{error}"
    );
    assert_eq!(server.calls("hello"), before);
}

#[tokio::test]
async fn a_wrong_password_is_refused_when_connecting() {
    let server = RedisServer::with_args(&["--requirepass", "secret"]);
    let with = |login: &str| format!("redis://{login}@127.0.0.1:{}", server.port());
    for url in [server.url(), with(":wrong"), with("nobody:secret")] {
        let error = refused(Redlatch::builder().nodes([url])).await;
        let ConfigError::Node { error: reason, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(reason.kind(), NodeErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("password"), "{error}");
    }
    let latch = Redlatch::connect(&with(":secret")).await.unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_for_one_of_three_is_refused_too() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let locked = RedisServer::with_args(&["--requirepass", "secret"]);
    let urls = servers.iter().chain([&locked]).map(RedisServer::url);
    let error = refused(Redlatch::builder().nodes(urls)).await;
    assert!(matches!(error, ConfigError::Node { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_redis_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let url = format!("redis://127.0.0.1:{port}");
    let error = refused(Redlatch::builder().nodes([url])).await;
    assert!(error.to_string().contains("not a Redis server"), "{error}");
}

#[tokio::test]
async fn nobody_there_is_no_quorum_with_the_reason() {
    let server = RedisServer::start();
    server.kill();
    let error = Redlatch::connect(&server.url()).await.unwrap_err();
    let Error::NoQuorum(no_quorum) = &error else {
        panic!("{error}")
    };
    assert_eq!(no_quorum.failures[0].1.kind(), NodeErrorKind::Unreachable);
    assert!(error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let zero = Duration::ZERO;
    let builder = || Redlatch::builder().nodes(["redis://127.0.0.1:1"]);
    let error = refused(builder().node_timeout(zero)).await;
    assert_eq!(error, ConfigError::Zero("node_timeout"));
    let error = refused(builder().connect_timeout(zero)).await;
    assert_eq!(error, ConfigError::Zero("connect_timeout"));
    let error = refused(builder().ttl(zero)).await;
    assert!(matches!(error, ConfigError::Ttl(_)));
    let error = refused(builder().ttl(Duration::from_millis(50))).await;
    assert!(matches!(error, ConfigError::TtlWithinNodeTimeout { .. }));
    let tiny = Duration::from_millis(1);
    let error = refused(builder().node_timeout(tiny).ttl(10 * tiny)).await;
    assert!(matches!(error, ConfigError::TtlTooShort(_)));
}

#[tokio::test]
async fn names_and_settings_of_a_lock_are_checked_before_a_node_is_asked() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let before = server.commands_processed();
    let name = "x".repeat(1025);
    assert_eq!(config(latch.mutex("").lock().await), ConfigError::EmptyName);
    let too_long = config(latch.mutex(&name).lock().await);
    assert_eq!(too_long, ConfigError::NameTooLong(1025));
    for name in ["__fence", "__queue:job"] {
        let error = config(latch.mutex(name).try_lock().await);
        assert!(matches!(error, ConfigError::ReservedName(_)));
        assert!(latch.inspect(name).await.unwrap_err().is_config());
        assert!(latch.force_release(name).await.unwrap_err().is_config());
    }
    let job = || latch.mutex("job");
    for ttl in [Duration::ZERO, Duration::MAX, Duration::from_millis(500)] {
        let error = job().ttl(ttl).lock_timeout(ttl).await.unwrap_err();
        assert!(error.is_config(), "{error}");
    }
    let error = job().max_hold(Duration::ZERO).lock().await.unwrap_err();
    assert!(error.is_config(), "{error}");
    let error = config(job().note("x".repeat(257)).lock().await);
    assert_eq!(error, ConfigError::Note);
    assert_eq!(config(Exported::new("", 1)), ConfigError::Token);
    assert_eq!(config(Exported::new("a\nb", 1)), ConfigError::Token);
    assert_eq!(server.commands_processed(), before);
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn a_token_source_that_returns_nonsense_is_refused() {
    let server = RedisServer::start();
    let builder = Redlatch::builder().nodes([server.url()]);
    let latch = builder.token_source(String::new).build().await.unwrap();
    assert_eq!(config(latch.mutex("job").lock().await), ConfigError::Token);
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn a_token_source_of_ones_own_names_the_lease() {
    let server = RedisServer::start();
    let builder = Redlatch::builder().nodes([server.url()]);
    let latch = builder
        .token_source(|| "4711".into())
        .build()
        .await
        .unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    let value = server.get("redlatch:job").unwrap();
    assert!(value.starts_with(b"4711 {"));
    assert_eq!(guard.token().id(), "4711");
}

#[tokio::test]
async fn absurd_waiting_times_are_no_limit() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let guard = latch.mutex("job").lock_timeout(Duration::MAX).await;
    guard.unwrap().release().await.unwrap();
}
