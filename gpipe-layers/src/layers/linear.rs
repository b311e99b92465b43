//! y = x·W + b.

use gpipe_tensor::{DType, Tensor, Tensors, ops};
use smallvec::smallvec;

use super::flow::{checked, floats, foreign, output, saved_input, single, times, trained};
use super::lora::Lora;
use crate::lingvo;
use crate::lora_settings::LoraSettings;
use crate::sum::sum;
use crate::{
    Cost, Error, Flow, Init, Kind, Layer, Memory, Param, PassContext, Pending, Result, Saved,
    TensorSet,
};

/// Memory layout, and so shape, of the weight of a [`Linear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// (in, out): y = x·W, as the `Conv1D` of Hugging Face's GPT-2.
    InOut,
    /// (out, in): y = x·Wᵀ, as PyTorch's `Linear`.
    OutIn,
}

impl Layout {
    fn shape(self, inputs: usize, outputs: usize) -> [usize; 2] {
        match self {
            Self::InOut => [inputs, outputs],
            Self::OutIn => [outputs, inputs],
        }
    }

    fn of_forward(self) -> ops::Layout {
        match self {
            Self::InOut => ops::Layout::Nn,
            Self::OutIn => ops::Layout::Nt,
        }
    }

    fn of_input_grad(self) -> ops::Layout {
        match self {
            Self::InOut => ops::Layout::Nt,
            Self::OutIn => ops::Layout::Nn,
        }
    }
}

/// A linear map of the innermost extent, with a bias or without, and with an adapter ([`with_lora`](Self::with_lora))
/// or without.
///
/// The input is the first tensor that it saves, and the first that it leaves pending, where layers around it may
/// put another in its place: only [`Layer::weight_grad`] reads it.
#[derive(Debug)]
pub struct Linear {
    name: String,
    inputs: usize,
    outputs: usize,
    layout: Layout,
    weight: Param,
    bias: Option<Param>,
    lora: Option<Lora>,
    /// Whether rows of the result are [`ops::padded`] where tensor cores read them.
    padded: bool,
}

impl Linear {
    /// A linear layer with the parameters `{name}.weight` and `{name}.bias`, initialized as in
    /// PyTorch: uniform within 1/√inputs.
    pub fn new(name: impl Into<String>, inputs: usize, outputs: usize, layout: Layout) -> Self {
        let name = name.into();
        let init = Init::Uniform((inputs.max(1) as f32).sqrt().recip());
        let weight = Param::new(
            format!("{name}.weight"),
            layout.shape(inputs, outputs),
            Kind::Matrix,
            init.clone(),
        );
        let bias = Param::new(format!("{name}.bias"), [outputs], Kind::Vector, init);
        Self {
            name,
            inputs,
            outputs,
            layout,
            weight,
            bias: Some(bias),
            lora: None,
            padded: false,
        }
    }

    /// The same with other initial values.
    #[must_use]
    pub fn init(mut self, weight: Init, bias: Init) -> Self {
        self.weight.init = weight;
        if let Some(param) = &mut self.bias {
            param.init = bias;
        }
        self
    }

    /// The same without a bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = None;
        self
    }

    /// The same without a bias, whose result is that of [`ops::matmul_padded`] where tensor cores read it: in bf16, and
    /// with a weight that is rounded to TF32 ([`round_to_tf32`](crate::round_to_tf32)).
    pub(super) fn padded(self) -> Self {
        Self {
            padded: true,
            ..self.without_bias()
        }
    }

    /// Whether the result is that of [`ops::matmul_padded`].
    fn pads(&self) -> bool {
        self.padded && (self.weight.dtype == DType::BF16 || self.weight.tf32)
    }

    /// The same with its weight a place of the parameter `owner`, which comes earlier.
    #[must_use]
    pub fn tied_to(mut self, owner: &str) -> Self {
        self.weight = Param {
            name: owner.to_owned(),
            ..self.weight
        }
        .tied();
        self
    }

    /// The same with an adapter (LoRA, arXiv:2106.09685), which is all that is trained of it:
    /// y = x·W + b + α/r · (dropout(x)·Aᵀ)·Bᵀ, with weight and bias frozen.
    ///
    /// These keep their names, and `{name}.lora_A.weight` (r, inputs) and `{name}.lora_B.weight` (outputs, r) come
    /// after them, as in `peft`: A begins uniform within 1/√inputs (Kaiming with a = √5), B as zeros, and so y
    /// begins as it was. Whichever layout the weight has, A and B have these shapes.
    ///
    /// # Errors
    /// [`Error::Config`] if the rank is 0, α is not a finite number, or the dropout is not from 0 to below 1.
    pub fn with_lora(mut self, settings: LoraSettings) -> Result<Self> {
        self.adapt(&mut |_| Some(settings))?;
        Ok(self)
    }

    /// The forward pass, added to `onto` if that is given.
    fn pass(
        &self,
        cx: &PassContext,
        x: Tensors,
        onto: Option<&Tensor>,
    ) -> Result<(Tensors, Saved)> {
        let x = single(&self.name, x)?;
        let bias = self.bias.as_ref().map(Param::value).transpose()?;
        let weight = self.weight.value()?;
        let saved = self.saved(cx, &x)?;
        let kept = &saved.tensors[0];
        let adapted = self.lora.as_ref().zip(saved.tensors.get(1));
        let layout = self.layout.of_forward();
        // Sums go on after a product whose result is another one's, or is padded.
        let pads = self.pads();
        let (begun, added) = match pads || adapted.is_some() {
            true => (None, onto),
            false => (onto, None),
        };
        let y = match begun {
            Some(onto) => ops::matmul_onto(layout, kept, weight, bias, onto),
            None if pads => ops::matmul_padded(layout, kept, weight),
            None => ops::matmul(layout, kept, weight, bias),
        };
        let mut y = y.map_err(Error::within(&self.name))?;
        if let Some((lora, inner)) = adapted {
            lora.add_output(inner, &mut y)?;
        }
        if let Some(onto) = added {
            y = sum(y, onto).map_err(Error::within(&self.name))?;
        }
        Ok((smallvec![y], saved))
    }

    /// The state of the forward pass: x in the type of the weight, and the inner tensor of the adapter.
    fn saved(&self, cx: &PassContext, x: &Tensor) -> Result<Saved> {
        let mut saved = saved_input(&self.name, x, &self.weight)?;
        if let Some(lora) = &self.lora {
            saved.tensors.push(lora.inner(cx, &saved.tensors[0])?);
            saved.cx = Some(cx.clone());
        }
        Ok(saved)
    }

    /// Whether it has an adapter, which saves a tensor besides the input.
    pub(super) fn is_adapted(&self) -> bool {
        self.lora.is_some()
    }

    /// The state that dW needs, from that of the forward pass and dY.
    fn pending(&self, saved: Saved, dy: &Tensor) -> Result<Pending> {
        let mut tensors = saved.tensors;
        let expected = 1 + usize::from(self.lora.is_some());
        if tensors.len() != expected {
            return Err(foreign(&self.name, expected, tensors.len()));
        }
        tensors.insert(1, dy.clone());
        let Some(lora) = &self.lora else {
            return Ok(Pending {
                tensors,
                ..Pending::default()
            });
        };
        let Some(cx) = saved.cx else {
            return Err(foreign(&self.name, 1, 0));
        };
        tensors.push(lora.inner_grad(dy)?);
        let pending = Pending {
            tensors,
            ..Pending::default()
        };
        Ok(pending.with_value(cx))
    }
}

impl Layer for Linear {
    fn name(&self) -> &str {
        &self.name
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let x = floats(&self.name, inputs, Some(self.inputs))?;
        let stored = self.weight.dtype;
        let mut y = output(&self.name, x.shape.with_last(self.outputs), stored)?;
        if self.pads() {
            y.shape = ops::padded(&y.shape);
        }
        let weight = checked(&self.name, &self.weight.shape)?;
        let bias = self.bias.as_ref().map_or(0, |_| self.outputs as u64);
        let rows = x.elements() / (self.inputs as u64).max(1);
        // An input of another type than the weight's is kept as one of that.
        let own = match x.dtype == stored {
            true => 0,
            false => x.clone().of(stored).bytes(),
        };
        let product = times(&[2, rows, weight]);
        let sum = times(&[rows, bias]);
        let cost = Cost {
            forward: product.saturating_add(sum),
            recompute: Some(0),
            input_grad: product,
            weight_grad: trained(&self.weight, product)
                .saturating_add(self.bias.as_ref().map_or(0, |bias| trained(bias, sum))),
            params: weight + bias,
            memory: Memory {
                saved_inputs: (own == 0).into(),
                saved_own: own,
                pending_inputs: (own == 0).into(),
                pending_own: own,
                pending_grads: TensorSet::All,
                forward_peak: y.bytes().saturating_add(own),
                recompute_peak: Some(own),
                input_grad_peak: x.bytes().saturating_add(own),
                ..Memory::default()
            },
            // Each product reads two of x, y and W and writes the third; dW, of single precision, is read
            // as well.
            traffic: times(&[3, x.bytes()])
                .saturating_add(times(&[3, y.bytes()]))
                .saturating_add(times(&[2, stored.bytes() as u64 + 4, weight])),
            outputs: vec![y],
            ..Cost::default()
        };
        match &self.lora {
            Some(lora) => lora.cost(x, cost),
            None => Ok(cost),
        }
    }

    fn lingvo(&self, inputs: &[Flow]) -> Result<u64> {
        let x = floats(&self.name, inputs, Some(self.inputs))?;
        let product = lingvo::linear(&x.shape, self.outputs)?;
        let bias = match &self.bias {
            Some(_) => lingvo::bias(&x.shape.with_last(self.outputs))?.flops,
            None => 0,
        };
        Ok(product.flops.saturating_add(bias))
    }

    fn forward(&self, cx: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        self.pass(cx, x, None)
    }

    fn forward_onto(
        &self,
        cx: &PassContext,
        x: Tensors,
        onto: &Tensor,
    ) -> Result<(Tensors, Saved)> {
        self.pass(cx, x, Some(onto))
    }

    fn recompute(&self, cx: &PassContext, x: Tensors) -> Result<Saved> {
        self.saved(cx, &single(&self.name, x)?)
    }

    fn input_grad(&self, saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let dy = single(&self.name, dy)?;
        let given = saved.given;
        let pending = self.pending(saved, &dy)?;
        let weight = self.weight.value()?;
        let mut dx = ops::matmul(self.layout.of_input_grad(), &dy, weight, None)
            .map_err(Error::within(&self.name))?;
        if let (Some(lora), Some(cx)) = (&self.lora, pending.value()) {
            lora.add_input_grad(cx, &pending.tensors[3], &mut dx)?;
        }
        if let Some(dtype) = given {
            dx = dx.to_dtype(dtype).map_err(Error::within(&self.name))?;
        }
        Ok((smallvec![dx], pending))
    }

    fn param_only_grad(&self, saved: Saved, dy: Tensors) -> Result<Pending> {
        self.pending(saved, &single(&self.name, dy)?)
    }

    fn weight_grad(&mut self, mut pending: Pending) -> Result<()> {
        if let Some(lora) = &mut self.lora {
            lora.weight_grad(&mut pending)?;
        }
        let [x, dy, ..] = &pending.tensors[..] else {
            return Err(foreign(&self.name, 2, pending.tensors.len()));
        };
        let (a, b) = match self.layout {
            Layout::InOut => (x, dy),
            Layout::OutIn => (dy, x),
        };
        let add = |grad: &mut Tensor| ops::matmul_accumulate(ops::Layout::Tn, a, b, grad);
        self.weight.add_grad(&self.name, add)?;
        if let Some(bias) = &mut self.bias {
            bias.add_grad(&self.name, |grad| ops::sum_rows_accumulate(dy, grad))?;
        }
        Ok(())
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        visit(&mut self.weight);
        if let Some(bias) = &mut self.bias {
            visit(bias);
        }
        if let Some(lora) = &mut self.lora {
            visit(&mut lora.a);
            visit(&mut lora.b);
        }
    }

    fn adapt(&mut self, which: &mut dyn FnMut(&str) -> Option<LoraSettings>) -> Result<()> {
        if let Some(settings) = which(&self.name) {
            let lora = Lora::new(&self.name, self.inputs, self.outputs, settings)?;
            self.params(&mut |param| param.frozen = true);
            self.lora = Some(lora);
        }
        Ok(())
    }
}
