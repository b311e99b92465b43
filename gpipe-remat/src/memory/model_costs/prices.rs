//! Work of layers as single numbers: FLOPs, and the costs that a partitioner balances.

use gpipe_layers::{Cost, CostModel, Layer};

use super::ModelCosts;
use crate::Result;

impl ModelCosts {
    /// FLOPs of each layer over the whole batch: forward and both gradients, if it has a backward pass.
    pub fn flops(&self) -> Vec<u64> {
        let mut flops = vec![0u64; self.places.len()];
        for m in 0..self.micro_batches() {
            for (layer, (total, cost)) in flops.iter_mut().zip(self.of(m)).enumerate() {
                *total = total.saturating_add(match self.owes_gradients(layer + 1) {
                    true => cost.flops(),
                    false => cost.forward,
                });
            }
        }
        flops
    }

    /// The cost of each layer over the whole batch under `model`, which a partitioner balances: by time with the
    /// update of its parameters. `layers` must be those of these costs.
    ///
    /// # Errors
    /// If Lingvo has no formula for a layer.
    pub fn prices(&self, layers: &[Box<dyn Layer>], model: CostModel) -> Result<Vec<u64>> {
        let trains = |layer: usize| self.owes_gradients(layer + 1);
        let mut prices = self.priced(layers, model, trains)?;
        if let CostModel::Time(flops_per_byte) = model {
            let update = Self::UPDATE_BYTES * u64::from(flops_per_byte.get());
            let trained = self.of(0).iter().zip(&mut prices);
            for (cost, total) in trained.skip(self.first_trained) {
                *total = total.saturating_add(cost.params.saturating_mul(update));
            }
        }
        Ok(prices)
    }

    /// [`prices`](Self::prices) of forward passes alone.
    pub(crate) fn forward_prices(
        &self,
        layers: &[Box<dyn Layer>],
        model: CostModel,
    ) -> Result<Vec<u64>> {
        self.priced(layers, model, |_| false)
    }

    /// The cost of each layer over the whole batch without updates: with both gradients for those that train, else of the
    /// forward pass alone.
    fn priced(
        &self,
        layers: &[Box<dyn Layer>],
        model: CostModel,
        trains: impl Fn(usize) -> bool,
    ) -> Result<Vec<u64>> {
        let mut prices = vec![0u64; layers.len()];
        for (samples, costed) in &self.layers {
            let times = self.sizes.iter().filter(|size| *size == samples).count() as u64;
            for (index, (total, layer)) in prices.iter_mut().zip(layers).enumerate() {
                let flow = &costed.flows[index];
                let inputs = &flow[..self.arity(index).min(flow.len())];
                let price = match (trains(index), model) {
                    (true, _) => model.price(layer.as_ref(), inputs)?,
                    (false, CostModel::Complete) => costed.costs[index].forward,
                    // The formulas and the bytes are those of three passes.
                    (false, _) => {
                        let cost = &costed.costs[index];
                        let price = model.price(layer.as_ref(), inputs)?;
                        match model.flops_per_byte() {
                            None => price / 3,
                            Some(_) => cost.forward + price.saturating_sub(cost.flops()) / 3,
                        }
                    }
                };
                *total = total.saturating_add(price.saturating_mul(times));
            }
        }
        Ok(prices)
    }
}

/// The share of the forward pass of a layer that is computed again where nothing needs its outputs: that of its FLOPs.
pub(crate) fn recomputed_share(cost: &Cost) -> f64 {
    match cost.forward {
        0 => 1.0,
        forward => cost.recomputed().min(forward) as f64 / forward as f64,
    }
}
