//! How many rounds contenders need that begin at once and split the nodes
//! between them: the library itself, over simulated nodes that run the shipped
//! rules, beside plain Redlock's random retry.
//!
//! ```sh
//! cargo run --release -p redlatch-bench-rounds            # the table in docs/performance.md
//! cargo run --release -p redlatch-bench-rounds -- 7 20    # another seed, so many bursts a line
//! ```
//!
//! The seed decides everything, and time is simulated: the figures are the same
//! on every machine.

mod contest;
mod network;
mod node;
mod redlock;
mod table;

use redlatch_testkit::Dice;

fn main() {
    let numbers: Option<Vec<u64>> = std::env::args()
        .skip(1)
        .map(|text| text.parse().ok())
        .collect();
    match numbers.as_deref() {
        Some([]) => print!("{}", table::table(1, 200)),
        Some([seed, bursts]) if *bursts > 0 => print!("{}", table::table(*seed, *bursts)),
        _ => {
            eprintln!("usage: redlatch-bench-rounds [SEED BURSTS]");
            std::process::exit(64);
        }
    }
}

/// The id of a token.
fn token(dice: &mut Dice) -> String {
    format!("{:016x}{:016x}", dice.number(), dice.number())
}
