//! `gpipe predict`: the classes or masks of pictures.

use gpipe_data::named_pictures;
use gpipe_report::Event;
use gpipe_train::{Prediction, Predictor, TrainConfig, mask_files, write_mask};

use super::trained;
use crate::args::{OutputArgs, PredictArgs, Settings};
use crate::fail::{Fail, Result};
use crate::output::{Console, is_silent, print};

/// Prints what a model predicts for each picture, and writes masks.
pub fn run(args: &PredictArgs, output: OutputArgs) -> Result<()> {
    let console = Console::new(output, 1)?;
    let source = trained::find(&args.model, &console)?;
    let settings = Settings {
        set: args.set.clone(),
        batch_size: args.batch_size.clone(),
        ..args.workers.clone().into()
    };
    let config: TrainConfig = source.resolve(settings.lay_over(source.overrides()?)?)?;
    let pictures = named_pictures(&args.pictures).map_err(gpipe_train::Error::from)?;
    let mut masks = mask_files(&config, &pictures, args.masks.as_deref())?
        .unwrap_or_default()
        .into_iter();
    let mut predictor = Predictor::new(trained::setup(&config)?, &config)?;
    for pictures in pictures.chunks(predictor.batch()) {
        for (picture, prediction) in pictures.iter().zip(predictor.predict(pictures)?) {
            let file = masks.next();
            if let (Prediction::Mask(mask), Some(file)) = (&prediction, &file)
                && !is_silent()
            {
                write_mask(mask, file)?;
            }
            let found = prediction.describe(picture, args.top.get(), file.as_deref());
            let printed = print(&match output.json {
                true => Event::Predicted(found).to_json()?,
                false => found.line(),
            });
            match printed {
                // The other masks are still wanted.
                Err(Fail::Closed) if file.is_some() => {}
                printed => printed?,
            }
        }
    }
    Ok(())
}
