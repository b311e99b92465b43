//! The planner against every plan there is, on small questions drawn at random.

use std::ops::Range;

use gpipe_remat::planner::{Described, Link, NamedOrder, Planner, Question, Worker};
use gpipe_remat::{Bytes, Error, Kept, Policy, Table, Weights, micro_batches, predict_memory};
use gpipe_sched::{
    Costs, LinkCosts, Schedule, ScheduleError, StageCosts, gpipe, one_f_one_b, simulate, zb_h1,
};

const POLICIES: [Policy; 3] = [Policy::Keep, Policy::Stage, Policy::Every(1)];

/// Numbers that look random: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % most
    }

    fn layers(&mut self, most: u64) -> Vec<Described> {
        let count = 1 + self.below(most);
        let layer = |index| Described {
            name: format!("layer {index}"),
            forward: self.below(100) as f64,
            input_grad: self.below(100) as f64,
            weight_grad: 1.0 + self.below(100) as f64,
            parameters: 4 * self.below(200),
            optimizer: 8 * self.below(200),
            saved: 16 * self.below(400),
            output: 16 * self.below(100),
        };
        (0..count).map(layer).collect()
    }
}

fn orders() -> Vec<NamedOrder> {
    type Make = fn(usize, usize) -> Result<Schedule, ScheduleError>;
    let order = |(name, make): (&str, Make)| NamedOrder {
        name: name.to_owned(),
        chunks: 1,
        make: Box::new(move |workers, micro_batches| make(workers, micro_batches).ok()),
        follow: None,
    };
    let orders: [(&str, Make); 3] = [("gpipe", gpipe), ("1f1b", one_f_one_b), ("zb-h1", zb_h1)];
    orders.into_iter().map(order).collect()
}

type Cut = Vec<Range<usize>>;

/// A question of a few layers, and the best answer found by trying everything.
struct Small {
    layers: Vec<Described>,
    weights: Weights,
    workers: Vec<Worker>,
    link: Link,
    batch: usize,
}

impl Small {
    fn new(random: &mut Random, most: u64, workers: u64, equal: bool) -> Self {
        let layers = random.layers(most);
        let all: u64 = layers
            .iter()
            .map(|layer| 2 * layer.parameters + layer.optimizer + 2 * layer.saved + layer.output)
            .sum();
        let memory = match random.below(3) {
            0 => None,
            _ => Some(all / 8 + random.below(all + 1)),
        };
        let mut worker = Worker {
            speed: 10.0,
            memory,
        };
        let workers = (0..workers).map(|_| {
            if !equal {
                worker.speed = 1.0 + random.below(20) as f64;
                worker.memory = memory.map(|memory| memory / 2 + random.below(memory + 1));
            }
            worker
        });
        Self {
            weights: Described::weights(&layers),
            workers: workers.collect(),
            link: match random.below(2) {
                0 => Link::FREE,
                _ => Link {
                    latency: random.below(5) as f64,
                    bytes_per_second: 1.0 + random.below(400) as f64,
                },
            },
            batch: 8,
            layers,
        }
    }

    /// The seconds of the best plan on so many workers, over all cuts, policies of each stage and
    /// orders of workers.
    fn best(&self, order: &NamedOrder, devices: usize, parts: usize) -> Option<f64> {
        let schedule = (order.make)(devices, parts).expect("a valid size");
        let samples = micro_batches(self.batch, parts).expect("a valid size");
        let priced = Described::priced(&self.layers, &samples).expect("costs");
        let sizes: Vec<f64> = samples
            .iter()
            .map(|part| part.len() as f64 / samples[0].len() as f64)
            .collect();
        let rules = POLICIES.map(|policy| {
            let cut: Cut = std::iter::once(0..self.layers.len()).collect();
            Table::new(policy, &self.weights, &priced.costs, &cut, &schedule).expect("a rule")
        });
        let mut best: Option<f64> = None;
        for cut in cuts(self.layers.len(), devices) {
            // What each policy holds and does again, stage by stage.
            let mut options: Vec<Vec<(usize, u64)>> = vec![Vec::new(); devices];
            for (policy, table) in rules.iter().enumerate() {
                let memory = predict_memory(&self.weights, &priced.costs, &cut, &schedule, table);
                for (stage, memory) in memory.iter().enumerate() {
                    options[stage].push((policy, memory.peak()));
                }
            }
            for workers in arrangements(self.workers.len(), devices) {
                let fitting: Vec<Vec<usize>> = (0..devices)
                    .map(|stage| {
                        let memory = self.workers[workers[stage]].memory.unwrap_or(u64::MAX);
                        let options = options[stage].iter();
                        let fits = options.filter(|(_, peak)| *peak <= memory);
                        fits.map(|&(policy, _)| policy).collect()
                    })
                    .collect();
                for choice in product(&fitting) {
                    let kept = |stage: usize, m: usize| rules[choice[stage]].kept(stage, m);
                    let sum = |part: Range<usize>, number: &dyn Fn(usize) -> f64| {
                        part.map(number).sum::<f64>()
                    };
                    let stages = cut.iter().enumerate().map(|(stage, part)| {
                        let speed = self.workers[workers[stage]].speed;
                        let work = &priced.times.work;
                        let forward = sum(part.clone(), &|l| work[l].forward) / speed;
                        let wanted = part.start.max(1)..part.end.max(1);
                        StageCosts {
                            forward,
                            input_grad: sum(wanted, &|l| work[l].input_grad) / speed,
                            weight_grad: sum(part.clone(), &|l| work[l].weight_grad) / speed,
                            recompute: forward,
                        }
                    });
                    let links = cut[1..].iter().map(|part| {
                        let flow = priced.costs.flow(0, part.start);
                        let seconds = flow[0].bytes() as f64 / self.link.bytes_per_second;
                        LinkCosts {
                            latency: self.link.latency,
                            forward: seconds,
                            backward: seconds,
                        }
                    });
                    let costs = Costs::new(stages.collect())
                        .with_links(links.collect())
                        .with_sizes(sizes.clone())
                        .with_recompute(parts, |stage, m| *kept(stage, m) != Kept::Everything);
                    let seconds = simulate(&schedule, &costs).expect("costs").makespan();
                    best = Some(best.map_or(seconds, |best| best.min(seconds)));
                }
            }
        }
        best
    }

    fn ask<T>(
        &self,
        micro_batches: &[usize],
        policies: &[Policy],
        ask: impl FnOnce(Planner<'_>) -> T,
    ) -> T {
        let orders = orders();
        let price = |samples: &[Range<usize>]| Described::priced(&self.layers, samples);
        let question = Question {
            weights: &self.weights,
            batch: self.batch,
            price: &price,
            workers: self.workers.clone(),
            link: self.link,
            cores: None,
            orders: &orders,
            micro_batches: micro_batches.to_vec(),
            policies: policies.to_vec(),
        };
        ask(Planner::new(&question).expect("a question that makes sense"))
    }
}

/// Every cut into so many parts.
fn cuts(layers: usize, parts: usize) -> Vec<Cut> {
    fn extend(cut: &mut Cut, layers: usize, parts: usize, found: &mut Vec<Cut>) {
        let start = cut.last().map_or(0, |part| part.end);
        if cut.len() == parts {
            if start == layers {
                found.push(cut.clone());
            }
            return;
        }
        for end in start + 1..=layers {
            cut.push(start..end);
            extend(cut, layers, parts, found);
            cut.pop();
        }
    }
    let mut found = Vec::new();
    extend(&mut Vec::new(), layers, parts, &mut found);
    found
}

/// Every way to put workers on devices.
fn arrangements(workers: usize, devices: usize) -> Vec<Vec<usize>> {
    let all = product(&vec![(0..workers).collect(); devices]);
    let differ = |order: &Vec<usize>| (1..devices).all(|i| !order[..i].contains(&order[i]));
    all.into_iter().filter(differ).collect()
}

fn product(options: &[Vec<usize>]) -> Vec<Vec<usize>> {
    options.iter().fold(vec![Vec::new()], |all, options| {
        let longer = |start: Vec<usize>| {
            options.iter().map(move |&option| {
                let mut choice = start.clone();
                choice.push(option);
                choice
            })
        };
        all.into_iter().flat_map(longer).collect()
    })
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn two_hundred_small_questions_are_answered_as_by_trying_everything() {
    let (mut fitting, mut limited) = (0, 0);
    for seed in 0..200 {
        let mut random = Random(0x9E37_79B9 + seed);
        let devices = 1 + random.below(4);
        let small = Small::new(&mut random, 8, devices, true);
        let parts = 1 + random.below(8) as usize;
        let devices = (devices as usize).min(small.layers.len());
        for (index, order) in orders().iter().enumerate() {
            let best = small.best(order, devices, parts);
            let found = small.ask(&[parts], &POLICIES, |mut planner| {
                planner.under(index, devices, parts).expect("an answer")
            });
            match (best, &found) {
                (Some(best), Some((plan, bound))) => {
                    let seconds = plan.seconds;
                    assert!(
                        close(best, seconds),
                        "{seed} {}: {seconds}, not {best}",
                        order.name
                    );
                    assert!(
                        *bound <= best * (1.0 + 1e-9),
                        "{seed}: {bound} above {best}"
                    );
                    let memory = small.workers[0].memory.unwrap_or(u64::MAX);
                    assert!(plan.peaks.iter().all(|&peak| peak <= memory));
                    fitting += 1;
                    limited += usize::from(small.workers[0].memory.is_some());
                }
                (None, None) => {}
                (best, found) => panic!("{seed} {}: {found:?} but {best:?}", order.name),
            }
            // The best of all choices is no worse than any rule.
            let budget = small.ask(&[parts], &[Policy::Budget(Bytes(1))], |mut planner| {
                planner.under(index, devices, parts).expect("an answer")
            });
            if let Some((plan, _)) = found {
                let (budget, _) = budget.expect("fits, as a rule does");
                assert!(budget.seconds <= plan.seconds * (1.0 + 1e-9), "{seed}");
            }
        }
    }
    assert!(
        fitting > 300 && limited > 100,
        "{fitting} fit, {limited} of them a limit"
    );
}

/// Bound, best and plan are in this order on every question; the gap between the bound and the plan
/// is small on most.
fn certificates(seeds: Range<u64>, equal: bool) -> Vec<f64> {
    let mut gaps = Vec::new();
    for seed in seeds {
        let mut random = Random(0x1234_5678 + seed);
        let count = 1 + random.below(3);
        let small = Small::new(&mut random, 6, count, equal);
        let parts = [2, 4];
        let bests = orders()
            .iter()
            .flat_map(|order| {
                let small = &small;
                let most = small.layers.len().min(count as usize);
                (1..=most)
                    .flat_map(move |devices| parts.map(|parts| small.best(order, devices, parts)))
                    .collect::<Vec<_>>()
            })
            .flatten()
            .reduce(f64::min);
        let answer = small.ask(&parts, &POLICIES, |planner| planner.answer());
        match (bests, answer) {
            (Some(best), Ok(answer)) => {
                let (bound, seconds) = (answer.bound, answer.plan.seconds);
                assert!(
                    bound <= best * (1.0 + 1e-9),
                    "{seed}: bound {bound} above {best}"
                );
                assert!(
                    best <= seconds * (1.0 + 1e-9),
                    "{seed}: plan {seconds} below {best}"
                );
                gaps.push(answer.gap());
            }
            (None, Err(Error::DoesNotFit { limit, needed, .. })) => assert!(needed > limit),
            (best, answer) => panic!("{seed}: {answer:?} but {best:?}"),
        }
    }
    gaps.sort_by(f64::total_cmp);
    gaps
}

#[test]
fn certificates_hold_on_equal_workers() {
    let gaps = certificates(0..60, true);
    assert!(gaps[gaps.len() / 2] <= 0.03, "{gaps:?}");
}

#[test]
fn certificates_hold_on_unequal_workers() {
    let gaps = certificates(1000..1060, false);
    assert!(gaps[gaps.len() / 2] <= 0.03, "{gaps:?}");
}

#[test]
fn large_questions_are_answered_with_a_certificate() {
    let mut random = Random(7);
    let mut small = Small::new(&mut random, 1, 1, true);
    small.layers = (0..400)
        .map(|index| Described {
            name: format!("layer {index}"),
            forward: 80.0 + random.below(40) as f64,
            input_grad: 80.0 + random.below(40) as f64,
            weight_grad: 80.0 + random.below(40) as f64,
            parameters: 4000,
            saved: 400_000,
            output: 40_000,
            ..Described::default()
        })
        .collect();
    small.weights = Described::weights(&small.layers);
    small.workers = vec![
        Worker {
            speed: 1000.0,
            memory: Some(4_000_000),
        };
        32
    ];
    small.batch = 64;
    small.link = Link::FREE;
    let answer = small
        .ask(&[8, 16, 32, 64], &[Policy::Budget(Bytes(1))], |planner| {
            planner.answer()
        })
        .expect("it fits");
    assert!(answer.plan.peaks.iter().all(|&peak| peak <= 4_000_000));
    assert!(answer.bound > 0.0 && answer.bound <= answer.plan.seconds);
    assert!(answer.gap() < 0.5, "{}", answer.gap());
}

#[test]
fn what_makes_no_sense_is_refused_with_words() {
    let mut random = Random(3);
    let small = Small::new(&mut random, 8, 2, true);
    let refused = |change: &dyn Fn(&mut Small)| {
        let mut small = Small {
            layers: small.layers.clone(),
            weights: small.weights.clone(),
            workers: small.workers.clone(),
            link: small.link,
            batch: small.batch,
        };
        change(&mut small);
        let orders = orders();
        let price = |samples: &[Range<usize>]| Described::priced(&small.layers, samples);
        let question = Question {
            weights: &small.weights,
            batch: small.batch,
            price: &price,
            workers: small.workers.clone(),
            link: small.link,
            cores: None,
            orders: &orders,
            micro_batches: vec![2],
            policies: POLICIES.to_vec(),
        };
        let answer = Planner::new(&question).and_then(Planner::answer);
        answer.expect_err("refused").to_string()
    };
    type Case<'a> = (&'a dyn Fn(&mut Small), &'a str);
    let cases: [Case<'_>; 7] = [
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
