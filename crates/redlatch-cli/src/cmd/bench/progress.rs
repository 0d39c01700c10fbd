//! How far the measurement has come, in a bar on the terminal.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::output::Output;

/// How often the bar is drawn.
const DRAWN: Duration = Duration::from_millis(100);

/// How many signs it has.
const WIDTH: usize = 24;

pub(super) struct Progress {
    begin: Instant,
    length: Duration,
    part: RefCell<String>,
    output: Output,
}

impl Progress {
    /// The bar of something that begins now and takes that long.
    pub(super) fn new(length: Duration, output: Output) -> Self {
        Self {
            begin: Instant::now(),
            length,
            part: RefCell::default(),
            output,
        }
    }

    /// Says what is measured from here on.
    pub(super) fn enter(&self, part: impl Into<String>) {
        *self.part.borrow_mut() = part.into();
        self.draw();
    }

    /// Draws it again and again; for ever.
    pub(super) async fn show(&self) {
        loop {
            tokio::time::sleep(DRAWN).await;
            self.draw();
        }
    }

    fn draw(&self) {
        let part = self.part.borrow();
        let bar = bar(self.begin.elapsed(), self.length);
        self.output.progress(&format!("{bar}  {part}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.output.progress("");
    }
}

fn bar(done: Duration, length: Duration) -> String {
    let share = (done.as_secs_f64() / length.as_secs_f64()).clamp(0.0, 1.0);
    let full = (share * WIDTH as f64) as usize;
    let (full, rest) = ("#".repeat(full), "-".repeat(WIDTH - full));
    format!("[{full}{rest}] {:3.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_up_and_no_further() {
        let bar = |done| bar(Duration::from_secs(done), Duration::from_secs(4));
        assert_eq!(bar(0), "[------------------------]   0 %");
        assert_eq!(bar(1), "[######------------------]  25 %");
        assert_eq!(bar(5), "[########################] 100 %");
    }
}
