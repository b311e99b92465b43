//! An inference pipeline without tensors: each stage, on a thread of its own, knows one language.
//!
//! `cargo run -p gpipe-sched --example inference`

use gpipe_sched::{CollectOutputs, InferenceStage, MicroBatch, Pipeline, forward_only};

/// Languages and some of their words. Stage `s` knows language `s`.
const LANGUAGES: [(&str, [&str; 6]); 3] = [
    ("English", ["the", "is", "and", "where", "of", "to"]),
    ("German", ["der", "ist", "und", "wo", "das", "nicht"]),
    ("Spanish", ["el", "es", "y", "donde", "la", "no"]),
];

struct Language(usize);

impl InferenceStage for Language {
    /// A sentence, the best guess so far, and how many words speak for it.
    type Flow = (&'static str, &'static str, usize);
    type Error = std::convert::Infallible;

    fn forward(&mut self, _m: &MicroBatch, x: Self::Flow) -> Result<Self::Flow, Self::Error> {
        let (sentence, _, most) = x;
        let (language, known) = LANGUAGES[self.0];
        let words = sentence.split(' ');
        let count = words.filter(|word| known.contains(word)).count();
        if count > most {
            return Ok((sentence, language, count));
        }
        Ok(x)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schedule = forward_only(LANGUAGES.len(), 4)?;
    print!("{}", schedule.grid(80));
    let make_stage = |stage| Ok::<_, std::convert::Infallible>(Language(stage));
    let mut pipeline = Pipeline::build(schedule, make_stage, CollectOutputs::build)?;
    let sentences = [
        "Where is the library?",
        "Der Zug ist nicht da, und das ist gut.",
        "El perro no es grande y la casa es nueva.",
        "Gesundheit!",
    ];
    let inputs = sentences.map(|sentence| (sentence, "unknown", 0));
    for (sentence, language, _) in pipeline.infer(inputs.to_vec())? {
        println!("{language:<8} {sentence}");
    }
    Ok(())
}
