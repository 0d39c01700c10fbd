//! What is often built on a lock.

pub(crate) mod once;
