//! What waiting costs while nothing happens.

use std::time::Duration;

use redlatch::Redlatch;
use redlatch_testkit::RedisServer;

use crate::shares::sent;
use crate::worker::{Plan, Worker};

pub(crate) async fn run(length: Duration) {
    for (processes, tasks) in [(1, 200), (200, 1)] {
        let server = RedisServer::start();
        let latch = Redlatch::builder().nodes([server.url()]);
        let latch = latch.node_timeout(Duration::from_secs(1)).build().await;
        let latch = latch.expect("the server is there");
        let _held = latch.mutex("hot").lock().await.expect("nobody has it");
        let mut workers: Vec<Worker> = (0..processes)
            .map(|_| Worker::start(&server.url(), &Plan::ON_COMMAND))
            .collect();
        for worker in &mut workers {
            worker.tell(&format!("wait {tasks}"));
            worker.hear();
        }
        while server.queue("hot").len() < processes {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let before = sent(&server);
        tokio::time::sleep(length).await;
        // The holder renews its lease; that is not the cost of waiting.
        let renewals = (length.as_secs_f64() / (10.0 / 3.0)).floor();
        let commands = (sent(&server) - before) as f64 - renewals;
        println!(
            "{processes} process(es) of {tasks} task(s) wait for a held lock: {:.2} commands a \
             second in all, {:.3} for each process",
            commands / length.as_secs_f64(),
            commands / length.as_secs_f64() / processes as f64
        );
    }
    println!();
}
