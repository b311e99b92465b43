//! A flow of several tensors: a stage that computes again keeps only the tensors that its layers
//! take. What passes by costs it nothing while micro-batches wait, predicted and counted.

use std::ops::Range;

use gpipe_layers::layers::{Layout, Linear};
use gpipe_layers::{
    Cost, CostModel, Error, Flow, Layer, Loss, Memory, Optimizer, Origin, Param, PassContext,
    Pending, Result, Saved, Sgd, TensorSet, check,
};
use gpipe_remat::{
    Assembled, Assembly, Bytes, ModelCosts, ParameterBytes, Policy, RematPlan, Target,
    micro_batches, predict_held, predict_memory,
};
use gpipe_sched::{Held, Item, MicroBatch, Schedule, Timeline, gpipe, one_f_one_b, zb_h1};
use gpipe_tensor::{DeviceId, Host, Tensor, Tensors};

const WIDTH: usize = 8;
const BATCH: usize = 8;
const MICRO_BATCHES: usize = 4;
/// 128 KiB for each micro-batch of two samples.
const WIDE: usize = 16 * 1024;

/// From x to a narrow tensor, x itself, and a wide one, x over and over.
struct Fork {
    name: &'static str,
    wide: usize,
}

impl Layer for Fork {
    fn name(&self) -> &str {
        self.name
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = &inputs[0];
        let wide = Flow::f32(x.shape.with_last(self.wide));
        let memory = Memory::new()
            .with_outputs(vec![Origin::Same(0), Origin::New])
            .with_gradients(vec![Origin::Over(0)])
            .with_forward_peak(wide.bytes())
            .with_input_grad_peak(x.bytes());
        Ok(Cost::new(vec![x.clone(), wide]).with_memory(memory))
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let narrow = &x[0];
        let shape = narrow.shape().with_last(self.wide);
        let rows = narrow.to_f32s().map_err(Error::within(self.name))?;
        let repeat = |row: &[f32]| row.iter().copied().cycle().take(self.wide).collect();
        let values: Vec<f32> = rows.chunks(WIDTH).flat_map::<Vec<f32>, _>(repeat).collect();
        let wide = Tensor::from_f32(narrow.device(), shape, values);
        let wide = wide.map_err(Error::within(self.name))?;
        Ok((Tensors::from_iter([narrow.clone(), wide]), Saved::default()))
    }

    fn input_grad(&self, _saved: Saved, mut dy: Tensors) -> Result<(Tensors, Pending)> {
        let (wide, wide_shape) = (dy[1].to_f32s(), dy[1].shape().clone());
        let wide = wide.map_err(Error::within(self.name))?;
        let mut narrow = dy.remove(0);
        let own = || -> gpipe_tensor::Result<Tensor> {
            if !narrow.is_unique() {
                narrow = narrow.copy_to(narrow.device())?;
            }
            let rows = narrow.f32s_mut()?.chunks_mut(WIDTH);
            for (row, wide) in rows.zip(wide.chunks(wide_shape.last())) {
                for (i, value) in wide.iter().enumerate() {
                    row[i % WIDTH] += value;
                }
            }
            Ok(narrow)
        };
        let dx = own().map_err(Error::within(self.name))?;
        Ok((Tensors::from_iter([dx]), Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}

/// From (x, wide) to the narrow x · (the wide one's first columns).
struct Join {
    name: &'static str,
    wide: usize,
}

impl Join {
    fn columns(&self, wide: &Tensor) -> gpipe_tensor::Result<Tensor> {
        let values = wide.to_f32s()?;
        let rows = values.chunks(self.wide).flat_map(|row| &row[..WIDTH]);
        let values: Vec<f32> = rows.copied().collect();
        Tensor::from_f32(wide.device(), wide.shape().with_last(WIDTH), values)
    }

    fn product(a: &Tensor, b: &Tensor) -> gpipe_tensor::Result<Tensor> {
        let (left, right) = (a.to_f32s()?, b.to_f32s()?);
        let values: Vec<f32> = left.iter().zip(right.iter()).map(|(a, b)| a * b).collect();
        Tensor::from_f32(a.device(), a.shape().clone(), values)
    }
}

impl Layer for Join {
    fn name(&self) -> &str {
        self.name
    }

    fn arity(&self) -> usize {
        2
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let [x, wide] = inputs else {
            return Err(Error::Config("two tensors".into()));
        };
        let memory = Memory::new()
            .with_saved_inputs(TensorSet::Only(vec![0]))
            .with_saved_own(x.bytes())
            .with_forward_peak(2 * x.bytes())
            .with_input_grad_peak(x.bytes() + wide.bytes());
        Ok(Cost::new(vec![x.clone()]).with_memory(memory))
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let columns = self.columns(&x[1]).map_err(Error::within(self.name))?;
        let y = Self::product(&x[0], &columns).map_err(Error::within(self.name))?;
        let saved = Saved::new([x[0].clone(), columns]);
        Ok((Tensors::from_iter([y]), saved))
    }

    fn input_grad(&self, mut saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let [x, columns] = saved.take_tensors(self.name)?;
        let both = || -> gpipe_tensor::Result<Tensors> {
            let narrow = Self::product(&dy[0], &columns)?;
            let shape = x.shape().with_last(self.wide);
            let mut wide = Tensor::zeros(x.device(), shape)?;
            let (x, dy) = (x.to_f32s()?, dy[0].to_f32s()?);
            let rows = wide.f32s_mut()?.chunks_mut(self.wide);
            for (row, (x, dy)) in rows.zip(x.chunks(WIDTH).zip(dy.chunks(WIDTH))) {
                for (place, (x, dy)) in row.iter_mut().zip(x.iter().zip(dy)) {
                    *place = x * dy;
                }
            }
            Ok(Tensors::from_iter([narrow, wide]))
        };
        let dx = both().map_err(Error::within(self.name))?;
        Ok((dx, Pending::default()))
    }

    fn param_only_grad(&self, _saved: Saved, _dy: Tensors) -> Result<Pending> {
        Ok(Pending::default())
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}

/// Stage 0 makes the wide tensor, stages 1 and 2 let it pass, stage 3 takes it.
fn layers(wide: usize) -> Vec<Box<dyn Layer>> {
    let linear =
        |name: &str| -> Box<dyn Layer> { Box::new(Linear::new(name, WIDTH, WIDTH, Layout::OutIn)) };
    vec![
        linear("in"),
        Box::new(Fork { name: "fork", wide }),
        linear("a.0"),
        linear("a.1"),
        linear("b.0"),
        linear("b.1"),
        Box::new(Join { name: "join", wide }),
        linear("out"),
    ]
}

const CUT: [Range<usize>; 4] = [0..2, 2..4, 4..6, 6..8];

struct Plan {
    remat_plan: RematPlan,
    held: Vec<Vec<Held>>,
    peaks: Vec<u64>,
}

fn costs(layers: &[Box<dyn Layer>]) -> ModelCosts {
    let samples = micro_batches(BATCH, MICRO_BATCHES).unwrap();
    ModelCosts::new(layers, &samples, |n| vec![Flow::f32([n, WIDTH])]).unwrap()
}

fn plan(wide: usize, policy: Policy, cut: &[Range<usize>], schedule: &Schedule) -> Option<Plan> {
    let mut layers = layers(wide);
    let costs = costs(&layers);
    let weights = ParameterBytes::new(&mut layers, Some(&optimizer()));
    let remat_plan = match RematPlan::new(policy, &weights, &costs, cut, schedule) {
        Ok(remat_plan) => remat_plan,
        Err(gpipe_remat::Error::Budget { .. }) => return None,
        Err(error) => panic!("{error}"),
    };
    let memory = predict_memory(&weights, &costs, cut, schedule, &remat_plan);
    let held = predict_held(&memory, &costs, cut, schedule, &remat_plan);
    let peaks = memory.iter().map(|memory| memory.peak()).collect();
    Some(Plan {
        remat_plan,
        held,
        peaks,
    })
}

fn optimizer() -> Optimizer {
    Optimizer::from(Sgd {
        momentum: 0.9,
        decay: gpipe_layers::Decay::All,
        ..Sgd::default()
    })
}

fn items() -> Vec<Item<Tensors, Target>> {
    let host = Host::new(1).unwrap();
    let device = host.device(DeviceId::Cpu).unwrap();
    let samples = micro_batches(BATCH, MICRO_BATCHES).unwrap();
    let item = |(index, rows): (usize, Range<usize>)| {
        let values = (rows.start * WIDTH..rows.end * WIDTH).map(|i| (i % 7) as f32 / 7.0 - 0.3);
        let values: Vec<f32> = values.collect();
        let input = Tensor::from_f32(&device, [rows.len(), WIDTH], values).unwrap();
        let labels = rows.clone().map(|row| (row % WIDTH) as u32).collect();
        Item {
            micro_batch: MicroBatch::new(index, rows.start as u64..rows.end as u64, 0, true),
            target: Target {
                values: Tensor::from_u32(&device, [rows.len()], labels).unwrap(),
                divisor: BATCH as f64,
            },
            input: Tensors::from_iter([input]),
        }
    };
    samples.into_iter().enumerate().map(item).collect()
}

fn assemble(plan: &Plan, cut: &[Range<usize>], schedule: &Schedule) -> Assembled {
    let assembly = Assembly {
        layers: layers(WIDE),
        cut: cut.to_vec(),
        schedule: schedule.clone(),
        remat_plan: plan.remat_plan.clone(),
        devices: vec![DeviceId::Cpu; cut.len()],
        loss: Loss::CrossEntropy,
        optimizer: Some(optimizer()),
        seed: 7,
    };
    assembly.build(&Host::new(1).unwrap()).unwrap()
}

/// Runs a step; what it counts is what was planned. The bits of the loss and of all gradients.
fn run(plan: &Plan, cut: &[Range<usize>], schedule: &Schedule, what: &str) -> (u64, Vec<u32>) {
    let mut assembled = assemble(plan, cut, schedule);
    let outcome = assembled.pipeline.step(items()).unwrap();
    let timeline = outcome.timeline;
    let expected = Timeline::new(timeline.devices(), timeline.spans().to_vec());
    assert_eq!(timeline, expected.with_held(&plan.held), "{what}");
    for (device, peak) in assembled.devices.iter().zip(&plan.peaks) {
        assert_eq!(device.peak_bytes(), *peak, "{what}");
    }
    assert_eq!(assembled.transit.live_bytes(), 0, "{what}");
    let loss: f64 = outcome.losses.iter().sum();
    let gradients = assembled.pipeline.gather(|_, stage| {
        let mut bits: Vec<u32> = Vec::new();
        stage.params(|param| {
            let grad = param.grad().expect("made").to_f32s().expect("floats");
            bits.extend(grad.iter().map(|g| g.to_bits()));
        });
        Ok::<_, gpipe_remat::Error>(bits)
    });
    (loss.to_bits(), gradients.unwrap().concat())
}

fn schedules(stages: usize) -> Vec<Schedule> {
    let schedules = [
        gpipe(stages, MICRO_BATCHES),
        one_f_one_b(stages, MICRO_BATCHES),
        zb_h1(stages, MICRO_BATCHES),
    ];
    schedules.into_iter().map(|s| s.unwrap()).collect()
}

#[test]
fn predicted_is_counted_and_no_bit_moves() {
    let whole = 0..8;
    let one = std::slice::from_ref(&whole);
    let schedule = gpipe(1, MICRO_BATCHES).unwrap();
    let keep = plan(WIDE, Policy::Keep, one, &schedule).unwrap();
    let expected = run(&keep, one, &schedule, "keep");
    let cuts: [&[Range<usize>]; 4] = [one, &[0..3, 3..8], &[0..2, 2..7, 7..8], &CUT];
    for cut in cuts {
        for schedule in schedules(cut.len()) {
            let rules = [
                Policy::Keep,
                Policy::Stage,
                Policy::ExceptLast,
                Policy::Every(1),
                Policy::Every(2),
                Policy::Every(3),
            ];
            let mut budgets = 0;
            let limits = (0..40).map(|i| Policy::Budget(Bytes(64 * 1024 + i * 32 * 1024)));
            for policy in rules.into_iter().chain(limits) {
                let Some(plan) = plan(WIDE, policy, cut, &schedule) else {
                    continue;
                };
                if let Policy::Budget(limit) = policy {
                    assert!(plan.peaks.iter().all(|peak| *peak <= limit.0));
                    budgets += 1;
                }
                let what = format!("{cut:?} {policy}");
                assert_eq!(run(&plan, cut, &schedule, &what), expected, "{what}");
            }
            assert!(budgets > 0, "{cut:?}");
        }
    }
}

#[test]
fn what_passes_a_stage_costs_it_nothing() {
    let schedule = gpipe(4, MICRO_BATCHES).unwrap();
    for policy in [Policy::Stage, Policy::Every(1), Policy::Every(2)] {
        let wide = plan(WIDE, policy, &CUT, &schedule).unwrap();
        let slim = plan(WIDTH, policy, &CUT, &schedule).unwrap();
        for stage in [1, 2] {
            // It goes past them through a portal: its width does not show, not even during an action.
            assert_eq!(wide.held[stage], slim.held[stage], "{policy}");
            assert_eq!(wide.peaks[stage], slim.peaks[stage], "{policy}");
        }
    }
}

/// The least budget is that of some choice, and no smaller one is refused that a rule would fit.
#[test]
fn a_budget_finds_what_a_rule_finds() {
    for cut in [&CUT[..], &[0..2, 2..7, 7..8]] {
        for schedule in schedules(cut.len()) {
            for rule in [Policy::Stage, Policy::Every(1), Policy::Every(2)] {
                let plan_of_rule = plan(WIDE, rule, cut, &schedule).unwrap();
                let limit = plan_of_rule.peaks.iter().max().copied().unwrap_or(0);
                let budget = Policy::Budget(Bytes(limit));
                assert!(
                    plan(WIDE, budget, cut, &schedule).is_some(),
                    "{cut:?} {rule}"
                );
            }
        }
    }
}

/// The layers of this file are described truly.
#[test]
fn the_layers_keep_their_promises() {
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    let cx = PassContext::training(0, 0, 0..2);
    let tensor = |width: usize| {
        let values: Vec<f32> = (0..2 * width).map(|i| i as f32 / 9.0 - 0.7).collect();
        Tensor::from_f32(&device, [2, width], values).unwrap()
    };
    let wide = 2 * WIDTH;
    let mut fork = Fork { name: "fork", wide };
    let mut join = Join { name: "join", wide };
    let one = Tensors::from_iter([tensor(WIDTH)]);
    let two = Tensors::from_iter([tensor(WIDTH), tensor(wide)]);
    let layers: [(&mut dyn Layer, Tensors); 2] = [(&mut fork, one), (&mut join, two)];
    for (layer, x) in layers {
        check::gradients(layer, &cx, &x).unwrap();
        check::bytes(layer, &cx, &x).unwrap();
        check::split(layer, &cx, &x).unwrap();
    }
}

/// Takes up to two tensors and keeps the first.
struct First;

impl Layer for First {
    fn name(&self) -> &str {
        "first"
    }

    fn arity(&self) -> usize {
        2
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        Ok(Cost::new(inputs[..1].to_vec()))
    }

    fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        Ok((x.into_iter().take(1).collect(), Saved::default()))
    }

    fn input_grad(&self, _saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        Ok((dy, Pending::default()))
    }

    fn weight_grad(&mut self, _pending: Pending) -> Result<()> {
        Ok(())
    }

    fn params(&mut self, _visit: &mut dyn FnMut(&mut Param)) {}
}

#[test]
fn a_layer_that_takes_fewer_tensors_than_it_could_has_a_price() {
    let layers: Vec<Box<dyn Layer>> = vec![
        Box::new(Linear::new("in", WIDTH, WIDTH, Layout::OutIn)),
        Box::new(First),
    ];
    let samples = micro_batches(BATCH, MICRO_BATCHES).unwrap();
    let costs = ModelCosts::new(&layers, &samples, |n| vec![Flow::f32([n, WIDTH])]).unwrap();
    let prices = costs.prices(&layers, CostModel::Complete).unwrap();
    assert_eq!(prices[1], 0);
}
