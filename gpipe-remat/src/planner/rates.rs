//! Times of layers that were not measured: by their costs and the speed of a core.

use gpipe_layers::{Cost, CostModel};

use super::times::{Times, Work};
use crate::ModelCosts;

/// The speed of a core where no layer was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// FLOPs a second.
    pub flops: f64,
    /// Bytes read and written a second.
    pub bytes: f64,
    /// Seconds of an action besides its layers.
    pub action: f64,
}

impl Rates {
    /// This many FLOPs a second; all else is free.
    pub fn of_flops(flops: f64) -> Self {
        Self {
            flops,
            bytes: f64::INFINITY,
            action: 0.0,
        }
    }

    /// This many FLOPs a second, and the bytes that a cost model counts in their time; all else is free.
    pub fn of_model(model: CostModel, flops: f64) -> Self {
        Self {
            bytes: model
                .flops_per_byte()
                .map_or(f64::INFINITY, |per_byte| flops / per_byte),
            ..Self::of_flops(flops)
        }
    }

    /// FLOPs in the time of a byte.
    pub fn flops_per_byte(&self) -> f64 {
        self.flops / self.bytes
    }

    /// The same with the time of a FLOP as the unit of time, for workers whose speed is in FLOP/s.
    #[must_use]
    pub fn by_flop(&self) -> Self {
        Self {
            flops: 1.0,
            bytes: self.flops_per_byte().recip(),
            action: self.action * self.flops,
        }
    }
}

impl Times {
    /// The seconds of the FLOPs and of the bytes that are read and written, one after the other. Bytes are
    /// known for all passes of a layer together: each has a third, or the input gradient two where
    /// there is no weight gradient.
    pub fn of_rates(costs: &ModelCosts, rates: Rates) -> Self {
        let work = |cost: &Cost| {
            let third = cost.traffic as f64 / 3.0 / rates.bytes;
            let pass = |flops: u64, bytes: f64| flops as f64 / rates.flops + bytes;
            let [forward, input_grad, weight_grad] = passes(cost, third);
            Work {
                forward: pass(cost.forward, forward),
                input_grad: pass(cost.input_grad, input_grad),
                weight_grad: pass(cost.weight_grad, weight_grad),
                apart: 0.0,
                update: cost.params as f64 * ModelCosts::UPDATE_BYTES as f64 / rates.bytes,
                operation: 0.0,
            }
        };
        let mut work = of_layers(costs, work);
        for frozen in &mut work[..costs.first_trained()] {
            frozen.update = 0.0;
        }
        Self {
            work,
            shares: Vec::new(),
            action: rates.action,
        }
    }

    /// The same with the bytes that processors [gather](Cost::gathered), at this many a second. As those of the traffic,
    /// each pass has a third.
    #[must_use]
    pub fn with_gathered(mut self, costs: &ModelCosts, bytes_per_second: f64) -> Self {
        let added = of_layers(costs, |cost| {
            let third = cost.gathered as f64 / 3.0 / bytes_per_second;
            let [forward, input_grad, weight_grad] = passes(cost, third);
            Work {
                forward,
                input_grad,
                weight_grad,
                ..Work::default()
            }
        });
        for (work, added) in self.work.iter_mut().zip(added) {
            work.forward += added.forward;
            work.input_grad += added.input_grad;
            work.weight_grad += added.weight_grad;
        }
        self
    }

    /// The seconds of the FLOPs on a core of `flops_per_second`; all else is free.
    pub fn of_flops(costs: &ModelCosts, flops_per_second: f64) -> Self {
        Self::of_rates(costs, Rates::of_flops(flops_per_second))
    }
}

/// The shares of the forward pass, the input gradient and the weight gradient: a third each, two for the input gradient where
/// there is no weight gradient.
fn passes(cost: &Cost, third: f64) -> [f64; 3] {
    match cost.weight_grad {
        0 => [third, 2.0 * third, 0.0],
        _ => [third; 3],
    }
}

/// The work of every layer, of which the first takes no more of its input gradient than its parameters need.
fn of_layers(costs: &ModelCosts, work: impl Fn(&Cost) -> Work) -> Vec<Work> {
    let costs = costs.of(0).iter().enumerate();
    let of_layer = |(layer, cost): (usize, &Cost)| match layer {
        0 => work(cost).for_parameters_only(cost),
        _ => work(cost),
    };
    costs.map(of_layer).collect()
}

#[cfg(test)]
mod tests {
    use gpipe_layers::Flow;
    use gpipe_layers::layers::{Activation, Function, Layout, Linear};

    use super::*;

    /// A layer's parameters are read for each micro-batch, so twice as many take longer, but not twice as
    /// long; by FLOPs alone they would take the same.
    #[test]
    fn a_micro_batch_costs_what_its_parameters_cost() {
        let layers: [Box<dyn gpipe_layers::Layer>; 1] =
            [Box::new(Linear::new("linear", 64, 32, Layout::OutIn))];
        let input = |samples: usize| vec![Flow::f32([samples, 64])];
        let seconds = |parts: usize, rates: Rates| {
            let samples = crate::micro_batches(16, parts).unwrap();
            let costs = ModelCosts::new(&layers, &samples, input).unwrap();
            let work = Times::of_rates(&costs, rates).work[0];
            parts as f64 * (work.forward + work.input_grad + work.weight_grad)
        };
        let rates = Rates {
            flops: 1e9,
            bytes: 1e9,
            action: 0.0,
        };
        let [one, two] = [1, 2].map(|parts| seconds(parts, rates));
        assert!(one < two && two < 2.0 * one, "{one}, {two}");
        let [one, two] = [1, 2].map(|parts| seconds(parts, Rates::of_flops(1e9)));
        assert!((one - two).abs() < 1e-12 * one, "{one}, {two}");
    }

    /// The simulator weighs layers as the cut does, all but the first one, whose price has its whole input gradient.
    #[test]
    fn the_work_of_a_cost_model_is_its_price() {
        let layers: [Box<dyn gpipe_layers::Layer>; 3] = [
            Box::new(Linear::new("first", 64, 64, Layout::OutIn)),
            Box::new(Linear::new("linear", 64, 32, Layout::OutIn)),
            Box::new(Activation::new("relu", Function::Relu)),
        ];
        let samples = crate::micro_batches(16, 1).unwrap();
        let costs = ModelCosts::new(&layers, &samples, |n| vec![Flow::f32([n, 64])]).unwrap();
        for model in ["complete", "time", "time:3"].map(|name| name.parse().unwrap()) {
            let prices = costs.prices(&layers, model).unwrap();
            let times = Times::of_rates(&costs, Rates::of_model(model, 1.0));
            for (work, price) in times.work.iter().zip(prices).skip(1) {
                let work = work.forward + work.input_grad + work.weight_grad + work.update;
                let price = price as f64;
                assert!(
                    (work - price).abs() < 1e-12 * price,
                    "{model:?}: {work}, {price}"
                );
            }
        }
    }
}
