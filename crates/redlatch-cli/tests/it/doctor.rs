//! `init` and `doctor`: whether nodes are ready, and well.

use redlatch_testkit::{Fleet, RedisServer};

use crate::support::{redlatch, text};

fn command(servers: &[RedisServer], args: &[&str]) -> (String, String, i32) {
    let output = redlatch(servers).args(args).output().unwrap();
    let code = output.status.code().unwrap();
    (text(&output.stdout), text(&output.stderr), code)
}

#[test]
fn new_nodes_are_armed_and_then_all_is_well() {
    let fleet = Fleet::start(3);
    let (table, errors, code) = command(&fleet, &["doctor"]);
    assert_eq!(code, 1, "{table}");
    assert!(table.contains("guard        warning  new"), "{table}");
    assert!(errors.contains("3 of"), "{errors}");
    let (said, _, code) = command(&fleet, &["init"]);
    assert_eq!(code, 0);
    assert_eq!(
        said.matches("armed, deployment default/3/60000").count(),
        3,
        "{said}"
    );
    let (table, errors, code) = command(&fleet, &["doctor"]);
    assert_eq!(code, 0, "{table}");
    assert!(errors.contains("all is well"), "{errors}");
    // Once more does no harm.
    assert_eq!(command(&fleet, &["init"]).2, 0);
    assert_eq!(command(&fleet, &["run", "-n", "job", "--", "true"]).2, 0);
}

#[test]
fn a_node_that_is_new_beside_others_is_not_armed_unasked() {
    let fleet = Fleet::start(3);
    assert_eq!(command(&fleet, &["init"]).2, 0);
    fleet[1].restart_empty();
    let (_, errors, code) = command(&fleet, &["init"]);
    assert_eq!(code, 69);
    assert!(errors.contains("1 of 3 nodes are new"), "{errors}");
    assert!(errors.contains("--assume-fresh"), "{errors}");
    assert_eq!(command(&fleet, &["doctor"]).2, 1);
    let (said, _, code) = command(&fleet, &["init", "--assume-fresh", "--json"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(said.matches(r#""armed":true"#).count(), 3, "{said}");
}

#[test]
fn a_deployment_is_changed_only_with_a_yes() {
    let fleet = Fleet::start(3);
    assert_eq!(command(&fleet, &["init"]).2, 0);
    let (_, errors, code) = command(&fleet, &["init", "--reconfigure"]);
    assert_eq!(code, 64, "{errors}");
    let (said, _, code) = command(&fleet, &["init", "--reconfigure", "--yes"]);
    assert_eq!(code, 0);
    assert_eq!(said.matches("in quarantine").count(), 3, "{said}");
    // One node has no guard unless asked for, and so nothing to arm.
    let (_, errors, code) = command(&fleet[..1], &["init"]);
    assert_eq!(code, 64);
    assert!(errors.contains("restart guard is off"), "{errors}");
}

#[test]
fn what_is_not_well_is_told_with_what_to_do() {
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = RedisServer::with_args(&evicting);
    let servers = std::slice::from_ref(&server);
    let (table, _, code) = command(servers, &["doctor"]);
    assert_eq!(code, 1);
    let line = table
        .lines()
        .find(|line| line.contains("eviction"))
        .unwrap();
    assert!(
        line.contains("bad") && line.contains("noeviction"),
        "{line}"
    );
    let (lines, _, code) = command(servers, &["doctor", "--json"]);
    assert_eq!(code, 1);
    let objects = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let objects: Vec<serde_json::Value> = objects.collect();
    let eviction = objects
        .iter()
        .find(|object| object["check"] == "eviction")
        .unwrap();
    assert_eq!(eviction["verdict"], "bad");
    assert!(eviction["advice"].as_str().unwrap().contains("noeviction"));
    server.kill();
    let (table, _, code) = command(servers, &["doctor"]);
    assert_eq!(code, 1);
    assert!(table.contains("reachable  bad"), "{table}");
}
