//! Whether the nodes are well, seen from this machine, and what to do if not.

use std::fmt;
use std::time::Duration;

use redlatch_core::{GuardOrder, Reply, Request};

use crate::driver::Driver;
use crate::keys::KeyScheme;
use crate::list;
use crate::node::{Facts, Node, NodeError};
use crate::settings::Settings;

/// How long a node may take for all its answers, connecting included.
const LIMIT: Duration = Duration::from_secs(5);

/// One thing that was looked at, and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The node's name; empty when it is about all of them.
    pub node: String,
    /// What was looked at: `latency`, `eviction` and so on.
    pub check: &'static str,
    /// Whether it is well.
    pub verdict: Verdict,
    /// What was found.
    pub seen: String,
    /// What to do about it; empty when there is nothing to do.
    pub advice: String,
}

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// It is well.
    Good,
    /// It could not be found out.
    Unknown,
    /// Locks work, but not as well as they could, or not as safely.
    Warning,
    /// Locks don't work, or are not safe.
    Bad,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "good",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Bad => "bad",
        })
    }
}

/// Asks all nodes at the same time how they are.
pub(crate) async fn examine(
    driver: &Driver,
    settings: &Settings,
    deployment: &str,
) -> Vec<Finding> {
    let limit = LIMIT.max(driver.node_timeout());
    let nodes = driver.nodes().iter();
    let asked = nodes.map(|node| async move {
        let facts = node.examine(limit).await;
        (facts, guard(&**node, settings, deployment, limit).await)
    });
    let answers = futures_util::future::join_all(asked).await;
    let mut findings = Vec::new();
    let mut known: Vec<(String, &str)> = Vec::new();
    let mut clocks = Vec::new();
    for (node, (facts, guard)) in driver.nodes().iter().zip(answers) {
        let mut notes = Notes {
            node: node.name(),
            findings: &mut findings,
        };
        match facts {
            Err(error) => {
                notes.bad(
                    "reachable",
                    error.to_string(),
                    "see that it runs, and that address, user and password are right",
                );
                // All else would only say the same again.
                continue;
            }
            Ok(facts) => {
                notes.good("reachable", "yes");
                notes.judge(&facts, settings);
                clocks.extend(facts.clock_ahead);
                if let Some(identity) = facts.identity {
                    match known.iter().find(|(known, _)| *known == identity) {
                        None => notes.good("distinct", "it is listed once"),
                        Some((_, other)) => notes.bad(
                            "distinct",
                            format!("it is the same server as {other}"),
                            "list each server once: a quorum needs independent ones",
                        ),
                    }
                    known.push((identity, node.name()));
                }
            }
        }
        findings.push(Finding {
            node: node.name().to_owned(),
            ..guard
        });
    }
    let mut notes = Notes {
        node: "",
        findings: &mut findings,
    };
    notes.judge_clocks(&clocks);
    notes.judge_keys(driver, &settings.keys).await;
    findings
}

/// How the restart guard of one node stands.
async fn guard(node: &dyn Node, settings: &Settings, deployment: &str, limit: Duration) -> Finding {
    let mut findings = Vec::new();
    let mut notes = Notes {
        node: "",
        findings: &mut findings,
    };
    let reply = match settings.max_ttl {
        None => Ok(Reply::Guard(None)),
        Some(_) => node.call(Request::Guard(GuardOrder::Read), limit).await,
    };
    match reply {
        Ok(Reply::Guard(_)) if settings.max_ttl.is_none() => notes.good("guard", "off"),
        Ok(Reply::Guard(Some(view))) if view.deployment != deployment => notes.bad(
            "guard",
            format!("it belongs to {}, and not to {deployment}", view.deployment),
            "give all nodes of its deployment, its name and its max_ttl, or reconfigure it",
        ),
        Ok(Reply::Guard(Some(view))) if view.quarantine.is_zero() => {
            notes.good("guard", format!("armed, deployment {}", view.deployment));
        }
        Ok(Reply::Guard(Some(view))) => notes.warn(
            "guard",
            format!("in quarantine for another {:.1?}", view.quarantine),
            "wait, or arm it if it is known to be fresh",
        ),
        Ok(Reply::Guard(None)) => notes.warn(
            "guard",
            "new, a quarantine begins with the first lock",
            "arm it if it never held a lock",
        ),
        Ok(reply) => {
            let error = NodeError::in_reply(&reply);
            let seen = error.map_or("a strange answer".into(), |error| error.to_string());
            notes.bad("guard", seen, "");
        }
        Err(error) => notes.unknown("guard", error.to_string()),
    }
    findings.remove(0)
}

/// Writes down what is found of one node.
struct Notes<'a> {
    node: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Notes<'_> {
    fn judge(&mut self, facts: &Facts, settings: &Settings) {
        if let Some(version) = &facts.version {
            self.judge_version(version);
        }
        match facts.encrypted {
            None => {}
            Some(true) => self.good("encryption", "TLS"),
            Some(false) => self.warn(
                "encryption",
                "none, and it is another machine",
                "use rediss://, unless the network is private",
            ),
        }
        self.judge_latency(&facts.round_trips, settings);
        match facts.clock_ahead {
            None => {}
            Some(ahead) if ahead.abs() < 1000 => {
                self.good("clock", format!("{ahead} ms ahead of this machine"));
            }
            Some(ahead) => self.warn(
                "clock",
                format!("{ahead} ms ahead of this machine"),
                "let NTP set both; each new client loses a round trip until then",
            ),
        }
        match (&facts.evicts, facts.is_replica) {
            (Some(policy), _) => self.bad(
                "eviction",
                format!("maxmemory-policy is {policy}"),
                "set it to noeviction, or maxmemory to 0: it may evict locks that are held",
            ),
            (None, None) => {
                self.unknown("eviction", "it won't say: the user lacks the right +info");
            }
            (None, Some(_)) => self.good("eviction", "nothing is evicted"),
        }
        match (facts.is_durable, settings.max_ttl) {
            (_, Some(_)) => self.good("persistence", "not needed: the restart guard is on"),
            (Some(true), None) => self.good("persistence", "every lock survives a restart"),
            (Some(false), None) => self.warn(
                "persistence",
                "a restart may forget locks that are held, and the restart guard is off",
                "turn the guard on, or set appendonly yes and appendfsync always",
            ),
            (None, None) => self.unknown("persistence", "it won't say"),
        }
        match (facts.is_replica, facts.replicas) {
            (Some(true), _) => self.bad(
                "replicas",
                "it is a replica itself",
                "give the master's address",
            ),
            (_, Some(0)) => self.good("replicas", "none"),
            (_, Some(count)) => self.warn(
                "replicas",
                format!("it has {count}"),
                match settings.max_ttl {
                    Some(_) => "a replica that takes its place begins with a quarantine",
                    None => {
                        "a replica that takes its place may not know of locks that are held: \
                             turn the restart guard on"
                    }
                },
            ),
            _ => {}
        }
        match facts.tells {
            None => {}
            Some(true) => self.good("wake-ups", "it tells when a lock is freed"),
            Some(false) => self.warn(
                "wake-ups",
                "it does not tell when a lock is freed: those who wait ask again and again",
                "use a server with RESP3, and grant +client|tracking and +client|caching",
            ),
        }
        match &facts.lacks {
            None => {}
            Some(lacks) if lacks.is_empty() => self.good("rights", "all that are needed"),
            Some(lacks) => lacks
                .iter()
                .for_each(|right| self.judge_lack(right, settings)),
        }
    }

    /// Locks are possible without some rights.
    fn judge_lack(&mut self, right: &str, settings: &Settings) {
        let seen = format!("{right} is missing");
        let advice = format!("grant it: ACL SETUSER … {right}");
        match right {
            // Who may not call or be called is told of a free lock all the same.
            "+client|tracking" | "+client|caching" | "+scan" | "+subscribe" | "+publish" => {
                self.warn("rights", seen, advice);
            }
            // What could go out as one command goes by itself.
            "+mget" | "+exists" => self.warn("rights", seen, advice),
            channel if channel.starts_with('&') => self.warn("rights", seen, advice),
            "+info" | "+hmget" if settings.max_ttl.is_none() => self.warn("rights", seen, advice),
            _ => self.bad("rights", seen, advice),
        }
    }

    fn judge_version(&mut self, version: &str) {
        match number_of(version) {
            Some(number) if version.starts_with("Redis") && number < (6, 2) => self.bad(
                "version",
                version,
                "the scripts need Redis 6.2 or later, and are tested with Redis 7: update it",
            ),
            _ => self.good("version", version),
        }
    }

    fn judge_latency(&mut self, round_trips: &[Duration], settings: &Settings) {
        let mut sorted = round_trips.to_vec();
        sorted.sort();
        let (Some(median), Some(most)) = (sorted.get(sorted.len() / 2), sorted.last()) else {
            return;
        };
        let limit = settings.node_timeout.min(settings.ttl / 3);
        let seen = format!("{median:.1?}, at most {most:.1?}; {limit:?} are allowed");
        let advice = "raise node_timeout, and the ttl to three times that at least";
        match () {
            () if *median >= limit => self.bad("latency", seen, advice),
            () if *most * 2 > limit => self.warn("latency", seen, advice),
            () => self.good("latency", seen),
        }
    }

    /// Nodes refuse ballots that are ten seconds ahead of their clock.
    fn judge_clocks(&mut self, ahead: &[i64]) {
        let (Some(most), Some(least)) = (ahead.iter().max(), ahead.iter().min()) else {
            return;
        };
        let spread = most - least;
        if ahead.len() < 2 {
            return;
        }
        let seen = format!("the nodes' differ by {spread} ms");
        match spread {
            0..1000 => self.good("clock", seen),
            1000..5000 => self.warn("clock", seen, "let NTP set them"),
            _ => self.bad(
                "clock",
                seen,
                "let NTP set them: nodes that differ by ten seconds can't agree on a lock",
            ),
        }
    }

    async fn judge_keys(&mut self, driver: &Driver, keys: &KeyScheme) {
        match list::list(driver, keys, "*", &mut |_| {}).await {
            // Why is said of each node.
            Err(_) => self.unknown("keys", "too few nodes could be asked for their keys"),
            Ok(listing) => {
                let endless = listing.locks.iter();
                let endless = endless.filter(|lock| lock.inspection.remaining().is_none());
                let mut names: Vec<&str> = endless.map(|lock| &*lock.name).collect();
                let count = names.len();
                names.truncate(3);
                let held = listing.locks.len();
                match count {
                    0 if held == 0 => self.good("keys", "no lock is held"),
                    0 => self.good("keys", format!("locks held: {held}, all with a ttl")),
                    _ => self.warn(
                        "keys",
                        format!("{count} of {held} never expire: {}", names.join(", ")),
                        "see who made them, and release them by force if nobody holds them",
                    ),
                }
            }
        }
    }

    fn good(&mut self, check: &'static str, seen: impl Into<String>) {
        self.write(check, Verdict::Good, seen, "");
    }

    fn unknown(&mut self, check: &'static str, seen: impl Into<String>) {
        self.write(check, Verdict::Unknown, seen, "");
    }

    fn warn(&mut self, check: &'static str, seen: impl Into<String>, advice: impl Into<String>) {
        self.write(check, Verdict::Warning, seen, advice);
    }

    fn bad(&mut self, check: &'static str, seen: impl Into<String>, advice: impl Into<String>) {
        self.write(check, Verdict::Bad, seen, advice);
    }

    fn write(
        &mut self,
        check: &'static str,
        verdict: Verdict,
        seen: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.findings.push(Finding {
            node: self.node.to_owned(),
            check,
            verdict,
            seen: seen.into(),
            advice: advice.into(),
        });
    }
}

/// The first two numbers of a version, as `Redis 7.0.15`.
fn number_of(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split_whitespace().last()?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(number_of("Redis 6.0.16") < Some((6, 2)));
        assert!(number_of("Redis 6.2.0") >= Some((6, 2)));
        assert!(number_of("Redis 7.0.15") > number_of("Redis 6.10.1"));
        assert_eq!(number_of("Valkey unstable"), None);
    }
}
