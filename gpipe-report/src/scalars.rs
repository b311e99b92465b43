//! The values of an event that TensorBoard draws as curves over the steps.

use crate::event::Event;

impl Event {
    /// The step and its values by TensorBoard's tags, which are grouped by the part before the slash;
    /// nothing for kinds of events without curves.
    pub fn scalars(&self) -> Option<(u64, Vec<(String, f64)>)> {
        let named = |tag: &str, value: f64| (tag.to_owned(), value);
        match self {
            Self::Step {
                step,
                loss,
                grad_norm,
                lr,
                tokens_per_second,
                bubble,
                peak_bytes,
                ..
            } => {
                let mut values = vec![
                    named("loss/train", *loss),
                    named("optimizer/grad_norm", *grad_norm),
                    named("optimizer/lr", *lr),
                    named("speed/tokens_per_second", *tokens_per_second),
                    named("speed/bubble", *bubble),
                ];
                let stages = peak_bytes.iter().enumerate();
                values.extend(stages.map(|(stage, &bytes)| {
                    (format!("memory/peak_bytes_of_stage_{stage}"), bytes as f64)
                }));
                Some((*step, values))
            }
            Self::Eval {
                step: Some(step),
                loss,
                perplexity,
                accuracy,
                ..
            } => {
                let values = vec![
                    named("loss/eval", *loss),
                    named("perplexity/eval", *perplexity),
                    named("accuracy/eval", *accuracy),
                ];
                Some((*step, values))
            }
            _ => None,
        }
    }
}
