//! No password and no whole token in a log line, an error or a `Debug` form.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redlatch::Redlatch;
use redlatch_testkit::RedisServer;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

#[tokio::test]
async fn neither_passwords_nor_whole_tokens_are_told() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .finish();
    let _set = tracing::subscriber::set_default(subscriber);

    let server = RedisServer::with_args(&["--requirepass", "hunter2"]);
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}", server.port());
    let mut told = String::new();

    // Wrong, right, and right but out of reach.
    told += &format!("{:?}", Redlatch::builder().nodes([url("hunter2")]));
    let error = Redlatch::connect(&url("swordfish")).await.unwrap_err();
    told += &format!("{error} {error:?}");
    let latch = Redlatch::connect(&url("hunter2")).await.unwrap();
    let mutex = latch.mutex("job").ttl(Duration::from_secs(5));
    let guard = mutex.lock().await.unwrap();
    let token = guard.token().id().to_owned();
    told += &format!("{latch:?} {mutex:?} {guard:?} {:?}", guard.lease());
    told += &format!("{:?} {:?}", guard.export(), latch.owner("me"));
    told += &format!("{:?}", latch.inspect("job").await.unwrap());
    let waited = Duration::from_millis(20);
    let error = mutex.lock_timeout(waited).await.unwrap_err();
    told += &format!("{error} {error:?}");
    server.kill();
    let error = guard.renew(Duration::from_secs(5)).await.unwrap_err();
    told += &format!("{error} {error:?}");
    let error = Redlatch::connect(&url("hunter2")).await.unwrap_err();
    told += &format!("{error} {error:?}");
    drop(guard);

    told += &String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for secret in ["hunter2", "swordfish", &token] {
        assert!(!told.contains(secret), "{secret} in: {told}");
    }
    // The log is not empty: it tells what happened, with the token shortened.
    assert!(told.contains("acquired"), "{told}");
    assert!(told.contains(&token[..6]), "{told}");
    assert!(told.contains("lock=job"), "{told}");
}
