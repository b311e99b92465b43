//! Results whose rows lie apart: as operands of what takes them so, of what does not, and on their way to other devices.

use gpipe_tensor::ops::{self, Layout};
use gpipe_tensor::{DType, Device, DeviceId, Result, Tensor};

use super::bench::Bench;

/// Products of many odd columns, what is made of them, and the bytes that they take.
pub(super) fn padded(b: &mut Bench) -> Result<()> {
    for words in [1, 37, 64, 65] {
        rows_apart(b, words)?;
    }
    assert_eq!(b.device.live_bytes(), 0, "bytes that nobody holds");
    Ok(())
}

fn rows_apart(b: &mut Bench, words: usize) -> Result<()> {
    let (x, table) = (b.random([2, 5, 24])?, b.random([words, 24])?);
    let make = || ops::matmul_padded(Layout::Nt, &x, &table);
    let logits = make()?;
    let columns = match b.device.id() {
        DeviceId::Cpu => words,
        _ => words.next_multiple_of(64),
    };
    assert_eq!(logits.bytes(), 10 * columns * logits.dtype().bytes());
    assert_eq!(logits.elements(), 10 * words);
    b.keep(&logits)?;
    b.keep(&logits.rows(1..2)?)?;
    if logits.dtype() == DType::BF16 {
        let bits = logits.bf16_bits()?;
        let again = Tensor::from_bf16(&b.device, logits.shape().clone(), bits)?;
        assert_eq!(again.bytes(), 2 * 10 * words);
        assert_eq!(again.to_f32s()?, logits.to_f32s()?);
    }
    b.keep(&logits.reshape([10, words])?.rows(3..7)?)?;
    b.keep(&logits.reshape([5 * words, 2])?)?;
    b.keep(&logits.to_dtype(DType::F32)?)?;
    losses(b, &make)?;
    factors(b, &logits, &table, &x)?;
    elsewhere(b, &logits)?;
    // What takes rows that lie one behind the other alone gets them so.
    b.keep(&ops::softmax(&logits)?)?;
    b.keep(&ops::add(&logits, &logits)?)?;
    b.keep_number(ops::max_abs(&logits)?.into());
    let mut sum = make()?;
    assert!(ops::add_assign(&mut logits.clone(), &sum).is_err());
    ops::add_assign(&mut sum, &logits)?;
    assert_eq!(sum.bytes(), 10 * words * sum.dtype().bytes());
    b.keep(&sum)?;
    let mut filled = make()?;
    filled.fill(2.0)?;
    b.keep(&filled)?;
    filled.copy_from(&logits)?;
    b.keep(&filled)
}

/// The cross-entropy in place, of a shared tensor, alone and weighted, and right answers.
fn losses(b: &mut Bench, make: &dyn Fn() -> Result<Tensor>) -> Result<()> {
    let logits = make()?;
    let words = logits.shape().last();
    let host = b.device.host().device(DeviceId::Cpu)?;
    let mut targets: Vec<u32> = (0..10).map(|i| i * 7 % words as u32).collect();
    targets[4] = ops::IGNORE;
    let targets = Tensor::from_u32(&host, [2, 5], targets)?;
    b.keep_number(ops::cross_entropy_loss(&logits, &targets, 9.0)?);
    b.keep_number(ops::correct(&logits, &targets)? as f64);
    let (loss, gradient) = ops::cross_entropy(logits.clone(), &targets, 9.0)?;
    b.keep_number(loss);
    b.keep(&gradient)?;
    assert_eq!(gradient.bytes(), logits.bytes());
    b.keep(&logits)?;
    let (loss, gradient) = ops::smoothed_cross_entropy(logits, &targets, 0.1, 9.0)?;
    b.keep_number(loss.read()?);
    b.keep(&gradient)?;
    let weights = Tensor::from_f32(&host, [2, 5], [0.5; 10])?;
    let (loss, gradient) = ops::weighted_cross_entropy(make()?, &targets, &weights, 0.0, 9.0)?;
    b.keep_number(loss.read()?);
    b.keep(&gradient)?;
    let (loss, gradient) = ops::cross_entropy(make()?, &targets, 0.0)?;
    b.keep_number(loss);
    b.keep(&gradient)
}

/// Products whose left or right factors they are.
fn factors(b: &mut Bench, logits: &Tensor, table: &Tensor, x: &Tensor) -> Result<()> {
    let words = logits.shape().last();
    b.keep(&ops::matmul(Layout::Nn, logits, table, None)?)?;
    b.keep(&ops::matmul(Layout::Nt, logits, logits, None)?)?;
    b.keep(&ops::matmul_padded(Layout::Tn, logits, logits)?)?;
    let mut sum = b.single([words, 24])?;
    ops::matmul_accumulate(Layout::Tn, logits, x, &mut sum)?;
    b.keep(&sum)?;
    b.keep(&ops::batched_matmul(Layout::Nt, logits, logits)?)?;
    b.keep(&ops::batched_matmul(Layout::Tn, x, logits)?)
}

/// Copies, and tensors that are handed over.
fn elsewhere(b: &mut Bench, logits: &Tensor) -> Result<()> {
    let transit = b.device.host().device(DeviceId::Cpu)?;
    let beside = b.device.host().device(b.device.id())?;
    for to in [&b.device, &beside, &transit] {
        let copy = logits.copy_to(to)?;
        b.results.push(copy.to_f32s()?);
        let handed = copy.send(&transit)?.receive(&b.device)?;
        b.results.push(handed.to_f32s()?);
        let part = handed.rows(1..2)?.send(&transit)?;
        drop(handed);
        b.results.push(part.receive(to)?.to_f32s()?);
    }
    let live = [&beside, &transit].map(Device::live_bytes);
    assert_eq!(live, [0; 2], "bytes that nobody holds");
    Ok(())
}
