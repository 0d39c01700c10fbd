//! Several people edit the same settings file. Each reads it, changes one line
//! and writes it back. Without the lock, edits are lost; with it, none is.
//!
//! ```sh
//! cargo run -p redlatch --example settings_together -- redis://127.0.0.1
//! ```
//!
//! The URL can also be in `REDIS_URL`. Without one, a throw-away server is started.

mod support;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use redlatch::{Redlatch, RunError};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

const EDITORS: usize = 5;
const EDITS: usize = 6;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let nodes = support::nodes();
    let folder = std::env::temp_dir().join(format!("settings-together-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let file = folder.join("warehouse.conf");

    let all = EDITORS * EDITS;
    println!("{EDITORS} editors make {EDITS} edits each, {all} in all.");
    let without = edit_together(&nodes.urls[0], &file, false).await?;
    println!("  without the lock: {without} of {all} edits are in the file");
    let with = edit_together(&nodes.urls[0], &file, true).await?;
    println!("  with the lock:    {with} of {all} edits are in the file");
    fs::remove_dir_all(&folder)?;

    assert!(without < all, "editors that don't lock lose edits");
    assert_eq!(with, all, "editors that lock lose none");
    Ok(())
}

/// Lets all editors work at the same time; how many edits are in the file then.
async fn edit_together(url: &str, file: &Path, locked: bool) -> Result<usize, Box<dyn Error>> {
    fs::write(file, "")?;
    let start = Arc::new(Barrier::new(EDITORS));
    let mut editors = JoinSet::new();
    for editor in 1..=EDITORS {
        // A client each, as if each sat at a machine of their own.
        let latch = Redlatch::connect(url).await?;
        let settings = latch
            .mutex("warehouse.conf")
            .note(format!("editor {editor}"));
        let (file, start) = (file.to_owned(), start.clone());
        editors.spawn(async move {
            start.wait().await;
            for number in 1..=EDITS {
                let line = format!("setting_{editor}_{number} = on");
                match locked {
                    true => settings.run(|_| edit(&file, &line)).await?,
                    false => edit(&file, &line).await.map_err(RunError::Body)?,
                }
            }
            latch.close().await;
            Ok::<_, RunError<io::Error>>(())
        });
    }
    for done in editors.join_all().await {
        done?;
    }
    Ok(fs::read_to_string(file)?.lines().count())
}

/// Reads the settings, adds a line, and writes them back.
async fn edit(file: &Path, line: &str) -> io::Result<()> {
    let mut settings = fs::read_to_string(file)?;
    tokio::time::sleep(Duration::from_millis(5)).await; // the editor thinks
    settings.push_str(line);
    settings.push('\n');
    // Renamed into place, so that nobody reads half a file.
    let new = file.with_extension(line.replace(" = on", ""));
    fs::write(&new, settings)?;
    fs::rename(&new, file)
}
