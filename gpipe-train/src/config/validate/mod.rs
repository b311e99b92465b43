//! Cross-field validation.

mod pipeline;

use gpipe_data::{AUTO, CICERO, CLASSES, DIGITS, SYNTHETIC};
use gpipe_report::numbers::counted;

use super::loss_target::LossTarget;
use super::model::Family;
use super::numbers::{Amount, Fraction};
use super::optimizer_name::OptimizerName;
use super::{Optimizer, TrainConfig, presets, seq2seq_preset};
use crate::error::{Error, Result};

pub use pipeline::check_table;

/// Refuses combinations of values that exclude each other. The numbers of micro-batches or of samples may be those of a
/// table and of a file of costs, and the model that of a checkpoint: a mend changes none of them.
pub fn check(config: &TrainConfig, [of_table, of_costs, of_checkpoint]: [bool; 3]) -> Result<()> {
    let keeps_model = of_checkpoint || config.model.folder().is_some();
    check_source(config, keeps_model)?;
    check_target(config, keeps_model)?;
    check_loss_target(config)?;
    check_image(config)?;
    pipeline::check_devices(config)?;
    pipeline::check_sizes(&config.pipeline)?;
    check_optimizer(&config.optimizer)?;
    check_heads(&config.model.family)?;
    pipeline::check_micro_batches(config, [of_table, of_costs])?;
    pipeline::check_replicas(config)?;
    pipeline::check_remat(&config.pipeline)?;
    check_context(config, keeps_model)
}

/// Refuses another text to be learned for a model that learns none.
fn check_target(config: &TrainConfig, keeps_model: bool) -> Result<()> {
    let (model, data) = (&config.model, &config.data);
    if data.target.is_some() && !model.has_targets() {
        return Err(Error::invalid(format!(
            "the model {} learns no targets of another text: leave `data.target` out{}",
            model.name,
            match keeps_model {
                true => String::new(),
                false => format!(", or use `model.name = {}`", seq2seq_preset::NANO),
            }
        )));
    }
    Ok(())
}

/// Refuses keys of tokens for a classifier of images.
fn check_image(config: &TrainConfig) -> Result<()> {
    let (model, data) = (&config.model, &config.data);
    if model.is_classifier() {
        for (key, given) in [
            ("tokenizer", data.tokenizer != AUTO),
            ("seq_len", data.seq_len.get() != 1),
        ] {
            if given {
                return Err(Error::invalid(format!(
                    "an image has no tokens: leave `data.{key}` out"
                )));
            }
        }
    }
    Ok(())
}

/// Refuses samples of more tokens than the model has positions.
fn check_context(config: &TrainConfig, keeps_model: bool) -> Result<()> {
    let model = &config.model;
    let tokens = config.data.seq_len.get();
    if let Some(context) = model.context()
        && tokens > context
    {
        return Err(Error::invalid(format!(
            "samples of {tokens} tokens but a model of {context} positions: use `data.seq_len = {context}` or less{}",
            match keeps_model {
                // The positions of a saved model are parameters.
                true => String::new(),
                false => format!(", or `model.context = {tokens}`"),
            }
        )));
    }
    Ok(())
}

/// Refuses heads that do not divide the width.
fn check_heads(family: &Family) -> Result<()> {
    let (heads, width, is_even) = match family {
        Family::Gpt(keys) => (keys.heads.get(), keys.width.get(), false),
        Family::Seq2Seq(keys) => (keys.heads.get(), keys.width.get(), true),
        // The heads of a Llama have a size of their own.
        Family::Llama(_) | Family::Mlp(_) | Family::Image(_) => return Ok(()),
    };
    let divides = |heads: &usize| width.is_multiple_of(*heads);
    if divides(&heads) {
        return Ok(());
    }
    let fewer = (1..=heads.min(width)).rev().find(divides).unwrap_or(1);
    let step = match is_even && heads % 2 == 1 {
        true => heads.saturating_mul(2),
        false => heads,
    };
    let wider = width.checked_next_multiple_of(step);
    let wider = wider.map_or(String::new(), |wider| {
        format!(", or `model.width = {wider}`")
    });
    Err(Error::invalid(format!(
        "{heads} heads cannot share a width of {width}: use `model.heads = {fewer}`{wider}"
    )))
}

/// Refuses masks for a classifier, classes for a network that learns masks, and images without masks for it.
fn check_loss_target(config: &TrainConfig) -> Result<()> {
    let Some(keys) = config.model.images() else {
        return Ok(());
    };
    let name = &config.model.name;
    let target = config.data.loss_target.as_deref();
    if let Some(target) = target.filter(|&&target| target != LossTarget::Class)
        && !config.optimizer.label_smoothing.is_zero()
    {
        return Err(Error::invalid(format!(
            "`optimizer.label_smoothing = {}` is for classes, and the target of the loss is {target}: leave \
             `optimizer.label_smoothing` out",
            config.optimizer.label_smoothing.get()
        )));
    }
    let fault = match (keys.network.learns_masks(), config.learns_masks()) {
        (true, false) => {
            format!("the model {name} learns masks, not classes: leave `data.loss_target` out")
        }
        (false, true) => format!(
            "the model {name} learns classes: use `data.loss_target = class` or `data.loss_target = one-hot`"
        ),
        (true, true) if config.data.source == DIGITS => format!(
            "the model {name} learns masks, which {DIGITS} do not have: use a folder with the folders images and \
             masks, or `data.source = {SYNTHETIC}`"
        ),
        _ => return Ok(()),
    };
    Err(Error::invalid(fault))
}

/// Refuses text for a model of images, and images for a model of text.
fn check_source(config: &TrainConfig, keeps_model: bool) -> Result<()> {
    let (model, data) = (&config.model, &config.data);
    let source = &data.source;
    let is_images = source == DIGITS || source == SYNTHETIC;
    let fault = match &model.family {
        Family::Mlp(_) if source == DIGITS => return Ok(()),
        Family::Mlp(_) => format!(
            "the model {} reads {DIGITS} alone, not {source}: use `data.source = {DIGITS}`{}",
            presets::PERCEPTRON,
            match keeps_model {
                true => "",
                false => ", or `model.name = convnet` for other images",
            }
        ),
        Family::Image(keys)
            if keeps_model
                && source == DIGITS
                && (keys.channels.get(), keys.classes.get()) != (1, CLASSES) =>
        {
            format!(
                "the model {} is of images of {} and {}, and {DIGITS} are of 1 channel and {CLASSES} classes: name a folder with a \
                 folder of images for each class",
                model.name,
                counted(keys.channels.get() as u64, "channel"),
                counted(keys.classes.get() as u64, "class")
            )
        }
        Family::Image(_) if source != CICERO => return Ok(()),
        Family::Image(_) => format!(
            "the model {} reads images, not the text {source}: use a folder with a folder of images for each class, \
             `data.source = {DIGITS}` or `data.source = {SYNTHETIC}`",
            model.name
        ),
        _ if !is_images => return Ok(()),
        _ => format!(
            "the model {} reads text, and {source} are images: use {}`data.source = {CICERO}`",
            model.name,
            match keeps_model {
                true => String::new(),
                false if source == DIGITS => format!("`model.name = {}`, or ", presets::PERCEPTRON),
                false => "`model.name = resnet50`, or ".to_owned(),
            }
        ),
    };
    Err(Error::invalid(fault))
}

/// Refuses keys of another optimizer.
fn check_optimizer(optimizer: &Optimizer) -> Result<()> {
    let name = *optimizer.name;
    let moves = optimizer.momentum.get() != 0.0;
    if optimizer.eps.get() as f32 == 0.0 {
        return Err(Error::invalid(format!(
            "optimizer.eps = {} is 0 in single precision, and an element without a gradient would become 0/0: use \
             `optimizer.eps = 1e-8`",
            optimizer.eps.get()
        )));
    }
    let is = |other| name == other;
    let (adamw, sgd) = (is(OptimizerName::AdamW), is(OptimizerName::Sgd));
    let alpha = optimizer.alpha != Fraction::ALPHA;
    let beta1 = optimizer.beta1 != Fraction::BETA1;
    let beta2 = optimizer.beta2 != Fraction::BETA2;
    let rmsprop = is(OptimizerName::RmsProp);
    // The defaults are the mend for the file of a run, from which no key can be left out.
    for (key, given, has, owner, default) in [
        ("beta1", beta1, adamw, "adamw", "0.9"),
        ("beta2", beta2, adamw, "adamw", "0.95"),
        ("eps", optimizer.eps != Amount::EPS, !sgd, "adamw", "1e-8"),
        ("momentum", moves, !adamw, "sgd", "0"),
        ("nesterov", optimizer.nesterov, sgd, "sgd", "false"),
        ("alpha", alpha, rmsprop, "rmsprop", "0.99"),
    ] {
        if given && !has {
            return Err(Error::invalid(format!(
                "{name} has no {key}: use `optimizer.name = {owner}`, or `optimizer.{key} = {default}`"
            )));
        }
    }
    if optimizer.nesterov && !moves {
        return Err(Error::invalid(
            "Nesterov's step needs a momentum: use `optimizer.momentum = 0.9`, or leave `optimizer.nesterov` out",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refused, resolved};
    use super::super::{Overrides, Setting};

    /// A run that goes on from a checkpoint keeps its model.
    #[test]
    fn no_mend_of_a_saved_model_changes_it() {
        let context = "model.context=64";
        for (set, mend) in [
            ("data.seq_len=300", "`data.seq_len = 64` or less"),
            ("data.target=lines.txt", "leave `data.target` out"),
            ("data.source=digits", "use `data.source = cicero`"),
        ] {
            let set = [context, set];
            assert!(refused(&set).contains("`model."));
            let settings = set.map(|text| {
                let (key, value) = text.split_once('=').unwrap();
                Setting::text(text, key, value)
            });
            let saved = Overrides::new().saved_model("checkpoint/model".as_ref());
            let changed = saved.layer(settings).unwrap();
            let message = changed.resolve().unwrap_err().to_string();
            assert!(message.ends_with(mend), "{message}");
        }
    }

    /// Squared errors and masks have no classes to smooth.
    #[test]
    fn smoothing_of_another_loss_is_refused() {
        let smoothed = "optimizer.label_smoothing=0.1";
        for set in [
            &["model.name=convnet", "data.loss_target=one-hot", smoothed][..],
            &["model.name=unet", smoothed],
        ] {
            assert!(refused(set).contains("leave `optimizer.label_smoothing` out"));
        }
        resolved(&["model.name=convnet", smoothed]);
    }

    #[test]
    fn heads_that_do_not_divide_the_width_are_refused_with_what_does() {
        for (model, extra, cases) in [
            (
                "gpt-nano",
                "data.shuffle=true",
                [(3, 2, 129), (1000, 128, 1000)],
            ),
            ("seq2seq-nano", "data.target=a", [(3, 2, 66), (65, 64, 130)]),
        ] {
            let model = format!("model.name={model}");
            for (heads, fewer, wider) in cases {
                let heads = format!("model.heads={heads}");
                let error = refused(&[&model, extra, &heads]);
                let mends = format!("`model.heads = {fewer}`, or `model.width = {wider}`");
                assert!(error.contains(&mends), "{error}");
                resolved(&[&model, extra, &format!("model.heads={fewer}")]);
                resolved(&[&model, extra, &heads, &format!("model.width={wider}")]);
            }
        }
    }

    /// 0 over 0 is no update.
    #[test]
    fn an_eps_of_0_is_refused() {
        for set in [
            &["optimizer.eps=0"][..],
            &["optimizer.eps=1e-50"],
            &["optimizer.eps=0", "optimizer.name=rmsprop"],
        ] {
            assert!(refused(set).contains("use `optimizer.eps = 1e-8`"));
        }
    }
}
