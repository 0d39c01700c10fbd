//! The command `redlatch`: all of it is in `lib.rs`.

fn main() -> std::process::ExitCode {
    redlatch_cli::main()
}
