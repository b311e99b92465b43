//! Operations in forward/gradient pairs.
