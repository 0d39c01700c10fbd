//! A holder is paused for longer than its lease and then writes. Without a fence
//! its late write wipes out somebody else's; with one the database refuses it.
//!
//! ```sh
//! cargo run -p redlatch --example fencing_sqlite -- redis://127.0.0.1
//! ```
//!
//! The URL can also be in `REDIS_URL`. Without one, a throw-away server is
//! started. The paused holder is a process of its own that is stopped with
//! SIGSTOP. Exits with an error unless both endings are as described.

mod support;

use std::error::Error;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use redlatch::{Guard, Redlatch};
use rusqlite::{Connection, TransactionBehavior, params};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Short, so that nobody waits long for a holder that is paused.
const TTL: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<()> {
    // The holder that is paused is this program again, with these arguments.
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, url, database, how] = &args[..]
        && first == "holder"
    {
        return hold(url, Path::new(database), how == "fenced").await;
    }

    let nodes = support::nodes();
    let url = &nodes.urls[0];
    println!("Two holders add 10 and 50 to a balance of 100. The first one is paused.");
    let without = deposits(url, false).await?;
    let with = deposits(url, true).await?;

    assert_eq!(without, 110, "without fences the second deposit is lost");
    assert_eq!(with, 160, "with fences both deposits are there");
    Ok(())
}

/// Lets a holder be paused while another one works, and says what the balance
/// is in the end.
async fn deposits(url: &str, fenced: bool) -> Result<i64> {
    let how = if fenced { "fenced" } else { "unfenced" };
    println!("\n{how}:");
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("bank.sqlite");
    let database = open(&path)?;
    database.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL);
         INSERT INTO account VALUES (1, 100, 0);",
    )?;

    let mut first = Holder::start(url, &path, how)?;
    first.hears("has read")?;
    first.pause()?;
    println!("  the first holder is paused, between its last look at the lock and its write");

    let latch = Redlatch::connect(url).await?;
    let account = latch.mutex("account:1").ttl(TTL);
    let guard = account.lock_timeout(10 * TTL).await?;
    println!("  its lease has run out: the second holder has the lock");
    let balance = read(&database, &guard, fenced)?.ok_or("nobody came later")?;
    let written = write(&database, &guard, balance + 50, fenced)?;
    assert!(written, "nobody came later");
    println!(
        "  the second holder read {balance} and wrote {}",
        balance + 50
    );
    guard.release().await?;

    first.resume()?;
    first.ends()?;
    latch.close().await;
    let balance = database.query_row("SELECT balance FROM account", [], |row| row.get(0))?;
    println!("  in the end the balance is {balance}");
    Ok(balance)
}

/// The first holder: reads, is paused, and writes. When the write is refused,
/// it does its work again under a new lease.
async fn hold(url: &str, path: &Path, fenced: bool) -> Result<()> {
    let latch = Redlatch::connect(url).await?;
    let account = latch.mutex("account:1").ttl(TTL);
    let database = open(path)?;

    let guard = account.lock().await?;
    let balance = read(&database, &guard, fenced)?.ok_or("nobody came later")?;
    guard.ensure_held()?; // no check helps against what comes after it
    println!("has read {balance}");
    std::io::stdin().read_line(&mut String::new())?;

    if write(&database, &guard, balance + 10, fenced)? {
        println!("wrote {}, late as it was", balance + 10);
        return Ok(());
    }
    println!("wanted to write {}, and was refused", balance + 10);
    drop(guard);
    let guard = account.lock().await?;
    let balance = read(&database, &guard, fenced)?.ok_or("nobody came later")?;
    assert!(write(&database, &guard, balance + 10, fenced)?);
    println!(
        "took the lock again, read {balance} and wrote {}",
        balance + 10
    );
    guard.release().await?;
    latch.close().await;
    Ok(())
}

/// Reads the balance. With fences it first registers its own, so that whoever
/// came before can't write any more; nothing when somebody came later.
fn read(database: &Connection, guard: &Guard, fenced: bool) -> rusqlite::Result<Option<i64>> {
    let transaction =
        rusqlite::Transaction::new_unchecked(database, TransactionBehavior::Immediate)?;
    if fenced {
        let registered = transaction.execute(
            "UPDATE account SET fence = ?1 WHERE id = 1 AND fence <= ?1",
            params![fence(guard)],
        )?;
        if registered == 0 {
            return Ok(None);
        }
    }
    let sql = "SELECT balance FROM account WHERE id = 1";
    let balance = transaction.query_row(sql, [], |row| row.get(0))?;
    transaction.commit()?;
    Ok(Some(balance))
}

/// Writes the balance; false when a later holder was there.
fn write(
    database: &Connection,
    guard: &Guard,
    balance: i64,
    fenced: bool,
) -> rusqlite::Result<bool> {
    let rows = match fenced {
        true => database.execute(
            "UPDATE account SET balance = ?1 WHERE id = 1 AND fence <= ?2",
            params![balance, fence(guard)],
        )?,
        false => database.execute("UPDATE account SET balance = ?1 WHERE id = 1", [balance])?,
    };
    Ok(rows == 1)
}

/// The fence as databases have integers.
fn fence(guard: &Guard) -> i64 {
    i64::try_from(guard.fence()).expect("fences fit")
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let database = Connection::open(path)?;
    database.busy_timeout(Duration::from_secs(10))?;
    Ok(database)
}

/// The process that is paused, as its parent sees it.
struct Holder {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start(url: &str, database: &Path, how: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("holder").arg(url).arg(database).arg(how);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().ok_or("the holder has no ears")?;
        let stdout = child.stdout.take().ok_or("the holder has no mouth")?;
        let lines = BufReader::new(stdout).lines();
        Ok(Self {
            child,
            stdin,
            lines,
        })
    }

    /// Waits for its next line.
    fn hears(&mut self, beginning: &str) -> Result<()> {
        let line = self.lines.next().ok_or("the holder has failed")??;
        println!("  the first holder {line}");
        assert!(line.starts_with(beginning));
        Ok(())
    }

    fn pause(&self) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP)?;
        waitpid(Some(pid), WaitOptions::UNTRACED)?; // until it really stands still
        Ok(())
    }

    fn resume(&mut self) -> Result<()> {
        println!("  the first holder goes on");
        kill_process(Pid::from_child(&self.child), Signal::CONT)?;
        writeln!(self.stdin, "write")?;
        Ok(())
    }

    /// Tells what else it says, until it ends.
    fn ends(mut self) -> Result<()> {
        for line in self.lines.by_ref() {
            println!("  the first holder {}", line?);
        }
        assert!(self.child.wait()?.success(), "the holder has failed");
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Of use only when this program fails before the holder has ended.
        let _ = self.child.kill();
    }
}
