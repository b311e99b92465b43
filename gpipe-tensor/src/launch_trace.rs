//! What a GPU was asked to do, launch by launch, with the time of each.

/// One launch of a kernel, one product of matrices, or one copy or filling within the device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TracedLaunch {
    /// The kernel's entry point, or the product's sizes, layout and types.
    pub name: String,
    /// Between two events of the device around it. Where the device waits for the host, that counts too.
    pub seconds: f64,
    /// Bytes of its operands: what it reads and writes at the least, unless it looks up only some of them.
    pub bytes: u64,
    /// Floating-point operations of a product of matrices; 0 of everything else.
    pub flops: f64,
}

/// What the operations of one handle came to: see `Device::take_launches`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LaunchTrace {
    /// In the order in which the device does them.
    pub launches: Vec<TracedLaunch>,
    /// Buffers that were allocated for them.
    pub allocations: u64,
}
