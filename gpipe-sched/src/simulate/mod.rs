//! When everything happens: schedules run on paper under given costs, and what timelines tell.

pub(crate) mod costs;
pub(crate) mod early;
pub(crate) mod greedy;
pub(crate) mod idle;
pub(crate) mod memory;
pub(crate) mod shared;
pub(crate) mod simulator;
pub(crate) mod timeline;
pub(crate) mod trace;
