//! The sections of the page as HTML; the canvases in them are drawn by the page's script.

pub(crate) mod bubble;
pub(crate) mod canvases;
pub(crate) mod common;
pub(crate) mod configuration;
pub(crate) mod cut;
pub(crate) mod plots;
pub(crate) mod resumptions;
pub(crate) mod summary;
pub(crate) mod why;
