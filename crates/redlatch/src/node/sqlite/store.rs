//! What a node keeps in its file, and the transactions in which it changes.
//!
//! - **WAL**, so that who looks does not hold up who writes, and a commit is one
//!   append. A process that is killed at any time leaves a whole file behind:
//!   what it had committed is there, the rest is not.
//! - **`BEGIN IMMEDIATE`** for all that may write: the rules read before they
//!   write, and what they read must be what they change.
//! - **`synchronous = NORMAL`**: a commit is not forced to the disk, because that
//!   can take longer than a node may take to answer. When the power fails the
//!   last commits may be gone, but with them all processes of this machine that
//!   held a lock. What must never go back are fences, and so a mark is kept
//!   above all that may be granted, and *that* is forced to the disk, every few
//!   minutes. After a boot nothing is granted that is not above it.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redlatch_core::{Ballot, Key, Policy, Reply, Request};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::clock::{Boot, time_of_day};
use super::file::{BookFile, Identity, is_busy};
use super::ledger::{Ledger, SCHEMA};
use crate::node::{Charter, NodeError, Page, Pattern};

/// "rlat", so that a file of another program is not taken for ours.
const APPLICATION: i32 = 0x726c_6174;
const VERSION: i32 = 1;

/// No ballot is granted that is further ahead of the clock: see `rules::tolerance`.
const TOLERANCE: i64 = 10_000;

/// How far ahead of the clock the mark above all ballots is set.
const AHEAD: i64 = 600_000;

/// So many pages are appended before they are moved to their place.
const CHECKPOINT: i32 = 1000;

/// The books of a node, open or to be opened.
pub(super) struct Store {
    file: BookFile,
    boot: Boot,
    policy: Option<Policy>,
    service: Arc<str>,
    open: Option<Open>,
}

struct Open {
    connection: Connection,
    identity: Identity,
    clock: ClockRow,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ClockRow {
    boot: String,
    base: i64,
    floor: i64,
    reserved: i64,
}

impl Store {
    pub(super) fn new(file: BookFile, boot: Boot, charter: &Charter) -> Self {
        Self {
            file,
            boot,
            policy: charter.policy.clone(),
            service: charter.service_prefix.clone(),
            open: None,
        }
    }

    /// Does what the requests ask for, all in one transaction.
    pub(super) fn apply(
        &mut self,
        requests: &[Request],
        deadline: Instant,
    ) -> Result<Vec<Reply>, NodeError> {
        let reads = |request: &Request| matches!(request, Request::Inspect { .. });
        let writes = !requests.iter().all(reads);
        self.attempt(deadline, |books| books.apply_all(requests, writes))
    }

    /// How long each of the keys will still be there unless it is renewed or
    /// released; nothing for those that are not there. A key that never expires
    /// lives for ever.
    pub(super) fn lives(
        &mut self,
        keys: &[Key],
        deadline: Instant,
    ) -> Result<Vec<Option<Duration>>, NodeError> {
        let inspect = |key: &Key| Request::Inspect { key: key.clone() };
        let requests: Vec<Request> = keys.iter().map(inspect).collect();
        let replies = self.apply(&requests, deadline)?.into_iter();
        let life = |reply| match reply {
            Reply::Holder(holder) => Some(holder.remaining.unwrap_or(Duration::MAX)),
            _ => None,
        };
        Ok(replies.map(life).collect())
    }

    /// The keys that match, a page of them after `after`.
    pub(super) fn scan(
        &mut self,
        pattern: &Pattern,
        after: Option<&str>,
        deadline: Instant,
    ) -> Result<Page, NodeError> {
        self.attempt(deadline, |books| books.scan(pattern, after))
    }

    /// What tells this file from every other one of this machine.
    pub(super) fn identity(&mut self, deadline: Instant) -> Result<String, NodeError> {
        self.attempt(deadline, |books| {
            let Identity { device, inode } = books.open.identity;
            Ok(format!("sqlite {device}:{inode}"))
        })
    }

    /// Does what takes the disk's time, so that no request has to wait for it:
    /// sets the mark above all ballots in time, and moves what was appended to
    /// its place.
    pub(super) fn look_after(&mut self) {
        let Some(open) = &mut self.open else { return };
        let now = open.clock.base + self.boot.age();
        if open.clock.reserved < now + TOLERANCE + AHEAD / 2 {
            DEADLINE.set(Instant::now() + Duration::from_millis(20));
            if let Err(error) = open.reserve(now) {
                tracing::debug!(file = %self.file.path().display(), %error, "will do it later");
            }
        }
        if APPENDED.get() >= CHECKPOINT {
            APPENDED.set(0);
            let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
            if let Err(error) = open.connection.query_row(checkpoint, [], |_| Ok(())) {
                tracing::debug!(file = %self.file.path().display(), %error, "will do it later");
            }
        }
    }

    fn attempt<T>(
        &mut self,
        deadline: Instant,
        mut work: impl FnMut(&mut Books<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, NodeError> {
        DEADLINE.set(deadline);
        // Whoever deletes the file starts anew, and so must we: else we would go
        // on locking in a file that nobody else can see.
        let identity = self.file.identity();
        if self
            .open
            .as_ref()
            .is_some_and(|open| Some(open.identity) != identity)
        {
            tracing::warn!(file = %self.file.path().display(), "another file is there now");
            self.open = None;
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(open(&self.file, &self.boot, deadline)?),
        };
        let mut books = Books {
            open,
            boot: &self.boot,
            policy: self.policy.as_ref(),
            service: &self.service,
        };
        let result = work(&mut books);
        result.map_err(|error| {
            // What else is wrong may be mended by opening it anew.
            if !is_busy(&error) {
                self.open = None;
            }
            self.file.trouble(&error)
        })
    }
}

/// What a transaction needs.
struct Books<'a> {
    open: &'a mut Open,
    boot: &'a Boot,
    policy: Option<&'a Policy>,
    service: &'a str,
}

impl Books<'_> {
    fn apply_all(&mut self, requests: &[Request], writes: bool) -> rusqlite::Result<Vec<Reply>> {
        let behavior = match writes {
            true => TransactionBehavior::Immediate,
            false => TransactionBehavior::Deferred,
        };
        loop {
            let ClockRow {
                base,
                floor,
                reserved,
                ..
            } = self.open.clock;
            let transaction = self.open.connection.transaction_with_behavior(behavior)?;
            // Read only now: the lock may have been waited for.
            let now = base + self.boot.age();
            if writes && now + TOLERANCE > reserved {
                drop(transaction);
                self.open.reserve(now)?;
                continue;
            }
            let ledger = Ledger {
                transaction: &transaction,
                service: self.service,
                policy: self.policy,
                run: &self.boot.id,
                floor: Ballot::at(u64::try_from(floor).unwrap_or(0), 0),
                now: u64::try_from(now).unwrap_or(0),
            };
            let replies = requests.iter().map(|request| ledger.apply(request));
            let replies = replies.collect::<rusqlite::Result<Vec<Reply>>>()?;
            transaction.commit()?;
            return Ok(replies);
        }
    }

    fn scan(&self, pattern: &Pattern, after: Option<&str>) -> rusqlite::Result<Page> {
        const PAGE: usize = 1000;
        let now = self.open.clock.base + self.boot.age();
        let connection = &self.open.connection;
        let count = || connection.query_row("SELECT count(*) FROM locks", [], |row| row.get(0));
        // Once: it takes as long as there are keys.
        let total = after.is_none().then(count).transpose()?;
        let mut rows = connection
            .prepare_cached("SELECT key, last FROM locks WHERE key > ?1 ORDER BY key LIMIT ?2")?;
        let rows = rows.query_map(params![after.unwrap_or(""), PAGE], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?))
        })?;
        let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        let next = (rows.len() == PAGE).then(|| rows[PAGE - 1].0.clone());
        let looked_at = rows.len() as u64;
        let there = rows
            .into_iter()
            .filter(|(key, last)| last.is_none_or(|last| now <= last) && pattern.matches(key));
        Ok(Page {
            keys: there.map(|(key, _)| Key::new(key)).collect(),
            looked_at,
            total,
            next,
        })
    }
}

impl Open {
    /// Raises the mark above all ballots, and forces it to the disk.
    fn reserve(&mut self, now: i64) -> rusqlite::Result<()> {
        let connection = &self.connection;
        let read = "SELECT reserved FROM clock";
        let mut reserved: i64 = connection.query_row(read, [], |row| row.get(0))?;
        if reserved < now + TOLERANCE + AHEAD / 2 {
            reserved = now + TOLERANCE + AHEAD;
            connection.pragma_update(None, "synchronous", "FULL")?;
            let raise = "UPDATE clock SET reserved = max(reserved, ?1)";
            let raised = connection.execute(raise, [reserved]);
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            raised?;
        }
        self.clock.reserved = reserved;
        Ok(())
    }
}

/// Opens the file, makes what is missing in it, and begins the boot.
fn open(file: &BookFile, boot: &Boot, deadline: Instant) -> Result<Open, NodeError> {
    file.prepare()?;
    loop {
        let opened = try_open(file, boot);
        match opened {
            // Several that make the same file at once get in each other's way
            // where SQLite does not wait by itself.
            Ok(Err(error)) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(result) => return result.map_err(|error| file.trouble(&error)),
            Err(error) => return Err(error),
        }
    }
}

fn try_open(file: &BookFile, boot: &Boot) -> Result<rusqlite::Result<Open>, NodeError> {
    let identity = file.identity();
    let opened = (|| {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file.path(), flags)?;
        connection.busy_handler(Some(wait))?;
        // SQLite makes do with reading where it can't write.
        if connection.is_readonly(rusqlite::MAIN_DB)? {
            let readonly = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
            return Err(rusqlite::Error::SqliteFailure(readonly, None));
        }
        // In one transaction: another process may be making it right now.
        let seen = connection.unchecked_transaction()?;
        let tables = "SELECT count(*) FROM sqlite_schema";
        let tables: i64 = seen.query_row(tables, [], |row| row.get(0))?;
        let version: i32 = seen.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let whose: i32 = seen.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        drop(seen);
        Ok((connection, version, whose, tables))
    })();
    let (mut connection, version, whose, tables) = match opened {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error)),
    };
    if whose != APPLICATION && (whose != 0 || version != 0 || tables != 0) {
        let problem = "belongs to another program: give another path";
        return Err(file.foreign(problem));
    }
    if version > VERSION {
        let problem = "was written by a newer redlatch: use that one, or give another path";
        return Err(file.foreign(problem));
    }
    let journal = "PRAGMA journal_mode = WAL";
    match connection.query_row(journal, [], |row| row.get::<_, String>(0)) {
        Err(error) => return Ok(Err(error)),
        Ok(mode) if mode == "wal" => {}
        Ok(_) => {
            let problem = "is on a file system without shared memory: give another path";
            return Err(file.foreign(problem));
        }
    }
    Ok((|| {
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        // Instead of what SQLite does within a commit.
        connection.wal_hook(Some(|_, pages| {
            APPENDED.set(pages);
            Ok(())
        }));
        // A short-lived process must not wait for the disk when it ends.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        let clock = begin(&mut connection, boot)?;
        Ok(Open {
            connection,
            // Asked before it was opened: when another took its place since, the
            // next look finds that they differ.
            identity: identity.unwrap_or(Identity {
                device: 0,
                inode: 0,
            }),
            clock,
        })
    })())
}

/// Makes the tables where they are missing, and begins a boot where this is
/// the first that the file hears of it.
fn begin(connection: &mut Connection, boot: &Boot) -> rusqlite::Result<ClockRow> {
    let version = |connection: &Connection| {
        connection.query_row("PRAGMA user_version", [], |row| row.get::<_, i32>(0))
    };
    if version(connection)? == VERSION
        && let Some(clock) = read_clock(connection)?
        && clock.boot == *boot.id
    {
        return Ok(clock);
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version(&transaction)? == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    let earlier = read_clock(&transaction)?;
    let clock = match earlier {
        Some(clock) if clock.boot == *boot.id => clock,
        earlier => {
            let clock = next_boot(earlier.as_ref(), boot);
            transaction.execute(
                "INSERT OR REPLACE INTO clock (one, boot, base, floor, reserved)
                 VALUES (1, ?1, ?2, ?3, ?4)",
                params![clock.boot, clock.base, clock.floor, clock.reserved],
            )?;
            clock
        }
    };
    transaction.commit()?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(clock)
}

/// The node's clock for this boot: the time of day at its first use, and from
/// then on the time since boot, so that nobody can step it while leases run.
///
/// It never goes back from boot to boot, whatever the time of day says: it
/// begins no lower than the mark above all that was granted, and that mark is
/// the floor below which nothing is granted any more.
///
/// Leases of an earlier boot are kept to their end. Their processes are dead,
/// so no harm can come from a lease that ends too early, and none is longer
/// than its ttl. To free them at once would be safe for who held them, but some
/// were left there on purpose: a lock that is kept for a while after the work
/// is done, so that nobody does it again.
fn next_boot(earlier: Option<&ClockRow>, boot: &Boot) -> ClockRow {
    let floor = earlier.map_or(0, |clock| clock.reserved);
    let now = time_of_day().max(floor);
    ClockRow {
        boot: boot.id.to_string(),
        base: now - boot.age(),
        floor,
        reserved: now + TOLERANCE + AHEAD,
    }
}

fn read_clock(connection: &Connection) -> rusqlite::Result<Option<ClockRow>> {
    let read = "SELECT boot, base, floor, reserved FROM clock";
    let row = connection.query_row(read, [], |row| {
        Ok(ClockRow {
            boot: row.get(0)?,
            base: row.get(1)?,
            floor: row.get(2)?,
            reserved: row.get(3)?,
        })
    });
    row.optional()
}

thread_local! {
    /// How long this thread waits for the lock of the file.
    static DEADLINE: Cell<Instant> = Cell::new(Instant::now());
    /// How many pages had been appended at this thread's last commit.
    static APPENDED: Cell<i32> = const { Cell::new(0) };
}

/// Waits a moment for whoever has the file's lock. SQLite's own waiting sleeps
/// for up to 100 ms between two looks; a transaction takes a tenth of one.
fn wait(tries: i32) -> bool {
    let left = DEADLINE.get().saturating_duration_since(Instant::now());
    let pause = Duration::from_micros(50 << tries.clamp(0, 6));
    std::thread::sleep(pause.min(left));
    !left.is_zero()
}
