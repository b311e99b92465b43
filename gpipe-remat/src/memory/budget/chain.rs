//! The bytes of one micro-batch on one stage, layer by layer and run by run, from replays of the
//! stage's own passes.
//!
//! A tensor counts where a layer made it and where the next layer or run took it. One that passes
//! layers by counts nothing on its way, nor where it is taken at last: something else may hold it
//! already, and a sum must not be too large. The replay of a whole choice counts it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use gpipe_layers::{Buffers, Flow, Ledger, Origin, SavedBuffers};

use crate::ModelCosts;
use crate::portals::{passing, present};

/// A stage's layers with a backward pass as a chain; each is kept or recomputed.
pub(crate) struct Chain<'a> {
    costs: &'a ModelCosts,
    m: usize,
    pub part: Range<usize>,
    split: bool,
    /// For each layer and behind the last, which tensors of the flow pass the stage through portals.
    passing: Vec<Vec<bool>>,
    /// Bytes that the loss stage takes over from the last layer.
    pub loss: u64,
    /// Pending bytes of each layer and those after it; split backward passes only.
    pending: Vec<u64>,
    runs: RefCell<BTreeMap<usize, Rc<Runs>>>,
    /// The same with backward passes as a whole, where the stage has both: a backward pass then needs
    /// at least the lesser of the two.
    whole: Option<Box<Chain<'a>>>,
}

/// A layer that keeps its saved tensors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Single {
    /// Bytes that its `Saved` holds, input and output included.
    pub saved: u64,
    /// Those of its input among them.
    pub input: u64,
    /// Those of its output among them.
    pub output: u64,
    /// The peak of the forward pass, with the input that it takes.
    pub forward: u64,
    /// The peak of the backward pass, including `saved` and the pending bytes after it.
    pub back: u64,
}

/// The runs that begin at one layer and are recomputed.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// By last layer: bytes of the tensors that the run takes of its input, which are kept.
    pub input: Vec<u64>,
    /// By last layer: the peak of the first forward pass beyond the input.
    pub forward: Vec<u64>,
    /// By last layer: the peak of recomputation and backward pass, with the input.
    pub back: Vec<u64>,
}

impl<'a> Chain<'a> {
    pub fn new(
        costs: &'a ModelCosts,
        m: usize,
        part: Range<usize>,
        has_loss: bool,
        split: bool,
    ) -> Self {
        // Nothing is kept of layers without a backward pass.
        let trained = costs.first_trained().clamp(part.start, part.end);
        let passing = passing(costs, &part).split_off(trained - part.start);
        let part = trained..part.end;
        let mut chain = Self {
            costs,
            m,
            loss: 0,
            split,
            pending: vec![0; part.len() + 1],
            passing,
            part: part.clone(),
            runs: RefCell::default(),
            whole: None,
        };
        if has_loss {
            chain.loss = bytes(costs.flow(m, part.end));
        }
        if split {
            for start in part.rev() {
                let mut pass = Pass::new(&chain, start);
                for layer in start..chain.part.end {
                    pass.forward(&chain, layer);
                }
                let known = pass.release_flow();
                pass.begin_back(&chain, chain.part.end, known);
                for layer in (start..chain.part.end).rev() {
                    pass.back(&chain, layer);
                }
                pass.release_flow();
                chain.pending[start - chain.part.start] = pass.ledger.live();
            }
        }
        chain
    }

    /// A chain of a stage that takes some backward passes as a whole too.
    #[must_use]
    pub fn with_whole(mut self, whole: Self) -> Self {
        self.whole = Some(Box::new(whole));
        self
    }

    /// Pending bytes of the layers from this one.
    pub fn pending(&self, layer: usize) -> u64 {
        self.pending[layer - self.part.start]
    }

    /// The numbers of a layer that is kept.
    pub fn single(&self, layer: usize) -> Single {
        let mut pass = Pass::new(self, layer);
        pass.forward(self, layer);
        let forward = pass.ledger.peak();
        let live = pass.ledger.live();
        let known = pass.release_flow();
        let saved = pass.ledger.live();
        pass.begin_back(self, layer + 1, known);
        let back = pass
            .back(self, layer)
            .saturating_add(self.pending(layer + 1));
        // The same again without the saved tensors: the bytes that the outputs alone hold.
        let mut pass = Pass::new(self, layer);
        pass.forward(self, layer);
        pass.forget();
        let output = pass
            .ledger
            .live()
            .saturating_add(saved)
            .saturating_sub(live);
        // And again with another claim on the input: bytes that it frees were not saved.
        let mut pass = Pass::new(self, layer).claiming();
        pass.forward(self, layer);
        pass.release_flow();
        let with = pass.ledger.live();
        pass.let_go();
        let input = pass
            .input
            .saturating_sub(with.saturating_sub(pass.ledger.live()));
        // A pending input of the next layer may be this layer's output.
        let back = match self.split {
            true => back - output.min(back),
            false => back,
        };
        let whole = self.whole.as_ref().map(|whole| whole.single(layer).back);
        Single {
            saved,
            input,
            output,
            forward,
            back: whole.map_or(back, |whole| whole.min(back)),
        }
    }

    /// The gradients of the first `known` tensors of the flow that enters `layer`.
    fn gradients(&self, layer: usize, known: usize) -> Vec<Flow> {
        let flow = &self.costs.flow(self.m, layer)[..known];
        gradients(&present(flow, &self.passing[layer - self.part.start]))
    }

    /// The runs from a layer on that are recomputed.
    pub fn runs(&self, start: usize) -> Rc<Runs> {
        if let Some(runs) = self.runs.borrow().get(&start) {
            return runs.clone();
        }
        let runs = Rc::new(self.measure_runs(start));
        self.runs.borrow_mut().insert(start, runs.clone());
        runs
    }

    fn measure_runs(&self, start: usize) -> Runs {
        let mut first = Pass::new(self, start).claiming();
        let mut runs = Runs::default();
        for layer in start..self.part.end {
            first.forward(self, layer);
            first.forget();
            runs.input.push(first.input);
            let peak = first.ledger.peak();
            runs.forward.push(peak.saturating_sub(first.input));
        }
        let mut again = Pass::new(self, start);
        for layer in start..self.part.end {
            let peak = again.recompute_peak(self, layer);
            again.forward(self, layer);
            let flow = self.gradients(layer + 1, again.flow.len());
            let waiting = bytes(&flow).saturating_add(self.pending(layer + 1));
            runs.back.push(peak.saturating_add(waiting));
        }
        let known = again.release_flow();
        again.begin_back(self, self.part.end, known);
        let peaks: Vec<u64> = (start..self.part.end)
            .rev()
            .map(|layer| again.back(self, layer))
            .collect();
        let mut worst = 0;
        for (back, peak) in runs.back.iter_mut().zip(peaks.into_iter().rev()) {
            worst = peak.max(worst);
            *back = worst.max(*back);
        }
        if let Some(whole) = &self.whole {
            for (back, whole) in runs.back.iter_mut().zip(&whole.runs(start).back) {
                *back = (*whole).min(*back);
            }
        }
        runs
    }
}

/// One micro-batch during its passes: the leading tensors of its flow, which some layer so far took or
/// made.
struct Pass {
    ledger: Ledger,
    flow: Buffers,
    saved: Vec<SavedBuffers>,
    /// For each tensor of the first layer's input that the layer before it returned, whether that made it, and
    /// it is no other one of them again;
    /// `None` before the stage's first layer, whose inputs are all new to the stage.
    fresh: Option<Vec<bool>>,
    /// Number of tensors of the input that some layer has taken.
    taken: usize,
    /// Bytes of those, as far as they are fresh.
    input: u64,
    /// Further claims on that, where it is kept.
    claims: Option<Buffers>,
}

impl Pass {
    /// Before layer `start`.
    fn new(chain: &Chain<'_>, start: usize) -> Self {
        let before = (start > chain.part.start).then(|| start - 1);
        let made = |layer: usize| {
            let cost = &chain.costs.of(chain.m)[layer];
            let handed_on = &chain.costs.places(layer).handed_on;
            let origin = |place: &usize| cost.memory.output(*place);
            let made = |place: usize| {
                let again = matches!(origin(&place), Origin::Same(_))
                    && (0..place).any(|other| origin(&other) == origin(&place));
                !again && handed_on.iter().all(|&(_, to)| to != place)
            };
            (0..cost.outputs.len()).map(made).collect()
        };
        Self {
            ledger: Ledger::new(),
            flow: Buffers::new(),
            saved: Vec::new(),
            fresh: before.map(made),
            taken: 0,
            input: 0,
            claims: None,
        }
    }

    /// The same, keeping the input.
    fn claiming(self) -> Self {
        Self {
            claims: Some(Buffers::new()),
            ..self
        }
    }

    fn forward(&mut self, chain: &Chain<'_>, layer: usize) {
        let (x, passing) = self.enter(chain, layer);
        let cost = &chain.costs.of(chain.m)[layer];
        let (mut y, saved) = self.ledger.forward(cost, x);
        y.extend(passing);
        self.flow = y;
        self.saved.push(saved);
    }

    /// The peak so far where this layer is the last one that is computed again; the flow is as before it.
    fn recompute_peak(&mut self, chain: &Chain<'_>, layer: usize) -> u64 {
        let (x, passing) = self.enter(chain, layer);
        let before = self.ledger.peak();
        self.ledger.reset_peak();
        let own = self.ledger.hold_all(&x);
        let saved = self.ledger.recompute(&chain.costs.of(chain.m)[layer], own);
        // What passes by is freed before.
        let alone = passing.iter().filter(|one| self.ledger.is_unique(one));
        let freed: u64 = alone.map(|one| self.ledger.bytes(one)).sum();
        let peak = self.ledger.peak().saturating_sub(freed);
        self.ledger.release_saved(saved);
        self.ledger.reset_peak();
        self.ledger.touch(before.saturating_sub(self.ledger.live()));
        self.flow = x;
        self.flow.extend(passing);
        peak.max(before)
    }

    /// The flow that enters a layer: what it takes, and what passes by.
    fn enter(&mut self, chain: &Chain<'_>, layer: usize) -> (Buffers, Buffers) {
        let flow = chain.costs.flow(chain.m, layer);
        let taken = chain.costs.arity(layer).min(flow.len());
        // Tensors that no layer has taken so far were in the input from the start.
        let known = self.flow.len().min(taken);
        let handed_on = &chain.costs.places(layer).handed_on;
        for (place, tensor) in flow.iter().enumerate().take(taken).skip(known) {
            let nothing = Flow {
                shape: [0].into(),
                dtype: tensor.dtype,
            };
            let fresh = match &self.fresh {
                None => true,
                Some(made) => made.get(self.taken).copied().unwrap_or(false),
            };
            // Handed on, it may leave the run untouched, and then it is not kept.
            let touched = handed_on.iter().all(|&(from, _)| from != place);
            let tensor = match fresh && touched {
                true => tensor,
                false => &nothing,
            };
            self.taken += 1;
            self.input = self.input.saturating_add(tensor.bytes());
            let buffers = self.ledger.alloc_flow(std::slice::from_ref(tensor));
            if let Some(claims) = &mut self.claims {
                claims.extend(self.ledger.hold_all(&buffers));
            }
            self.flow.extend(buffers);
        }
        let passing: Buffers = self.flow.drain(taken..).collect();
        (std::mem::take(&mut self.flow), passing)
    }

    /// Releases the saved tensors of the last layer.
    fn forget(&mut self) {
        if let Some(saved) = self.saved.pop() {
            self.ledger.release_saved(saved);
        }
    }

    /// Releases the claim that keeps the input.
    fn let_go(&mut self) {
        self.ledger
            .release_all(self.claims.take().unwrap_or_default());
    }

    /// Releases the flow; the number of its tensors.
    fn release_flow(&mut self) -> usize {
        let flow = std::mem::take(&mut self.flow);
        let known = flow.len();
        self.ledger.release_all(flow);
        known
    }

    /// Allocates the gradients of the first `known` tensors of the flow that leaves the layers
    /// before `end`.
    fn begin_back(&mut self, chain: &Chain<'_>, end: usize, known: usize) {
        let flow = chain.gradients(end, known);
        self.flow = self.ledger.alloc_flow(&flow);
    }

    /// Back through one layer; the peak.
    fn back(&mut self, chain: &Chain<'_>, layer: usize) -> u64 {
        let Some(saved) = self.saved.pop() else {
            return 0;
        };
        let cost = &chain.costs.of(chain.m)[layer];
        self.ledger.reset_peak();
        let own = gradients(&cost.outputs).len().min(self.flow.len());
        let passing: Buffers = self.flow.drain(own..).collect();
        let dy = std::mem::take(&mut self.flow);
        let mut dx = Buffers::new();
        let pending = if layer == chain.costs.first_trained() {
            Some(self.ledger.param_only_grad(cost, saved, dy))
        } else if chain.split {
            let (gradients, pending) = self.ledger.input_grad(cost, saved, dy);
            dx = gradients;
            Some(pending)
        } else {
            dx = self.ledger.backward(cost, saved, dy);
            None
        };
        match pending {
            // Pending tensors stay alive: their claims are dropped, not released.
            Some(pending) if chain.split => drop(pending),
            Some(pending) => self.ledger.weight_grad(cost, pending),
            None => {}
        }
        dx.extend(passing);
        self.flow = dx;
        self.ledger.peak()
    }
}

fn gradients(flow: &[Flow]) -> Vec<Flow> {
    let floats = flow.iter().filter(|flow| flow.dtype.is_float());
    floats.cloned().collect()
}

fn bytes(flow: &[Flow]) -> u64 {
    flow.iter()
        .fold(0, |sum, flow| sum.saturating_add(flow.bytes()))
}
