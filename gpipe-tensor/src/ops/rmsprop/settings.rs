//! The settings of RMSProp.

/// The settings of [`rmsprop`](super::rmsprop()), named as PyTorch names them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    /// The learning rate.
    pub lr: f32,
    /// The decay rate of the mean square.
    pub alpha: f32,
    /// Added to the root of the mean square.
    pub eps: f32,
    /// The decay rate of the velocity; 0 for none.
    pub momentum: f32,
    /// The factor of the L2 penalty, added to the gradient.
    pub weight_decay: f32,
}
