//! In the order in which a reader would ask: does it compute the same, what if something fails,
//! are the schedules right and the wrong ones refused, does time add up, and how does it look.
#![cfg(not(shuttle))]

#[path = "../common/mod.rs"]
mod common;

mod orders;

mod transparency;

mod failures;

mod entering;

mod schedules;

mod papers;

mod folded;

mod refusals;

mod times;

mod idle;

mod pictures;

mod csv;
