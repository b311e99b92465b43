//! The optimizers' kernels: the same bits as the processor's.

use super::memory::{Memory, random, same};
use super::{EDGES, Gpu, Outcome};
use crate::cuda::entry::Pointer;
use crate::ops::adamw::Factors;
use crate::ops::{self, AdamW, Sgd};
use crate::testing::device;
use crate::{DType, Tensor};

const SINGLE: DType = DType::F32;

pub(super) fn adamw(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    let settings = AdamW {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
    };
    for n in EDGES.into_iter().chain([1000]) {
        let [value, grad, first] = [1, 2, 3].map(|seed| random(SINGLE, n, seed));
        let second: Vec<f32> = random(SINGLE, n, 4).iter().map(|x| x.abs()).collect();
        let all = [&value, &grad, &first, &second];
        let [mut v, g, mut m, mut s] =
            all.map(|values| Tensor::from_f32(&device(), [n], values).expect("n values"));
        let (step, scale) = (3, 0.5);
        ops::adamw(&mut v, None, &g, &mut m, &mut s, step, scale, &settings).expect("operands fit");
        let [mv, mg, mm, ms] = all.map(|values| Memory::floats(SINGLE, values));
        let copy = Memory::room(stored, n);
        let launch = ops::adamw::cuda::adamw(
            stored,
            mv.at(),
            copy.at(),
            mg.at(),
            [mm.at(), ms.at()],
            n,
            &Factors::new(&settings, step, scale),
        );
        gpu.run([launch], [&mv, &mg, &mm, &ms, &copy])?;
        for (what, got, wanted) in [("value", &mv, &v), ("first", &mm, &m), ("second", &ms, &s)] {
            same(what, SINGLE, got, wanted.f32s().expect("floats"))?;
        }
        same(
            "copy of the value",
            stored,
            &copy,
            v.f32s().expect("floats"),
        )?;
    }
    Ok(())
}

pub(super) fn sgd(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for n in EDGES.into_iter().chain([1000]) {
        for momentum in [0.0, 0.9] {
            let settings = Sgd {
                lr: 0.1,
                momentum,
                weight_decay: 0.01,
            };
            let [value, grad, velocity] = [1, 2, 3].map(|seed| random(SINGLE, n, seed));
            let all = [&value, &grad, &velocity];
            let [mut v, g, mut u] =
                all.map(|values| Tensor::from_f32(&device(), [n], values).expect("n values"));
            let moving = (momentum != 0.0).then_some(&mut u);
            ops::sgd(&mut v, None, &g, moving, 0.5, &settings).expect("operands fit");
            let [mv, mg, mu] = all.map(|values| Memory::floats(SINGLE, values));
            let copy = Memory::room(stored, n);
            let at = if momentum == 0.0 {
                Pointer::NULL
            } else {
                mu.at()
            };
            let places = [mv.at(), copy.at(), mg.at(), at];
            let launch = ops::sgd::cuda::sgd(stored, places, n, 0.5, &settings);
            gpu.run([launch], [&mv, &mg, &mu, &copy])?;
            same("value", SINGLE, &mv, v.f32s().expect("floats"))?;
            same("velocity", SINGLE, &mu, u.f32s().expect("floats"))?;
            same(
                "copy of the value",
                stored,
                &copy,
                v.f32s().expect("floats"),
            )?;
        }
    }
    Ok(())
}
