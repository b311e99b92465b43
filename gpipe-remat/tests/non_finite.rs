//! The first value that is no finite number is named by micro-batch, layer and pass: the one that a
//! plain loop over the layers meets first, for every cut, schedule and policy, wherever it arises.

mod common;

use common::{Model, Order, Run};
use gpipe_layers::{Loss, PassContext};
use gpipe_remat::Target;
use gpipe_remat::{NonFinite, Pass, Policy, Value, first_non_finite, share_ties};
use gpipe_sched::{Item, Schedule, zb_h1, zb_v};
use gpipe_tensor::{DeviceId, Host, Tensor, Tensors};

fn full() -> bool {
    std::env::var_os("GPIPE_EXAM").is_some()
}

/// What is done to a run so that a value overflows or is none.
#[derive(Clone, Debug)]
enum Plant {
    /// An element of a parameter, by the number of its place.
    Element { place: usize, value: f32 },
    /// All of a parameter times this.
    Scale { place: usize, factor: f32 },
    /// What losses are divided by, in micro-batches from this one on.
    Divisor { from: usize, divisor: f64 },
}

fn run() -> Run {
    let model = Model {
        blocks: 2,
        tied: true,
        dropout: 0.1,
    };
    Run::new(model, 8, 4)
}

fn items(run: &Run, plant: &Plant) -> Vec<Item<Tensors, Target>> {
    let mut items = run.items(0);
    if let Plant::Divisor { from, divisor } = *plant {
        for item in &mut items[from..] {
            item.target.divisor = divisor;
        }
    }
    items
}

/// Changes the parameter of a place, which counts from `first` in what `params` visits.
fn spoil(plant: &Plant, place: usize, value: &mut Tensor) {
    let elements = value.f32s_mut().expect("its only holder");
    match *plant {
        Plant::Element { place: at, value } if at == place => elements[elements.len() / 2] = value,
        Plant::Scale { place: at, factor } if at == place => {
            elements.iter_mut().for_each(|element| *element *= factor);
        }
        _ => {}
    }
}

/// The first element of the tensors that is not finite.
fn bad<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Option<f32> {
    let floats = tensors
        .into_iter()
        .filter(|tensor| tensor.dtype().is_float());
    floats
        .flat_map(|tensor| tensor.f32s().expect("floats").to_vec())
        .find(|element| !element.is_finite())
}

/// What a plain loop finds: no pipeline, no policy, one micro-batch after the other.
fn by_hand(run: &Run, plant: &Plant) -> Option<NonFinite> {
    let device = Host::new(1)
        .and_then(|host| host.device(DeviceId::Cpu))
        .expect("a CPU");
    let mut layers = run.model.layers();
    let (mut place, mut broken) = (0, Vec::new());
    for layer in &mut layers {
        gpipe_layers::make(layer.as_mut(), &device, 7).expect("room");
        let name = layer.name().to_owned();
        layer.params(&mut |param| {
            let value = param.value.as_mut().expect("made");
            spoil(plant, place, value);
            broken.extend(bad([&*value]).map(|found| (name.clone(), param.name.clone(), found)));
            place += 1;
        });
    }
    let found = |micro_batch, layer: &str, pass, value, found| {
        let parameter = broken.iter().find(|(name, ..)| name == layer);
        let (value, found) = match parameter {
            Some((_, name, found)) => (Value::Parameter(name.clone()), *found),
            None => (value, found),
        };
        let layer = layer.to_owned();
        Some(NonFinite {
            micro_batch,
            layer,
            pass,
            value,
            found,
        })
    };
    for (m, item) in items(run, plant).into_iter().enumerate() {
        let cx = PassContext::training(7, 0, item.micro_batch.samples);
        let mut flow: Tensors = item
            .input
            .into_iter()
            .map(|x| x.receive(&device).expect("room"))
            .collect();
        let mut kept = Vec::new();
        for layer in &layers {
            let (y, saved) = layer.forward(&cx, flow).expect("a forward pass");
            if let Some(value) = bad(&y) {
                return found(m, layer.name(), Pass::Forward, Value::Output, value);
            }
            kept.push(saved);
            flow = y;
        }
        let y = flow.pop().expect("one output");
        let Target { values, divisor } = item.target;
        let (loss, dy) = Loss::CrossEntropy
            .gradient(y, &values, divisor)
            .expect("a loss");
        if !loss.is_finite() {
            return found(m, "loss", Pass::Forward, Value::Output, loss as f32);
        }
        if let Some(value) = bad([&dy]) {
            return found(m, "loss", Pass::Backward, Value::InputGradient, value);
        }
        let mut flow = Tensors::from_iter([dy]);
        for (index, layer) in layers.iter_mut().enumerate().rev() {
            let saved = kept.pop().expect("one a layer");
            let pending = if index == 0 {
                layer
                    .param_only_grad(saved, flow)
                    .map(|pending| (Tensors::new(), pending))
            } else {
                layer.input_grad(saved, flow)
            };
            let (dx, pending) = pending.expect("a backward pass");
            if let Some(value) = bad(&dx) {
                return found(m, layer.name(), Pass::Backward, Value::InputGradient, value);
            }
            layer.weight_grad(pending).expect("a gradient");
            let mut first = None;
            layer.params(&mut |param| {
                let sum = bad(&param.grad);
                first = first
                    .take()
                    .or(sum.map(|value| (param.name.clone(), value)));
            });
            if let Some((name, value)) = first {
                let gradient = Value::Gradient(name);
                return found(m, layer.name(), Pass::Backward, gradient, value);
            }
            flow = dx;
        }
    }
    None
}

/// What the pipeline says.
fn by_pipeline(run: &Run, schedule: Schedule, plant: &Plant) -> Option<NonFinite> {
    let mut assembled = run.assemble_with(schedule);
    let pipeline = &mut assembled.pipeline;
    let places = pipeline.gather(|_, stage| {
        let mut places = 0;
        stage.params(|_| places += 1);
        Ok::<_, gpipe_remat::Error>(places)
    });
    let places: Vec<usize> = places.expect("places");
    let plant_there = plant.clone();
    pipeline
        .each(move |index, stage| {
            let mut place = places[..index].iter().sum();
            stage.params(|param| {
                spoil(&plant_there, place, param.value.as_mut().expect("made"));
                place += 1;
            });
            Ok::<_, gpipe_remat::Error>(())
        })
        .expect("a visit");
    first_non_finite(pipeline, items(run, plant)).expect("a step")
}

fn plants() -> Vec<Plant> {
    let mut plants = Vec::new();
    let mut places = 0;
    for layer in &mut run().model.layers() {
        layer.params(&mut |_| places += 1);
    }
    for place in 0..places {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            plants.push(Plant::Element { place, value });
        }
        for factor in [1e38, 1e25, 1e15] {
            plants.push(Plant::Scale { place, factor });
        }
    }
    for exponent in 30..46 {
        for from in [0, 1, 3] {
            let divisor = 10f64.powi(-exponent);
            plants.push(Plant::Divisor { from, divisor });
        }
    }
    // In `cargo test` a third of them: of each place the first and the fourth.
    let stride = if full() { 1 } else { 3 };
    plants.into_iter().step_by(stride).collect()
}

/// Schedules of every kind, cuts of every size, and policies in turn.
fn configurations() -> Vec<(Run, Schedule)> {
    let policies = [
        Policy::Keep,
        Policy::Stage,
        Policy::ExceptLast,
        Policy::Every(2),
    ];
    let mut all = Vec::new();
    for (index, stages) in [1, 2, 3, 4, 6].into_iter().enumerate() {
        let policy = policies[index % policies.len()];
        let run = Run {
            stages,
            policy,
            ..run()
        };
        all.push((
            run.clone(),
            Order::Gpipe.schedule(stages, run.micro_batches),
        ));
        all.push((
            run.clone(),
            Order::OneFOneB.schedule(stages, run.micro_batches),
        ));
        all.push((
            run.clone(),
            zb_h1(stages, run.micro_batches).expect("a size"),
        ));
        if stages % 2 == 0 {
            all.push((
                run.clone(),
                zb_v(stages / 2, run.micro_batches).expect("a size"),
            ));
        }
    }
    all
}

#[test]
fn every_cut_schedule_and_policy_names_what_a_plain_loop_meets_first() {
    let configurations = configurations();
    // In `cargo test` each plant meets one of them.
    let few = if full() { configurations.len() } else { 1 };
    let (mut tried, mut layers, mut passes) = (0, Vec::new(), [0, 0]);
    for (index, plant) in plants().iter().enumerate() {
        let expected = by_hand(&run(), plant);
        for offset in 0..few {
            let (run, schedule) = &configurations[(index + offset) % configurations.len()];
            let got = by_pipeline(run, schedule.clone(), plant);
            // Not a number is not equal to itself.
            assert_eq!(
                format!("{got:?}"),
                format!("{expected:?}"),
                "{plant:?} in {run:?}"
            );
            tried += 1;
        }
        if let Some(first) = expected {
            passes[first.pass as usize] += 1;
            layers.push(first.layer);
        }
    }
    let mut all = run().model.layers();
    for layer in &mut all {
        let mut has_parameters = false;
        layer.params(&mut |_| has_parameters = true);
        let failed = layers.iter().any(|name| name == layer.name());
        assert!(
            failed || !has_parameters,
            "nothing failed first in {}",
            layer.name()
        );
    }
    assert!(layers.iter().any(|name| name == "loss"));
    assert!(passes.iter().all(|&count| count >= 8), "{passes:?}");
    println!("exam NF {tried}/{tried}");
}

#[test]
fn a_step_that_is_all_finite_has_no_first() {
    for (run, schedule) in configurations() {
        let mut assembled = run.assemble_with(schedule);
        let first = first_non_finite(&mut assembled.pipeline, run.items(0)).expect("a step");
        assert_eq!(first, None, "{run:?}");
    }
}

/// After the search the run goes on as if nothing had been: parameters are untouched.
#[test]
fn the_search_changes_nothing() {
    let run = Run {
        stages: 3,
        policy: Policy::Stage,
        ..run()
    };
    let mut assembled = run.assemble();
    let plant = Plant::Divisor {
        from: 1,
        divisor: 1e-44,
    };
    let found = first_non_finite(&mut assembled.pipeline, items(&run, &plant)).expect("a step");
    assert_eq!(found.map(|first| first.micro_batch), Some(1));
    share_ties(&mut assembled.pipeline).expect("ties");
    let mut got = common::Outcome::default();
    for step in 0..run.steps {
        got.step(&mut assembled, run.items(step), &run, step, true);
    }
    got.read(&mut assembled);
    assert_eq!(run.train(), got);
}

#[test]
fn it_reads_well() {
    let first = |value| NonFinite {
        micro_batch: 2,
        layer: "transformer.h.3.mlp".into(),
        pass: Pass::Backward,
        value,
        found: f32::NEG_INFINITY,
    };
    for (value, end) in [
        (Value::Output, "the output is -inf"),
        (Value::InputGradient, "the gradient of the input is -inf"),
        (Value::Gradient("w".into()), "the gradient of w is -inf"),
        (Value::Parameter("w".into()), "w was -inf before the step"),
    ] {
        let expected = format!("micro-batch 2, layer transformer.h.3.mlp, backward: {end}");
        assert_eq!(first(value).to_string(), expected);
    }
}

/// A search for the first bad value.
type Search<'a> = &'a dyn Fn(&Plant) -> Option<NonFinite>;

/// Mistakes that the search could make, each seen by the comparison above.
#[test]
fn teeth() {
    let run = Run { stages: 3, ..run() };
    let schedule = || Order::OneFOneB.schedule(3, run.micro_batches);
    let plants = plants();
    let differ = |search: Search| {
        let mut plants = plants.iter();
        plants.any(|plant| format!("{:?}", search(plant)) != format!("{:?}", by_hand(&run, plant)))
    };
    let right = |plant: &Plant| by_pipeline(&run, schedule(), plant);
    assert!(!differ(&right), "no fault was planted");
    let planted: [Search; 4] = [
        // It sees nothing.
        &|_| None,
        // It takes the last micro-batch, not the first.
        &|plant| {
            Some(NonFinite {
                micro_batch: 3,
                ..right(plant)?
            })
        },
        // It takes forward for backward.
        &|plant| {
            Some(NonFinite {
                pass: Pass::Forward,
                ..right(plant)?
            })
        },
        // It looks at parameters that have changed since.
        &|plant| match plant {
            Plant::Scale { place, .. } => right(&Plant::Scale {
                place: *place,
                factor: 1.0,
            }),
            _ => right(plant),
        },
    ];
    for (index, fault) in planted.iter().enumerate() {
        assert!(differ(fault), "planted fault {index} went unseen");
    }
    println!("exam NF teeth {0}/{0}", planted.len());
}
