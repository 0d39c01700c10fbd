//! Only the token's owner releases, and what a stranger holds is held.

use std::time::Duration;

use redlatch::{Error, Exported, Loss};
use redlatch_testkit::RedisServer;

use crate::support::{KEY, LONG, are_empty, armed, closes_empty, eventually, is_held_by, patient};

#[tokio::test]
async fn nobody_releases_the_lock_of_another() {
    for nodes in [1, 5] {
        let fleet = armed(nodes);
        let latch = patient(fleet.urls()).build().await.unwrap();
        let guard = latch.mutex("job").lock().await.unwrap();
        eventually("the key on all nodes", || is_held_by(&fleet, &guard)).await;

        let other = patient(fleet.urls()).build().await.unwrap();
        assert!(other.mutex("job").try_lock().await.unwrap().is_none());
        drop(other.mutex("job-2").lock().await.unwrap());
        other.close().await;
        assert!(is_held_by(&fleet, &guard));
        guard.release().await.unwrap();
        closes_empty(&latch, &fleet).await;
    }
}

#[tokio::test]
async fn a_token_that_is_not_the_holders_is_not_adopted() {
    for nodes in [1, 5] {
        let fleet = armed(nodes);
        let latch = patient(fleet.urls()).build().await.unwrap();
        let guard = latch.mutex("job").lock().await.unwrap();
        eventually("the key on all nodes", || is_held_by(&fleet, &guard)).await;

        let other = patient(fleet.urls()).build().await.unwrap();
        let real = guard.export().token().to_owned();
        let id = real.split(' ').next().unwrap().to_owned();
        let made_up = ["0123456789abcdefghijklmnopq", &id, &format!("{real} ")];
        for token in made_up {
            let Ok(exported) = Exported::new(token, 1) else {
                continue;
            };
            let error = other.mutex("job").adopt(exported).await.unwrap_err();
            assert!(error.is_lost(), "{error}");
        }
        other.close().await;
        assert!(is_held_by(&fleet, &guard));
        guard.ensure_held().unwrap();

        let exported = Exported::new(&real, 1).unwrap();
        let other = patient(fleet.urls()).build().await.unwrap();
        let adopted = other.mutex("job").adopt(exported).await.unwrap();
        adopted.release().await.unwrap();
        other.close().await;
        assert!(fleet.iter().all(|server| server.locks().is_empty()));
    }
}

#[tokio::test]
async fn a_late_release_does_not_free_the_next_holders_lock() {
    for nodes in [1, 5] {
        let fleet = armed(nodes);
        for release in [true, false] {
            let builder = patient(fleet.urls()).node_timeout(Duration::from_millis(200));
            let late = builder.build().await.unwrap();
            let job = late.mutex("job").ttl(Duration::from_millis(400));
            let guard = job.renewal(false).lock().await.unwrap();
            let expired = || fleet.iter().all(|server| server.get(KEY).is_none());
            eventually("its end", expired).await;

            let latch = patient(fleet.urls()).build().await.unwrap();
            let next = latch.mutex("job").lock().await.unwrap();
            eventually("the key on all nodes", || is_held_by(&fleet, &next)).await;
            match release {
                true => {
                    let Err(Error::Lost(lost)) = guard.release().await else {
                        panic!("it was lost")
                    };
                    assert_eq!(lost.loss, Loss::Expired);
                }
                false => drop(guard),
            }
            late.close().await;
            assert!(is_held_by(&fleet, &next));
            next.release().await.unwrap();
            closes_empty(&latch, &fleet).await;
        }
    }
}

#[tokio::test]
async fn a_release_after_the_key_was_taken_away_says_so() {
    for nodes in [1, 5] {
        let fleet = armed(nodes);
        for release in [true, false] {
            let robbed = patient(fleet.urls()).build().await.unwrap();
            let guard = robbed.mutex("job").lock().await.unwrap();
            eventually("the key on all nodes", || is_held_by(&fleet, &guard)).await;
            for server in fleet.iter() {
                server.command(&["DEL", KEY]);
            }
            let latch = patient(fleet.urls()).build().await.unwrap();
            let next = latch.mutex("job").lock().await.unwrap();
            eventually("the key on all nodes", || is_held_by(&fleet, &next)).await;
            match release {
                true => {
                    let Err(Error::Lost(lost)) = guard.release().await else {
                        panic!("it was lost")
                    };
                    assert_eq!(lost.loss, Loss::Taken);
                }
                false => drop(guard),
            }
            robbed.close().await;
            assert!(is_held_by(&fleet, &next));
            next.release().await.unwrap();
            closes_empty(&latch, &fleet).await;
        }
    }
}

/// How a stranger holds the lock: the command, and the value when it is a string.
const STRANGERS: [(&[&str], Option<&str>); 7] = [
    (&["LPUSH", KEY, "x"], None),
    (&["SADD", KEY, "x"], None),
    (&["HSET", KEY, "field", "x"], None),
    (&["XADD", KEY, "*", "field", "x"], None),
    (&["SET", KEY, "x"], Some("x")),
    (&["SET", KEY, ""], Some("")),
    (
        &["SET", KEY, "{\"not\":1} \u{7}", "PX", "60000"],
        Some("{\"not\":1} \u{7}"),
    ),
];

fn dump(server: &RedisServer) -> (String, i64) {
    let kind = server.command(&["TYPE", KEY]).as_text().to_owned();
    (kind, server.pttl(KEY).signum())
}

#[tokio::test]
async fn a_stranger_holds_the_lock_with_any_type_and_any_value() {
    let fleet = armed(3);
    let latch = patient(fleet.urls()).build().await.unwrap();
    let job = latch.mutex("job");
    for (command, value) in STRANGERS {
        for server in fleet.iter() {
            assert!(!server.command(command).is_error());
        }
        let before: Vec<_> = fleet.iter().map(dump).collect();
        assert!(job.try_lock().await.unwrap().is_none(), "{command:?}");
        let Err(Error::Timeout(timeout)) = job.lock_timeout(Duration::from_millis(50)).await else {
            panic!("{command:?} holds it")
        };
        let holder = timeout.holder.as_ref().expect("somebody holds it");
        assert_eq!(holder.value.as_deref(), value.map(str::as_bytes));
        let expires = command.contains(&"PX");
        assert_eq!(holder.remaining.is_some(), expires);
        assert_eq!(timeout.to_string().contains("never expires"), !expires);
        let exported = Exported::new("0123456789abcdefghijklmnopq", 1).unwrap();
        assert!(job.adopt(exported).await.unwrap_err().is_lost());
        assert_eq!(fleet.iter().map(dump).collect::<Vec<_>>(), before);
        if let Some(value) = value {
            let is_same = |server: &RedisServer| server.get(KEY).unwrap() == value.as_bytes();
            assert!(fleet.iter().all(is_same));
        }

        let job = job.clone();
        let is_waited_for = || !fleet[0].queue("job").is_empty();
        eventually("nobody waits any more", || !is_waited_for()).await;
        let waiting = tokio::spawn(async move { job.lock().await });
        eventually("somebody waits", is_waited_for).await;
        assert!(!waiting.is_finished());
        for server in fleet.iter() {
            assert_eq!(server.command(&["DEL", KEY]).as_int(), 1);
        }
        let guard = waiting.await.unwrap().unwrap();
        assert!(guard.remaining() < LONG);
        guard.release().await.unwrap();
        eventually("no key", || are_empty(&fleet)).await;
    }
}

#[tokio::test]
async fn a_holder_whose_key_became_a_strangers_hears_of_it() {
    let server = RedisServer::start();
    let latch = patient([server.url()]).build().await.unwrap();
    let guard = latch.mutex("job").lock().await.unwrap();
    server.command(&["DEL", KEY]);
    server.command(&["LPUSH", KEY, "x"]);
    assert!(guard.renew(LONG).await.unwrap_err().is_lost());
    assert_eq!(guard.lost().await.loss, Loss::Taken);
    assert!(guard.release().await.unwrap_err().is_lost());
    latch.close().await;
    assert_eq!(server.command(&["LLEN", KEY]).as_int(), 1);
}
