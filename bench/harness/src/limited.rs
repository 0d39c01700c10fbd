//! Programs that are run to their end, but not for ever.

use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// What a program said, and how it ended.
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a program, and kills it after a time.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let deadline = Instant::now() + limit;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{name}: {error}"))?;
    let stdout = read(child.stdout.take());
    let stderr = read(child.stderr.take());
    let mut hear = |from: &mpsc::Receiver<String>| {
        // A program that hangs may have started others, which keep its output open:
        // nobody waits for those.
        let left = deadline.saturating_duration_since(Instant::now());
        from.recv_timeout(left).map_err(|_| {
            let _ = child.kill();
            format!("{name} did not end within {limit:?}")
        })
    };
    let said = hear(&stdout).and_then(|out| Ok((out, hear(&stderr)?)));
    let status = child.wait().map_err(|error| format!("{name}: {error}"))?;
    let (stdout, stderr) = said?;
    Ok(Output {
        status,
        stdout,
        stderr,
    })
}

/// All that comes, when its end has come.
fn read(from: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.map(|mut from| from.read_to_end(&mut bytes));
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_killed_and_one_that_does_not_is_heard() {
        let shell = |script: &str, limit| output(Command::new("sh").args(["-c", script]), limit);
        let minute = Duration::from_secs(60);
        let said = shell("echo out; echo err >&2; exit 3", minute).expect("it ends");
        assert_eq!((&*said.stdout, &*said.stderr), ("out\n", "err\n"));
        assert_eq!(said.status.code(), Some(3));
        // What it started holds its output open, but need not be waited for.
        let begin = Instant::now();
        let error = shell("sleep 61 & wait", Duration::from_millis(50)).map(drop);
        assert_eq!(error, Err("sh did not end within 50ms".to_owned()));
        assert!(begin.elapsed() < minute, "it was not waited for");
        assert!(output(&mut Command::new("/nowhere"), minute).is_err());
    }
}
