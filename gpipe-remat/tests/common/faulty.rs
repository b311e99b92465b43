//! A planted fault: a layer that is not the same when it is computed again.

use std::ops::Range;
use std::sync::Mutex;

use gpipe_layers::{Cost, Error, Flow, Layer, Param, PassContext, Pending, Saved};
use gpipe_tensor::{Tensors, ops};

/// Changes its input by a millionth when a micro-batch is computed again.
#[derive(Default)]
pub struct Faulty {
    /// Step and samples of each pass.
    seen: Mutex<Vec<(u64, Range<u64>)>>,
}

impl Layer for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost, Error> {
        Ok(Cost::new(inputs.to_vec()))
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved), Error> {
        let (mut seen, pass) = (
            self.seen.lock().expect("no panic"),
            (cx.step, cx.samples.clone()),
        );
        let factor = if seen.contains(&pass) {
            1.0 + 1e-6
        } else {
            1.0
        };
        seen.push(pass);
        let y = ops::scale(&x[0], factor).map_err(Error::within("faulty"))?;
        Ok((Tensors::from_iter([y]), Saved::default()))
    }

    fn input_grad(&self, _saved: Saved, dy: Tensors) -> Result<(Tensors, Pending), Error> {
        Ok((dy, Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending, Error> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<(), Error> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}
