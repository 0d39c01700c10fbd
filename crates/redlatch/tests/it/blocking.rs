//! The API for code without async.

use std::time::Duration;

use redlatch::blocking::Redlatch;
use redlatch::{ConfigError, Error};
use redlatch_testkit::RedisServer;

#[test]
fn threads_exclude_each_other_and_leases_are_renewed() {
    let server = RedisServer::start();
    let latch = Redlatch::connect(&server.url()).unwrap();
    let mutex = latch.mutex("job").ttl(Duration::from_millis(400));
    let guard = mutex.lock().unwrap();
    assert!(mutex.try_lock().unwrap().is_none());
    // Three times its ttl: it is renewed while this thread does nothing for it.
    assert!(!guard.wait_lost(Duration::from_millis(1200)).unwrap());
    guard.ensure_held().unwrap();
    let waiter = {
        let mutex = mutex.clone();
        std::thread::spawn(move || {
            mutex
                .lock_timeout(Duration::from_secs(20))
                .unwrap()
                .release()
        })
    };
    guard.release().unwrap();
    waiter.join().unwrap().unwrap();
    assert!(latch.inspect("job").unwrap().is_none());
}

#[test]
fn a_guard_that_outlives_its_client_is_released_when_dropped() {
    let server = RedisServer::start();
    let guard = {
        let latch = Redlatch::connect(&server.url()).unwrap();
        latch.owner("me").mutex("job").lock().unwrap()
    };
    assert_eq!(server.locks(), ["redlatch:job"]);
    drop(guard);
    assert!(server.locks().is_empty());
}

#[test]
fn a_lease_is_renewed_exported_and_adopted() {
    let server = RedisServer::start();
    let latch = Redlatch::connect(&server.url()).unwrap();
    let guard = latch.mutex("job").renewal(false).lock().unwrap();
    guard.renew(Duration::from_secs(60)).unwrap();
    assert!(server.pttl("redlatch:job") > 50_000);
    let adopted = latch.mutex("job").adopt(guard.detach()).unwrap();
    adopted.release().unwrap();
    let guard = latch
        .mutex("job")
        .note("x")
        .max_hold(Duration::from_secs(9));
    let guard = guard.lock().unwrap();
    assert!(latch.force_release("job").unwrap());
    assert!(guard.release().unwrap_err().is_lost());
    latch.close().unwrap();
    assert!(matches!(latch.mutex("job").lock(), Err(Error::Closed)));
}

#[test]
fn run_holds_the_lock_and_does_not_mask_the_bodys_error() {
    let latch = Redlatch::in_memory().unwrap();
    let job = latch.mutex("job");
    let held = job.run(|lease| {
        assert!(latch.mutex("job").try_lock().unwrap().is_none());
        lease.ensure_held()
    });
    held.unwrap();
    let failed = job.run(|_| {
        latch.force_release("job").unwrap();
        Err::<(), _>("mine")
    });
    assert_eq!(failed.unwrap_err().into_body(), Some("mine"));
    let lost = job.run(|_| latch.force_release("job"));
    assert!(lost.unwrap_err().is_lost());
}

#[tokio::test]
async fn in_async_code_it_refuses_instead_of_stopping_the_runtime() {
    let server = RedisServer::start();
    let url = server.url();
    let in_async = |error: Error| match error {
        Error::Config(error) => *error == ConfigError::BlockingInAsync,
        _ => false,
    };
    assert!(in_async(Redlatch::connect(&url).unwrap_err()));
    let made = tokio::task::spawn_blocking(move || {
        std::thread::spawn(move || Redlatch::connect(&url).unwrap()).join()
    });
    let latch = made.await.unwrap().unwrap();
    assert!(in_async(latch.mutex("job").lock().unwrap_err()));
    drop(latch); // must not panic
}
