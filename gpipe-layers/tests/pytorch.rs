//! Operations, models and optimizer steps against numbers from PyTorch.
//!
//! `fixtures/make.py` computed them in double precision with Hugging Face's GPT-2 and PyTorch's own
//! operations and optimizers; it says what each file holds. `fixtures/optimizers.py` wrote further steps.

#[path = "pytorch/compare.rs"]
mod compare;
#[path = "pytorch/model.rs"]
mod model;
#[path = "pytorch/operations.rs"]
mod operations;
#[path = "pytorch/optimizers.rs"]
mod optimizers;
