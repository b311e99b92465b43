//! What a run keeps of its timelines, and the page that shows a run.
//!
//! ```text
//! train ─► Tracer ─► timeline.json ─┐
//!                    events.jsonl ──┼─► Run ─► page.html with its style, script and data
//!                    config.toml  ──┘
//! ```

mod curves;
mod html;
mod page;
mod picture;
mod record;
mod run;
mod sections;
mod tracer;

pub use page::page;
pub use record::Record;
pub use run::Run;
pub use tracer::Tracer;
