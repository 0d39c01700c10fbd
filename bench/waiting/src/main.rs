//! What it costs to wait for a lock, and who gets it when.
//!
//! ```sh
//! cargo run --release -p redlatch-bench-waiting            # about five minutes
//! cargo run --release -p redlatch-bench-waiting -- --quick # half a minute
//! ```
//!
//! Clients are processes of their own: this program, started again as a worker.

mod hand_off;
mod idle;
mod shares;
mod worker;

use std::time::Duration;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["worker", url, plan] => worker::run(url, plan).await,
        // One line of the table of shares again: processes, tasks, hold in µs.
        ["--shares", processes, tasks, hold, pause, fencing, seconds] => {
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let plan = worker::Plan {
                tasks: number(tasks) as usize,
                hold: Duration::from_micros(number(hold)),
                pause: Duration::from_micros(number(pause)),
                length: Duration::from_secs(number(seconds)),
                fencing: fencing == "fenced",
                handovers: true,
            };
            shares::contest(number(processes) as usize, &plan);
        }
        ["--hand-over", seconds] => {
            shares::in_one_process(Duration::from_secs(seconds.parse().expect("a number")));
        }
        ["--hand-off", times] => hand_off::run(times.parse().expect("a number")).await,
        ["--idle", seconds] => {
            idle::run(Duration::from_secs(seconds.parse().expect("a number"))).await;
        }
        ["--quick"] => run(Duration::from_secs(2), 50).await,
        [] => run(Duration::from_secs(60), 1000).await,
        _ => {
            eprintln!(
                "usage: redlatch-bench-waiting [--quick | --hand-over SECONDS | --hand-off TIMES | \
                 --idle SECONDS | --shares PROCESSES TASKS HOLD_MICROS PAUSE_MICROS \
                 fenced|plain SECONDS]"
            );
            std::process::exit(64);
        }
    }
}

async fn run(length: Duration, hand_offs: usize) {
    shares::run(length).await;
    hand_off::run(hand_offs).await;
    idle::run(length.min(Duration::from_secs(20))).await;
}
