//! The trait of all layers.

use std::fmt;

use gpipe_tensor::ops::CacheSpan;
use gpipe_tensor::{Tensor, Tensors};

use crate::lora_settings::LoraSettings;
use crate::sum::sums;
use crate::{Cost, Error, Flow, LayerCache, Param, PassContext, Pending, Result, Saved};

/// A layer of a model: its cost, its forward pass and its two gradients.
///
/// The types order the backward pass: `forward` returns [`Saved`], `input_grad` consumes it and
/// returns [`Pending`], `weight_grad` consumes that. Taking a gradient twice, or the weight
/// gradient before the input gradient, does not compile.
///
/// # Memory contract
///
/// A call holds its arguments (`x`, `dy`, `saved`, `pending`) until it returns, allocates its results, and
/// frees everything else that it allocated. [`Memory`](crate::Memory) describes
/// the rest, and with it a peak is predicted to the byte.
///
/// # A layer of your own
///
/// A gain for each column: y = x · gain. dX is dY · gain, and the gradient of the gain is the sum
/// of x · dY over the rows. `weight_grad` needs x and dY, so `Saved` holds x and `Pending` both.
///
/// ```
/// use gpipe_layers::{
///     Cost, Error, Flow, Init, Kind, Layer, Memory, Param, PassContext, Pending, Result, Saved,
///     TensorSet, check, make,
/// };
/// use gpipe_tensor::{DeviceId, Host, Tensor, Tensors};
///
/// struct Gain(Param);
///
/// impl Gain {
///     fn new(width: usize) -> Self {
///         Self(Param::new("gain.weight", [width], Kind::Vector, Init::Ones))
///     }
///
///     /// x · gain.
///     fn scale(&self, x: &Tensor) -> Result<Tensor> {
///         let gain = self.0.value()?.to_f32s().map_err(Error::within("gain"))?;
///         let x_values = x.to_f32s().map_err(Error::within("gain"))?;
///         let columns = gain.iter().cycle();
///         let y: Vec<f32> = x_values.iter().zip(columns).map(|(x, gain)| x * gain).collect();
///         Tensor::from_f32(x.device(), x.shape().clone(), y).map_err(Error::within("gain"))
///     }
/// }
///
/// impl Layer for Gain {
///     fn name(&self) -> &str {
///         "gain"
///     }
///
///     fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
///         let [x] = inputs else {
///             return Err(Error::Config("gain takes one tensor".into()));
///         };
///         let memory = Memory::new()
///             .with_saved_inputs(TensorSet::All)
///             .with_pending_inputs(TensorSet::All)
///             .with_pending_grads(TensorSet::All)
///             .with_forward_peak(x.bytes()) // y
///             .with_input_grad_peak(x.bytes()); // dX
///         let n = x.elements();
///         let cost = Cost::new(vec![x.clone()]).with_flops(n, n, 2 * n);
///         Ok(cost.with_params(self.0.elements()).with_memory(memory))
///     }
///
///     fn forward(&self, _cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
///         Ok((Tensors::from_iter([self.scale(&x[0])?]), Saved::new(x)))
///     }
///
///     fn input_grad(&self, mut saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
///         let [x] = saved.take_tensors("gain")?;
///         let dx = self.scale(&dy[0])?;
///         Ok((Tensors::from_iter([dx]), Pending::new([x, dy[0].clone()])))
///     }
///
///     // Without this, the default computes dX and drops it.
///     fn param_only_grad(&self, mut saved: Saved, dy: Tensors) -> Result<Pending> {
///         let [x] = saved.take_tensors("gain")?;
///         Ok(Pending::new([x, dy[0].clone()]))
///     }
///
///     fn weight_grad(&mut self, mut pending: Pending) -> Result<()> {
///         let [x, dy] = pending.take_tensors("gain")?;
///         self.0.add_grad("gain", |grad| {
///             let width = grad.elements();
///             let sums = grad.f32s_mut()?;
///             for (i, (x, dy)) in x.to_f32s()?.iter().zip(dy.to_f32s()?.iter()).enumerate() {
///                 sums[i % width] += x * dy;
///             }
///             Ok(())
///         })
///     }
///
///     fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
///         visit(&mut self.0);
///     }
/// }
///
/// let device = Host::new(1)?.device(DeviceId::Cpu)?;
/// let mut layer = Gain::new(3);
/// make(&mut layer, &device, 0)?;
/// let x = Tensor::from_f32(&device, [2, 3], [0.5, -1.0, 2.0, 1.0, 0.25, -0.75])?;
/// let (cx, x) = (PassContext::training(0, 0, 0..2), Tensors::from_iter([x]));
/// check::gradients(&mut layer, &cx, &x)?;
/// check::bytes(&mut layer, &cx, &x)?;
/// check::split(&mut layer, &cx, &x)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub trait Layer: Send {
    /// The layer's global name, such as `transformer.h.3.attn`.
    fn name(&self) -> &str;

    /// Number of leading tensors of the flow that it takes; the rest pass by.
    fn arity(&self) -> usize {
        1
    }

    /// Tensors among these that it hands on untouched, as pairs of the places in its inputs and in its outputs, each
    /// place at most once.
    ///
    /// By default none: the layer touches all that it takes. A tensor that is handed on is never looked at, its
    /// type apart; its output *is* the input and its gradient the output's. A stage that computes a layer again
    /// does not keep it, and gives the layer a tensor without elements in its place.
    fn handed_on(&self) -> Vec<(usize, usize)> {
        Vec::new()
    }

    /// FLOPs, bytes and output shapes for these inputs, before any tensor exists
    /// (Lingvo's `FPropMeta`).
    ///
    /// # Errors
    /// If the layer cannot take such a flow.
    fn cost(&self, inputs: &[Flow]) -> Result<Cost>;

    /// Lingvo's own estimate of the forward pass, in its FLOPs
    /// ([`CostModel::Lingvo`](crate::CostModel::Lingvo)).
    ///
    /// # Errors
    /// If Lingvo has no formula for such a layer, or the layer cannot take such a flow.
    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let _ = inputs;
        Err(Error::Config(format!(
            "Lingvo has no cost formula for {}: use the complete costs",
            self.name()
        )))
    }

    /// Computes the outputs and the state that the backward pass needs.
    ///
    /// # Errors
    /// If the layer cannot take such tensors.
    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)>;

    /// [`forward`](Self::forward) of a layer of one tensor, and the sum of its output and `onto`, which has the same shape
    /// and type: a residual connection. It holds the bytes of the two in a row.
    ///
    /// By default it is the two in a row, bit for bit; a layer that ends in a product of matrices may have a GPU begin its
    /// sums with `onto`.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and if the shapes differ.
    fn forward_onto(
        &self,
        cx: &PassContext,
        x: Tensors,
        onto: &Tensor,
    ) -> Result<(Tensors, Saved)> {
        let (y, saved) = self.forward(cx, x)?;
        Ok((sums(y, onto).map_err(Error::within(self.name()))?, saved))
    }

    /// The state of [`forward`](Self::forward), bit for bit, where nothing needs its outputs: of the last layer of those
    /// that a stage computes again.
    ///
    /// By default `forward` without its outputs. A layer that saves none of what its last operations make leaves these out,
    /// and says in its [`Cost::recompute`] and its [`Memory::recompute_peak`](crate::Memory::recompute_peak) what is left.
    ///
    /// # Errors
    /// As `forward`.
    fn recompute(&self, cx: &PassContext, x: Tensors) -> Result<Saved> {
        Ok(self.forward(cx, x)?.1)
    }

    /// Whether what [`forward`](Self::forward) saves depends on the numbers of its inputs. If not, [`recompute`](Self::recompute)
    /// takes no tensors where nothing else needs them, and a layer around this one leaves out what makes them.
    fn saves_numbers(&self) -> bool {
        true
    }

    /// The outputs of positions that continue earlier ones, in inference: `x` holds new positions, `span` says
    /// which rows of the caches they belong to and how many positions are before them (as many for all), and `cache` keeps
    /// what later positions need of these. Of a head, the scores of the last position suffice.
    ///
    /// By default [`forward`](Self::forward), which is right for a layer that computes every position by
    /// itself; a layer where positions meet, or that knows their numbers, needs its own.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and if the positions do not fit the cache.
    fn forward_cached(
        &self,
        cx: &PassContext,
        x: Tensors,
        span: &CacheSpan,
        cache: &mut LayerCache,
    ) -> Result<Tensors> {
        let _ = (span, cache);
        Ok(self.forward(cx, x)?.0)
    }

    /// Computes dX from dY, and the state that dW still needs. The flow of gradients has one tensor for each float
    /// tensor of the forward flow (indices have none).
    ///
    /// # Errors
    /// If `dy` does not have the shapes of the outputs.
    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)>;

    /// [`input_grad`](Self::input_grad) without dX: for the first layer of a model.
    ///
    /// # Errors
    /// As `input_grad`.
    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        Ok(self.input_grad(saved, dy)?.1)
    }

    /// [`input_grad`](Self::input_grad) of a layer of one tensor, and the sum of its dX and `onto`, which has the same shape
    /// and type: the gradient of a residual connection. It holds the bytes of the two in a row.
    ///
    /// By default it is the two in a row, bit for bit; a layer that writes dX element by element may add `onto` on the
    /// way.
    ///
    /// # Errors
    /// As `input_grad`, and if the shapes differ.
    fn input_grad_onto(
        &self,
        saved: Saved,
        dy: Tensors,
        onto: &Tensor,
    ) -> Result<(Tensors, Pending)> {
        let (dx, pending) = self.input_grad(saved, dy)?;
        let dx = sums(dx, onto).map_err(Error::within(self.name()))?;
        Ok((dx, pending))
    }

    /// Adds dW to the gradients.
    ///
    /// # Errors
    /// If the parameters were not made.
    fn weight_grad(&mut self, pending: Pending) -> Result<()>;

    /// Both gradients in a row; a layer may fuse them if the bits stay the same.
    ///
    /// # Errors
    /// As `input_grad` and `weight_grad`.
    fn backward(&mut self, saved: Saved, dy: Tensors) -> Result<Tensors> {
        let (dx, pending) = self.input_grad(saved, dy)?;
        self.weight_grad(pending)?;
        Ok(dx)
    }

    /// [`backward`](Self::backward) with the sum of [`input_grad_onto`](Self::input_grad_onto).
    ///
    /// # Errors
    /// As both.
    fn backward_onto(&mut self, saved: Saved, dy: Tensors, onto: &Tensor) -> Result<Tensors> {
        let dx = self.backward(saved, dy)?;
        sums(dx, onto).map_err(Error::within(self.name()))
    }

    /// Begins a mini-batch: discards the changes of an unfinished one to the layer's own state.
    ///
    /// Called before the first pass of every training step and every evaluation, and so also after
    /// a step that failed. Calling it twice is the same as calling it once. A layer without state
    /// of its own needs nothing here.
    ///
    /// # Errors
    /// If the state cannot be discarded.
    fn begin_mini_batch(&mut self) -> Result<()> {
        Ok(())
    }

    /// Applies the changes that the passes of this mini-batch recorded to the layer's own state.
    ///
    /// Called once after a training step that succeeded on all workers, wherever the model is cut;
    /// not after an evaluation, nor after a step that was run again to find a value that is not
    /// finite. Applied changes are part of the model; changes that [`forward`](Self::forward) and
    /// [`weight_grad`](Self::weight_grad) recorded are not, until then.
    ///
    /// `forward` may run twice for the same samples, because a stage that keeps only its inputs
    /// computes them again: record under [`samples`](PassContext::samples), so that the second pass replaces
    /// the first, or record in `weight_grad`, which runs once for each micro-batch. `forward` runs
    /// in evaluation too, with [`train`](PassContext::train) false.
    ///
    /// # Errors
    /// If the state cannot be applied.
    fn commit_mini_batch(&mut self) -> Result<()> {
        Ok(())
    }

    /// Visits the number of rows of this mini-batch that the layer's statistics are of, once for each mean and variance
    /// ([`Kind::Statistic`](crate::Kind::Statistic)), in the order of those: the gradients of such a pair are merged
    /// with those of other rows by these numbers. By default there are none, and gradients of statistics are added; a
    /// layer around others hands the call on.
    fn merged_rows(&mut self, visit: &mut dyn FnMut(&mut u64)) {
        let _ = visit;
    }

    /// Visits the parameters, always in the same order.
    fn params(&mut self, visit: &mut dyn FnMut(&mut Param));

    /// Adds adapters ([`Linear::with_lora`](crate::layers::Linear::with_lora)) to the linear layers inside: `which`
    /// gives their settings by the layer's name. Called before the parameters are made. By default there are none;
    /// a layer around others hands the call on.
    ///
    /// # Errors
    /// [`Error::Config`] for settings that mean nothing.
    fn adapt(&mut self, which: &mut dyn FnMut(&str) -> Option<LoraSettings>) -> Result<()> {
        let _ = which;
        Ok(())
    }
}

/// The name alone.
impl fmt::Debug for dyn Layer + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Layer").field(&self.name()).finish()
    }
}
