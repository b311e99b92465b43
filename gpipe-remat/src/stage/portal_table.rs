//! The table of tensors in transit through portals, shared by the stages of a process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gpipe_sched::{Direction, Portal};
use gpipe_tensor::{Device, Tensor};

use crate::portals::{PortalTensor, Portals};
use crate::{Error, Result};

/// The tensors in transit through the portals of a pipeline: activations wait for the forward pass of their
/// taker, gradients for the backward pass of their giver.
///
/// A flow between neighbours follows each tensor, so its taker never waits for it.
#[derive(Debug)]
pub struct PortalTable {
    transit: Device,
    tensors: Vec<PortalTensor>,
    /// For each tensor, whether its ends are in different processes: then it stays in the flow.
    rides: Vec<bool>,
    held: Mutex<BTreeMap<Key, Tensor>>,
    given: AtomicU64,
}

/// A tensor in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub direction: Direction,
    /// Index among the tensors that go through portals.
    pub tensor: usize,
    pub micro_batch: usize,
}

impl PortalTable {
    /// An empty table, whose tensors count on `transit`. Those of portals that are not `within` this process
    /// stay in the flow.
    pub(crate) fn new(portals: &Portals, transit: Device, within: impl Fn(Portal) -> bool) -> Self {
        let tensors = portals.tensors().to_vec();
        Self {
            transit,
            rides: tensors.iter().map(|one| !within(one.portal)).collect(),
            tensors,
            held: Mutex::default(),
            given: AtomicU64::new(0),
        }
    }

    /// The device handle that counts the bytes in transit.
    pub fn device(&self) -> &Device {
        &self.transit
    }

    /// Bytes of all tensors that were given so far.
    pub fn given_bytes(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    pub(crate) fn portal(&self, tensor: usize) -> Portal {
        self.tensors[tensor].portal
    }

    /// Whether the giver is owed the tensor's gradient.
    pub(crate) fn has_gradient(&self, tensor: usize) -> bool {
        self.tensors[tensor].has_gradient
    }

    /// Whether the tensor stays in the flow.
    pub(crate) fn rides(&self, tensor: usize) -> bool {
        self.rides[tensor]
    }

    /// Puts a tensor into the table.
    pub(crate) fn give(&self, key: Key, tensor: Tensor) -> Result<()> {
        let bytes = tensor.bytes() as u64;
        let tensor = tensor.send(&self.transit)?;
        if let Some(old) = self.lock().insert(key, tensor) {
            drop(old);
            return Err(self.fault(key, "are there already"));
        }
        self.given.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a tensor out of the table.
    pub(crate) fn take(&self, key: Key) -> Result<Tensor> {
        let tensor = self.lock().remove(&key);
        tensor.ok_or_else(|| self.fault(key, "are missing"))
    }

    /// Drops what this stage gave in an earlier step. Other stages may run already, so nothing else is touched.
    pub(crate) fn clear(&self, stage: usize) {
        let gave = |key: &Key| {
            let Portal { from, to } = self.portal(key.tensor);
            let giver = match key.direction {
                Direction::Forward => from,
                Direction::Backward => to,
            };
            giver == stage
        };
        let old: BTreeMap<Key, Tensor> = {
            let mut held = self.lock();
            let all = std::mem::take(&mut *held).into_iter();
            let (old, other) = all.partition(|(key, _)| gave(key));
            *held = other;
            old
        };
        // Destructors run after the lock is released.
        drop(old);
    }

    fn fault(&self, key: Key, fault: &'static str) -> Error {
        Error::Portal {
            portal: self.portal(key.tensor),
            tensors: match key.direction {
                Direction::Forward => "activations",
                Direction::Backward => "gradients",
            },
            micro_batch: key.micro_batch,
            fault,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Tensor>> {
        // No code that panics runs under the lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpipe_layers::layers::{Add, At, Fork, Layout, Linear};
    use gpipe_layers::{Flow, Layer};
    use gpipe_sched::{MicroBatch, Stage};
    use gpipe_tensor::{DeviceId, Host, Tensors};

    use super::*;
    use crate::stage::LayerStage;
    use crate::{ModelCosts, RematPlan, Retained, micro_batches};

    fn linear(name: &str) -> Box<dyn Layer> {
        Box::new(At::new([0], Linear::new(name, 3, 3, Layout::OutIn)))
    }

    fn key(direction: Direction, micro_batch: usize) -> Key {
        Key {
            direction,
            tensor: 0,
            micro_batch,
        }
    }

    /// Three stages, the second of which is passed, and their table.
    fn stages(device: &Device) -> (Vec<LayerStage>, Arc<PortalTable>) {
        let parts: [Vec<Box<dyn Layer>>; 3] = [
            vec![linear("a"), Box::new(Fork::new("fork"))],
            vec![linear("b")],
            vec![Box::new(Add::new("add")), linear("c")],
        ];
        let cut = [0..2, 2..3, 3..5];
        let ranges = micro_batches(4, 2).unwrap();
        let layers: Vec<_> = parts.into_iter().flatten().collect();
        let input = |samples: usize| vec![Flow::f32([samples, 3])];
        let costs = ModelCosts::new(&layers, &ranges, input).unwrap();
        let plan = RematPlan::of_stages(vec![Retained::Inputs { run: 9 }; 3], 2)
            .with_portals(Portals::new(&costs, &cut));
        let plan = Arc::new(plan);
        let host = device.host();
        let table = Arc::new(PortalTable::new(
            plan.portals(),
            host.device(DeviceId::Cpu).unwrap(),
            |_| true,
        ));
        let mut layers = layers.into_iter();
        let stages = cut.into_iter().enumerate().map(|(index, part)| {
            let mut own: Vec<_> = layers.by_ref().take(part.len()).collect();
            for layer in &mut own {
                gpipe_layers::make(layer.as_mut(), device, 1).unwrap();
            }
            let transit = host.device(DeviceId::Cpu).unwrap();
            let stage = LayerStage::new(index, own, device.clone(), transit, plan.clone(), 1);
            stage.with_portals(Some(&table))
        });
        (stages.collect(), table)
    }

    fn micro_batch(m: usize) -> MicroBatch {
        MicroBatch::new(m, 2 * m as u64..2 * m as u64 + 2, 0, true)
    }

    fn flow(device: &Device, m: usize) -> Tensors {
        let values: Vec<f32> = (0..6).map(|i| (i * (m + 2)) as f32 - 4.0).collect();
        Tensors::from_iter([Tensor::from_f32(device, [2, 3], values).unwrap()])
    }

    /// Runs both micro-batches forward and back; `fault` changes what is in the portals after the pass through the
    /// first stage, and after that through the last. The outputs and the gradients of the first layer.
    fn run(fault: impl Fn(&PortalTable, Direction)) -> Vec<u32> {
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let (mut stages, table) = stages(&device);
        stages.iter_mut().for_each(|stage| stage.begin(0).unwrap());
        let mut bits = Vec::new();
        let mut flows: Vec<Tensors> = [0, 1].map(|m| flow(&device, m)).into();
        for (index, stage) in stages.iter_mut().enumerate() {
            for (m, flow) in flows.iter_mut().enumerate() {
                *flow = stage
                    .forward(&micro_batch(m), std::mem::take(flow))
                    .unwrap();
                assert_eq!(flow.len(), 1);
            }
            if index == 0 {
                fault(&table, Direction::Forward);
            }
        }
        for flow in &flows {
            bits.extend(flow[0].to_f32s().unwrap().iter().map(|x| x.to_bits()));
        }
        for (index, stage) in stages.iter_mut().enumerate().rev() {
            for (m, flow) in flows.iter_mut().enumerate() {
                let dy = std::mem::take(flow);
                *flow = stage
                    .backward(&micro_batch(m), dy)
                    .unwrap()
                    .unwrap_or_default();
            }
            if index == 2 {
                fault(&table, Direction::Backward);
            }
        }
        stages[0].params(|param| {
            let gradient = param.grad().unwrap().to_f32s().unwrap();
            bits.extend(gradient.iter().map(|x| x.to_bits()));
        });
        assert_eq!((table.lock().len(), table.device().live_bytes()), (0, 0));
        bits
    }

    #[test]
    fn a_tensor_of_another_micro_batch_changes_the_result() {
        let right = run(|_, _| {});
        for wrong in [Direction::Forward, Direction::Backward] {
            let swapped = run(|table, direction| {
                if direction == wrong {
                    let mut held = table.lock();
                    let [a, b] = [0, 1].map(|m| held.remove(&key(direction, m)).unwrap());
                    held.extend([(key(direction, 0), b), (key(direction, 1), a)]);
                }
            });
            assert_ne!(swapped, right, "{wrong:?}");
        }
    }

    #[test]
    fn a_missing_or_a_second_tensor_is_an_error_and_begin_clears_what_a_stage_gave() {
        let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
        let (mut stages, table) = stages(&device);
        let x = stages[0]
            .forward(&micro_batch(1), flow(&device, 1))
            .unwrap();
        let bytes = table.device().live_bytes();
        assert_eq!((bytes, table.given_bytes()), (24, 24));
        let error = stages[2].forward(&micro_batch(0), x.clone()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the portal from stage 0 to stage 2: activations of micro-batch 0 are missing"
        );
        let second = table.give(key(Direction::Forward, 1), flow(&device, 0).remove(0));
        assert_eq!(
            second.unwrap_err().to_string(),
            "the portal from stage 0 to stage 2: activations of micro-batch 1 are there already"
        );
        // Others leave it, as they may begin later than the stage that gave it.
        stages[1].begin(1).unwrap();
        stages[2].begin(1).unwrap();
        assert_eq!(table.lock().len(), 1);
        stages[0].begin(1).unwrap();
        assert_eq!((table.lock().len(), table.device().live_bytes()), (0, 0));
    }
}
