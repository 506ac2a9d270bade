//! The planner from outside: what is in its plans, how short they are, what it refuses.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::panic
)]

mod corpus;
mod csv;
mod in_place;
mod instances;
mod lengths;
mod networks;
mod plans;
mod programs;
mod runs;
mod svg;
