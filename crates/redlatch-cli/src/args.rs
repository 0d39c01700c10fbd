//! The command line, as it was typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::duration;
use crate::exit_code::ExitCode;

/// Distributed locks from the command line: flock for a fleet
#[derive(Debug, Parser)]
#[command(
    name = "redlatch",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Try it:  redlatch run hello -- echo \"I hold the lock\"\n\
                  More:    redlatch help run"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// A lock server; give it once for each node of a quorum
    ///
    /// redis://[user@]host[:port][/database], rediss://…, unix:///path, or sqlite:PATH for locks
    /// that hold on this machine only. A password belongs in REDLATCH_NODES or in the
    /// configuration file: everybody on the machine can read the arguments of a process.
    #[arg(long = "node", value_name = "URL", global = true)]
    pub(crate) nodes: Vec<String>,

    /// What stands before each lock's name in its key [default: redlatch:]
    #[arg(long, value_name = "P", global = true)]
    pub(crate) prefix: Option<String>,

    /// Read settings from this file, and from no other
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,

    /// Write JSON, one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    pub(crate) color: ColorChoice,

    /// Say only what went wrong
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Say more; twice for even more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

/// One variant for each file in `cmd`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Elect(ElectArgs),
    Ls(LsArgs),
    Show(ShowArgs),
    Wait(WaitArgs),
    Top(TopArgs),
    Release(ReleaseArgs),
    Init(InitArgs),
    Doctor(DoctorArgs),
    Bench(BenchArgs),
    Config(ConfigArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Run a command while holding a lock
///
/// Waits until nobody else has the lock NAME, on this machine or any other that uses the same
/// nodes, runs the command, and gives the lock back. The lock is renewed while the command runs.
/// If it is lost, the command is ended before somebody else can have the lock.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "redlatch run [OPTIONS] <NAME> [--] <CMD> [ARGS]...\n       \
                      redlatch run [OPTIONS] <NAME> -c <STR>",
    group(ArgGroup::new("what").args(["command", "shell"]).required(true)),
    after_long_help = RUN_HELP
)]
pub(crate) struct RunArgs {
    /// The lock's name
    pub(crate) name: String,

    /// Don't wait: fail if somebody else has the lock
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// Wait for this long at most [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,

    /// Exit with this code when somebody else has the lock; 0 skips without a word
    #[arg(short = 'E', long, value_name = "N", default_value_t = ExitCode::BUSY)]
    pub(crate) conflict_exit_code: u8,

    /// End the command after this time: TERM, then KILL, and exit with 124
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) max_runtime: Option<Duration>,

    /// Hold the lock for at least this long, also when the command ends sooner
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) min_hold: Option<Duration>,

    /// Run only if no run for this SLOT has succeeded, on any machine, as far as --once-for reaches
    /// back
    #[arg(long, value_name = "SLOT")]
    pub(crate) once: Option<String>,

    /// For how long a slot that was run is remembered [default: 1h, or max_ttl if that is shorter]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, requires = "once")]
    pub(crate) once_for: Option<Duration>,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// Give this text to a shell ($SHELL, or /bin/sh) instead of a command
    #[arg(short = 'c', long = "command", id = "shell", value_name = "STR")]
    pub(crate) shell: Option<OsString>,

    /// The command and its arguments; no shell is involved
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

const RUN_HELP: &str = "\
Examples:
  redlatch run backup -- pg_dump shop -f shop.sql
      Wait for the lock `backup`, then make the dump.
  redlatch run -n backup -- pg_dump shop -f shop.sql
      Don't wait: exit with 75 if somebody else makes one.
  redlatch run -w 10 -E 0 cleanup -- ./cleanup
      Wait for 10 s at most, then skip it without a word.
  redlatch run report --once \"$(date +%F)\" -- ./report
      On every machine at once: one of them runs it, the others skip it. That is remembered for an
      hour; with several nodes for max_ttl, a minute unless set.
  redlatch run import -c './fetch | ./load'
      A shell line instead of a command.
  redlatch --node redis://a --node redis://b --node redis://c run deploy -- ./deploy
      A lock that survives the loss of one of three servers.

The command's environment:
  REDLATCH_LOCK   the lock's name
  REDLATCH_FENCE  a number that grows with every holder: a database can refuse lower ones
  REDLATCH_TOKEN  names the lease; `redlatch run` of the same name inside uses it and does not wait

Exit codes:
  the command's own; 128+N if it died of signal N
  64 wrong usage            69 nodes can't be reached      75 somebody else has the lock
  79 lock lost, command killed    124 --max-runtime is over      125 a failure of redlatch's own
  126 can't be run          127 not found

Durations: 1500ms, 10s, 5m, 2h; a bare number is seconds.";

/// Run a command while being the leader
///
/// Waits until nobody else is the leader, and runs the command. When leadership is lost the
/// command is ended, and redlatch stands for election again: the command is started anew for each
/// term. When the command ends by itself, leadership is given up and its exit code returned.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "redlatch elect [OPTIONS] <NAME> [--] <CMD> [ARGS]...",
    after_long_help = ELECT_HELP
)]
pub(crate) struct ElectArgs {
    /// The election's name; it is a lock's name too
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,

    /// The command and its arguments; no shell is involved
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

const ELECT_HELP: &str = "\
Example:
  redlatch elect scheduler -- ./scheduler
      On every machine: one of them runs the scheduler at any time.

The command's environment has what that of `redlatch run` has, and:
  REDLATCH_TERM   the number of the term: grows with each, and is the lock's fence";

/// How a lock is held while a command runs.
#[derive(Debug, clap::Args)]
pub(crate) struct LeaseArgs {
    /// How long the lock stays taken after this machine has vanished [default: 30s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) ttl: Option<Duration>,

    /// The time from TERM to KILL when the command is to be ended; at most a third of the ttl
    /// [default: 5s, or a third of the ttl if that is shorter]
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,

    /// What to do when the lock is lost
    #[arg(long, value_name = "WHAT", default_value = "kill")]
    pub(crate) on_lost: OnLost,

    /// A few words for those who ask who holds the lock
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// End the command before somebody else can have the lock
    Kill,
    /// Say so, and let the command go on
    Warn,
}

/// List the locks that somebody holds
///
/// Goes through the keys of all nodes in small steps, so that no server is held up, however many
/// keys of others it has. The user of a server needs the right +scan.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  redlatch ls
  redlatch ls 'backup:*'
  redlatch ls --json | jq -r 'select(.remaining_ms == null) | .name'
      Locks that never expire.")]
pub(crate) struct LsArgs {
    /// Only names like this: * for any characters, ? for one, [a-z] for one of these
    #[arg(default_value = "*", hide_default_value = true)]
    pub(crate) glob: String,
}

/// Show who holds a lock
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The lock's name
    pub(crate) name: String,
}

/// Wait until nobody holds a lock, without taking it
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  redlatch wait deploy -w 5m && ./restart
      Exits with 75 if somebody still holds it after five minutes. Somebody may take it the
      moment after: to keep others out, use `redlatch run`.")]
pub(crate) struct WaitArgs {
    /// The lock's name
    pub(crate) name: String,

    /// Wait for this long at most [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
}

/// Watch nodes and locks on a live screen
///
/// Shows the nodes, how fast they answer and whether they grant, and the locks that somebody
/// holds. A lock can be released from there, after a question. Without a terminal, or with
/// --json, it writes one snapshot and ends.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  redlatch top
  redlatch top --readonly 'backup:*'
  redlatch top --json | jq 'select(.kind == \"node\" and .up == false)'

Keys:
  up, down, j, k, PgUp, PgDn, Home, End   choose a lock
  Enter   its details                     /   filter by name, host, user, program or note
  s, S    sort by the next or the previous column      r   the other way round
  x       release it by force, after a question        ?   these keys
  q       quit

A pause of at least --interval is made between two looks at the locks, and of as long as the
last look took, so that a server with many keys of others is not kept busy.")]
pub(crate) struct TopArgs {
    /// Only names like this, as for `redlatch ls`
    #[arg(default_value = "*", hide_default_value = true)]
    pub(crate) glob: String,

    /// How often to look
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = duration::parse)]
    pub(crate) interval: Duration,

    /// Switch the release of locks off
    #[arg(long)]
    pub(crate) readonly: bool,
}

/// Take a lock away from whoever holds it
///
/// The holder finds out when it renews its lease; until then it goes on, beside whoever takes the
/// lock next.
#[derive(Debug, clap::Args)]
#[command(
    group(ArgGroup::new("which").args(["owner", "force"]).required(true)),
    after_long_help = "\
Examples:
  redlatch release backup --owner \"$REDLATCH_TOKEN\"
      Only if it is still held by this lease.
  redlatch release backup --force
      Whoever holds it. Asks first; without a terminal it needs --yes.")]
pub(crate) struct ReleaseArgs {
    /// The lock's name
    pub(crate) name: String,

    /// Only if this lease holds it: its token, or the part before the space
    #[arg(long, value_name = "TOKEN")]
    pub(crate) owner: Option<String>,

    /// Whoever holds it
    #[arg(long)]
    pub(crate) force: bool,

    /// Don't ask
    #[arg(short, long, requires = "force")]
    pub(crate) yes: bool,
}

/// Arm new nodes, so that they grant locks at once
///
/// A server that is new does not know that it is, and first waits until every lease that it may
/// have forgotten has run out. Use the settings of the programs that will lock: nodes, prefix,
/// deployment, max_ttl.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  redlatch --node redis://a --node redis://b --node redis://c init
      Arms them if all of them are new.
  redlatch init --assume-fresh
      Arms every node, also beside others that have been in use. Only if you know that none of
      them has forgotten a lock that somebody holds.
  redlatch init --reconfigure
      Makes the nodes belong to the deployment of these settings. All locks are lost.")]
pub(crate) struct InitArgs {
    /// Arm every node: none has forgotten a lock that somebody holds
    #[arg(long)]
    pub(crate) assume_fresh: bool,

    /// Change the number of nodes, the deployment's name or max_ttl, by way of a quarantine
    #[arg(long, conflicts_with = "assume_fresh")]
    pub(crate) reconfigure: bool,

    /// Don't ask
    #[arg(short, long, requires = "reconfigure")]
    pub(crate) yes: bool,
}

/// Check the nodes from this machine, and say what to do
///
/// Exits with 0 only when all is well, and with 1 when something is not.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {}

/// Measure the nodes from this machine, and say which settings suit them
///
/// This puts load on the nodes: for a few seconds it takes and releases locks as fast as they let
/// it. Its locks have names of their own that nobody else uses, and all of them are released in the
/// end, also after Ctrl-C. It measures how fast each node answers, one lock at a time, many at once,
/// and how long it takes to hand a lock to another client; and it says which node_timeout and ttl
/// suit that.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  redlatch bench
  redlatch bench --seconds 60 --tasks 64
      Longer, to see rare delays too, and with more load.
  redlatch bench --json | jq 'select(.kind == \"setting\")'")]
pub(crate) struct BenchArgs {
    /// How long it takes in all
    #[arg(long, value_name = "N", default_value = "5", value_parser = duration::parse)]
    pub(crate) seconds: Duration,

    /// How many locks are taken and released at once, for a third of the time
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) tasks: usize,
}

/// Show the settings, and where each comes from
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {}

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  redlatch completions bash > ~/.local/share/bash-completion/completions/redlatch
  redlatch completions zsh > ~/.zfunc/_redlatch
  redlatch completions fish > ~/.config/fish/completions/redlatch.fish
  redlatch completions powershell >> $PROFILE")]
pub(crate) struct CompletionsArgs {
    /// Which shell
    pub(crate) shell: Shell,
}

/// Print the manual page, of redlatch or of one of its commands
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Example:  redlatch man run | man -l -")]
pub(crate) struct ManArgs {
    /// Which command
    pub(crate) command: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_makes_sense() {
        Args::command().debug_assert();
    }

    #[test]
    fn what_follows_the_command_is_its_own() {
        let args = ["redlatch", "run", "x", "-w", "5", "--", "echo", "-n", "-q"];
        let Command::Run(run) = Args::parse_from(args).command else {
            panic!("not a run");
        };
        assert_eq!(run.command, ["echo", "-n", "-q"]);
        assert_eq!(run.wait, Some(Duration::from_secs(5)));
        let args = Args::parse_from(["redlatch", "run", "x", "echo", "-n", "--json"]);
        assert!(!args.global.json);
    }
}
