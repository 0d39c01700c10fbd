//! Locks, runs a body, and unlocks.

use std::fmt;

use crate::error::{Error, Lost, Result};
use crate::lease::Lease;
use crate::mutex::Mutex;

impl Mutex {
    /// Locks, runs `body`, and unlocks.
    ///
    /// The body is dropped at its next await when the lock is lost. What the
    /// body returns is never masked by what happens to the lock afterwards.
    ///
    /// # Errors
    ///
    /// [`RunError::Lock`] when the lock was not acquired and the body did not
    /// run; [`RunError::Lost`] when the lock was lost; [`RunError::Body`] with
    /// the body's own error.
    ///
    /// # Cancel safety
    ///
    /// When this is dropped, so is the body, and the lock is released in the
    /// background.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let latch = redlatch::Redlatch::in_memory().await?;
    /// let stock = latch.mutex("sku:0001");
    /// let left = stock
    ///     .run(|lease| async move {
    ///         lease.ensure_held()?; // before a step that must not be done by two
    ///         Ok::<_, redlatch::Error>(41)
    ///     })
    ///     .await;
    /// assert_eq!(left.unwrap(), 41);
    /// # Ok::<_, redlatch::Error>(()) }).unwrap();
    /// ```
    pub async fn run<F, T, E>(&self, body: impl FnOnce(Lease) -> F) -> Result<T, RunError<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let guard = self.lock().await.map_err(RunError::Lock)?;
        let lease = guard.lease();
        let lost = lease.lost();
        let result = tokio::select! {
            // What the body has finished counts, also when the loss comes at the same moment.
            biased;
            result = body(guard.lease()) => result,
            lost = lost => {
                let completed = false;
                return Err(RunError::Lost { lost, completed });
            }
        };
        let released = guard.release().await;
        match (result, released) {
            (Err(error), _) => Err(RunError::Body(error)),
            (Ok(_), Err(Error::Lost(lost))) => {
                let (lost, completed) = (*lost, true);
                Err(RunError::Lost { lost, completed })
            }
            // A release that too few nodes answered is repeated in the background.
            (Ok(value), _) => Ok(value),
        }
    }
}

/// Why [`Mutex::run`] did not return what its body returned.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The lock was not acquired, and the body did not run.
    Lock(Error),
    /// The lock was lost. Somebody else may have worked at the same time.
    Lost {
        /// Why.
        lost: Lost,
        /// Whether the body had come to its end; otherwise it was dropped.
        completed: bool,
    },
    /// The body's own error.
    Body(E),
}

impl<E> RunError<E> {
    /// Whether the lock was lost.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// The body's own error, if it was that.
    pub fn into_body(self) -> Option<E> {
        match self {
            Self::Body(error) => Some(error),
            Self::Lock(_) | Self::Lost { .. } => None,
        }
    }
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Lost { lost, .. } => lost.fmt(f),
            Self::Body(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for RunError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Lock(error) => error.source(),
            Self::Lost { .. } => None,
            Self::Body(error) => error.source(),
        }
    }
}
