//! Every operation on the GPU of this machine against the processor; without one it says so.
//!
//! `GPIPE_SIZES=small` takes small tensors, for a tool that watches every access; `made` leaves out the shapes of real models,
//! which take long on an emulated GPU.

#[path = "../emulated/operations/mod.rs"]
mod operations;

use gpipe_tensor::{DType, find_cuda};
use operations::Sizes;

#[test]
fn every_operation_equals_the_processors() {
    match find_cuda() {
        Err(why) => eprintln!("skipped: {why}"),
        Ok(_) => {
            let sizes: &[Sizes] = match std::env::var("GPIPE_SIZES").as_deref() {
                Ok("small") => &[Sizes::Small],
                Ok("made") => &[Sizes::All],
                _ => &[Sizes::All, Sizes::Real],
            };
            for stored in [DType::F32, DType::BF16] {
                for &sizes in sizes {
                    operations::compare(sizes, stored);
                }
            }
        }
    }
}
