//! What a server says about itself when a connection is made.

use std::sync::Arc;

use redis::aio::ConnectionLike;
use redis::{RedisError, Value};

use super::{dialect, wire};
use crate::node::{Charter, NodeError, NodeErrorKind, mismatch};

/// A server that was found fit to be a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    /// Names this run of the server: its run id and replication id. Empty when
    /// the server won't say.
    pub(super) run: Arc<str>,
    /// Whether it tells this connection when something happens to a key that
    /// it was asked about.
    pub(super) tells: bool,
    /// Whether it calls this connection when the client's turn comes.
    pub(super) calls: bool,
}

/// Makes a new connection ready: loads the scripts, asks the server what it is,
/// and refuses one that is not fit to be a node.
pub(super) async fn greet<C: ConnectionLike>(
    connection: &mut C,
    charter: &Charter,
) -> Result<Server, NodeError> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("PING").cmd("INFO");
    // Only of keys that are asked about in so many words.
    pipeline
        .cmd("CLIENT")
        .arg("TRACKING")
        .arg("ON")
        .arg("OPTIN");
    if charter.policy.is_some() {
        let fence = dialect::fence_key(&charter.service_prefix);
        pipeline.cmd("HGET").arg(fence).arg("guard");
    }
    let asked = pipeline.len();
    dialect::load_scripts(&mut pipeline);
    let answers: Vec<Result<Value, RedisError>> = pipeline
        .ignore_errors()
        .query_async(connection)
        .await
        .map_err(wire::node_error)?;
    let mut answers = answers.into_iter().take(asked);
    // Without a log-in, where one is asked for, everything fails from here on.
    if let Some(Err(error)) = answers.next()
        && error.code() == Some("NOAUTH")
    {
        return Err(wire::node_error(error));
    }
    let info = answers.next().and_then(Result::ok);
    let info = info.and_then(|info| redis::from_redis_value::<String>(info).ok());
    let tells = answers.next().is_some_and(|answer| answer.is_ok());
    if let Some(policy) = &charter.policy {
        if info.is_none() {
            return Err(misconfigured(
                "the restart guard needs the right to call INFO: grant +info to this user, or \
                 switch the guard off",
            ));
        }
        let found = answers.next().and_then(Result::ok);
        let found = found.and_then(|found| redis::from_redis_value::<Option<String>>(found).ok());
        if let Some(found) = found.flatten().as_deref().and_then(dialect::deployment)
            && charter.strict
            && *found != *policy.deployment
        {
            return Err(misconfigured(&mismatch(found)));
        }
    }
    let server = examine(&info.unwrap_or_default())?;
    Ok(Server { tells, ..server })
}

/// Reads what INFO says, and finds what makes a server unfit.
pub(super) fn examine(info: &str) -> Result<Server, NodeError> {
    let field = |name: &str| {
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim()
    };
    if field("role") == "slave" {
        return Err(misconfigured(
            "this is a replica; a node must be a master, independent of the others",
        ));
    }
    let policy = field("maxmemory_policy");
    if !matches!(field("maxmemory"), "" | "0") && !matches!(policy, "" | "noeviction") {
        return Err(misconfigured(&format!(
            "maxmemory-policy is {policy}, so it may evict locks that are held: set it to \
             noeviction, or maxmemory to 0"
        )));
    }
    let run = format!("{}{}", field("run_id"), field("master_replid"));
    Ok(Server {
        run: run.into(),
        tells: false,
        calls: false,
    })
}

fn misconfigured(problem: &str) -> NodeError {
    NodeError::new(NodeErrorKind::Misconfigured, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_by_run_id_and_replication_id() {
        let info =
            "# Server\r\nrun_id:ab12\r\n# Replication\r\nrole:master\r\nmaster_replid:cd\r\n";
        assert_eq!(&*examine(info).unwrap().run, "ab12cd");
        assert_eq!(&*examine("").unwrap().run, "", "it won't say");
    }

    #[test]
    fn replicas_and_servers_that_evict_are_unfit() {
        let problem = |info| examine(info).unwrap_err().to_string();
        assert!(problem("role:slave").contains("replica"));
        let evicting = "maxmemory:100\r\nmaxmemory_policy:allkeys-lru";
        assert!(problem(evicting).contains("noeviction"));
        assert!(examine("maxmemory:0\r\nmaxmemory_policy:allkeys-lru").is_ok());
        assert!(examine("maxmemory:100\r\nmaxmemory_policy:noeviction").is_ok());
    }
}
