//! Every operation on the GPU of this machine against the processor; without one it says so.
//!
//! `GPIPE_SIZES=small` takes small tensors, for a tool that watches every access.

#[path = "../emulated/operations/mod.rs"]
mod operations;

use gpipe_tensor::{DType, find_cuda};
use operations::Sizes;

#[test]
fn every_operation_equals_the_processors() {
    match find_cuda() {
        Err(why) => eprintln!("skipped: {why}"),
        Ok(_) => {
            let sizes = match std::env::var("GPIPE_SIZES").as_deref() {
                Ok("small") => Sizes::Small,
                _ => Sizes::All,
            };
            for stored in [DType::F32, DType::BF16] {
                operations::compare(sizes, stored);
                if matches!(sizes, Sizes::All) {
                    operations::compare(Sizes::Real, stored);
                }
            }
        }
    }
}
