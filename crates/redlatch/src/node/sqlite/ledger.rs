//! The rules over one transaction: what is loaded for a request, and what is
//! stored of what it changed.

use std::sync::Arc;
use std::time::Duration;

use redlatch_core::rules::{Guard, Stored};
use redlatch_core::{Ballot, Key, NodeState, Policy, Reply, Request, Scene, Ttl, fence};
use rusqlite::{OptionalExtension, Transaction, params};

pub(super) const SCHEMA: &str = "
    CREATE TABLE locks (
        key TEXT PRIMARY KEY,
        value BLOB,
        last INTEGER -- the last millisecond of the node's clock at which it is there
    ) WITHOUT ROWID;
    CREATE INDEX locks_by_end ON locks (last);
    CREATE TABLE slots (
        service TEXT, slot INTEGER, ballot INTEGER, forced INTEGER,
        PRIMARY KEY (service, slot)
    ) WITHOUT ROWID;
    CREATE TABLE guards (
        service TEXT PRIMARY KEY, run TEXT NOT NULL, armed INTEGER NOT NULL,
        quarantine INTEGER NOT NULL, floor INTEGER NOT NULL, max_ttl INTEGER NOT NULL,
        deployment TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE clock (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        boot TEXT NOT NULL,
        base INTEGER NOT NULL,    -- the node's clock when this boot began
        floor INTEGER NOT NULL,   -- above every ballot of earlier boots, in milliseconds
        reserved INTEGER NOT NULL -- above every ballot that may be granted, in milliseconds
    );
";

/// The rules over one open transaction.
pub(super) struct Ledger<'a> {
    pub(super) transaction: &'a Transaction<'a>,
    /// What stands before the names of the books in which slots and guard are kept.
    pub(super) service: &'a str,
    pub(super) policy: Option<&'a Policy>,
    pub(super) run: &'a Arc<str>,
    /// Above every ballot of earlier boots.
    pub(super) floor: Ballot,
    pub(super) now: u64,
}

impl Ledger<'_> {
    /// Loads what the request is about, lets the rules decide, and stores what
    /// they changed.
    pub(super) fn apply(&self, request: &Request) -> rusqlite::Result<Reply> {
        let mut state = NodeState::default();
        if let Some(key) = request.key() {
            self.load_lock(key, &mut state)?;
            self.load_slot(fence::slot(key), &mut state)?;
        }
        if self.policy.is_some() || matches!(request, Request::Guard(_)) {
            state.set_guard(self.load_guard()?);
        }
        let before = state.clone();
        // No queue is kept: nobody could be called in another process.
        let mut request = request.clone();
        if let Request::Acquire { ticket, .. } = &mut request {
            *ticket = None;
        }
        let request = &request;
        let scene = Scene::new(self.now, self.run, self.policy);
        let reply = state.apply(request, &scene);
        if !matches!(request, Request::Inspect { .. }) {
            self.store(request.key(), &before, &state)?;
        }
        Ok(reply)
    }

    pub(super) fn load_lock(&self, key: &Key, state: &mut NodeState) -> rusqlite::Result<()> {
        let mut read = self
            .transaction
            .prepare_cached("SELECT value, last FROM locks WHERE key = ?1")?;
        let stored = read.query_row([key.as_str()], |row| {
            Ok(Stored {
                value: row.get(0)?,
                last_millisecond: row.get(1)?,
            })
        });
        if let Some(stored) = stored.optional()? {
            state.put(key.clone(), stored);
        }
        Ok(())
    }

    pub(super) fn load_slot(&self, slot: u16, state: &mut NodeState) -> rusqlite::Result<()> {
        let mut read = self
            .transaction
            .prepare_cached("SELECT ballot, forced FROM slots WHERE service = ?1 AND slot = ?2")?;
        let row = read.query_row(params![self.service, slot], |row| {
            Ok((row.get::<_, Option<u64>>(0)?, row.get::<_, Option<u64>>(1)?))
        });
        let (ballot, forced) = row.optional()?.unwrap_or_default();
        let ballot = ballot.map_or(self.floor, |ballot| Ballot::new(ballot).max(self.floor));
        if ballot > Ballot::default() {
            state.set_ballot(slot, ballot);
        }
        if let Some(forced) = forced {
            state.set_forced(slot, Ballot::new(forced));
        }
        Ok(())
    }

    pub(super) fn load_guard(&self) -> rusqlite::Result<Option<Guard>> {
        let mut read = self.transaction.prepare_cached(
            "SELECT run, armed, quarantine, floor, max_ttl, deployment FROM guards
             WHERE service = ?1",
        )?;
        let guard = read.query_row([self.service], |row| {
            let max_ttl: u64 = row.get(4)?;
            Ok(Guard {
                run: row.get::<_, String>(0)?.into(),
                armed: row.get(1)?,
                quarantine: row.get(2)?,
                floor: Ballot::new(row.get(3)?),
                max_ttl: Ttl::new(Duration::from_millis(max_ttl))
                    .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(4, max_ttl as i64))?,
                deployment: row.get::<_, String>(5)?.into(),
            })
        });
        guard.optional()
    }

    fn store(
        &self,
        key: Option<&Key>,
        before: &NodeState,
        after: &NodeState,
    ) -> rusqlite::Result<()> {
        if let Some(key) = key {
            let slot = fence::slot(key);
            let books = |state: &NodeState| (state.ballot(slot), state.forced(slot));
            if books(before) != books(after) {
                self.store_slot(slot, after)?;
            }
            match (before.get(key), after.get(key)) {
                (old, new) if old == new => {}
                (_, None) => self.execute("DELETE FROM locks WHERE key = ?1", [key.as_str()])?,
                (old, Some(stored)) => {
                    let Stored {
                        value,
                        last_millisecond,
                    } = stored;
                    self.execute(
                        "INSERT OR REPLACE INTO locks (key, value, last) VALUES (?1, ?2, ?3)",
                        params![key.as_str(), value, last_millisecond],
                    )?;
                    if old.is_none() {
                        self.sweep()?;
                    }
                }
            }
        }
        match after.guard() {
            Some(guard) if before.guard() != Some(guard) => self.store_guard(guard),
            _ => Ok(()),
        }
    }

    fn store_slot(&self, slot: u16, state: &NodeState) -> rusqlite::Result<()> {
        let ballot = state.ballot(slot).map(Ballot::number);
        let forced = state.forced(slot).map(Ballot::number);
        self.execute(
            "INSERT OR REPLACE INTO slots (service, slot, ballot, forced) VALUES (?1, ?2, ?3, ?4)",
            params![self.service, slot, ballot, forced],
        )
    }

    fn store_guard(&self, guard: &Guard) -> rusqlite::Result<()> {
        self.execute(
            "INSERT OR REPLACE INTO guards
             (service, run, armed, quarantine, floor, max_ttl, deployment)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            params![
                self.service,
                &*guard.run,
                guard.armed,
                guard.quarantine,
                guard.floor.number(),
                guard.max_ttl.millis(),
                &*guard.deployment
            ],
        )
    }

    /// Keys whose time is over and that nobody asks for again must not pile up:
    /// who adds one takes two away.
    fn sweep(&self) -> rusqlite::Result<()> {
        self.execute(
            "DELETE FROM locks WHERE key IN
             (SELECT key FROM locks WHERE last < ?1 ORDER BY last LIMIT 2)",
            [self.now],
        )
    }

    fn execute(&self, sql: &str, parameters: impl rusqlite::Params) -> rusqlite::Result<()> {
        self.transaction
            .prepare_cached(sql)?
            .execute(parameters)
            .map(drop)
    }
}
