//! Schedules as data: what each device does, in order; checked, built, read, written and drawn.

pub(crate) mod action;
pub(crate) mod builders;
pub(crate) mod check;
pub(crate) mod csv;
pub(crate) mod data;
pub(crate) mod fault;
pub(crate) mod grid;
pub(crate) mod portal;
pub(crate) mod slots;
pub(crate) mod transfer;
pub(crate) mod unit_time;
pub(crate) mod walk;
