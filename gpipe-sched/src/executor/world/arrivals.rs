//! What takes the messages of a pipeline that arrive.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::executor::failure;
use crate::executor::tag::Tag;
use crate::executor::wire::Reader;

/// Takes flows and stops that arrive for the pipeline of this rank.
pub(crate) trait Arrivals: Send + Sync {
    fn flow(&self, tag: Tag, flow: &mut Reader) -> Result<(), String>;
    /// Another rank ended the call.
    fn stop(&self, call: u64);
    /// No message arrives any more.
    fn close(&self);
}

impl dyn Arrivals {
    /// [`flow`](Arrivals::flow), on this rank. A panic, such as one of the codec, would end the transport's thread: it is
    /// an error.
    pub fn take_flow(&self, rank: usize, tag: Tag, flow: &mut Reader) -> Result<(), String> {
        let taken = AssertUnwindSafe(|| self.flow(tag, flow));
        catch_unwind(taken).unwrap_or_else(|panic| {
            let (transfer, why) = (tag.transfer, failure::message(panic.as_ref()));
            Err(format!(
                "rank {rank} cannot read its {transfer}: panicked: {why}"
            ))
        })
    }
}
