//! `run`: lock, work, unlock, and stop the work when the lock is lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redlatch::{Loss, RunError};
use redlatch_testkit::RedisServer;

use crate::support::{client, eventually};

#[tokio::test]
async fn the_body_holds_the_lock_and_its_value_is_returned() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let job = latch.mutex("job");
    let value = job
        .run(|lease| {
            let held = server.get("redlatch:job").unwrap() == lease.token().as_str().as_bytes();
            async move { Ok::<_, std::io::Error>(held) }
        })
        .await;
    assert!(value.unwrap());
    assert!(server.locks().is_empty());
}

#[tokio::test]
async fn the_bodys_own_error_is_never_masked() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let result = latch
        .mutex("job")
        .run(|_| async {
            server.command(&["DEL", "redlatch:job"]); // the release will find it gone
            Err::<(), _>(std::io::Error::other("mine"))
        })
        .await;
    let Err(RunError::Body(error)) = result else {
        panic!("{result:?}")
    };
    assert_eq!(error.to_string(), "mine");
}

#[tokio::test]
async fn the_body_is_dropped_when_the_lock_is_lost() {
    struct Dropped<'a>(&'a AtomicBool);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let server = RedisServer::start();
    let latch = client(&server).await;
    let dropped = AtomicBool::new(false);
    let result = latch
        .mutex("job")
        .ttl(Duration::from_millis(900))
        .run(|_| {
            let witness = Dropped(&dropped);
            server.command(&["DEL", "redlatch:job"]);
            async move {
                let _witness = witness;
                std::future::pending::<Result<(), std::io::Error>>().await
            }
        })
        .await;
    let Err(RunError::Lost { lost, completed }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(lost.loss, Loss::Taken);
    assert!(!completed);
    assert!(dropped.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_body_that_ended_after_the_lock_was_taken_away_is_told() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let result = latch
        .mutex("job")
        .run(|_| async {
            server.command(&["DEL", "redlatch:job"]);
            Ok::<_, std::io::Error>(())
        })
        .await;
    let completed = matches!(
        result,
        Err(RunError::Lost {
            completed: true,
            ..
        })
    );
    assert!(completed, "{result:?}");
}

#[tokio::test]
async fn a_lock_that_is_not_acquired_runs_nothing() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let ran = AtomicBool::new(false);
    let result = latch
        .mutex("")
        .run(|_| async {
            ran.store(true, Ordering::Relaxed);
            Ok::<_, std::io::Error>(())
        })
        .await;
    assert!(matches!(result, Err(RunError::Lock(_))), "{result:?}");
    assert!(!ran.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_cancelled_run_drops_the_body_and_frees_the_lock() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    let job = latch.mutex("job");
    let run = job.run(|_| std::future::pending::<Result<(), std::io::Error>>());
    let cut = tokio::time::timeout(Duration::from_millis(100), run).await;
    assert!(cut.is_err());
    eventually("the lock is free", || server.locks().is_empty()).await;
}
