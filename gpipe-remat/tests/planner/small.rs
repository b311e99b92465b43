//! Questions drawn at random, and their answers found by trying everything.

use std::ops::Range;

use gpipe_remat::planner::{Costed, Described, Link, NamedOrder, PlanRequest, Planner, Worker};
use gpipe_remat::{
    ParameterBytes, PlaceBytes, Policy, RematPlan, Retained, micro_batches, predict_memory,
};
use gpipe_sched::{
    Costs, LinkCosts, Schedule, ScheduleError, StageCosts, dualpipe_v, gpipe, interleaved,
    looped_bfs, one_f_one_b, simulate, v_half, v_min, zb_h1, zb_h2, zb_v, zero_bubble,
};

pub const POLICIES: [Policy; 3] = [Policy::Keep, Policy::Stage, Policy::Every(1)];

/// Numbers that look random: xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, most: u64) -> u64 {
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

type Make = fn(usize, usize) -> Result<Schedule, ScheduleError>;

pub fn order(name: &str, chunks: usize, make: Make) -> NamedOrder {
    NamedOrder {
        name: name.to_owned(),
        chunks,
        make: Box::new(move |workers, micro_batches| make(workers, micro_batches).ok()),
        follow: None,
        held: None,
    }
}

/// Orders of one stage a worker.
pub fn orders() -> Vec<NamedOrder> {
    let orders: [(&str, Make); 3] = [("gpipe", gpipe), ("1f1b", one_f_one_b), ("zb-h1", zb_h1)];
    orders.map(|(name, make)| order(name, 1, make)).into()
}

/// All the others that are the same whatever the costs.
pub fn more_orders() -> Vec<NamedOrder> {
    let chunked: [(&str, Make); 6] = [
        ("interleaved:2", |k, m| interleaved(k, 2, m)),
        ("looped-bfs:2", |k, m| looped_bfs(k, 2, m)),
        ("zb-v", zb_v),
        ("v-half", v_half),
        ("v-min", v_min),
        ("dualpipe-v", dualpipe_v),
    ];
    let plain = order("zb-h2", 1, zb_h2);
    let chunked = chunked.map(|(name, make)| order(name, 2, make));
    chunked.into_iter().chain([plain]).collect()
}

/// The one that follows the costs.
pub fn following() -> NamedOrder {
    NamedOrder {
        follow: Some(Box::new(|schedule, costs| {
            let (stages, m) = (schedule.stages(), schedule.micro_batches());
            zero_bubble(stages, m, costs, |_| stages).ok()
        })),
        held: Some(Box::new(|stages| stages)),
        ..order("zero-bubble", 1, one_f_one_b)
    }
}

pub type Cut = Vec<Range<usize>>;

/// A question of a few layers, and the best answer found by trying everything.
pub struct Small {
    pub layers: Vec<Described>,
    pub weights: ParameterBytes,
    pub workers: Vec<Worker>,
    pub link: Link,
    pub batch: usize,
    /// Whether layers before the first that trains have no backward pass.
    pub freezes: bool,
    /// Cores that the workers share.
    pub cores: Option<usize>,
}

impl Small {
    pub fn new(random: &mut Random, most: u64, workers: u64, equal: bool) -> Self {
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
            freezes: false,
            cores: None,
            layers,
        }
    }

    /// The same with this number of first layers frozen.
    pub fn with_frozen(mut self, frozen: usize) -> Self {
        let weight = |(index, layer): (usize, &Described)| {
            let trained = if index < frozen { 0 } else { 1 };
            vec![PlaceBytes {
                name: layer.name.clone(),
                value: layer.parameters,
                gradient: trained * layer.parameters,
                optimizer: trained * layer.optimizer,
                tied: false,
            }]
        };
        self.weights =
            ParameterBytes::of_layers(self.layers.iter().enumerate().map(weight).collect());
        self.freezes = true;
        self
    }

    fn costed(&self, samples: &[Range<usize>]) -> gpipe_remat::Result<Costed> {
        let mut costed = Described::costed(&self.layers, self.batch, samples)?;
        if self.freezes {
            costed.costs = costed.costs.with_frozen(&self.weights);
        }
        Ok(costed)
    }

    /// The seconds of the best plan on that number of workers, over all cuts, policies of each stage and
    /// orders of workers.
    pub fn best(&self, order: &NamedOrder, devices: usize, parts: usize) -> Option<f64> {
        let schedule = (order.make)(devices, parts)?;
        let (stages, device_of) = (schedule.stages(), schedule.device_of());
        let samples = micro_batches(self.batch, parts).expect("a valid size");
        let costed = self.costed(&samples).expect("costs");
        let trained = costed.costs.first_trained();
        let sizes: Vec<f64> = samples
            .iter()
            .map(|part| part.len() as f64 / samples[0].len() as f64)
            .collect();
        let mut best: Option<f64> = None;
        for cut in cuts(self.layers.len(), stages) {
            let rules = POLICIES.map(|policy| {
                RematPlan::new(policy, &self.weights, &costed.costs, &cut, &schedule)
                    .expect("a rule")
            });
            // What each policy holds and does again, stage by stage.
            let mut options: Vec<Vec<(usize, u64)>> = vec![Vec::new(); stages];
            for (policy, remat_plan) in rules.iter().enumerate() {
                let memory =
                    predict_memory(&self.weights, &costed.costs, &cut, &schedule, remat_plan);
                for (stage, memory) in memory.iter().enumerate() {
                    options[stage].push((policy, memory.peak()));
                }
            }
            for workers in arrangements(self.workers.len(), devices) {
                let worker = |stage: usize| self.workers[workers[device_of[stage]]];
                let fitting: Vec<Vec<usize>> = (0..stages)
                    .map(|stage| {
                        let memory = worker(stage).memory.unwrap_or(u64::MAX);
                        let memory = memory / order.chunks as u64;
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
                        let speed = worker(stage).speed;
                        let work = &costed.times.work;
                        let forward = |part| sum(part, &|l| work[l].forward) / speed;
                        let from = |first: usize| part.start.max(first)..part.end.max(first);
                        let input_grad = sum(from(trained + 1), &|l| work[l].input_grad);
                        StageCosts {
                            forward: forward(part.clone()),
                            input_grad: input_grad / speed,
                            weight_grad: sum(from(trained), &|l| work[l].weight_grad) / speed,
                            recompute: forward(from(trained)),
                        }
                    });
                    let links = cut[1..].iter().enumerate().map(|(stage, part)| {
                        if device_of[stage] == device_of[stage + 1] {
                            return LinkCosts::default();
                        }
                        let flow = costed.costs.flow(0, part.start);
                        let seconds = flow[0].bytes() as f64 / self.link.bytes_per_second;
                        LinkCosts {
                            latency: self.link.latency,
                            forward: seconds,
                            backward: match costed.costs.owes_gradients(part.start) {
                                true => seconds,
                                false => 0.0,
                            },
                        }
                    });
                    let costs = Costs::new(stages.collect())
                        .with_links(links.collect())
                        .with_sizes(sizes.clone())
                        .with_recompute(parts, |stage, m| *kept(stage, m) != Retained::Everything);
                    let seconds = simulate(&schedule, &costs).expect("costs").makespan();
                    best = Some(best.map_or(seconds, |best| best.min(seconds)));
                }
            }
        }
        best
    }

    pub fn ask<T>(
        &self,
        micro_batches: &[usize],
        policies: &[Policy],
        ask: impl FnOnce(Planner<'_>) -> T,
    ) -> T {
        self.ask_of(orders(), micro_batches, policies, ask)
    }

    /// For the fastest plan.
    pub fn ask_of<T>(
        &self,
        orders: Vec<NamedOrder>,
        micro_batches: &[usize],
        policies: &[Policy],
        ask: impl FnOnce(Planner<'_>) -> T,
    ) -> T {
        self.ask_with(0.0, orders, micro_batches, policies, ask)
    }

    /// For the simplest plan, where others save no more than this share.
    pub fn ask_with<T>(
        &self,
        min_gain: f64,
        orders: Vec<NamedOrder>,
        micro_batches: &[usize],
        policies: &[Policy],
        ask: impl FnOnce(Planner<'_>) -> T,
    ) -> T {
        let price = |samples: &[Range<usize>]| self.costed(samples);
        let request = PlanRequest {
            weights: &self.weights,
            batch: self.batch,
            price: &price,
            workers: self.workers.clone(),
            link: self.link,
            replication: Default::default(),
            cores: self.cores,
            orders: &orders,
            micro_batches: micro_batches.to_vec(),
            stages: None,
            cut: None,
            min_gain,
            policies: policies.to_vec(),
        };
        ask(Planner::new(&request).expect("a question that makes sense"))
    }
}

/// Every cut into `parts` parts.
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

pub fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}
