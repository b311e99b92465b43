//! The optimizers' kernels: the same bits as the processor's.

use super::memory::{Memory, random, same};
use super::reference::SINGLE;
use super::{EDGES, Gpu, Outcome};
use crate::cuda::entry::Pointer;
use crate::cuda::table::{self, Table};
use crate::ops::adamw::Factors;
use crate::ops::{self, AdamW, AdamWUpdate, RmsProp, RmsPropUpdate, Sgd, SgdUpdate};
use crate::testing::device;
use crate::{DType, Tensor};

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
        let update = AdamWUpdate {
            value: &mut v,
            copy: None,
            grad: &g,
            first: &mut m,
            second: &mut s,
            step,
            grad_scale: scale,
        };
        ops::adamw(update, &settings).expect("operands fit");
        let [mv, mg, mm, ms] = all.map(|values| Memory::floats(SINGLE, values));
        let copy = Memory::room(stored, n);
        let launch = ops::adamw::kernels::adamw(
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

/// Several parameters of one table, some of them empty and some of several blocks, give the bits that each
/// gives alone; and so do their sums of squares.
pub(super) fn adamw_rows(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    let settings = AdamW {
        lr: 0.01,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
    };
    let factors = Factors::new(&settings, 3, 0.5);
    for sizes in [
        &[1][..],
        &[0, 33, 0, 0, 257, 1],
        &[table::CHUNK + 5, 7, 0, 2 * table::CHUNK, 31, 0],
    ] {
        let sets = || {
            let set = |(seed, &n): (usize, &usize)| {
                let seeds = [1, 2, 3, 4].map(|part| 10 * seed as u64 + part);
                let mut values = seeds.map(|seed| random(SINGLE, n, seed));
                values[3]
                    .iter_mut()
                    .for_each(|second| *second = second.abs());
                let copy = Memory::room(stored, n);
                (values.map(|values| Memory::floats(SINGLE, &values)), copy)
            };
            sizes.iter().enumerate().map(set).collect::<Vec<_>>()
        };
        let (alone, together) = (sets(), sets());
        let (mut updates, mut squares) = (Table::default(), Table::default());
        for ((([v, g, m, s], copy), ([tv, tg, tm, ts], to)), &n) in
            alone.iter().zip(&together).zip(sizes)
        {
            let states = [m.at(), s.at()];
            let launch =
                ops::adamw::kernels::adamw(stored, v.at(), copy.at(), g.at(), states, n, &factors);
            gpu.run([launch], [v, g, m, s, copy])?;
            updates.push(&[tv.at(), to.at(), tg.at(), tm.at(), ts.at()], n);
            squares.push(&[tg.at()], n);
        }
        let (rows, partials) = (
            Memory::words(updates.words()),
            Memory::unwritten(8 * squares.blocks()),
        );
        let squared = Memory::words(squares.words());
        let launches = [
            ops::adamw::kernels::adamw_rows(stored, &updates, rows.at(), &factors),
            ops::sum::kernels::squares(SINGLE, &squares, squared.at(), partials.at()),
        ];
        let all = together
            .iter()
            .flat_map(|(four, copy)| four.iter().chain([copy]));
        gpu.run(launches, all.chain([&rows, &squared, &partials]))?;
        let mut parts = partials.doubles().into_iter();
        for (((alone, copy), (together, to)), &n) in alone.iter().zip(&together).zip(sizes) {
            for (one, all) in alone.iter().zip(together) {
                same("one of many", SINGLE, all, &one.values(SINGLE))?;
            }
            same("copy of one of many", stored, to, &copy.values(stored))?;
            let chunks = n.div_ceil(table::CHUNK);
            let alone = Memory::unwritten(8 * chunks);
            let reduction = ops::sum::kernels::Reduction::Squares;
            let launch =
                ops::sum::kernels::reduce(reduction, SINGLE, together[1].at(), alone.at(), n);
            gpu.run([launch], [&together[1], &alone])?;
            let found: Vec<f64> = parts.by_ref().take(chunks).collect();
            if found != alone.doubles() {
                return Err(format!("squares: {found:?} of one of many"));
            }
        }
    }
    Ok(())
}

pub(super) fn sgd(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for n in EDGES.into_iter().chain([1000]) {
        for (momentum, nesterov) in [(0.0, false), (0.9, false), (0.9, true)] {
            let settings = Sgd {
                lr: 0.1,
                momentum,
                nesterov,
                weight_decay: 0.01,
            };
            let [value, grad, velocity] = [1, 2, 3].map(|seed| random(SINGLE, n, seed));
            let all = [&value, &grad, &velocity];
            let [mut v, g, mut u] =
                all.map(|values| Tensor::from_f32(&device(), [n], values).expect("n values"));
            let moving = (momentum != 0.0).then_some(&mut u);
            let update = SgdUpdate {
                velocity: moving,
                grad_scale: 0.5,
                ..SgdUpdate::new(&mut v, &g)
            };
            ops::sgd(update, &settings).expect("operands fit");
            let [mv, mg, mu] = all.map(|values| Memory::floats(SINGLE, values));
            let copy = Memory::room(stored, n);
            let at = if momentum == 0.0 {
                Pointer::NULL
            } else {
                mu.at()
            };
            let places = [mv.at(), copy.at(), mg.at(), at];
            let launch = ops::sgd::kernels::sgd(stored, places, n, 0.5, &settings);
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

pub(super) fn rmsprop(gpu: &Gpu<'_>, stored: DType) -> Outcome {
    for n in EDGES.into_iter().chain([1000]) {
        for momentum in [0.0, 0.9] {
            let settings = RmsProp {
                lr: 0.1,
                alpha: 0.9,
                eps: 1e-3,
                momentum,
                weight_decay: 0.01,
            };
            let [value, grad, velocity] = [1, 2, 3].map(|seed| random(SINGLE, n, seed));
            let square: Vec<f32> = random(SINGLE, n, 4).iter().map(|x| x.abs()).collect();
            let all = [&value, &grad, &velocity, &square];
            let [mut v, g, mut u, mut s] =
                all.map(|values| Tensor::from_f32(&device(), [n], values).expect("n values"));
            let update = RmsPropUpdate {
                value: &mut v,
                copy: None,
                grad: &g,
                square: &mut s,
                velocity: (momentum != 0.0).then_some(&mut u),
                grad_scale: 0.5,
            };
            ops::rmsprop(update, &settings).expect("operands fit");
            let [mv, mg, mu, ms] = all.map(|values| Memory::floats(SINGLE, values));
            let copy = Memory::room(stored, n);
            let at = match momentum {
                0.0 => Pointer::NULL,
                _ => mu.at(),
            };
            let places = [mv.at(), copy.at(), mg.at(), ms.at(), at];
            let launch = ops::rmsprop::kernels::rmsprop(stored, places, n, 0.5, &settings);
            gpu.run([launch], [&mv, &mg, &mu, &ms, &copy])?;
            for (what, got, wanted) in [
                ("value", &mv, &v),
                ("square", &ms, &s),
                ("velocity", &mu, &u),
            ] {
                same(what, SINGLE, got, wanted.f32s().expect("floats"))?;
            }
            let wanted = v.f32s().expect("floats");
            same("copy of the value", stored, &copy, wanted)?;
        }
    }
    Ok(())
}
