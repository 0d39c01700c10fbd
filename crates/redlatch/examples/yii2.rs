//! Meeting a Yii2 application on its own mutex: same key, same command.
//!
//! ```sh
//! cargo run -p redlatch --example yii2 --features yii2 -- redis://127.0.0.1
//! ```
//!
//! The URL can also be in `REDIS_URL`. Without one, a throw-away server is
//! started. In place of a PHP program, the commands of `yii\redis\Mutex` are
//! sent as they are.

mod support;

use std::error::Error;
use std::time::Duration;

use redlatch::{KeyScheme, Redlatch};

/// How Yii2 releases.
const YII_RELEASE: &str = r#"if redis.call("GET",KEYS[1])==ARGV[1] then
    return redis.call("DEL",KEYS[1])
else
    return 0
end"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let nodes = support::nodes();
    let url = nodes.urls[0].as_str();

    // The component's `keyPrefix`. Yii2 makes one from the application's id
    // where none is set, so set it in its configuration.
    let scheme = KeyScheme::yii2("shop:");
    let key = scheme.key("stock")?.to_string();
    println!("Yii2's mutex \"stock\" has the key {key}");
    // As PHP says: md5(json_encode(['yii\redis\Mutex', 'stock']))
    assert_eq!(key, "shop:bd5f101102a14d28f0bdad68adca4bc2");

    let builder = Redlatch::builder().nodes([url]).key_scheme(scheme);
    let latch = builder.build().await?;
    let stock = latch.mutex("stock");
    let client = redis::Client::open(url)?;
    let mut yii = client.get_multiplexed_async_connection().await?;
    let mut yii_acquires = redis::cmd("SET");
    yii_acquires.arg(&key).arg("H8fbsjKe0wSjNzXg4qRb");
    yii_acquires.arg("NX").arg("PX").arg(30_000);

    let guard = stock.lock_timeout(Duration::from_secs(3)).await?;
    let refused: Option<String> = yii_acquires.query_async(&mut yii).await?;
    assert_eq!(refused, None);
    println!("while we hold it, Yii2 is refused");
    guard.release().await?;

    let granted: Option<String> = yii_acquires.query_async(&mut yii).await?;
    assert_eq!(granted.as_deref(), Some("OK"));
    let late = stock.lock_timeout(Duration::from_millis(100)).await;
    let error = late.expect_err("Yii2 has it");
    println!("while Yii2 holds it, we are refused:\n  {error}");

    let mut yii_releases = redis::cmd("EVAL");
    yii_releases.arg(YII_RELEASE).arg(1).arg(&key);
    yii_releases.arg("H8fbsjKe0wSjNzXg4qRb");
    let released: i32 = yii_releases.query_async(&mut yii).await?;
    assert_eq!(released, 1);
    let guard = stock.try_lock().await?.expect("it is free");
    println!("when Yii2 has released it, it is ours");
    guard.release().await?;
    latch.close().await;
    Ok(())
}
