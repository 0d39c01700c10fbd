//! Exclusion between processes, seen by what they do to something unprotected.
//!
//! Each process reads a number from a file, waits a moment, and writes the next
//! one. Without exclusion increments get lost; with it, every one is found. The
//! file also keeps the fence of its last writer, and each finds a lower one.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use redlatch::Redlatch;

use crate::support::armed;

const TASKS: usize = 3;
const INCREMENTS: usize = 20;

#[test]
fn four_processes_lose_no_increment_over_one_node() {
    let fleet = armed(1);
    assert_eq!(
        count_with_processes(4, &fleet.urls(), true),
        4 * TASKS * INCREMENTS
    );
}

#[test]
fn four_processes_lose_no_increment_over_five_nodes() {
    let fleet = armed(5);
    assert_eq!(
        count_with_processes(4, &fleet.urls(), true),
        4 * TASKS * INCREMENTS
    );
}

#[test]
fn four_processes_lose_no_increment_in_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("locks.db").display());
    assert_eq!(
        count_with_processes(4, &[url], true),
        4 * TASKS * INCREMENTS
    );
}

#[test]
fn without_the_lock_the_same_program_loses_increments() {
    let fleet = armed(1);
    assert!(count_with_processes(4, &fleet.urls(), false) < 4 * TASKS * INCREMENTS);
}

fn count_with_processes(processes: usize, urls: &[String], locked: bool) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let counter = directory.path().join("counter");
    fs::write(&counter, "0 0").unwrap();
    let children: Vec<Child> = (0..processes)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "processes::child", "--nocapture"])
                .env("REDLATCH_TEST_COUNTER", &counter)
                .env("REDLATCH_TEST_NODES", urls.join(" "))
                .env("REDLATCH_TEST_LOCKED", locked.to_string())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    read(&counter).0
}

/// One of the processes; does nothing unless it was started as one.
#[tokio::test]
async fn child() {
    let Ok(counter) = std::env::var("REDLATCH_TEST_COUNTER") else {
        return;
    };
    let nodes = std::env::var("REDLATCH_TEST_NODES").unwrap();
    let locked = std::env::var("REDLATCH_TEST_LOCKED").unwrap() == "true";
    let builder = Redlatch::builder().nodes(nodes.split(' '));
    let latch = crate::support::build(builder).await;
    let tasks = (0..TASKS).map(|_| {
        let (latch, counter) = (latch.clone(), counter.clone());
        tokio::spawn(async move {
            for _ in 0..INCREMENTS {
                let guard = match locked {
                    true => Some(latch.mutex("counter").lock().await.unwrap()),
                    false => None,
                };
                let fence = guard.as_ref().map_or(0, |guard| guard.fence());
                increment(Path::new(&counter), fence).await;
                if let Some(guard) = guard {
                    guard.ensure_held().unwrap();
                    guard.release().await.unwrap();
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

async fn increment(counter: &Path, fence: u64) {
    let (number, last) = read(counter);
    assert!(fence == 0 || fence > last, "fence {fence} after {last}");
    tokio::time::sleep(Duration::from_millis(1)).await;
    // Whole or not at all, so that a reader never sees half a number.
    let next = counter.with_extension(std::process::id().to_string());
    fs::write(&next, format!("{} {fence}", number + 1)).unwrap();
    fs::rename(&next, counter).unwrap();
}

fn read(counter: &Path) -> (usize, u64) {
    let text = fs::read_to_string(counter).unwrap();
    let (number, fence) = text.split_once(' ').unwrap();
    (number.parse().unwrap(), fence.parse().unwrap())
}
