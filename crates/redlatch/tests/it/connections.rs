//! The ways to a server, and other clients on the same keys.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use redlatch::{ConfigError, Error, KeyScheme, Redlatch};
use redlatch_testkit::{RedisServer, TlsServer};

use crate::support::{
    build, client, closes_empty, eventually, eventually_locked, no_quorum, patient,
};

async fn lock_and_release(latch: &Redlatch) {
    let guard = latch.mutex("job").lock().await.unwrap();
    guard.renew(Duration::from_secs(10)).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn over_a_unix_socket() {
    let server = RedisServer::start();
    let latch = Redlatch::connect(&server.unix_url()).await.unwrap();
    lock_and_release(&latch).await;
    assert!(format!("{latch:?}").contains("unix:"));
}

#[tokio::test]
async fn in_another_database() {
    let server = RedisServer::start();
    let latch = Redlatch::connect(&format!("{}/5", server.url()))
        .await
        .unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    assert!(
        server.info("db5").contains("keys=2"),
        "the lock, and the slots of fences"
    );
    assert!(server.locks().is_empty(), "database 0 is not touched");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn over_tls_with_a_private_authority() {
    let server = TlsServer::start();
    let builder = Redlatch::builder().nodes([server.url()]);
    let latch = build(builder.root_certificate(server.ca_pem())).await;
    lock_and_release(&latch).await;
}

#[tokio::test]
async fn over_tls_an_authority_that_is_not_trusted_is_refused() {
    let server = TlsServer::start();
    let error = Redlatch::connect(&server.url()).await.unwrap_err();
    assert!(
        error.to_string().to_lowercase().contains("certificate"),
        "{error}"
    );

    let other = TlsServer::start();
    let builder = Redlatch::builder().nodes([server.url()]);
    let error = builder
        .root_certificate(other.ca_pem())
        .build()
        .await
        .unwrap_err();
    assert!(
        error.to_string().to_lowercase().contains("certificate"),
        "{error}"
    );
}

#[tokio::test]
async fn over_tls_with_a_certificate_of_our_own() {
    let server = TlsServer::demanding_client_certificates();
    let builder = || {
        let builder = Redlatch::builder().nodes([server.url()]);
        builder.root_certificate(server.ca_pem())
    };
    assert!(
        builder().build().await.is_err(),
        "it asks for a certificate"
    );
    let own = server.client();
    let builder = builder().client_certificate(own.certificate_pem.clone(), own.key_pem.clone());
    lock_and_release(&build(builder).await).await;
}

#[tokio::test]
async fn over_tls_connections_that_break_in_the_middle_are_made_anew() {
    let server = TlsServer::start();
    let proxy = server.proxy();
    let url = format!("rediss://127.0.0.1:{}", proxy.port());
    let builder = || patient([url.clone()]).root_certificate(server.ca_pem());
    let one = builder().build().await.unwrap();
    let other = builder().build().await.unwrap();
    let done = AtomicUsize::new(0);
    let work = async |at: usize| {
        for cycle in 0..100 {
            // One name that all want, and names that one has to itself.
            let name = format!("{}", if cycle % 2 == 0 { 0 } else { at });
            let guard = one.mutex(name).lock().await.unwrap();
            guard.ensure_held().unwrap();
            guard.release().await.unwrap();
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let breaking = async {
        for _ in 0..6 {
            // Not while one is being made: that would be a server out of reach.
            let before = done.load(Ordering::Relaxed);
            let goes_on = || done.load(Ordering::Relaxed) > before + 20;
            eventually("work that goes on", goes_on).await;
            proxy.disconnect();
        }
    };
    tokio::join!(join_all((1..=8).map(work)), breaking);

    // One that waits is called over the connection that comes after.
    let guard = one.mutex("job").lock().await.unwrap();
    let job = other.mutex("job");
    let waiting = tokio::spawn(async move { job.lock().await });
    eventually("a place in the queue", || server.queue("job").len() == 1).await;
    proxy.disconnect();
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();

    // One that says nothing any more is given up, and made anew when it can be.
    let hasty = build(builder()).await;
    proxy.mute();
    no_quorum(hasty.mutex("job").try_lock().await);
    proxy.heal();
    eventually_locked(&hasty).await.release().await.unwrap();
    for latch in [&one, &other, &hasty] {
        closes_empty(latch, std::slice::from_ref(&*server)).await;
    }
}

#[tokio::test]
async fn a_certificate_that_is_none_is_a_clear_error() {
    let builder = Redlatch::builder().nodes(["rediss://127.0.0.1:1"]);
    let builder = builder.client_certificate("nonsense", "nonsense");
    let Err(Error::Config(error)) = builder.build().await else {
        panic!("not refused")
    };
    assert!(matches!(*error, ConfigError::Address { .. }), "{error}");
}

#[tokio::test]
async fn over_a_connection_that_the_user_brought() {
    let server = RedisServer::start();
    let redis = redis::Client::open(server.url()).unwrap();
    let connection = redis.get_multiplexed_async_connection().await.unwrap();
    let builder = Redlatch::builder().connection("mine", connection.clone());
    let latch = build(builder).await;
    lock_and_release(&latch).await;
    assert_eq!(format!("{latch:?}"), r#"Redlatch { nodes: ["mine"] }"#);

    // The same server by another way counts as the same.
    let builder = Redlatch::builder().connection("mine", connection);
    let error = builder.nodes([server.url()]).build().await.unwrap_err();
    assert!(error.is_config(), "{error}");
}

#[tokio::test]
async fn plain_set_nx_of_another_client_and_our_lock_exclude_each_other() {
    let server = RedisServer::start();
    let builder = Redlatch::builder().nodes([server.url()]);
    let latch = build(builder.key_scheme(KeyScheme::Raw)).await;
    let set = || server.command(&["SET", "lock1", "request-1", "NX", "PX", "60000"]);

    let guard = latch.mutex("lock1").lock().await.unwrap();
    assert!(set().is_nil(), "ours keeps the other out");
    guard.release().await.unwrap();
    assert_eq!(set().as_text(), "OK");
    assert!(latch.mutex("lock1").try_lock().await.unwrap().is_none());
    let held = latch.inspect("lock1").await.unwrap().unwrap();
    assert_eq!(held.holder.value.as_deref(), Some(&b"request-1"[..]));

    // The way the seeds unlock: compare and delete in one script.
    let unlock = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                  return redis.call('del', KEYS[1]) else return 0 end";
    let unlocked = server.command(&["EVAL", unlock, "1", "lock1", "request-1"]);
    assert_eq!(unlocked.as_int(), 1);
    let guard = latch.mutex("lock1").lock().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_yii2_mutex_is_met_on_its_own_key() {
    let server = RedisServer::start();
    let builder = Redlatch::builder().nodes([server.url()]);
    let latch = build(builder.key_scheme(KeyScheme::yii2("a1b2c"))).await;
    let guard = latch.mutex("stock").lock().await.unwrap();
    // keyPrefix . md5(json_encode(["yii\redis\Mutex", "stock"])), by PHP.
    assert_eq!(server.locks(), ["a1b2cbd5f101102a14d28f0bdad68adca4bc2"]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn two_clients_with_different_prefixes_do_not_meet() {
    let server = RedisServer::start();
    let one = client(&server).await;
    let builder = Redlatch::builder().nodes([server.url()]);
    let other = build(builder.prefix("app2:")).await;
    let _one = one.mutex("job").lock().await.unwrap();
    let _other = other.mutex("job").try_lock().await.unwrap().unwrap();
    assert_eq!(server.locks(), ["app2:job", "redlatch:job"]);
}
