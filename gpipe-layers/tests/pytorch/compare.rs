//! The fixtures, and what it means to agree with them.

use std::path::PathBuf;

use approx::relative_eq;
use gpipe_tensor::{Device, DeviceId, Host, Tensor, safetensors};
use serde_json::Value;

/// Any error: a test ends with the first.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Numbers agree if they differ by at most `relative` times the larger of the two, or by at most
/// `row` times the largest of PyTorch's numbers in the same innermost row: what a row sums over
/// sets the size of its rounding errors, also where the terms cancel; or by at most `absolute`,
/// where all of a row's terms cancel and its numbers say nothing of their size.
#[derive(Clone, Copy)]
pub struct Tolerance {
    /// The share of the number itself.
    pub relative: f32,
    /// The share of the largest number in its row.
    pub row: f32,
    /// The difference that is always allowed.
    pub absolute: f32,
}

impl Tolerance {
    /// An error that names the first element that does not agree.
    pub fn check(self, what: &str, ours: &Tensor, theirs: &Tensor) -> Result<()> {
        if ours.shape() != theirs.shape() {
            let (ours, theirs) = (ours.shape(), theirs.shape());
            return Err(format!("{what}: the shape {ours} is not PyTorch's {theirs}").into());
        }
        let width = theirs.shape().last().max(1);
        let rows = ours.f32s()?.chunks(width).zip(theirs.f32s()?.chunks(width));
        for (row, (ours, theirs)) in rows.enumerate() {
            let largest = theirs.iter().fold(0.0f32, |most, v| most.max(v.abs()));
            let epsilon = (self.row * largest).max(self.absolute);
            for (column, (a, b)) in ours.iter().zip(theirs).enumerate() {
                if !relative_eq!(a, b, epsilon = epsilon, max_relative = self.relative) {
                    let place = format!("{what}, row {row}, column {column}");
                    return Err(format!("{place}: {a} is not PyTorch's {b}").into());
                }
            }
        }
        Ok(())
    }
}

/// An error unless two doubles differ by at most `relative` times the larger.
pub fn check_number(what: &str, ours: f64, theirs: f64, relative: f64) -> Result<()> {
    if relative_eq!(ours, theirs, epsilon = 0.0, max_relative = relative) {
        return Ok(());
    }
    Err(format!("{what}: {ours} is not PyTorch's {theirs}").into())
}

/// Where the tests compute.
pub fn device() -> Result<Device> {
    Ok(Host::new(2)?.device(DeviceId::Cpu)?)
}

fn bytes(file: &str) -> Result<Vec<u8>> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", file]
        .iter()
        .collect();
    Ok(std::fs::read(path)?)
}

/// Hyperparameters, losses and norms: the part of `cases.json` at this JSON pointer.
pub fn case(pointer: &str) -> Result<Value> {
    let cases: Value = serde_json::from_slice(&bytes("cases.json")?)?;
    let found = cases.pointer(pointer).cloned();
    found.ok_or_else(|| format!("cases.json has nothing at `{pointer}`").into())
}

/// A number of a case.
pub fn number(case: &Value, key: &str) -> Result<f64> {
    let found = case[key].as_f64();
    found.ok_or_else(|| format!("`{key}` of a case is no number").into())
}

/// The tensors of one file.
pub struct Fixture {
    prefix: String,
    tensors: Vec<(String, Tensor)>,
}

impl Fixture {
    /// The tensors whose names begin with `prefix`.
    pub fn load(file: &str, prefix: &str) -> Result<Self> {
        Ok(Self {
            prefix: prefix.to_owned(),
            tensors: safetensors::load(&bytes(file)?, &device()?)?,
        })
    }

    /// The tensor of this name, without the prefix.
    pub fn get(&self, name: &str) -> Result<&Tensor> {
        let name = format!("{}{name}", self.prefix);
        let found = self.tensors.iter().find(|(n, _)| *n == name);
        let (_, tensor) = found.ok_or_else(|| format!("the fixture has no `{name}`"))?;
        Ok(tensor)
    }

    /// What follows `start` in the names that begin with it, sorted.
    pub fn names_under(&self, start: &str) -> Vec<&str> {
        let names = self.tensors.iter().map(|(name, _)| name.as_str());
        let mut names: Vec<&str> = names.filter_map(|name| name.strip_prefix(start)).collect();
        names.sort_unstable();
        names
    }

    /// A copy that may be changed in place.
    pub fn copy(&self, name: &str) -> Result<Tensor> {
        let tensor = self.get(name)?;
        Ok(tensor.copy_to(tensor.device())?)
    }
}
