//! How long an answer is waited for.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

/// A clock can't tell of times that are far enough away.
const LONGEST_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// When to give up what may take so long.
pub(super) fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit.min(LONGEST_LIMIT)
}

/// What an answer has to be read in that is there when the time is up.
const GRACE: Duration = Duration::from_millis(1);

/// Waits for an answer up to the deadline. It stays where it is: each move would make
/// the call as much larger.
///
/// Where this process was not let run for so long, the answer may have come in time and
/// not have been read yet: so whoever reads it is given a moment.
pub(super) async fn until<F: Future>(
    deadline: Instant,
    mut answer: Pin<&mut F>,
) -> Result<F::Output, Elapsed> {
    match timeout_at(deadline, answer.as_mut()).await {
        Err(_) => timeout(GRACE, answer).await,
        in_time => in_time,
    }
}
