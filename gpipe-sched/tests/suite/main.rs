//! Tests by topic: transparency, failures, schedules and refusals, simulated and measured times,
//! drawings and tables.
#![cfg(not(shuttle))]

#[path = "../common/mod.rs"]
mod common;

mod orders;

mod transparency;

mod failures;

mod ranks;

mod replicas;

mod entering;

mod watchdog;

mod waits;

mod panics;

mod stalls;

mod schedules;

mod papers;

mod exam;

mod folded;

mod zero_bubble;

mod early_recompute;

mod inference;

mod kinds;

mod refusals;

mod judged;

mod portals;

mod times;

mod unequal;

mod sharing;

mod bubble_breakdown;

mod pictures;

mod csv;
