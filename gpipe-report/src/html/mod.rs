//! The page of a run, or of two side by side: one HTML file that needs no network.
//!
//! The tables and curves are HTML and SVG that are made here; timelines and memory are drawn in
//! canvases by the page's script (`assets`), from data that the page carries.

mod curves;
mod escape;
mod page;
mod picture;
mod sections;
mod ticks;

pub use page::{html, write_html};
