//! The protocol holds, every way to get it wrong is found, and a lease outlives
//! rolling restarts.

mod directed;
mod exhaustive;
