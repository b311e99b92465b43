//! The optimizers' updates of parameters.

use gpipe_tensor::ops::{
    self, AdamW, AdamWBatch, AdamWUpdate, RmsProp, RmsPropUpdate, Sgd, SgdUpdate, Zeros,
};
use gpipe_tensor::{Result, Tensor};

use super::bench::Bench;

/// A parameter, and what its update needs.
struct Parameter {
    value: Tensor,
    copy: Tensor,
    grad: Tensor,
    first: Tensor,
    second: Tensor,
}

impl Parameter {
    fn new(b: &mut Bench, n: usize) -> Result<Self> {
        Ok(Self {
            value: b.single([n])?,
            grad: b.single([n])?,
            first: b.single([n])?,
            second: Tensor::zeros(&b.device, [n])?,
            copy: b.own([n])?,
        })
    }

    /// What an update changes.
    fn keep(&self, b: &mut Bench) -> Result<()> {
        let changed = [&self.value, &self.copy, &self.first, &self.second];
        changed.into_iter().try_for_each(|tensor| b.keep(tensor))
    }
}

fn adamw(weight_decay: f32) -> AdamW {
    AdamW {
        lr: 0.1,
        beta1: 0.9,
        beta2: 0.99,
        eps: 1e-8,
        weight_decay,
    }
}

/// One by one, then many at once.
pub fn updates(b: &mut Bench) -> Result<()> {
    for n in [0, 1, 257, 20_000] {
        let mut parameter = Parameter::new(b, n)?;
        for step in 1..3 {
            let Parameter {
                value,
                copy,
                grad,
                first,
                second,
            } = &mut parameter;
            let update = AdamWUpdate {
                value,
                copy: Some(copy),
                grad,
                first,
                second,
                step,
                grad_scale: 0.5,
            };
            ops::adamw(update, &adamw(0.1))?;
        }
        parameter.keep(b)?;
        let sgd = |momentum| Sgd {
            lr: 0.1,
            momentum,
            nesterov: momentum != 0.0,
            weight_decay: 0.01,
        };
        let Parameter {
            value,
            copy,
            grad,
            first,
            second,
        } = &mut parameter;
        let update = SgdUpdate {
            grad_scale: 0.5,
            ..SgdUpdate::new(value, grad)
        };
        ops::sgd(update, &sgd(0.0))?;
        let update = SgdUpdate {
            copy: Some(&mut *copy),
            velocity: Some(&mut *first),
            grad_scale: 0.5,
            ..SgdUpdate::new(value, grad)
        };
        ops::sgd(update, &sgd(0.9))?;
        let update = RmsPropUpdate {
            value: &mut *value,
            copy: Some(&mut *copy),
            grad: &*grad,
            square: second,
            velocity: Some(first),
            grad_scale: 0.5,
        };
        let settings = RmsProp {
            lr: 0.1,
            alpha: 0.9,
            eps: 1e-3,
            momentum: 0.9,
            weight_decay: 0.01,
        };
        ops::rmsprop(update, &settings)?;
        b.keep(value)?;
        b.keep(copy)?;
    }
    zeros(b)?;
    many_updates(b)
}

/// Many tensors at once, of which one is in bf16 where that is stored.
fn zeros(b: &mut Bench) -> Result<()> {
    let mut all = vec![b.own([2, 3])?];
    for n in [3, 0, 16_384, 1, 40_000] {
        all.push(b.single([n])?);
    }
    let held = all[1].clone();
    assert!(Zeros::default().add(&mut all[1]).is_err());
    drop(held);
    let mut zeros = Zeros::default();
    all.iter_mut().try_for_each(|one| zeros.add(one))?;
    zeros.run()?;
    Zeros::default().run()?;
    all.iter().try_for_each(|one| b.keep(one))
}

/// Of many parameters at once, every other one with a copy, and every third without decay.
fn many_updates(b: &mut Bench) -> Result<()> {
    let mut updates = AdamWBatch::default();
    let mut all = Vec::new();
    for (place, n) in [3, 0, 16_384, 1, 40_000, 257, 0].into_iter().enumerate() {
        let mut parameter = Parameter::new(b, n)?;
        let Parameter {
            value,
            copy,
            grad,
            first,
            second,
        } = &mut parameter;
        let copy = (place % 2 == 0).then_some(copy);
        let decay = if place % 3 == 0 { 0.0 } else { 0.1 };
        let update = AdamWUpdate {
            value,
            copy,
            grad,
            first,
            second,
            step: 1,
            grad_scale: 0.5,
        };
        updates.add(update, &adamw(decay))?;
        // The update uses the buffers of the time of the call, also if they are released before it runs.
        parameter.grad = Tensor::zeros(&b.device, [0])?;
        all.push(parameter);
    }
    updates.run()?;
    all.iter().try_for_each(|parameter| parameter.keep(b))
}
