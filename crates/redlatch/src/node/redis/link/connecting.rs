//! Makes the connections of a link, one after the other.

use std::sync::Arc;
use std::time::Duration;

use redlatch_core::Backoff;
use tokio::time::{Instant, timeout};

use super::{Live, Shared, State};
use crate::node::NodeError;
use crate::node::redis::dial::{self, Protocol};
use crate::node::redis::dialect::Dialect;
use crate::node::redis::{server, wire};
use crate::random;

/// How long a new connection may take, log-in and all: at most, and at least
/// when it is not the first one.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const SHORT_CONNECT_LIMIT: Duration = Duration::from_millis(500);

/// How long to wait before the next try when a server can't be reached.
const RECONNECT: Backoff = Backoff {
    first: Duration::from_millis(20),
    limit: Duration::from_secs(1),
};

/// A connection that lives no longer counts as a failure, after a few of them
/// in a row: a server that lets everybody in and then hangs up is not stormed.
const SHORT_LIFE: Duration = Duration::from_secs(1);
const SHORT_LIVES: u32 = 3;

/// Makes connection after connection, for as long as the link lives.
pub(super) async fn keep_connected(shared: Arc<Shared>) {
    let _end = End(&shared);
    let name = shared.address.name().to_owned();
    let (mut failures, mut silences, mut short_lives) = (0, 0, 0u32);
    let mut was_up = false;
    for number in 1.. {
        let limit = match was_up {
            true => connect_limit(shared.charter.turn, silences),
            false => CONNECT_LIMIT,
        };
        match timeout(limit, connect(&shared, number)).await {
            Ok(Ok(live)) => {
                (failures, silences) = (0, 0);
                let born = Instant::now();
                was_up = true;
                shared.is_heard();
                tracing::debug!(node = name, "connected");
                let line = live.line.clone();
                shared.set(State::Up(Arc::new(live)));
                // Nothing was heard while there was no connection.
                shared.bells.ring_all();
                let _ = shared
                    .broken
                    .subscribe()
                    .wait_for(|broken| *broken >= number)
                    .await;
                tracing::info!(node = name, "connection lost, making a new one");
                // What it still has must not follow what goes over the next one.
                line.close();
                // A mute connection rings for nobody any more.
                shared.bells.ring_all();
                shared.set(State::Connecting);
                short_lives = match born.elapsed() < SHORT_LIFE {
                    true => short_lives + 1,
                    false => 0,
                };
                if let Some(more @ 1..) = short_lives.checked_sub(SHORT_LIVES) {
                    tokio::time::sleep(RECONNECT.delay(more, random::number())).await;
                }
            }
            failed => {
                failures += 1;
                let mut rest = RECONNECT.delay(failures, random::number());
                let error = match failed {
                    Ok(Err(error)) => error,
                    _ => {
                        silences += 1;
                        // That was rest enough.
                        rest = RECONNECT.delay(1, random::number());
                        NodeError::timed_out(limit)
                    }
                };
                match (was_up, failures) {
                    (true, 1) => {
                        tracing::warn!(node = name, %error, "can't connect, will go on trying");
                    }
                    // Who waits for the first connection is told so, and says it.
                    _ => tracing::debug!(node = name, %error, "can't connect"),
                }
                shared.set(State::Down(error));
                tokio::time::sleep(rest).await;
            }
        }
    }
}

/// How long the next connection may take, after so many that took too long: a
/// server that was silent while one was being made must be found again soon
/// after it is back, and a slow one must get its time. So it is a few node
/// timeouts (of which four make a `turn`), twice as long each time, and then the
/// same from the start.
fn connect_limit(turn: Duration, silences: u32) -> Duration {
    let first = (2 * turn).clamp(SHORT_CONNECT_LIMIT, CONNECT_LIMIT);
    (first * (1 << (silences % 3))).min(CONNECT_LIMIT)
}

/// Says that it is over when the task is, however it ends.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.set(State::Ended);
    }
}

async fn connect(shared: &Arc<Shared>, number: u64) -> Result<Live, NodeError> {
    let opened = dial::line(|| shared.stream(), shared.address.login());
    let (mut line, protocol) = opened.await.map_err(wire::node_error)?;
    if protocol == Protocol::Resp2 {
        tracing::debug!(node = shared.address.name(), "no RESP3 there");
    }
    let link = Arc::downgrade(shared);
    line.listen(move |kind, data| {
        if let Some(shared) = link.upgrade() {
            shared.hear(number, kind, data);
        }
    });
    let mut server = server::greet(&mut line, &shared.charter).await?;
    // Without RESP3 there is no way to tell anything.
    server.tells &= protocol == Protocol::Resp3;
    if server.tells {
        server.calls = line.subscribe(&shared.charter.client).await.is_ok();
    }
    let dialect = Dialect::new(&shared.charter, &server.run, server.calls);
    Ok(Live {
        number,
        line,
        dialect: Arc::new(dialect),
        server,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_server_is_tried_soon_again_and_a_slow_one_gets_its_time() {
        let limits = |turn| [0, 1, 2, 3, 4, 5].map(|silences| connect_limit(turn, silences));
        let quick = [500, 1000, 2000].map(Duration::from_millis);
        assert_eq!(limits(Duration::from_millis(200))[..3], quick);
        assert_eq!(limits(Duration::from_millis(200))[3..], quick);
        let medium = [1200, 2000, 2000].map(Duration::from_millis);
        assert_eq!(limits(Duration::from_millis(600))[..3], medium);
        assert_eq!(limits(Duration::from_secs(2)), [CONNECT_LIMIT; 6]);
    }
}
