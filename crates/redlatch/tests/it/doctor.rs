//! What is found of nodes that are well, and of those that are not.

use std::time::Duration;

use redlatch::{Builder, Finding, MemoryNode, Redlatch, Verdict};
use redlatch_testkit::{Fleet, RedisServer, TlsServer};

use crate::support::{LONG, NODE_TIMEOUT, armed, eventually, patient};

async fn examine(builder: Builder) -> Vec<Finding> {
    builder.examine().await.unwrap()
}

/// What was found by this check, on the only node or on all together.
#[track_caller]
fn found<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    let finding = findings.iter().find(|finding| finding.check == check);
    finding.unwrap_or_else(|| panic!("nothing about {check}: {findings:#?}"))
}

#[track_caller]
fn verdict(findings: &[Finding], check: &str, verdict: Verdict) -> String {
    let finding = found(findings, check);
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    let is_told = !matches!(verdict, Verdict::Warning | Verdict::Bad);
    assert!(is_told || !finding.advice.is_empty(), "{finding:?}");
    finding.seen.clone()
}

#[tokio::test]
async fn nodes_that_are_well_are_found_well() {
    let fleet = armed(3);
    let latch = patient(fleet.urls()).build().await.unwrap();
    let _guard = latch.mutex("job").lock().await.unwrap();
    let findings = examine(patient(fleet.urls())).await;
    for finding in &findings {
        assert_eq!(finding.verdict, Verdict::Good, "{finding:?}");
    }
    for check in [
        "reachable",
        "version",
        "latency",
        "clock",
        "eviction",
        "persistence",
        "replicas",
        "wake-ups",
        "rights",
        "distinct",
        "guard",
    ] {
        let nodes = findings.iter().filter(|finding| finding.check == check);
        let nodes = nodes.filter(|finding| !finding.node.is_empty()).count();
        assert_eq!(nodes, 3, "{check}");
    }
    assert!(found(&findings, "keys").seen.starts_with("locks held: 1,"));
    // It leaves nothing behind.
    for server in fleet.iter() {
        let mut keys = server.keys();
        keys.sort();
        assert_eq!(keys, ["redlatch:__fence", "redlatch:job"]);
    }
}

#[tokio::test]
async fn nodes_that_are_new_are_told_apart_from_those_in_quarantine() {
    let fleet = Fleet::start(3);
    let findings = examine(patient(fleet.urls())).await;
    assert!(verdict(&findings, "guard", Verdict::Warning).starts_with("new"));
    let latch = patient(fleet.urls()).build().await.unwrap();
    assert!(latch.mutex("job").try_lock().await.is_err());
    let findings = examine(patient(fleet.urls())).await;
    assert!(verdict(&findings, "guard", Verdict::Warning).starts_with("in quarantine"));
    let other = patient(fleet.urls()).deployment("other");
    let seen = verdict(&examine(other).await, "guard", Verdict::Bad);
    assert_eq!(
        seen,
        "it belongs to default/3/60000, and not to other/3/60000"
    );
}

#[tokio::test]
async fn encryption_is_seen_and_a_certificate_that_is_not_trusted_is_told() {
    let server = TlsServer::start();
    let builder = || patient([server.url()]);
    let findings = examine(builder().root_certificate(server.ca_pem())).await;
    assert_eq!(verdict(&findings, "encryption", Verdict::Good), "TLS");
    verdict(&findings, "rights", Verdict::Good);
    let seen = verdict(&examine(builder()).await, "reachable", Verdict::Bad);
    assert!(seen.to_lowercase().contains("certificate"), "{seen}");
}

#[tokio::test]
async fn servers_that_are_unfit_are_examined_all_the_same() {
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = RedisServer::with_args(&evicting);
    let builder = || patient([server.url()]);
    assert!(builder().build().await.is_err());
    let findings = examine(builder()).await;
    verdict(&findings, "reachable", Verdict::Good);
    let seen = verdict(&findings, "eviction", Verdict::Bad);
    assert!(seen.contains("allkeys-lru"), "{seen}");

    let master = RedisServer::start();
    let port = master.port().to_string();
    server.command(&["REPLICAOF", "127.0.0.1", &port]);
    verdict(&examine(builder()).await, "replicas", Verdict::Bad);
    eventually("the replica", || master.info("connected_slaves") == "1").await;
    verdict(
        &examine(patient([master.url()])).await,
        "replicas",
        Verdict::Warning,
    );
}

#[tokio::test]
async fn a_server_that_is_down_or_shut_is_told_as_that() {
    let fleet = armed(3);
    fleet[0].kill();
    let findings = examine(patient(fleet.urls())).await;
    verdict(&findings, "reachable", Verdict::Bad);
    let node = &found(&findings, "reachable").node;
    let said = findings.iter().filter(|finding| finding.node == *node);
    assert_eq!(said.count(), 1, "once is enough: {findings:#?}");
    let reachable = findings
        .iter()
        .filter(|finding| finding.check == "reachable");
    assert_eq!(
        reachable
            .filter(|finding| finding.verdict == Verdict::Good)
            .count(),
        2
    );

    let server = RedisServer::with_args(&["--requirepass", "secret"]);
    let seen = verdict(
        &examine(patient([server.url()])).await,
        "reachable",
        Verdict::Bad,
    );
    assert!(seen.contains("password"), "{seen}");
}

#[tokio::test]
async fn the_same_server_by_two_names_is_found() {
    let server = RedisServer::start();
    let findings = examine(patient([server.url(), server.unix_url()])).await;
    let verdicts = findings
        .iter()
        .filter(|finding| finding.check == "distinct");
    let verdicts: Vec<Verdict> = verdicts.map(|finding| finding.verdict).collect();
    assert_eq!(verdicts, [Verdict::Good, Verdict::Bad]);
}

#[tokio::test]
async fn each_right_that_is_missing_is_named() {
    let server = RedisServer::start();
    let rights = [
        "+client|tracking",
        "+client|caching",
        "+subscribe",
        "+publish",
        "+eval",
        "+evalsha",
        "+set",
        "+get",
        "+del",
        "+zadd",
        "+zrange",
        "+zscore",
        "+zrem",
        "+pttl",
        "+pexpire",
        "+hget",
        "+hset",
        "+hmget",
        "+mget",
        "+exists",
        "+time",
        "+info",
        "+scan",
    ];
    const CHANNELS: &str = "&redlatch:__call:*";
    for missing in rights.iter().chain(&["~redlatch:*", CHANNELS, ""]) {
        server.command(&["ACL", "DELUSER", "locker"]);
        let mut grant = vec!["ACL", "SETUSER", "locker", "on", ">secret", "-@all"];
        grant.extend(rights.iter().filter(|right| right != &missing));
        grant.push(if missing == &CHANNELS {
            "resetchannels"
        } else {
            CHANNELS
        });
        grant.push(if missing == &"~redlatch:*" {
            "~other:*"
        } else {
            "~redlatch:*"
        });
        assert!(!server.command(&grant).is_error());
        let url = format!("redis://locker:secret@127.0.0.1:{}", server.port());
        let findings = examine(patient([url]).restart_guard(true)).await;
        let lacks = findings.iter().filter(|finding| finding.check == "rights");
        let lacks: Vec<&str> = lacks.map(|finding| &*finding.seen).collect();
        match *missing {
            "" => assert_eq!(lacks, ["all that are needed"]),
            // Then it can't be tried whether it may be written.
            "+set" => assert_eq!(lacks, ["+set is missing"]),
            missing => assert_eq!(lacks, [format!("{missing} is missing")]),
        }
        let leftover = |key: &String| key.contains("__doctor");
        let is_clean = || !server.keys().iter().any(leftover);
        crate::support::eventually("it is gone", is_clean).await;
        let needless = [
            "+client|tracking",
            "+client|caching",
            "+subscribe",
            "+publish",
            "+mget",
            "+exists",
            "+scan",
            CHANNELS,
            "",
        ];
        let warned = needless.contains(missing);
        let worst = findings.iter().filter(|finding| finding.check == "rights");
        let worst = worst.map(|finding| finding.verdict).max().unwrap();
        assert_eq!(worst == Verdict::Bad, !warned, "{missing}: {worst}");
    }
}

#[tokio::test]
async fn a_single_server_that_may_forget_is_warned_of() {
    let server = RedisServer::start();
    let findings = examine(patient([server.url()])).await;
    verdict(&findings, "persistence", Verdict::Warning);
    assert_eq!(verdict(&findings, "guard", Verdict::Good), "off");
    let args = ["--appendonly", "yes", "--appendfsync", "always"];
    let server = RedisServer::with_args(&args);
    verdict(
        &examine(patient([server.url()])).await,
        "persistence",
        Verdict::Good,
    );
    server.command(&["CONFIG", "SET", "appendfsync", "everysec"]);
    verdict(
        &examine(patient([server.url()])).await,
        "persistence",
        Verdict::Warning,
    );
}

#[tokio::test]
async fn a_slow_server_is_warned_of() {
    let server = RedisServer::start();
    let proxy = server.proxy();
    proxy.delay(Duration::from_millis(40));
    let slow = |timeout| {
        let builder = Redlatch::builder().nodes([proxy.url()]).ttl(LONG);
        examine(builder.node_timeout(timeout))
    };
    verdict(
        &slow(Duration::from_millis(30)).await,
        "latency",
        Verdict::Bad,
    );
    verdict(&slow(NODE_TIMEOUT).await, "latency", Verdict::Good);
}

#[tokio::test]
async fn keys_that_never_expire_are_named() {
    let server = RedisServer::start();
    server.command(&["SET", "redlatch:stuck", "somebody"]);
    server.command(&["SET", "other", "somebody"]);
    let findings = examine(patient([server.url()])).await;
    let seen = verdict(&findings, "keys", Verdict::Warning);
    assert_eq!(seen, "1 of 1 never expire: stuck");
}

#[tokio::test]
async fn nodes_in_memory_and_in_a_file_are_examined_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    let findings = examine(patient([&url])).await;
    verdict(&findings, "reachable", Verdict::Good);
    for finding in &findings {
        assert_eq!(finding.verdict, Verdict::Good, "{finding:?}");
    }
    let findings = examine(Redlatch::builder().node(MemoryNode::new())).await;
    assert!(
        findings
            .iter()
            .all(|finding| finding.verdict < Verdict::Warning),
        "{findings:#?}"
    );
    let path = path.with_extension("other");
    let url = format!("sqlite:{}", path.display());
    std::fs::write(&path, "this is no database, and long enough to see that").unwrap();
    let seen = verdict(&examine(patient([&url])).await, "reachable", Verdict::Bad);
    assert!(seen.contains("damaged"), "{seen}");
}
