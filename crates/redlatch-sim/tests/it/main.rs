//! The simulation and its checkers, each seen to find what it is there for.

mod checkers;
mod simulation;
