//! NCCL between the ranks of a run: whether all have the same one.

use gpipe_sched::World;
use gpipe_tensor::Host;

use crate::config::{NcclUse, TrainConfig};
use crate::error::{Error, Result};

/// The host with the NCCL that all ranks have, if the configuration has GPUs and wants it; else why flows between GPUs
/// go through host memory. Every rank calls it, before the first device is opened.
///
/// # Errors
/// [`Error::Run`] if a rank fails.
pub(crate) fn with_nccl(
    host: Host,
    world: Option<&World>,
    config: &TrainConfig,
) -> Result<(Host, Option<String>)> {
    let wanted = *config.run.nccl != NcclUse::Off && config.pipeline.devices.has_gpu();
    match world {
        Some(world) if wanted => agreed(host, world),
        _ => Ok((host, None)),
    }
}

#[cfg(feature = "cuda")]
fn agreed(host: Host, world: &World) -> Result<(Host, Option<String>)> {
    use gpipe_sched::{Reader, Writer};
    use gpipe_tensor::Nccl;

    let own = Nccl::find();
    let mut out = Writer::default();
    out.number(usize::from(own.is_ok()));
    out.text(&own.as_ref().map_or_else(Clone::clone, Nccl::version));
    let mut first = None;
    for (rank, parcel) in world
        .share(out.finish(), None)
        .map_err(Error::run)?
        .into_iter()
        .enumerate()
    {
        let mut said = Reader::new(parcel);
        let (found, text) = said
            .number()
            .and_then(|found| Ok((found == 1, said.text()?)))
            .unwrap_or_else(|fault| (false, fault));
        let name = |rank: usize| format!("rank {rank} ({})", world.host(rank));
        let first = first.get_or_insert_with(|| text.clone());
        if !found {
            return Ok((host, Some(format!("{text} on {}", name(rank)))));
        }
        if *first != text {
            let why = format!(
                "NCCL {first} on {} but {text} on {}: use one version",
                name(0),
                name(rank)
            );
            return Ok((host, Some(why)));
        }
    }
    Ok(match own {
        Ok(nccl) => (host.with_nccl(nccl), None),
        Err(why) => (host, Some(why)),
    })
}

#[cfg(not(feature = "cuda"))]
fn agreed(host: Host, _world: &World) -> Result<(Host, Option<String>)> {
    Ok((host, Some("this build has no CUDA support".to_owned())))
}

/// What carries flows between GPUs of different ranks, in words; none where nothing had to be chosen.
///
/// # Errors
/// [`Error::Input`] for `run.nccl = on` where NCCL cannot be used.
pub(crate) fn chosen(
    config: &TrainConfig,
    used: Option<&std::result::Result<usize, String>>,
) -> Result<Option<String>> {
    match used {
        Some(Err(why)) if *config.run.nccl == NcclUse::On => Err(Error::input(format!(
            "run.nccl = on, but {why}: use `run.nccl = auto`, which goes through host memory then"
        ))),
        Some(Err(why)) => Ok(Some(format!("GPUs pass flows through host memory: {why}"))),
        Some(Ok(channels)) => Ok(Some(format!(
            "NCCL passes flows between GPUs: {channels} channels of rank 0"
        ))),
        None => Ok(None),
    }
}
