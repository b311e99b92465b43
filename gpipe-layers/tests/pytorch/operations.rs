//! Single operations and their gradients.

use gpipe_tensor::ops::{self, Gelu, Layout};
use gpipe_tensor::{Shape, Tensor};

use crate::compare::{Fixture, Result, Tolerance, case, check_number, number};

/// A few roundings of single precision, 6e-8 each.
const ROUNDING: Tolerance = Tolerance {
    relative: 2e-6,
    row: 1e-6,
    absolute: 0.0,
};

/// For y · (dy − Σ y·dy), whose terms are of order one here whatever is left of them: PyTorch in
/// single precision is itself up to 9e-8 away from these fixtures.
const CANCELLING: Tolerance = Tolerance {
    absolute: 2e-7,
    ..ROUNDING
};

/// The operands of one operation and what PyTorch makes of them.
struct Operation {
    name: &'static str,
    fixture: Fixture,
}

impl Operation {
    fn load(name: &'static str) -> Result<Self> {
        let fixture = Fixture::load("operations.safetensors", &format!("{name}."))?;
        Ok(Self { name, fixture })
    }

    fn given(&self, operand: &str) -> Result<&Tensor> {
        self.fixture.get(operand)
    }

    fn expect(&self, operand: &str, ours: &Tensor) -> Result<()> {
        self.expect_within(ROUNDING, operand, ours)
    }

    fn expect_within(&self, tolerance: Tolerance, operand: &str, ours: &Tensor) -> Result<()> {
        let what = format!("{}.{operand}", self.name);
        tolerance.check(&what, ours, self.given(operand)?)
    }
}

fn zeros_like(tensor: &Tensor) -> Result<Tensor> {
    Ok(Tensor::zeros(tensor.device(), tensor.shape().clone())?)
}

/// One row of a matrix, as a vector.
fn row(matrix: &Tensor, index: usize) -> Result<Tensor> {
    let width = matrix.shape().last();
    Ok(matrix.rows(index..index + 1)?.reshape([width])?)
}

#[test]
fn layer_norm() -> Result<()> {
    let pytorch = Operation::load("layer_norm")?;
    let (x, gain) = (pytorch.given("x")?, pytorch.given("gain")?);
    let (y, stats) = ops::layer_norm(x, gain, pytorch.given("bias")?, 1e-5)?;
    pytorch.expect("y", &y)?;
    let (dx, dparams) = ops::layer_norm_grad(x, &stats, gain, pytorch.given("dy")?, None)?;
    pytorch.expect("d_x", &dx)?;
    pytorch.expect("d_gain", &row(&dparams, 0)?)?;
    pytorch.expect("d_bias", &row(&dparams, 1)?)
}

#[test]
fn gelu_in_both_forms() -> Result<()> {
    for (name, form) in [("gelu_tanh", Gelu::Tanh), ("gelu_erf", Gelu::Erf)] {
        let pytorch = Operation::load(name)?;
        let x = pytorch.given("x")?;
        pytorch.expect("y", &ops::gelu(x, form)?)?;
        pytorch.expect("d_x", &ops::gelu_grad(x, pytorch.given("dy")?, form)?)?;
    }
    Ok(())
}

#[test]
fn relu() -> Result<()> {
    let pytorch = Operation::load("relu")?;
    let y = ops::relu(pytorch.given("x")?)?;
    pytorch.expect("y", &y)?;
    pytorch.expect("d_x", &ops::relu_grad(&y, pytorch.given("dy")?)?)
}

#[test]
fn softmax() -> Result<()> {
    let pytorch = Operation::load("softmax")?;
    let y = ops::softmax(pytorch.given("x")?)?;
    pytorch.expect("y", &y)?;
    let dx = ops::softmax_grad(&y, pytorch.given("dy")?)?;
    pytorch.expect_within(CANCELLING, "d_x", &dx)
}

#[test]
fn causal_softmax() -> Result<()> {
    let pytorch = Operation::load("causal_softmax")?;
    let y = ops::causal_softmax(pytorch.given("x")?)?;
    pytorch.expect("y", &y)?;
    let dx = ops::causal_softmax_grad(&y, pytorch.given("dy")?)?;
    pytorch.expect_within(CANCELLING, "d_x", &dx)
}

#[test]
fn attention() -> Result<()> {
    let pytorch = Operation::load("attention")?;
    let (qkv, heads) = (pytorch.given("qkv")?, 3);
    let (y, lse) = ops::attention(qkv, heads, None)?;
    pytorch.expect("y", &y)?;
    pytorch.expect("lse", &lse)?;
    let dqkv = ops::attention_grad(qkv, &y, &lse, pytorch.given("dy")?, heads, None)?;
    pytorch.expect("d_qkv", &dqkv)
}

#[test]
fn embedding() -> Result<()> {
    let pytorch = Operation::load("embedding")?;
    let (ids, table) = (pytorch.given("ids")?, pytorch.given("table")?);
    pytorch.expect("y", &ops::embedding(ids, table)?)?;
    let mut dtable = zeros_like(table)?;
    ops::embedding_grad(ids, pytorch.given("dy")?, &mut dtable)?;
    pytorch.expect("d_table", &dtable)
}

#[test]
fn a_matrix_product_with_bias() -> Result<()> {
    let pytorch = Operation::load("linear")?;
    let [x, weight, bias, dy] = [
        pytorch.given("x")?,
        pytorch.given("weight")?,
        pytorch.given("bias")?,
        pytorch.given("dy")?,
    ];
    pytorch.expect("y", &ops::matmul(Layout::Nn, x, weight, Some(bias))?)?;
    pytorch.expect("d_x", &ops::matmul(Layout::Nt, dy, weight, None)?)?;
    let (mut dweight, mut dbias) = (zeros_like(weight)?, zeros_like(bias)?);
    ops::matmul_accumulate(Layout::Tn, x, dy, &mut dweight)?;
    ops::sum_rows_accumulate(dy, &mut dbias)?;
    pytorch.expect("d_weight", &dweight)?;
    pytorch.expect("d_bias", &dbias)
}

#[test]
fn cross_entropy_with_ignored_targets() -> Result<()> {
    let pytorch = Operation::load("cross_entropy")?;
    let options = case("/operations/cross_entropy")?;
    let (targets, wanted) = (number(&options, "targets")?, number(&options, "loss")?);
    let (x, target) = (pytorch.given("x")?, pytorch.given("target")?);
    let alone = ops::cross_entropy_loss(x, target, targets)?;
    check_number("cross_entropy_loss", alone, wanted, 1e-6)?;
    let (loss, dx) = ops::cross_entropy(x.clone(), target, targets)?;
    check_number("cross_entropy", loss, wanted, 1e-6)?;
    pytorch.expect("d_x", &dx)
}

/// Three steps of an optimizer on the fixture's one parameter.
fn three_steps(
    pytorch: &Operation,
    mut update: impl FnMut(&mut Tensor, &Tensor, u64) -> Result<()>,
) -> Result<()> {
    let mut value = pytorch.fixture.copy("value")?;
    let mut after = Vec::new();
    for step in 0..3 {
        update(
            &mut value,
            &row(pytorch.given("grad")?, step)?,
            step as u64 + 1,
        )?;
        after.extend_from_slice(value.f32s()?);
    }
    let shape = Shape::from([3, value.elements()]);
    let after = Tensor::from_f32(value.device(), shape, after)?;
    pytorch.expect("after", &after)
}

#[test]
fn steps_of_adamw() -> Result<()> {
    let pytorch = Operation::load("adamw")?;
    let options = case("/operations/adamw")?;
    let setting = |key| Ok::<_, Box<dyn std::error::Error>>(number(&options, key)? as f32);
    let settings = ops::AdamW {
        lr: setting("lr")?,
        beta1: setting("beta1")?,
        beta2: setting("beta2")?,
        eps: setting("eps")?,
        weight_decay: setting("weight_decay")?,
    };
    let value = pytorch.given("value")?;
    let (mut first, mut second) = (zeros_like(value)?, zeros_like(value)?);
    three_steps(&pytorch, |value, grad, step| {
        let update = ops::AdamWUpdate {
            value,
            copy: None,
            grad,
            first: &mut first,
            second: &mut second,
            step,
            grad_scale: 1.0,
        };
        ops::adamw(update, &settings)?;
        Ok(())
    })
}

#[test]
fn steps_of_sgd_with_momentum() -> Result<()> {
    let pytorch = Operation::load("sgd")?;
    let options = case("/operations/sgd")?;
    let settings = ops::Sgd {
        lr: number(&options, "lr")? as f32,
        momentum: number(&options, "momentum")? as f32,
        nesterov: false,
        weight_decay: number(&options, "weight_decay")? as f32,
    };
    let mut velocity = zeros_like(pytorch.given("value")?)?;
    three_steps(&pytorch, |value, grad, _| {
        let update = ops::SgdUpdate {
            velocity: Some(&mut velocity),
            ..ops::SgdUpdate::new(value, grad)
        };
        ops::sgd(update, &settings)?;
        Ok(())
    })
}
