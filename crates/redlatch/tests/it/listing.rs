//! Lists of locks, over nodes of all kinds.

use std::time::Duration;

use redlatch::node::Pattern;
use redlatch::{Listing, MemoryNode, Progress, Redlatch};
use redlatch_testkit::RedisServer;

use crate::support::{LONG, armed, client, no_quorum, patient};

fn names(listing: &Listing) -> Vec<&str> {
    listing.locks.iter().map(|lock| &*lock.name).collect()
}

#[tokio::test]
async fn locks_are_listed_by_name_with_who_holds_them() {
    let fleet = armed(3);
    let latch = patient(fleet.urls()).build().await.unwrap();
    let second = latch.mutex("b").note("nightly").lock().await.unwrap();
    let first = latch.mutex("a:1").lock().await.unwrap();
    let gone = latch.mutex("gone").lock().await.unwrap();
    gone.release().await.unwrap();
    // Strangers, on one node: a string, another type, and a key beside ours.
    let node = &fleet[0];
    node.command(&["SET", "redlatch:c", "somebody else"]);
    node.command(&["RPUSH", "redlatch:d", "x"]);
    node.command(&["SET", "other", "x"]);
    let bytes: [&[u8]; 3] = [b"SET", b"redlatch:\xff", b"no text"];
    node.command(&bytes);

    let listing = latch.locks("*").await.unwrap();
    assert_eq!(names(&listing), ["a:1", "b", "c", "d"]);
    assert!(listing.failures.is_empty());
    let [a, b, c, d] = &listing.locks[..] else {
        panic!("there are four");
    };
    assert_eq!(a.key.as_str(), "redlatch:a:1");
    assert_eq!((a.inspection.on_nodes, a.inspection.nodes), (3, 3));
    assert_eq!(a.inspection.fence(), Some(first.fence()));
    assert_eq!(a.inspection.owner().pid, Some(std::process::id()));
    let left = b.inspection.remaining().unwrap();
    assert!(left <= LONG && left > LONG / 2, "{left:?}");
    assert_eq!(b.inspection.owner().note.as_deref(), Some("nightly"));
    assert_eq!((c.inspection.on_nodes, c.inspection.remaining()), (1, None));
    assert!(!c.inspection.has_quorum());
    let stranger = c.inspection.holder.value.as_deref();
    assert_eq!(stranger, Some(&b"somebody else"[..]));
    assert_eq!(d.inspection.holder.value, None);

    assert_eq!(names(&latch.locks("a*").await.unwrap()), ["a:1"]);
    assert_eq!(names(&latch.locks("[bc]").await.unwrap()), ["b", "c"]);
    assert!(names(&latch.locks("nothing").await.unwrap()).is_empty());
    drop((first, second));
}

#[tokio::test]
async fn a_node_that_is_down_is_named_and_too_many_are_an_error() {
    let fleet = armed(3);
    let latch = patient(fleet.urls()).build().await.unwrap();
    let _guard = latch.mutex("job").lock().await.unwrap();
    fleet[1].kill();
    let listing = latch.locks("*").await.unwrap();
    assert_eq!(names(&listing), ["job"]);
    assert_eq!(listing.locks[0].inspection.on_nodes, 2);
    let (node, _) = &listing.failures[0];
    assert!(node.ends_with(&fleet[1].port().to_string()), "{node}");
    fleet[2].kill();
    let error = no_quorum(latch.locks("*").await);
    assert_eq!(error.failures.len(), 2);
}

#[tokio::test]
async fn keys_of_others_hold_up_neither_the_list_nor_the_server() {
    let server = RedisServer::with_args(&["--enable-debug-command", "local"]);
    server.command(&["DEBUG", "POPULATE", "300000", "redlatch"]);
    server.command(&["DEBUG", "POPULATE", "300000", "other"]);
    let latch = client(&server).await;
    let _guard = latch.mutex("needle").lock().await.unwrap();
    let mut seen: Vec<Progress> = Vec::new();
    let listing = latch
        .locks_with_progress("need*", |progress| seen.push(progress))
        .await
        .unwrap();
    assert_eq!(names(&listing), ["needle"]);
    assert!(
        seen.len() >= 300,
        "in steps that hold nobody up: {}",
        seen.len()
    );
    assert!(seen.is_sorted_by_key(|progress| progress.looked_at));
    let last = seen.last().unwrap();
    assert_eq!((Some(last.looked_at), last.found), (last.total, 1));
    assert!(last.total.unwrap() > 600_000);
    assert_eq!(server.calls("keys"), 0);
    // Only what was found is asked about.
    let inspected = server.calls("eval") + server.calls("evalsha");
    assert!(inspected < 10, "{inspected}");
}

#[tokio::test]
async fn thousands_of_locks_are_all_listed() {
    let server = RedisServer::start();
    let latch = client(&server).await;
    for number in 0..3000 {
        server.command(&["SET", &format!("redlatch:job {number:04}"), "somebody"]);
    }
    let listing = latch.locks("job *").await.unwrap();
    assert_eq!(listing.locks.len(), 3000);
    assert!(listing.locks.is_sorted_by_key(|lock| lock.name.clone()));
}

#[tokio::test]
async fn a_prefix_with_signs_in_it_is_taken_literally() {
    let server = RedisServer::start();
    let builder = Redlatch::builder().nodes([server.url()]);
    let latch = builder.prefix("{a}[b]*:").build().await.unwrap();
    let _guard = latch.mutex("job").lock().await.unwrap();
    server.command(&["SET", "{a}b-and-more:job2", "somebody"]);
    assert_eq!(names(&latch.locks("*").await.unwrap()), ["job"]);
}

#[tokio::test]
async fn nodes_in_memory_and_in_a_file_list_as_redis_does() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("locks.db").display());
    let file = patient([url])
        .node_timeout(Duration::from_secs(1))
        .build()
        .await
        .unwrap();
    let memory = Redlatch::builder()
        .node(MemoryNode::new())
        .build()
        .await
        .unwrap();
    for latch in [file, memory] {
        let mut guards = Vec::new();
        for number in 0..2500 {
            let mutex = latch.mutex(format!("{number:04}")).fencing(false);
            guards.push(mutex.lock().await.unwrap());
        }
        let brief = latch
            .mutex("x")
            .ttl(Duration::from_millis(1100))
            .renewal(false);
        let _ = brief.lock().await.unwrap().detach();
        tokio::time::sleep(Duration::from_millis(1150)).await;
        let mut pages = 0;
        let listing = latch
            .locks_with_progress("*", |_| pages += 1)
            .await
            .unwrap();
        assert_eq!(listing.locks.len(), 2500);
        assert_eq!(pages, 3);
        assert_eq!(names(&latch.locks("1?00").await.unwrap()).len(), 10);
        for guard in guards {
            guard.release().await.unwrap();
        }
        assert!(names(&latch.locks("*").await.unwrap()).is_empty());
    }
}

#[tokio::test]
async fn patterns_mean_what_they_mean_to_redis() {
    let server = RedisServer::start();
    let texts = [
        "", "a", "b", "ab", "a-b", "a]b", "[", "]", "^", "\\", "*", "?", "-", "aab", "é",
    ];
    for text in texts {
        server.command(&["SET", &format!("p{text}"), "x"]);
    }
    let globs = [
        "*", "?", "??", "a*", "*b", "a*b", "[ab]", "[^ab]", "[a-c]*", "[c-a]", "[a", "[", "[]",
        "[^]", "[]]", "\\", "\\*", "\\a", "[\\]]", "[a-", "[-a]", "[^-]", "**", "*?*", "a\\",
        "[\\", "[a\\", "a[", "é", "??*",
    ];
    for glob in globs {
        let pattern = Pattern::new("p", glob);
        let reply = server.command(&["KEYS", &pattern.as_glob()]);
        let mut theirs: Vec<String> = reply
            .as_array()
            .iter()
            .map(|key| key.as_text().to_owned())
            .collect();
        theirs.sort();
        let ours = texts.map(|text| format!("p{text}"));
        let mut ours: Vec<String> = ours
            .into_iter()
            .filter(|key| pattern.matches(key))
            .collect();
        ours.sort();
        assert_eq!(ours, theirs, "{glob}");
    }
}
