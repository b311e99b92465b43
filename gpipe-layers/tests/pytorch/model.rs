//! Hugging Face's GPT-2: logits, losses, gradients and three steps of each optimizer.

use std::collections::BTreeMap;
use std::ops::Range;

use gpipe_layers::models::{GptConfig, gpt};
use gpipe_layers::{
    AdamW, Decay, Layer, Loss, Optimizer, OptimizerKind, Param, PassContext, Saved, Sgd,
    UpdateSettings, clip_factor, try_params,
};
use gpipe_tensor::ops::{self, Gelu};
use gpipe_tensor::{Tensor, Tensors};
use serde_json::Value;

use crate::compare::{Fixture, Result, Tolerance, case, check_number, device, number};

const VARIANTS: [&str; 2] = ["tied", "untied"];

/// The roundings of a forward and a backward pass through the whole model.
const PASSES: Tolerance = Tolerance {
    relative: 1e-5,
    row: 2e-6,
    absolute: 0.0,
};

/// AdamW divides by the size of the gradient, so that a small gradient's relative error is an error
/// of its whole step of 0.01.
const UPDATES: Tolerance = Tolerance {
    relative: 1e-5,
    row: 1e-5,
    absolute: 0.0,
};

/// Of losses and gradient norms.
const NUMBERS: f64 = 2e-6;

/// A model of ours in the hands of a training loop, and what PyTorch says of it.
struct Gpt {
    layers: Vec<Box<dyn Layer>>,
    fixture: Fixture,
    case: Value,
}

impl Gpt {
    /// The model with PyTorch's initial values.
    fn load(variant: &str) -> Result<Self> {
        let case = case(&format!("/models/{variant}"))?;
        let gelu = match case["gpt"]["gelu"].as_str() {
            Some("tanh") => Gelu::Tanh,
            Some("erf") => Gelu::Erf,
            other => return Err(format!("no form of GELU is called {other:?}").into()),
        };
        Self::with_gelu(variant, gelu)
    }

    /// The same, with a form of GELU that may not be the right one.
    fn with_gelu(variant: &str, gelu: Gelu) -> Result<Self> {
        let case = case(&format!("/models/{variant}"))?;
        let size = |key| Ok::<_, Box<dyn std::error::Error>>(number(&case["gpt"], key)? as usize);
        let config = GptConfig {
            vocab: size("vocab")?,
            context: size("context")?,
            width: size("width")?,
            blocks: size("blocks")?,
            heads: size("heads")?,
            tied: case["gpt"]["tied"] == true,
            dropout: 0.0,
            gelu,
            layer_norm_eps: number(&case["gpt"], "eps")? as f32,
        };
        let mut gpt = Self {
            layers: gpt(&config)?,
            fixture: Fixture::load(&format!("gpt-{variant}.safetensors"), "")?,
            case,
        };
        let device = device()?;
        gpt.visit(|param, fixture| {
            param.make(&device, 0)?;
            Ok(param.set_value(fixture.get(&format!("value.{}", param.name))?)?)
        })?;
        Ok(gpt)
    }

    /// Visits every place of every parameter; the first error ends the visit.
    fn visit(&mut self, mut visit: impl FnMut(&mut Param, &Fixture) -> Result<()>) -> Result<()> {
        for layer in &mut self.layers {
            try_params(layer.as_mut(), |param| visit(param, &self.fixture))?;
        }
        Ok(())
    }

    /// The batch of a step: `input` or `target`.
    fn batch(&self, name: &str, step: usize) -> Result<Tensor> {
        let all = self.fixture.get(name)?;
        let shape = &all.shape().dims()[1..];
        Ok(all.rows(step..step + 1)?.reshape(shape)?)
    }

    fn forward(&self, samples: Range<usize>, input: Tensor) -> Result<(Tensor, Vec<Saved>)> {
        let cx = PassContext::training(0, 0, samples.start as u64..samples.end as u64);
        let mut flow = Tensors::from_iter([input]);
        let mut saved = Vec::new();
        for layer in &self.layers {
            let (next, kept) = layer.forward(&cx, flow)?;
            flow = next;
            saved.push(kept);
        }
        let logits = flow.pop().ok_or("the model hands on nothing")?;
        Ok((logits, saved))
    }

    /// Adds the gradients of the batch of a step, in micro-batches of these rows, to a clean
    /// slate, and gives the loss.
    fn backward(&mut self, step: usize, micro_batches: &[Range<usize>]) -> Result<f64> {
        self.visit(|param, _| Ok(param.zero_grad()?))?;
        let (input, target) = (self.batch("input", step)?, self.batch("target", step)?);
        let divisor = Loss::CrossEntropy.terms(&target)?;
        let mut total = 0.0;
        for rows in micro_batches {
            let (logits, saved) = self.forward(rows.clone(), input.rows(rows.clone())?)?;
            let target = target.rows(rows.clone())?;
            let (loss, dy) = Loss::CrossEntropy.gradient(logits, &target, divisor)?;
            total += loss;
            let mut flow = Tensors::from_iter([dy]);
            for (index, (layer, saved)) in self.layers.iter_mut().zip(saved).enumerate().rev() {
                if index == 0 {
                    let pending = layer.param_only_grad(saved, std::mem::take(&mut flow))?;
                    layer.weight_grad(pending)?;
                } else {
                    flow = layer.backward(saved, flow)?;
                }
            }
        }
        self.merge_ties()?;
        Ok(total)
    }

    /// Adds the gradients of tied places to those of their owners.
    fn merge_ties(&mut self) -> Result<()> {
        let mut places = Vec::new();
        self.visit(|param, _| {
            if param.tied {
                places.push((param.name.clone(), param.grad()?.clone()));
            }
            Ok(())
        })?;
        self.visit(|param, _| {
            for (name, grad) in &places {
                if !param.tied && *name == param.name {
                    ops::add_assign(param.grad_mut()?, grad)?;
                }
            }
            Ok(())
        })
    }

    /// Every parameter's `what`, once, by name.
    fn owned(
        &mut self,
        what: impl Fn(&Param) -> gpipe_layers::Result<&Tensor>,
    ) -> Result<BTreeMap<String, Tensor>> {
        let mut owned = BTreeMap::new();
        self.visit(|param, _| {
            if !param.tied {
                let tensor = what(param)?;
                owned.insert(param.name.clone(), tensor.copy_to(tensor.device())?);
            }
            Ok(())
        })?;
        Ok(owned)
    }

    /// All rows of the batch at once.
    fn whole(&self) -> Result<Range<usize>> {
        Ok(0..number(&self.case, "batch")? as usize)
    }

    /// An error unless every one of the gradients is PyTorch's.
    fn check_gradients(&self, gradients: &BTreeMap<String, Tensor>) -> Result<()> {
        for (name, gradient) in gradients {
            let wanted = format!("grad.{name}");
            PASSES.check(&wanted, gradient, self.fixture.get(&wanted)?)?;
        }
        Ok(())
    }

    /// One step of training, with PyTorch's losses, norm and new values.
    fn check_step(&mut self, name: &str, step: usize, optimizer: &Optimizer) -> Result<()> {
        let whole = self.whole()?;
        let loss = self.backward(step, &[whole])?;
        let mut squares = 0.0;
        for gradient in self.owned(Param::grad)?.values() {
            squares += ops::sum_of_squares(gradient)?;
        }
        let norm = f64::sqrt(squares);
        let options = self.case[name].clone();
        for (key, ours) in [("losses", loss), ("norms", norm)] {
            let theirs = options[key][step].as_f64().ok_or("a number is missing")?;
            check_number(
                &format!("{name}, {key}, step {step}"),
                ours,
                theirs,
                NUMBERS,
            )?;
        }

        let settings = UpdateSettings {
            lr: number(&options, "lr")?,
            step: step as u64,
            grad_scale: clip_factor(norm, number(&options, "clip")?),
        };
        self.visit(|param, _| match param.tied {
            true => Ok(()),
            false => Ok(optimizer.update(param, settings)?),
        })?;
        let values = self.owned(Param::value)?;
        self.visit(|param, _| match param.tied {
            true => Ok(param.set_value(&values[&param.name])?),
            false => Ok(()),
        })?;

        for (parameter, value) in &values {
            let wanted = format!("{name}.{}.{parameter}", step + 1);
            let theirs = self.fixture.get(&wanted)?;
            for rows in compared(parameter, value, &optimizer.kind) {
                UPDATES.check(&wanted, &value.rows(rows.clone())?, &theirs.rows(rows)?)?;
            }
        }
        Ok(())
    }
}

/// The rows of a parameter that can be compared after steps of an optimizer.
///
/// Softmax does not feel what is added to a whole row of scores, so the bias of the keys has no
/// gradient but rounding noise (1e-18 in double precision, 1e-9 in single), which AdamW, dividing
/// by its size, makes a step of. It changes no output.
fn compared(parameter: &str, value: &Tensor, kind: &OptimizerKind) -> Vec<Range<usize>> {
    let rows = value.shape().rows();
    match kind {
        OptimizerKind::AdamW { .. } if parameter.ends_with("attn.c_attn.bias") => {
            [0..rows / 3, 2 * rows / 3..rows].into()
        }
        _ => std::iter::once(0..rows).collect(),
    }
}

fn decay(options: &Value) -> Result<Decay> {
    let text = options["decay"]
        .as_str()
        .ok_or("a case says not what decays")?;
    Ok(text.parse()?)
}

#[test]
fn the_model_has_the_parameters_of_hugging_face() -> Result<()> {
    for variant in VARIANTS {
        let mut gpt = Gpt::load(variant)?;
        let ours: Vec<String> = gpt.owned(Param::value)?.into_keys().collect();
        assert_eq!(ours, gpt.fixture.names_under("value."), "{variant}");
    }
    Ok(())
}

#[test]
fn logits() -> Result<()> {
    for variant in VARIANTS {
        let gpt = Gpt::load(variant)?;
        let whole = gpt.whole()?;
        let (logits, _) = gpt.forward(whole, gpt.batch("input", 0)?)?;
        PASSES.check("logits", &logits, gpt.fixture.get("logits")?)?;
    }
    Ok(())
}

/// Of the whole batch, and summed over uneven micro-batches with unlike numbers of targets.
#[test]
fn loss_and_gradients() -> Result<()> {
    for variant in VARIANTS {
        let mut gpt = Gpt::load(variant)?;
        let whole = gpt.whole()?;
        let theirs = gpt.case["adamw"]["losses"][0].as_f64().ok_or("no loss")?;
        for micro_batches in [vec![whole.clone()], vec![0..2, 2..whole.end]] {
            let ours = gpt.backward(0, &micro_batches)?;
            check_number("loss", ours, theirs, NUMBERS)?;
            let gradients = gpt.owned(Param::grad)?;
            gpt.check_gradients(&gradients)?;
        }
    }
    Ok(())
}

#[test]
fn three_steps_of_adamw() -> Result<()> {
    for variant in VARIANTS {
        let mut gpt = Gpt::load(variant)?;
        let options = gpt.case["adamw"].clone();
        let setting = |key| number(&options, key);
        let optimizer = Optimizer::from(AdamW {
            beta1: setting("beta1")?,
            beta2: setting("beta2")?,
            eps: setting("eps")?,
            weight_decay: setting("weight_decay")?,
            decay: decay(&options)?,
        });
        three_steps(&mut gpt, "adamw", &optimizer)?;
    }
    Ok(())
}

#[test]
fn three_steps_of_sgd_with_momentum() -> Result<()> {
    for variant in VARIANTS {
        let mut gpt = Gpt::load(variant)?;
        let options = gpt.case["sgd"].clone();
        let (momentum, pull) = (
            number(&options, "momentum")?,
            number(&options, "weight_decay")?,
        );
        three_steps(
            &mut gpt,
            "sgd",
            &Optimizer::from(Sgd {
                momentum,
                weight_decay: pull,
                decay: decay(&options)?,
                ..Sgd::default()
            }),
        )?;
    }
    Ok(())
}

fn three_steps(gpt: &mut Gpt, name: &str, optimizer: &Optimizer) -> Result<()> {
    gpt.visit(|param, _| match param.tied {
        true => Ok(()),
        false => Ok(optimizer.make_state(param)?),
    })?;
    (0..3).try_for_each(|step| gpt.check_step(name, step, optimizer))
}

/// What these tests would not see is smaller than this: one element of each gradient, off by five
/// parts in a hundred thousand of the largest in its row.
#[test]
fn a_gradient_that_is_slightly_wrong_is_noticed() -> Result<()> {
    for variant in VARIANTS {
        let mut gpt = Gpt::load(variant)?;
        let whole = gpt.whole()?;
        gpt.backward(0, &[whole])?;
        let right = gpt.owned(Param::grad)?;
        gpt.check_gradients(&right)?;
        for (name, gradient) in &right {
            let mut wrong = gradient.copy_to(gradient.device())?;
            let width = wrong.shape().last();
            let row = &mut wrong.f32s_mut()?[..width];
            let most = (0..width).max_by(|&a, &b| row[a].abs().total_cmp(&row[b].abs()));
            row[most.ok_or("an empty row")?] *= 1.0 + 5e-5;
            let outcome = gpt.check_gradients(&BTreeMap::from([(name.clone(), wrong)]));
            assert!(
                outcome.is_err(),
                "{variant}: {name} was changed and nobody saw it"
            );
        }
    }
    Ok(())
}

/// The two forms of GELU are within 0.0005 of each other: the fixtures tell them apart.
#[test]
fn the_other_form_of_gelu_is_noticed() -> Result<()> {
    for (variant, wrong) in [("tied", Gelu::Erf), ("untied", Gelu::Tanh)] {
        let mut gpt = Gpt::with_gelu(variant, wrong)?;
        let whole = gpt.whole()?;
        gpt.backward(0, &[whole])?;
        let gradients = gpt.owned(Param::grad)?;
        assert!(gpt.check_gradients(&gradients).is_err(), "{variant}");
    }
    Ok(())
}
