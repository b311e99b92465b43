//! The built-in schedules, as plain functions from sizes to data.

pub(crate) mod alternating;
mod assemble;
mod compact;
pub(crate) mod dualpipe_v;
pub(crate) mod forward_only;
pub(crate) mod interleaved;
pub(crate) mod looped_bfs;
pub(crate) mod split;
pub(crate) mod v_shape;
pub(crate) mod zb_v;
