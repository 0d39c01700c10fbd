//! Eight processes sell the stock of one article. Without the lock they sell
//! what is not there; with it, exactly the stock.
//!
//! ```sh
//! cargo run -p redlatch --example overselling -- redis://127.0.0.1
//! ```
//!
//! The URL can also be in `REDIS_URL`. Without one, a throw-away server is
//! started. The stock is the Redis key `example:stock`, which is deleted at the
//! end. Exits with an error when the locked sale was wrong.

mod support;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::AsyncCommands;
use redlatch::Redlatch;

const SELLERS: usize = 8;
const STOCK: u32 = 40;
const KEY: &str = "example:stock";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The sellers are this program again, with these arguments.
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [first, url, how] = &args[..]
        && first == "seller"
    {
        return sell(url, how == "locked").await;
    }

    let nodes = support::nodes();
    let url = &nodes.urls[0];
    println!("{SELLERS} processes sell an article of which there are {STOCK}.");
    let without = sale(url, "unlocked").await?;
    println!("  without the lock: {without} sold");
    let with = sale(url, "locked").await?;
    println!("  with the lock:    {with} sold");

    assert!(without > STOCK, "sellers that don't lock sell too much");
    assert_eq!(with, STOCK, "sellers that lock sell what there is");
    Ok(())
}

/// Fills the stock, lets all processes sell at the same time, and adds up what
/// each says it has sold.
async fn sale(url: &str, how: &str) -> Result<u32, Box<dyn Error>> {
    let mut redis = connect(url).await?;
    let () = redis.set(KEY, STOCK).await?;
    let program = std::env::current_exe()?;
    let mut sellers: Vec<Child> = Vec::new();
    for _ in 0..SELLERS {
        let mut command = Command::new(&program);
        command.args(["seller", url, how]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        sellers.push(command.spawn()?);
    }
    let mut lines: Vec<_> = sellers
        .iter_mut()
        .filter_map(|seller| seller.stdout.take())
        .map(|stdout| BufReader::new(stdout).lines())
        .collect();
    for lines in &mut lines {
        lines.next().ok_or("a seller did not come up")??;
    }
    for seller in &mut sellers {
        let stdin = seller.stdin.as_mut().ok_or("a seller has no ears")?;
        writeln!(stdin, "go")?;
    }
    let mut sold = 0;
    for lines in &mut lines {
        let line = lines.next().ok_or("a seller has failed")??;
        sold += line.parse::<u32>()?;
    }
    for mut seller in sellers {
        assert!(seller.wait()?.success(), "a seller has failed");
    }
    let () = redis.del(KEY).await?;
    Ok(sold)
}

/// One seller: sells one piece after the other until none is left.
async fn sell(url: &str, locked: bool) -> Result<(), Box<dyn Error>> {
    let latch = Redlatch::connect(url).await?;
    let stock = latch.mutex(KEY);
    let mut redis = connect(url).await?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;

    let mut sold = 0;
    loop {
        let guard = match locked {
            true => Some(stock.lock_timeout(Duration::from_secs(30)).await?),
            false => None,
        };
        // Read, think, write: what databases call a lost update.
        let left: u32 = redis.get(KEY).await?;
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        if let Some(guard) = &guard {
            guard.ensure_held()?;
        }
        let () = redis.set(KEY, left - 1).await?;
        sold += 1;
        if let Some(guard) = guard {
            guard.release().await?;
        }
    }
    println!("{sold}");
    latch.close().await;
    Ok(())
}

async fn connect(url: &str) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    let client = redis::Client::open(url)?;
    client.get_multiplexed_async_connection().await
}
