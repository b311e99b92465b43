//! The operations of a pass, timed: where workers share threads, a running operation keeps its own to its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use gpipe_tensor::Device;

/// Seconds of one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Took {
    /// Of the pass.
    pub seconds: f64,
    /// The sum of the squares of those of its operations.
    pub squares: f64,
}

/// Times of the beginnings of operations on one device.
pub struct Operations(Arc<Mutex<Vec<Instant>>>);

impl Operations {
    /// Of a device without another observer.
    pub fn of(device: &Device) -> Self {
        let starts = Arc::new(Mutex::new(Vec::new()));
        let observed = starts.clone();
        device.on_operation(move || lock(&observed).push(Instant::now()));
        Self(starts)
    }

    /// Times a pass.
    pub fn time<T>(&self, pass: impl FnOnce() -> T) -> (T, Took) {
        lock(&self.0).clear();
        let start = Instant::now();
        let result = pass();
        let end = Instant::now();
        (result, Took::between(start, &lock(&self.0), end))
    }
}

impl Took {
    fn between(start: Instant, operations: &[Instant], end: Instant) -> Self {
        // Helper threads may begin operations too, in any order.
        let mut edges = vec![start];
        edges.extend(operations.iter().map(|&time| time.clamp(start, end)));
        edges.push(end);
        edges.sort_unstable();
        let pairs = edges.windows(2);
        let seconds = pairs.map(|pair| pair[1].duration_since(pair[0]).as_secs_f64());
        Self {
            seconds: end.duration_since(start).as_secs_f64(),
            squares: seconds.map(|seconds| seconds * seconds).sum(),
        }
    }
}

/// The mean seconds of the operations of passes, weighted by their length: of the one that runs at a time drawn at
/// random.
pub fn mean(passes: &[Took]) -> f64 {
    let sum = |number: fn(&Took) -> f64| passes.iter().map(number).sum::<f64>();
    match sum(|pass| pass.seconds) {
        seconds if seconds > 0.0 => sum(|pass| pass.squares) / seconds,
        _ => 0.0,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing panics while it is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpipe_tensor::{DeviceId, Host, Tensor, ops};

    use super::*;

    #[test]
    fn an_operation_ends_where_the_next_begins() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        // One of a second, one of three, one of four; another thread's began before the pass.
        let took = Took::between(at(1), &[at(5), at(2), at(0)], at(9));
        assert_eq!((took.seconds, took.squares), (8.0, 1.0 + 9.0 + 16.0));
        let other = Took {
            seconds: 2.0,
            squares: 4.0,
        };
        assert_eq!(mean(&[took, other]), 3.0);
        assert_eq!(mean(&[]), 0.0);
    }

    #[test]
    fn operations_of_a_device_are_seen() {
        let host = Host::new(1).unwrap();
        let device = host.device(DeviceId::Cpu).unwrap();
        let operations = Operations::of(&device);
        let x = Tensor::zeros(&device, [64, 64]).unwrap();
        let add = || ops::add(&x, &x).map(drop);
        let (_, one) = operations.time(|| ());
        assert!(lock(&operations.0).is_empty() && one.squares <= one.seconds * one.seconds * 1.01);
        let (added, _) = operations.time(|| add().and_then(|()| add()));
        added.unwrap();
        let two = lock(&operations.0).len();
        let (added, _) = operations.time(add);
        added.unwrap();
        assert_eq!((two % 2, lock(&operations.0).len()), (0, two / 2));
        assert!(two > 0 && !device.on_operation(|| ()));
    }
}
