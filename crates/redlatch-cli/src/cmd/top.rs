//! `redlatch top`: nodes and locks on a live screen.
//!
//! - `state.rs`: what the screen knows; `input.rs`: what keys do to it
//! - `view.rs`, `columns.rs`, `panes.rs`: how it looks
//! - `poll.rs`: asks the nodes, in the background
//! - `screen.rs`: the terminal, and how it was before
//! - `snapshot.rs`: the same once, without a terminal

mod columns;
mod input;
mod panes;
mod poll;
mod screen;
mod snapshot;
mod state;
mod view;

use std::io::{ErrorKind, IsTerminal};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event};
use rustix::process::{Signal, kill_current_process_group};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use self::input::Action;
use self::poll::{Plan, Poller, Update};
use self::screen::Screen;
use self::state::State;
use self::view::Palette;
use crate::args::TopArgs;
use crate::child::{Signals, has_job_control};
use crate::exit_code::{ExitCode, Failure};
use crate::output::Output;
use crate::settings::Settings;

/// How often times are counted on when nothing else happens.
const TICK: Duration = Duration::from_millis(250);

/// Oftener would be nothing but work for the servers.
const OFTEN: Duration = Duration::from_millis(100);

pub(super) async fn run(
    args: TopArgs,
    settings: &Settings,
    output: &Output,
) -> Result<ExitCode, Failure> {
    check(&args)?;
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if output.json || is_dumb || !std::io::stdout().is_terminal() {
        return snapshot::run(args, settings, output).await;
    }
    // Nodes that can't be reached are on the screen.
    Output::mute(true);
    // What is wrong with the settings is said before there is a screen.
    let names = names(settings);
    let connected = poll::connect(settings).await?;
    let (sender, updates) = unbounded_channel();
    let plan = Plan {
        settings: settings.clone(),
        glob: args.glob,
        interval: args.interval,
        sender,
    };
    tokio::spawn(plan.follow(connected));
    let top = Top {
        state: State::new(names, args.readonly),
        poller: None,
        palette: Palette {
            paint: output.paint,
        },
        updates,
    };
    top.show().await
}

pub(super) fn check(args: &TopArgs) -> Result<(), Failure> {
    match args.interval < OFTEN {
        true => Err(Failure::usage("--interval must be 100ms at least")),
        false => Ok(()),
    }
}

/// The nodes as they are called everywhere, without passwords.
fn names(settings: &Settings) -> Vec<String> {
    let nodes = settings.nodes.value.iter();
    nodes.map(ToString::to_string).collect()
}

/// The screen, and what it is made from.
struct Top {
    state: State,
    /// Nothing while too few nodes can be reached.
    poller: Option<Poller>,
    palette: Palette,
    updates: UnboundedReceiver<Update>,
}

impl Top {
    async fn show(mut self) -> Result<ExitCode, Failure> {
        let mut signals = Signals::catch_all([
            Signal::INT,
            Signal::TERM,
            Signal::HUP,
            Signal::QUIT,
            Signal::TSTP,
            Signal::CONT,
        ])?;
        let mut screen = Screen::open(self.palette.paint)?;
        let mut events = events();
        let mut tick = tokio::time::interval(TICK);
        loop {
            let now = Instant::now();
            crate::planted("the screen");
            screen.draw(|frame| view::draw(&self.state, self.palette, now, frame))?;
            tokio::select! {
                Some(update) = self.updates.recv() => self.learn(update),
                event = events.recv() => match event {
                    None => return Err(screen::failure(ErrorKind::UnexpectedEof.into())),
                    Some(Event::Key(key)) => match input::press(&mut self.state, key) {
                        Action::Quit => return Ok(ExitCode::Success),
                        Action::Interrupt => return Ok(ExitCode::DieOf(Signal::INT)),
                        Action::Redraw => screen.reopen()?,
                        action => self.act(action),
                    },
                    // A new size: it is drawn to that anyway.
                    Some(_) => {}
                },
                signal = signals.recv() => match signal {
                    Signal::TSTP => screen.suspend()?,
                    Signal::CONT => screen.reopen()?,
                    signal => return Ok(ExitCode::DieOf(signal)),
                },
                _ = tick.tick() => {}
            }
        }
    }

    fn learn(&mut self, update: Update) {
        match update {
            Update::Connected(poller) => self.poller = Some(poller),
            Update::Nodes(nodes) => self.state.nodes = nodes,
            Update::Progress(progress) => self.state.progress = Some(progress),
            Update::Locks(locks, trouble) => self.state.listed(locks, trouble),
            Update::Released(result) => {
                let is_bad = result.is_err();
                let (Ok(text) | Err(text)) = result;
                self.state.notify(text, is_bad, Instant::now());
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Release { name, lease } => match &self.poller {
                // In the background: it takes as long as the nodes take.
                Some(poller) => drop(tokio::spawn(poller.clone().release(name, lease))),
                None => self.refuse("too few nodes can be reached"),
            },
            Action::Refuse(why) => self.refuse(why),
            // It comes back as a signal, also to whoever started this one.
            Action::Suspend if has_job_control() => {
                let _ = kill_current_process_group(Signal::TSTP);
            }
            Action::Suspend => self.refuse("nobody could let this go on: there is no shell"),
            Action::Nothing | Action::Quit | Action::Interrupt | Action::Redraw => {}
        }
    }

    fn refuse(&mut self, why: &str) {
        self.state.notify(why, true, Instant::now());
    }
}

/// What is typed, read by a thread: that can't be done without waiting.
fn events() -> UnboundedReceiver<Event> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    receiver
}
