//! The terminal while the screen is shown, and as it was before.

use std::io::{Stdout, Write, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, style};
use ratatui::{Frame, Terminal};
use rustix::process::Signal;

use crate::exit_code::Failure;
use crate::output::Output;

/// Whether there is anything to set right.
static SHOWN: AtomicBool = AtomicBool::new(false);

/// The screen. When this is dropped the terminal is as it was.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    pub(super) fn open(paint: bool) -> Result<Self, Failure> {
        if paint {
            // Who asked for colours has them, also with NO_COLOR.
            style::force_color_output(true);
        }
        restore_on_panic();
        enter().map_err(failure)?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).map_err(|error| {
            leave();
            failure(error)
        })?;
        Ok(Self { terminal })
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<(), Failure> {
        // A panic in the background ends nothing but its own task.
        if !SHOWN.load(Ordering::SeqCst) {
            return Err(Failure::own(
                "the screen was left after a failure of its own",
            ));
        }
        self.terminal.draw(draw).map(|_| ()).map_err(failure)
    }

    /// Stops this process, and goes on with it.
    pub(super) fn suspend(&mut self) -> Result<(), Failure> {
        leave();
        let _ = signal_hook::low_level::emulate_default_handler(Signal::TSTP.as_raw());
        self.reopen()
    }

    /// After the process was stopped, or another one wrote on the screen.
    pub(super) fn reopen(&mut self) -> Result<(), Failure> {
        // First as it was: what is remembered of that must not be our own setting.
        let _ = disable_raw_mode();
        enter().map_err(failure)?;
        // A new one knows nothing of what is there, and draws all. To clear the old
        // one would ask the terminal where the cursor is, and wait for the answer
        // that the thread for keys gets.
        let cleared = execute!(stdout(), Clear(ClearType::All));
        cleared.map_err(failure)?;
        self.terminal = Terminal::new(CrosstermBackend::new(stdout())).map_err(failure)?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

pub(super) fn failure(error: std::io::Error) -> Failure {
    Failure::own(format!("can't use the terminal: {error}"))
        .hint("`redlatch top | cat` writes one snapshot without it")
}

fn enter() -> std::io::Result<()> {
    Output::mute(true);
    SHOWN.store(true, Ordering::SeqCst);
    enable_raw_mode()
        .and_then(|()| execute!(stdout(), EnterAlternateScreen))
        .inspect_err(|_| leave())
}

/// Sets the terminal as it was; twice does no harm.
pub(super) fn leave() {
    if SHOWN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = stdout().flush();
        let _ = disable_raw_mode();
        Output::mute(false);
    }
}

/// A message on a screen that vanishes would be read by nobody.
fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            leave();
            hook(info);
        }));
    });
}
