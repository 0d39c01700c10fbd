//! Asks a server all that can be wrong with it.

use std::time::{Duration, Instant, SystemTime};

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisError, Value, cmd};

use super::wire;
use crate::node::{Charter, Facts, NodeError};
use crate::random;

/// How often the time of an answer is measured.
const ROUND_TRIPS: usize = 5;

/// Asks the server. On a connection that nobody else uses `CLIENT TRACKING` is
/// switched on, and off again.
pub(super) async fn examine<C: ConnectionLike>(
    connection: &mut C,
    charter: &Charter,
    is_ours: bool,
) -> Result<Facts, NodeError> {
    let mut facts = Facts::default();
    for _ in 0..ROUND_TRIPS {
        let begin = Instant::now();
        match cmd("PING").query_async::<Value>(connection).await {
            // Refused is answered too; what is refused is told below.
            Err(error) if error.is_unrecoverable_error() || error.code() == Some("NOAUTH") => {
                return Err(wire::node_error(error));
            }
            _ => facts.round_trips.push(begin.elapsed()),
        }
    }
    let asked = SystemTime::now();
    let time = cmd("TIME").query_async::<(u64, u64)>(connection).await;
    if let Ok((seconds, micros)) = time {
        facts.clock_ahead = ahead(asked, SystemTime::now(), seconds, micros);
    }
    if let Ok(info) = cmd("INFO").query_async::<String>(connection).await {
        read_info(&info, &mut facts);
    }
    if facts.is_durable == Some(true) {
        let mut get = cmd("CONFIG");
        get.arg("GET").arg("appendfsync");
        let policy = get.query_async::<(String, String)>(connection).await;
        facts.is_durable = policy.ok().map(|(_, policy)| policy == "always");
    }
    if is_ours {
        let mut tracking = redis::pipe();
        tracking
            .cmd("CLIENT")
            .arg("TRACKING")
            .arg("ON")
            .arg("OPTIN");
        tracking.cmd("CLIENT").arg("CACHING").arg("YES");
        tracking.cmd("CLIENT").arg("TRACKING").arg("OFF");
        let answers = ask(connection, tracking).await?;
        facts.tells = Some(answers.iter().all(Result::is_ok));
    }
    facts.lacks = lacks(connection, charter, is_ours).await?;
    Ok(facts)
}

/// Tries what a client does, on a key of its own that is gone a second later.
/// Nothing when that can't be told, as on a replica.
async fn lacks<C: ConnectionLike>(
    connection: &mut C,
    charter: &Charter,
    is_ours: bool,
) -> Result<Option<Vec<String>>, NodeError> {
    let prefix = &charter.service_prefix;
    let key = format!("{prefix}__doctor:{:016x}", random::number());
    let mut set = cmd("SET");
    set.arg(&key).arg("x").arg("NX").arg("PX").arg(1000);
    let mut lacks = Vec::new();
    match set.query_async::<Value>(connection).await {
        Ok(_) => {}
        Err(error) if is_denied(&error) => {
            // Told apart only by its words: the right to the key, or that to the command.
            match error.detail().is_some_and(|detail| detail.contains("key")) {
                true => lacks.push(format!("~{prefix}*")),
                false => lacks.push("+set".into()),
            }
        }
        Err(error) if error.is_unrecoverable_error() => return Err(wire::node_error(error)),
        Err(_) => return Ok(None),
    }
    let may_touch = !lacks.iter().any(|right| right.starts_with('~'));
    let channel = channel(charter);
    let mut trials = general(is_ours);
    let mut publish = cmd("PUBLISH");
    publish.arg(&channel).arg("");
    trials.push(("+publish", publish));
    if may_touch {
        let guarded = charter.policy.is_some();
        trials.extend(on_key(&key, lacks.is_empty(), guarded, is_ours));
    }
    let mut pipeline = redis::pipe();
    for (_, trial) in &trials {
        pipeline.add_command(trial.clone());
    }
    let answers = ask(connection, pipeline).await?;
    for ((right, _), answer) in trials.iter().zip(answers) {
        if let Err(error) = answer {
            lacks.extend(missing(right, &error, charter));
        }
    }
    Ok(Some(lacks))
}

/// A channel on which nobody is called.
pub(super) fn channel(charter: &Charter) -> String {
    format!("{}__call:doctor", charter.service_prefix)
}

/// The right that is missing, where that is why it failed: this one, or that to
/// the channel. They are told apart only by their words.
pub(super) fn missing(right: &str, error: &RedisError, charter: &Charter) -> Option<String> {
    let is_channel = error
        .detail()
        .is_some_and(|detail| detail.contains("channel"));
    is_denied(error).then(|| match is_channel {
        true => format!("&{}__call:*", charter.service_prefix),
        false => right.to_owned(),
    })
}

/// A right, and a command that needs it and does nothing else: errors of other
/// kinds than a missing right are what is expected of some of them.
type Trial = (&'static str, Cmd);

fn general(is_ours: bool) -> Vec<Trial> {
    let of = |name: &str, args: &[&str]| {
        let mut command = cmd(name);
        command.arg(args);
        command
    };
    let mut trials = vec![
        ("+time", of("TIME", &[])),
        ("+info", of("INFO", &["server"])),
        ("+eval", of("EVAL", &["return 1", "0"])),
        ("+evalsha", of("EVALSHA", &["00", "0"])),
        ("+scan", of("SCAN", &["0", "COUNT", "1"])),
    ];
    if is_ours {
        trials.push(("+client|tracking", of("CLIENT", &["TRACKING", "OFF"])));
        trials.push(("+client|caching", of("CLIENT", &["CACHING", "YES"])));
    }
    trials
}

/// The same for commands on a key, which is a string if it `exists`. Over a line of ours
/// several requests may go as one command, which takes a few more.
fn on_key(key: &str, exists: bool, guarded: bool, is_ours: bool) -> Vec<Trial> {
    let of = |name: &str, args: &[&str]| {
        let mut command = cmd(name);
        command.arg(key).arg(args);
        command
    };
    let mut trials = vec![
        ("+get", of("GET", &[])),
        ("+zrange", of("ZRANGE", &["0", "1"])),
        ("+zscore", of("ZSCORE", &["member"])),
        ("+zrem", of("ZREM", &["member"])),
        ("+pttl", of("PTTL", &[])),
        ("+pexpire", of("PEXPIRE", &["1000"])),
        ("+hget", of("HGET", &["field"])),
    ];
    if guarded || is_ours {
        trials.push(("+hmget", of("HMGET", &["field"])));
    }
    if is_ours {
        trials.push(("+mget", of("MGET", &[])));
        trials.push(("+exists", of("EXISTS", &[])));
    }
    if exists {
        // On a string they fail, and so leave nothing behind.
        trials.push(("+hset", of("HSET", &["field", "value"])));
        trials.push(("+zadd", of("ZADD", &["1", "member"])));
    }
    trials.push(("+del", of("DEL", &[])));
    trials
}

async fn ask<C: ConnectionLike>(
    connection: &mut C,
    mut pipeline: Pipeline,
) -> Result<Vec<Result<Value, RedisError>>, NodeError> {
    pipeline
        .ignore_errors()
        .query_async(connection)
        .await
        .map_err(wire::node_error)
}

fn is_denied(error: &RedisError) -> bool {
    error.code() == Some("NOPERM")
}

/// How far a server's clock is ahead, if the answer took as long as the question.
pub(super) fn ahead(asked: SystemTime, told: SystemTime, seconds: u64, micros: u64) -> Option<i64> {
    let millis = |time: SystemTime| {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_millis()).ok()
    };
    let ours = i64::midpoint(millis(asked)?, millis(told)?);
    let theirs = Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))?;
    Some(i64::try_from(theirs.as_millis()).ok()? - ours)
}

pub(super) fn read_info(info: &str, facts: &mut Facts) {
    let field = |name: &str| {
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim).filter(|value| !value.is_empty())
    };
    let version = |field: Option<&str>, name: &str| field.map(|number| format!("{name} {number}"));
    facts.version = version(field("valkey_version"), "Valkey")
        .or_else(|| version(field("redis_version"), "Redis"));
    facts.is_replica = field("role").map(|role| role == "slave");
    facts.replicas = field("connected_slaves").and_then(|count| count.parse().ok());
    facts.is_durable = field("aof_enabled").map(|enabled| enabled == "1");
    let is_limited = field("maxmemory").is_some_and(|most| most != "0");
    let policy = field("maxmemory_policy").filter(|policy| *policy != "noeviction");
    facts.evicts = policy.filter(|_| is_limited).map(str::to_owned);
    let run = format!(
        "{}{}",
        field("run_id").unwrap_or_default(),
        field("master_replid").unwrap_or_default()
    );
    facts.identity = (!run.is_empty()).then_some(run);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_what_info_says() {
        let mut facts = Facts::default();
        let info = "redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nrole:master\r\n\
                    connected_slaves:2\r\naof_enabled:0\r\nmaxmemory:100\r\n\
                    maxmemory_policy:allkeys-lru\r\nrun_id:ab\r\nmaster_replid:cd\r\n";
        read_info(info, &mut facts);
        assert_eq!(facts.version.as_deref(), Some("Valkey 8.0.1"));
        assert_eq!((facts.is_replica, facts.replicas), (Some(false), Some(2)));
        assert_eq!(facts.evicts.as_deref(), Some("allkeys-lru"));
        assert_eq!(facts.is_durable, Some(false));
        assert_eq!(facts.identity.as_deref(), Some("abcd"));
    }

    #[test]
    fn a_clock_is_compared_with_the_middle_of_question_and_answer() {
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        assert_eq!(ahead(at(10_000), at(10_200), 10, 100_000), Some(0));
        assert_eq!(ahead(at(10_000), at(10_200), 7, 0), Some(-3100));
    }
}
