//! `elect`: a command for each term of a leader.

use redlatch_testkit::RedisServer;
use rustix::process::Signal;

use crate::support::{KEY, Running, redlatch};

const LEADER: &str = "trap 'exit 9' USR1; echo $REDLATCH_TERM; while :; do sleep 0.01; done";

fn elect(server: &RedisServer) -> Running {
    let mut command = redlatch(std::slice::from_ref(server));
    command.args(["elect", "job", "--ttl", "1500ms", "--", "sh", "-c", LEADER]);
    Running::start(&mut command)
}

#[test]
fn each_term_has_a_higher_number() {
    let server = RedisServer::start();
    let mut leader = elect(&server);
    let first: u64 = leader.stdout.next().parse().unwrap();
    server.command(&["DEL", KEY]);
    let second: u64 = leader.stdout.next().parse().unwrap();
    assert!(second > first);
    leader.signal(Signal::USR1);
    assert_eq!(leader.code(), 9, "the command ended by itself");
    assert_eq!(server.locks(), [""; 0]);
}

#[test]
fn another_leads_when_the_leader_is_gone() {
    let server = RedisServer::start();
    let leader = elect(&server);
    let first: u64 = leader.stdout.next().parse().unwrap();
    let next = elect(&server);
    next.stderr.find("waiting for lock");
    leader.signal(Signal::KILL);
    let second: u64 = next.stdout.next().parse().unwrap();
    assert!(second > first);
}
