//! Gets the lock that a command is run under, or takes part in one that an
//! outer `redlatch` holds.

use std::time::Duration;

use redlatch::{Error, Exported, Guard, Mutex, Redlatch};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::child::Signals;
use crate::exit_code::{ExitCode, Failure};
use crate::output::{Output, held_by};

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    None,
    UpTo(Duration),
    ForEver,
}

/// A lock that is wanted.
pub(crate) struct Wish<'a> {
    pub(crate) latch: &'a Redlatch,
    pub(crate) mutex: &'a Mutex,
    pub(crate) patience: Patience,
    /// Whether it is said who is waited for.
    pub(crate) talk: bool,
    pub(crate) output: &'a Output,
}

/// A lock that is held.
pub(crate) struct Hold {
    pub(crate) guard: Guard,
    /// Whether an outer `redlatch` holds it, and gives it back.
    nested: bool,
}

/// The innermost lock that a process was started under, its token and fence.
pub(crate) const LOCK: &str = "REDLATCH_LOCK";
pub(crate) const TOKEN: &str = "REDLATCH_TOKEN";
pub(crate) const FENCE: &str = "REDLATCH_FENCE";
/// The same of all locks around that one, as JSON.
pub(crate) const OUTER: &str = "REDLATCH_OUTER";

impl Wish<'_> {
    /// Waits for the lock. A signal that comes meanwhile ends it at once: then
    /// this is nothing but how to die.
    pub(crate) async fn acquire(
        &self,
        signals: &mut Signals,
    ) -> Result<Result<Hold, ExitCode>, Failure> {
        let signal = tokio::select! {
            biased;
            signal = signals.recv() => signal,
            hold = get(self) => return hold.map(Ok),
        };
        // What may have reached a node is given back, but not for long: a node
        // that is away must not keep us.
        let _ = tokio::time::timeout(Duration::from_millis(200), self.latch.close()).await;
        Ok(Err(ExitCode::DieOf(signal)))
    }
}

async fn get(wish: &Wish<'_>) -> Result<Hold, Failure> {
    let Wish {
        latch,
        mutex,
        patience,
        output,
        ..
    } = *wish;
    if let Some(guard) = reenter(mutex).await {
        let nested = true;
        return Ok(Hold { guard, nested });
    }
    let nested = false;
    let start = Instant::now();
    if let Some(guard) = first_try(mutex, patience).await? {
        return Ok(Hold { guard, nested });
    }
    let name = mutex.name();
    let holder = latch.inspect(name).await.ok().flatten();
    let holder = holder.map(|seen| seen.holder);
    let by = holder.as_ref().map_or("somebody else".into(), held_by);
    let rest = match patience {
        Patience::None => {
            let code = ExitCode::Busy(ExitCode::BUSY);
            return Err(Failure {
                holder: holder.map(Box::new),
                ..Failure::new(code, format!("lock {name:?} is held by {by}"))
            });
        }
        Patience::UpTo(limit) => Some(limit.saturating_sub(start.elapsed())),
        Patience::ForEver => None,
    };
    if let Some(holder) = holder.as_ref().filter(|_| wish.talk) {
        output.busy(&format!("waiting for lock {name:?}, held by {by}"), holder);
    }
    let locked = match rest {
        Some(rest) => mutex.lock_timeout(rest).await,
        None => mutex.lock().await,
    };
    match locked {
        Ok(guard) => Ok(Hold { guard, nested }),
        Err(Error::Timeout(timeout)) => {
            let by = timeout
                .holder
                .as_ref()
                .map_or("somebody else".into(), held_by);
            let waited = crate::duration::spoken(start.elapsed());
            let code = ExitCode::Busy(ExitCode::BUSY);
            Err(Failure {
                holder: timeout.holder.map(Box::new),
                ..Failure::new(
                    code,
                    format!("lock {name:?} is still held after {waited}, by {by}"),
                )
            })
        }
        Err(error) => Err(error.into()),
    }
}

/// One attempt. Who waits puts up with nodes that are away for a while: that is
/// the second one's business.
async fn first_try(mutex: &Mutex, patience: Patience) -> Result<Option<Guard>, Failure> {
    match (mutex.try_lock().await, patience) {
        (Err(Error::NoQuorum(_)), Patience::UpTo(_) | Patience::ForEver) => Ok(None),
        (tried, _) => Ok(tried?),
    }
}

/// Takes part in a lock of the same name that this process was started under,
/// if it is still held. A token that a daemon has kept since then is not.
async fn reenter(mutex: &Mutex) -> Option<Guard> {
    let outer = outer(|name| std::env::var(name).ok());
    let (_, token, fence) = outer.iter().find(|(lock, ..)| lock == mutex.name())?;
    let exported = Exported::new(token, *fence).ok()?;
    mutex.adopt(exported).await.ok()
}

impl Hold {
    /// What the child is to see in its environment.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let exported = self.guard.export();
        let name = self.guard.name();
        let mut outer = outer(|name| std::env::var(name).ok());
        outer.retain(|(lock, ..)| lock != name);
        let outer: Vec<Value> = outer
            .into_iter()
            .map(|(lock, token, fence)| json!({"lock": lock, "token": token, "fence": fence}))
            .collect();
        vec![
            (LOCK.into(), name.into()),
            (TOKEN.into(), exported.token().into()),
            (FENCE.into(), exported.fence().to_string()),
            (OUTER.into(), Value::Array(outer).to_string()),
        ]
    }

    /// Gives the lock back, unless it is an outer one's. What goes wrong is no
    /// reason to fail: the work is done, and the ttl frees the lock.
    pub(crate) async fn release(self, output: &Output) {
        if self.nested {
            let _ = self.guard.detach();
            return;
        }
        match self.guard.release().await {
            Ok(()) | Err(Error::Lost(_)) => {}
            Err(error) => output.warn(&format!(
                "{error}; the lock could not be given back and is freed at its ttl"
            )),
        }
    }
}

/// The locks that this process was started under: name, token, fence; the
/// innermost first. Somebody else may have written these variables.
pub(crate) fn outer(variable: impl Fn(&str) -> Option<String>) -> Vec<(String, String, u64)> {
    let innermost = || {
        let fence = variable(FENCE)?.parse().ok()?;
        Some((variable(LOCK)?, variable(TOKEN)?, fence))
    };
    let others: Option<Value> = variable(OUTER).and_then(|text| serde_json::from_str(&text).ok());
    let others = others
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let others = others.filter_map(|outer| {
        let text = |name: &str| Some(outer.get(name)?.as_str()?.to_owned());
        Some((text("lock")?, text("token")?, outer.get("fence")?.as_u64()?))
    });
    innermost().into_iter().chain(others).collect()
}
