//! The launches of a handle, with their times: two events around each, and the bytes of its operands.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::compute::Compute;
use super::entry::{Arg, Launch, Param, Pointer};
use super::product::{Added, Product};
use super::stream::Event;
use crate::launch_trace::{Arithmetic, LaunchTrace, TracedLaunch};
use crate::{DType, Result};

/// What was noted so far.
#[derive(Default)]
pub(super) struct Trace(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    /// Bytes of the handle's memory, by address.
    memory: BTreeMap<u64, u64>,
    calls: Vec<(Work, Event, Event)>,
    allocations: u64,
}

/// What a call does.
pub(super) struct Work {
    pub name: String,
    pub bytes: u64,
    pub arithmetic: Arithmetic,
}

impl Trace {
    fn with<T>(&self, act: impl FnOnce(&mut Noted) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Memory that belongs to the handle from now on; `new` if it was allocated for it.
    pub fn holds(&self, at: u64, bytes: usize, new: bool) {
        self.with(|noted| {
            noted.memory.insert(at, bytes as u64);
            noted.allocations += u64::from(new);
        });
    }

    /// Memory that does not belong to it any more.
    pub fn loses(&self, at: u64) {
        self.with(|noted| noted.memory.remove(&at));
    }

    /// Makes a call between two events.
    pub fn call(
        &self,
        stream: &Compute,
        work: Work,
        call: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let start = stream.record_timed()?;
        call()?;
        let end = stream.record_timed()?;
        self.with(|noted| noted.calls.push((work, start, end)));
        Ok(())
    }

    /// What a launch does. Of several pointers into one memory the first counts: from there to its end.
    pub fn launch(&self, launch: &Launch) -> Work {
        let params = launch.form.entry.params.iter().map(|(_, param)| param);
        let (mut read, mut written) = (BTreeMap::new(), BTreeMap::new());
        let operands = self.with(|noted| {
            for (param, arg) in params.zip(&launch.args) {
                let Arg::Pointer(Pointer(at)) = *arg else {
                    continue;
                };
                let Some((&start, &bytes)) = noted.memory.range(..=at).next_back() else {
                    continue;
                };
                let rest = (start + bytes).saturating_sub(at);
                let note = |places: &mut BTreeMap<u64, u64>| {
                    let place = places.entry(start).or_default();
                    *place = rest.max(*place);
                };
                let only_written = [Param::Out, Param::OutF32, Param::OutF64, Param::OutU32];
                let is_only_written = only_written.contains(param);
                if !is_only_written {
                    note(&mut read);
                }
                if is_only_written || [Param::Both, Param::BothF32].contains(param) {
                    note(&mut written);
                }
            }
            read.values().chain(written.values()).sum::<u64>()
        });
        Work {
            name: launch.form.name(),
            bytes: launch.only_bytes.unwrap_or(operands) + launch.more_bytes,
            arithmetic: launch.arithmetic,
        }
    }

    /// Waits for everything so far, and gives and forgets what was noted.
    pub fn take(&self, stream: &Compute) -> Result<LaunchTrace> {
        stream.synchronize()?;
        let (calls, allocations) = self.with(|noted| {
            (
                std::mem::take(&mut noted.calls),
                std::mem::take(&mut noted.allocations),
            )
        });
        let launches = calls.into_iter().map(|(work, start, end)| {
            Ok(TracedLaunch {
                name: work.name,
                seconds: start.seconds_until(&end)?,
                bytes: work.bytes,
                flops: work.arithmetic.flops(),
                arithmetic: work.arithmetic,
            })
        });
        Ok(LaunchTrace {
            launches: launches.collect::<Result<_>>()?,
            allocations,
        })
    }
}

/// What a product does, with what is added to it.
pub(super) fn product(product: &Product, added: Added) -> Work {
    let Product {
        m,
        n,
        k,
        a_transposed,
        b_transposed,
        accumulate,
        items,
        stored,
        result,
        ..
    } = *product;
    let form = |transposed| if transposed { 't' } else { 'n' };
    let many = if items == 1 {
        String::new()
    } else {
        format!("{items} times ")
    };
    let adds = match (accumulate, added.onto.is_some(), added.bias.is_some()) {
        (true, ..) => ", added",
        (_, true, true) => ", onto, bias",
        (_, true, false) => ", onto",
        (_, false, true) => ", bias",
        _ => "",
    };
    let factors = (m * k + k * n) * stored.bytes();
    let is_read = accumulate || added.onto.is_some();
    let bias = if added.bias.is_some() { n } else { 0 };
    let sums = (m * n * (1 + usize::from(is_read)) + bias) * result.bytes();
    let sizes = [stored, stored, result].map(DType::bytes);
    let mut rows = product.row_strides().into_iter().zip(sizes);
    let (left, right) = (form(a_transposed).to_ascii_uppercase(), form(b_transposed));
    Work {
        name: format!("product {many}{m} x {n} x {k} {left}{right} {stored} to {result}{adds}"),
        bytes: (items * (factors + sums)) as u64,
        arithmetic: Arithmetic::Product {
            factors: stored,
            is_aligned: rows.all(|(stride, size)| (stride * size).is_multiple_of(16)),
            flops: 2.0 * items as f64 * m as f64 * n as f64 * k as f64,
        },
    }
}
