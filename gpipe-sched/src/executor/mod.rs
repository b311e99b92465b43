//! The executor: one worker per device runs the stages of a schedule.

pub(crate) mod across;
pub(crate) mod batch;
#[cfg(shuttle)]
pub(crate) mod checked_channel;
pub(crate) mod clock;
pub(crate) mod empty;
pub(crate) mod failure;
pub(crate) mod far;
pub(crate) mod frame;
pub(crate) mod gather_across;
pub(crate) mod gauge;
pub(crate) mod inference;
pub(crate) mod loss_stage;
pub(crate) mod mailbox;
pub(crate) mod mailboxes;
pub(crate) mod offsets;
pub(crate) mod part;
pub(crate) mod pipeline;
pub(crate) mod reports;
pub(crate) mod stage;
pub(crate) mod step;
pub(crate) mod sync;
pub(crate) mod tag;
pub(crate) mod transport;
pub(crate) mod visits;
pub(crate) mod watchdog;
pub(crate) mod wire;
pub(crate) mod worker;
pub(crate) mod worker_handle;
pub(crate) mod world;
