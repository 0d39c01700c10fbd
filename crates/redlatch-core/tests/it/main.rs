//! The rules as tables (`testdata/*.txt`) and as properties.

#![allow(clippy::unwrap_used)]

mod properties;
mod tables;
