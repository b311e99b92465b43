//! What makes no sense is refused.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use gpipe_layers::{Cost, Flow};
use gpipe_remat::planner::{Described, Link, NamedOrder, PlanRequest, Planner, Worker};
use gpipe_remat::{Error, ModelCosts, Policy, Result};
use gpipe_sched::{interleaved, one_f_one_b, zb_v};

use crate::small::{POLICIES, Random, Small, more_orders, order, orders};

#[test]
fn what_makes_no_sense_is_refused_with_words() {
    let mut random = Random(3);
    let small = Small::new(&mut random, 8, 2, true);
    let refused_at = |min_gain: f64, change: &dyn Fn(&mut Small)| {
        let mut small = Small {
            layers: small.layers.clone(),
            weights: small.weights.clone(),
            workers: small.workers.clone(),
            link: small.link,
            batch: small.batch,
            freezes: false,
            cores: None,
        };
        change(&mut small);
        let orders = orders();
        let price =
            |samples: &[Range<usize>]| Described::costed(&small.layers, small.batch, samples);
        let request = PlanRequest {
            weights: &small.weights,
            batch: small.batch,
            price: &price,
            workers: small.workers.clone(),
            link: small.link,
            replication: Default::default(),
            cores: None,
            orders: &orders,
            micro_batches: vec![2],
            stages: None,
            cut: None,
            min_gain,
            policies: POLICIES.to_vec(),
        };
        let answer = Planner::new(&request).and_then(Planner::answer);
        answer.expect_err("refused").to_string()
    };
    for min_gain in [-0.1, 1.0, f64::NAN] {
        let said = refused_at(min_gain, &|_| {});
        assert!(said.contains("a share from 0 up and below 1"), "{said}");
    }
    let refused = |change: &dyn Fn(&mut Small)| refused_at(0.0, change);
    type Case<'a> = (&'a dyn Fn(&mut Small), &'a str);
    let cases: [Case<'_>; 10] = [
        (
            &|small| small.layers[0].forward = f64::NAN,
            "layer 0 costs NaN",
        ),
        (
            &|small| small.layers[0].weight_grad = -1.0,
            "layer 0 costs -",
        ),
        (
            &|small| {
                for layer in &mut small.layers {
                    (layer.forward, layer.input_grad, layer.weight_grad) = (0.0, 0.0, 0.0);
                }
            },
            "all layers cost nothing",
        ),
        (&|small| small.workers.clear(), "no worker"),
        (
            &|small| small.workers[1].speed = 0.0,
            "worker 1 has speed 0",
        ),
        (&|small| small.link.latency = f64::NAN, "a link of NaN s"),
        (&|small| small.link.latency = 1e308, "a link of 1e308 s"),
        (
            &|small| small.link.bytes_per_second = f64::MIN_POSITIVE,
            "takes longer than a number holds",
        ),
        (
            &|small| small.workers[1].speed = f64::MIN_POSITIVE,
            "takes longer than a number holds",
        ),
        (
            &|small| {
                small
                    .workers
                    .iter_mut()
                    .for_each(|worker| worker.memory = Some(1))
            },
            "does not fit",
        ),
    ];
    for (change, words) in cases {
        let message = refused(change);
        assert!(message.contains(words), "{words}: {message}");
    }
}

/// What a planner says of six layers on three workers of this memory.
fn asked<T>(
    order: NamedOrder,
    memory: Option<u64>,
    ask: impl FnOnce(Planner<'_>) -> Result<T>,
) -> Result<T> {
    let layer = Described {
        forward: 1.0,
        ..Described::default()
    };
    asked_of(layer, order, memory, ask)
}

/// [`asked`] of layers like this one.
fn asked_of<T>(
    layer: Described,
    order: NamedOrder,
    memory: Option<u64>,
    ask: impl FnOnce(Planner<'_>) -> Result<T>,
) -> Result<T> {
    let layers = vec![layer; 6];
    let price = |samples: &[Range<usize>]| Described::costed(&layers, 8, samples);
    let request = PlanRequest {
        weights: &Described::weights(&layers),
        batch: 8,
        price: &price,
        workers: vec![Worker { speed: 1.0, memory }; 3],
        link: Link::FREE,
        replication: Default::default(),
        cores: None,
        orders: &[order],
        micro_batches: vec![4],
        stages: None,
        cut: None,
        min_gain: 0.0,
        policies: vec![Policy::Keep],
    };
    ask(Planner::new(&request)?)
}

#[test]
fn a_cut_or_a_number_that_does_not_fit_the_request_is_refused() {
    let plain = || order("1f1b", 1, one_f_one_b);
    let cuts: [&[(usize, usize)]; 5] = [
        &[(0, 1), (5, 6)],
        &[(0, 3), (3, 60)],
        &[(0, 3), (3, 5)],
        &[(0, 4), (2, 6)],
        &[(0, 6), (6, 6)],
    ];
    let with_cut = |workers, cut: &[(usize, usize)]| {
        let cut: Vec<_> = cut.iter().map(|&(start, end)| start..end).collect();
        asked(plain(), None, |mut planner| {
            planner.with_cut(0, workers, 4, &cut)
        })
    };
    for cut in cuts {
        let message = with_cut(2, cut).expect_err("no cut").to_string();
        assert!(message.contains("is not a cut of 6 layers"), "{message}");
    }
    let halves = [(0, 3), (3, 6)];
    assert!(with_cut(2, &halves).expect("a cut").is_some());
    let message = with_cut(3, &halves).expect_err("two parts").to_string();
    assert!(message.contains("2 parts for 3 stages"), "{message}");

    for (order, workers, words) in [
        (0, 4, "a plan on 4 of 3 workers"),
        (0, 0, "a plan on 0 of 3 workers"),
        (1, 2, "order 1 of 1"),
    ] {
        let found = asked(plain(), None, |mut planner| {
            planner.under(order, workers, 4)
        });
        let message = found.expect_err("not in the request").to_string();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn a_cut_of_another_number_of_stages_than_asked_for_is_refused() {
    let small = Small::new(&mut Random(3), 8, 2, true);
    let layers = small.layers.len();
    let price = |samples: &[Range<usize>]| Described::costed(&small.layers, small.batch, samples);
    let request = PlanRequest {
        weights: &small.weights,
        batch: small.batch,
        price: &price,
        workers: small.workers.clone(),
        link: small.link,
        replication: Default::default(),
        cores: None,
        orders: &orders(),
        micro_batches: vec![2],
        stages: Some(1),
        cut: Some(vec![0..1, 1..layers]),
        min_gain: 0.0,
        policies: POLICIES.to_vec(),
    };
    let said = Planner::new(&request).and_then(Planner::answer);
    let said = said.expect_err("two parts").to_string();
    assert!(
        said.contains("2 parts, but the number of stages is 1"),
        "{said}"
    );
}

#[test]
fn stages_a_worker_other_than_those_of_the_schedule_are_refused() {
    for memory in [None, Some(1000)] {
        let none = asked(order("1f1b", 0, one_f_one_b), memory, |planner| {
            planner.answer()
        });
        let message = none.expect_err("no stages").to_string();
        assert!(message.contains("no stages on a worker"), "{message}");
        let many = asked(order("1f1b", 7, one_f_one_b), memory, |planner| {
            planner.answer()
        });
        let message = many.expect_err("six layers").to_string();
        assert!(message.starts_with("no schedule has"), "{message}");
        let few = asked(order("zb-v", 1, zb_v), memory, |planner| planner.answer());
        let message = few.expect_err("two of each").to_string();
        let words = "makes a schedule of 3 workers, 6 stages and 4 micro-batches for 3, 3 and 4";
        assert!(message.contains(words), "{message}");
    }
}

/// It has no costs of other stages and micro-batches.
#[test]
fn a_schedule_that_follows_costs_into_another_shape_counts_as_none() {
    for (workers, micro_batches) in [(1, 1), (3, 5)] {
        let follows = NamedOrder {
            follow: Some(Box::new(move |_, _| {
                one_f_one_b(workers, micro_batches).ok()
            })),
            ..order("follows", 1, one_f_one_b)
        };
        let said = asked(follows, None, |planner| planner.answer());
        let said = said.expect_err("no schedule").to_string();
        assert!(said.contains("4 micro-batches"), "{said}");
    }
}

/// Rounds of as many micro-batches as workers: 4 of them have none on 3 workers.
#[test]
fn the_memory_that_suffices_is_that_of_a_shape_that_has_a_schedule() {
    let rounds = || NamedOrder {
        make: Box::new(|workers, m| match m % workers {
            0 => interleaved(workers, 2, m).ok(),
            _ => None,
        }),
        ..order("rounds", 2, zb_v)
    };
    let layer = Described {
        forward: 1.0,
        saved: 1000,
        parameters: 1000,
        ..Described::default()
    };
    let asked = |memory| {
        asked_of(layer.clone(), rounds(), Some(memory), |planner| {
            planner.answer()
        })
    };
    let Err(Error::DoesNotFit(fault)) = asked(1000) else {
        panic!("{:?}", asked(1000))
    };
    assert_eq!(fault.limit.0, 1000);
    assert!(asked(fault.needed.0 - 1).is_err());
    assert_eq!(asked(fault.needed.0).unwrap().plan.workers.len(), 2);
}

/// No number of micro-batches that is asked for has a schedule: the message names them.
#[test]
fn micro_batches_without_a_schedule_are_named() {
    for memory in [None, Some(1000)] {
        let never = NamedOrder {
            make: Box::new(|_, _| None),
            ..order("never", 1, one_f_one_b)
        };
        let said = asked(never, memory, |planner| planner.answer());
        let said = said.expect_err("no schedule").to_string();
        assert!(said.contains("4 micro-batches"), "{said}");
    }
}

/// 5 samples in two micro-batches: of 3 and of 2.
#[test]
fn imported_costs_have_as_many_layers_for_every_size() {
    let costs = |layers: [usize; 2]| {
        ModelCosts::of_costs(&[0..3, 3..5], move |samples| {
            let flow = || vec![Flow::f32([samples, 1])];
            let layers = layers[usize::from(samples == 2)];
            (flow(), (0..layers).map(|_| Cost::new(flow())).collect())
        })
    };
    assert_eq!(costs([2, 2]).unwrap().layers(), 2);
    for layers in [[2, 3], [3, 2], [0, 2]] {
        let error = costs(layers).unwrap_err().to_string();
        assert!(
            error.contains("give as many for each number of samples"),
            "{error}"
        );
    }
    assert!(costs([0, 0]).is_err());
}

/// Sums of bytes that no number holds fit no worker.
#[test]
fn bytes_that_no_number_holds_do_not_fit() {
    let layer = |saved, output, parameters| Described {
        forward: 1.0,
        saved,
        output,
        parameters,
        optimizer: parameters,
        ..Described::default()
    };
    for layer in [
        layer(1 << 62, 1 << 20, 1 << 20),
        layer(1 << 63, 1 << 20, 1 << 20),
        layer(1 << 20, 1 << 63, 1 << 20),
        layer(1 << 20, 1 << 20, 1 << 63),
    ] {
        let mut small = Small::new(&mut Random(3), 1, 1, true);
        small.layers = vec![layer; 6];
        small.weights = Described::weights(&small.layers);
        small.workers = vec![
            Worker {
                speed: 1.0,
                memory: Some(1 << 30)
            };
            2
        ];
        small.batch = 64;
        small.link = Link::FREE;
        let policies = [Policy::Budget(gpipe_remat::Bytes(u64::MAX))];
        let every = || orders().into_iter().chain(more_orders()).collect();
        let answer = small.ask_of(every(), &[1, 4, 64], &policies, |planner| planner.answer());
        let said = answer.expect_err("too large").to_string();
        assert!(said.contains("does not fit"), "{said}");
    }
}

/// Parameters that all workers together do not hold: no schedule is made but that of which the message is.
#[test]
fn what_parameters_alone_rule_out_is_not_searched() {
    let mut small = Small::new(&mut Random(3), 1, 1, true);
    let layer = Described {
        forward: 1.0,
        parameters: 4000,
        saved: 400,
        output: 400,
        ..Described::default()
    };
    small.layers = vec![layer; 20];
    small.weights = Described::weights(&small.layers);
    small.batch = 8;
    small.link = Link::FREE;
    let asked = |small: &Small| {
        let made = Rc::new(Cell::new(0));
        let plain = order("1f1b", 1, one_f_one_b);
        let (make, count) = (plain.make, made.clone());
        let counted = NamedOrder {
            make: Box::new(move |workers, micro_batches| {
                count.set(count.get() + 1);
                make(workers, micro_batches)
            }),
            ..order("1f1b", 1, one_f_one_b)
        };
        let policies = [Policy::Budget(gpipe_remat::Bytes(u64::MAX))];
        let answer = small.ask_of(vec![counted], &[1, 2, 4, 8], &policies, |planner| {
            planner.answer()
        });
        (answer, made.get())
    };
    let workers = |memory| {
        let memory = Some(memory);
        vec![Worker { speed: 1.0, memory }; 4]
    };
    small.workers = workers(30_000);
    let (answer, made) = asked(&small);
    let Err(Error::DoesNotFit(fault)) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(made, 1);
    // The memory of the mend suffices.
    small.workers = workers(fault.needed.0);
    assert!(asked(&small).0.is_ok());
}
