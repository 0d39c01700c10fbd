//! `redlatch elect`: runs a command while being the leader, term after term.

use super::lease::{Terms, program_name};
use crate::args::ElectArgs;
use crate::child::{Orders, Signals, Verdict, supervise};
use crate::connect::connect;
use crate::exit_code::{ExitCode, Failure};
use crate::hold::{Patience, Wish};
use crate::output::Output;
use crate::settings::Settings;

/// The number of the term, for the command.
const TERM: &str = "REDLATCH_TERM";

pub(super) async fn run(
    args: ElectArgs,
    settings: Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    let terms = Terms::new(&args.lease, &settings)?;
    let mut signals = Signals::catch()?;
    let program = args
        .command
        .first()
        .and_then(|program| program_name(program));
    let latch = tokio::select! {
        biased;
        signal = signals.recv() => return Ok(ExitCode::DieOf(signal)),
        latch = connect(&settings, program, output) => latch?,
    };
    let mutex = terms.mutex(&latch, &args.name, &args.lease);
    let wish = Wish {
        latch: &latch,
        mutex: &mutex,
        patience: Patience::ForEver,
        talk: true,
        output,
    };
    loop {
        let hold = match wish.acquire(&mut signals).await? {
            Ok(hold) => hold,
            Err(death) => return Ok(death),
        };
        let term = hold.guard.fence();
        output.info(&format!("leader of {:?}, term {term}", args.name));
        let mut environment = hold.environment();
        environment.push((TERM.into(), term.to_string()));
        let orders = Orders {
            command: args.command.clone(),
            environment,
            guard: &hold.guard,
            ttl: terms.ttl,
            kill_after: terms.kill_after,
            max_runtime: None,
            on_lost: args.lease.on_lost,
            output: *output,
        };
        let verdict = supervise(orders, &mut signals).await;
        hold.release(output).await;
        match verdict? {
            // Another one may lead now; this one stands again.
            Verdict::Lost => {}
            verdict => {
                latch.close().await;
                return Ok(verdict.into_code());
            }
        }
    }
}
