//! The program as a whole: a short run is flat, and what is lost on purpose is found.

#![cfg(target_os = "linux")]

use std::process::{Command, Output};

#[test]
fn a_short_run_is_flat_and_leaves_nothing() {
    let (run, said) = soak(&["--seconds", "15"]);
    assert_eq!(run.status.code(), Some(0), "{said}");
}

#[test]
fn everything_that_is_lost_is_found() {
    let (run, said) = soak(&["--seconds", "12", "--leak", "guards,tasks,handles,memory"]);
    assert_eq!(run.status.code(), Some(1), "{said}");
    for grown in [
        "clients: resident memory",
        "clients: tokio tasks",
        "clients: file handles",
        "nodes: keys",
        // Also when it is gone with its runtime.
        "after its last client: ",
    ] {
        let found = said
            .lines()
            .any(|line| line.starts_with("NOT SOUND") && line.contains(grown));
        assert!(found, "{grown}: {said}");
    }
}

fn soak(arguments: &[&str]) -> (Output, String) {
    let run = Command::new(env!("CARGO_BIN_EXE_redlatch-soak"))
        .args(arguments)
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&run.stdout);
    let said = format!("{said}{}", String::from_utf8_lossy(&run.stderr));
    (run, said)
}
