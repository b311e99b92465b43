//! How a run begins: anew, or from a checkpoint.

use std::path::{Path, PathBuf};

use gpipe_remat::Assembled;
use gpipe_tensor::DeviceId;

use super::train::Recipe;
use crate::args::{Settings, Talk, TrainArgs};
use crate::checkpoint::{self, Best, Disk, Resumed};
use crate::config::{self, Config};
use crate::data;
use crate::fail::{Fail, Result};
use crate::machine;
use crate::model_folder::Companions;
use crate::output::{Console, NewRun, RunFolder};

/// What was asked for.
pub struct Beginning {
    /// What is run: as typed, over the configuration of the checkpoint.
    pub config: Config,
    /// The checkpoint.
    pub resumed: Option<Resumed>,
    /// What the tokens of its texts are.
    pub tokens: data::Found,
    /// What lies beside its model.
    pub companions: Companions,
}

/// A run whose parameters are those that it begins with.
pub struct Begun {
    /// Its folder.
    pub folder: RunFolder,
    /// Steps that were made before.
    pub made: u64,
    /// The best evaluation before.
    pub best: Option<Best>,
    /// The folder of the checkpoint, and what is to be known about going on from it.
    pub from: Option<(PathBuf, Vec<String>)>,
}

impl Beginning {
    /// Reads the configuration, and finds and checks the checkpoint if there is to be one.
    pub fn of(args: &TrainArgs) -> Result<Self> {
        let Some(folder) = &args.resume else {
            let config = config::resolve(&args.settings)?;
            let from = config.model.folder().map(Path::to_owned);
            return Self::from(config, from.as_deref(), None, None);
        };
        let mut resumed = checkpoint::find(&Disk, folder.as_deref(), args.out.is_none())?;
        if let Some(out) = &args.out
            && let (Ok(out), Ok(from)) = (out.canonicalize(), resumed.whole.folder.canonicalize())
            && from.starts_with(&out)
        {
            return Err(Fail::asked(format!(
                "--out {}: is the run that goes on: leave --out away, or choose another folder",
                out.display()
            )));
        }
        let file = Some(resumed.whole.folder.join(checkpoint::CONFIG));
        let model = resumed.whole.folder.join(checkpoint::MODEL);
        let saved = config::resolve(&Settings {
            config: file.clone(),
            stand_in: Some(model.clone()),
            ..Settings::default()
        })?;
        let config = config::resolve(&Settings {
            config: file,
            stand_in: Some(model.clone()),
            ..args.settings.clone()
        })?;
        let state = &resumed.state;
        let told = checkpoint::changes(&saved, &config, state.step)?;
        resumed.warnings.extend(told);
        let processor = machine::instructions();
        if state.processor != processor {
            resumed.warnings.push(format!(
                "the processor has {processor}, that of the checkpoint {}: from here on results are equal to \
                 rounding, not bit for bit",
                state.processor
            ));
        }
        if state.version != checkpoint::VERSION {
            resumed.warnings.push(format!(
                "this is gpipe {}, the checkpoint is by {}: from here on results may differ in bits",
                checkpoint::VERSION,
                state.version
            ));
        }
        // The checkpoint has the tokenizer with which it was trained, if it was one.
        let same = config.data.tokenizer == saved.data.tokenizer;
        let choice = same.then_some(data::AUTO);
        Self::from(config, Some(&model), choice, Some(resumed))
    }

    /// The rest, for a model from this folder.
    fn from(
        config: Config,
        folder: Option<&Path>,
        choice: Option<&str>,
        resumed: Option<Resumed>,
    ) -> Result<Self> {
        let choice = choice.unwrap_or(&config.data.tokenizer);
        let (tokens, companions) = match config.model.classifies() {
            true => (data::Found::bytes(), Companions::default()),
            false => {
                let tokens = data::find_vocabulary(choice, folder, config.model.vocab.get())?;
                let companions = Companions::read(folder, tokens.file.as_deref())?;
                (tokens, companions)
            }
        };
        Ok(Self {
            config,
            resumed,
            tokens,
            companions,
        })
    }
}

/// Makes the run's folder, or opens it again and restores what the checkpoint holds.
pub fn begin(
    recipe: &Recipe,
    new: NewRun,
    resumed: Option<Resumed>,
    assembled: &mut Assembled,
) -> Result<Begun> {
    let Some(resumed) = resumed else {
        return Ok(Begun {
            folder: new.create(recipe.config)?,
            made: 0,
            best: None,
            from: None,
        });
    };
    let Resumed {
        whole,
        state,
        mut warnings,
        place,
    } = resumed;
    if state.text != recipe.samples.digest() {
        warnings.push(format!(
            "data.source: the text of {} is not what it was: other samples are trained on from here on",
            recipe.config.data.source
        ));
    }
    let host = assembled.transit.host();
    let device = host.device(DeviceId::Cpu).map_err(Fail::run)?;
    checkpoint::restore(
        &Disk,
        &whole,
        &mut assembled.pipeline,
        &device,
        &recipe.optimizer,
    )?;
    let folder = match place {
        None => new.create(recipe.config)?,
        Some(place) => {
            warnings.extend(place.clear(&mut Disk)?);
            RunFolder::reopen(place.run, place.lock, recipe.config, state.step + 1)?
        }
    };
    Ok(Begun {
        folder,
        made: state.step,
        best: state.best,
        from: Some((whole.folder, warnings)),
    })
}

/// Says that a run is done that was to go on.
pub fn nothing_left(steps: u64, talk: Talk) -> Result<()> {
    Console::new(talk, steps)?.say(&format!(
        "nothing is left to do: the run has made its {steps} steps; --steps makes it longer"
    ))
}
