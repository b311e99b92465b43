//! Windows, orders, held-out samples, digests and refusals.

use std::fs;

use gpipe_tensor::{DeviceId, Host};

use super::*;

/// The samples of a text of `bytes` bytes, 0 to 255 over and over.
fn samples(bytes: usize, options: SampleOptions) -> Result<Dataset> {
    let tokens = (0..bytes).map(|i| i as u32 % 256).collect();
    Dataset::from_tokens(tokens, &options)
}

fn in_order() -> SampleOptions {
    SampleOptions {
        seq_len: 4,
        batch_size: 2,
        shuffle: false,
        ..SampleOptions::default()
    }
}

/// The inputs and the targets of a sample.
fn window(samples: &Dataset, sample: u64) -> [Vec<u32>; 2] {
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    let (input, targets) = samples
        .tensors(
            &device,
            &[Draw {
                sample,
                epoch: None,
            }],
        )
        .unwrap();
    [&input[0], &targets].map(|tensor| tensor.u32s().unwrap().to_vec())
}

#[test]
fn a_text_of_bytes_is_the_text_of_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    let bytes: Vec<u8> = (0..20_000_u32).map(|i| (i % 251) as u8).collect();
    fs::write(&path, &bytes).unwrap();
    let options = SampleOptions {
        source: path.to_str().unwrap().to_owned(),
        ..in_order()
    };
    let text = Dataset::open(&options, &Vocabulary::bytes()).unwrap();
    let numbers = bytes.iter().copied().map(u32::from).collect();
    let numbers = Dataset::from_tokens(numbers, &options).unwrap();
    assert_eq!(text.digest(), numbers.digest());
    assert_eq!(window(&text, 4998), window(&numbers, 4998));
    let known = SampleOptions {
        vocab: 250,
        ..options
    };
    let refused = Dataset::open(&known, &Vocabulary::bytes()).err().unwrap();
    assert!(
        refused.to_string().contains("token 250 at place"),
        "{refused}"
    );
}

/// A text takes a byte for each of its bytes; one that has no room is named before it is read.
#[test]
fn a_text_must_fit_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), [b'a'; 600]).unwrap();
    fs::write(folder.path().join("b"), [b'b'; 424]).unwrap();
    let within = |memory| {
        let options = SampleOptions {
            source: folder.path().to_str().unwrap().to_owned(),
            memory: Some(memory),
            ..in_order()
        };
        Dataset::open(&options, &Vocabulary::bytes())
    };
    assert!(within(1024).is_ok());
    let refused = within(1023).err().unwrap();
    assert!(refused.is_input_error());
    assert!(
        refused
            .to_string()
            .contains("the text of 1KiB needs 1KiB of memory"),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("name a shorter text"),
        "{refused}"
    );
}

#[test]
fn noise_is_for_models_of_images() {
    let options = SampleOptions {
        source: SYNTHETIC.to_owned(),
        ..SampleOptions::default()
    };
    let refused = Dataset::open(&options, &Vocabulary::bytes()).err().unwrap();
    assert!(refused.is_input_error());
    let said = refused.to_string();
    assert!(
        said.starts_with("`data.source = synthetic`: noise is for models of images: "),
        "{said}"
    );
}

/// Of a folder of pictures too, before it is looked at.
#[test]
fn pictures_without_pixels_are_refused() {
    for (source, masks) in [(SYNTHETIC, false), (SYNTHETIC, true), ("no folder", true)] {
        let options = SampleOptions {
            source: source.to_owned(),
            image: Some(ImageOptions {
                size: 0,
                channels: 3,
                classes: 10,
                masks,
                names: Vec::new(),
            }),
            ..SampleOptions::default()
        };
        let refused = Dataset::open(&options, &Vocabulary::bytes()).err().unwrap();
        assert!(refused.is_input_error());
        assert_eq!(
            refused.to_string(),
            "`data.image_size = 0`: use a whole number from 1 up"
        );
    }
}

#[test]
fn windows_start_at_multiples_of_the_length_and_batches_wrap() {
    let samples = samples(13, in_order()).unwrap();
    assert_eq!(
        window(&samples, 2),
        [vec![8, 9, 10, 11], vec![9, 10, 11, 12]]
    );
    let steps: Vec<_> = (0..4)
        .map(|step| samples.samples_of_step(step).unwrap())
        .collect();
    assert_eq!(steps, [[0, 1], [2, 0], [1, 2], [0, 1]]);
}

#[test]
fn a_tail_is_held_out_only_for_evaluation() {
    let held_out = |held_out| {
        let options = in_order();
        samples(
            200,
            SampleOptions {
                held_out,
                ..options
            },
        )
        .unwrap()
    };
    assert!(held_out(HeldOut::Nothing).held_out().is_empty());
    let evaluated = held_out(HeldOut::LastTenth);
    assert_eq!(evaluated.held_out(), 45..49);
    assert_eq!(evaluated.held_out_targets(), 16);
    assert_eq!(evaluated.summary(), "45 samples of 4 tokens");
    let one = SampleOptions {
        seq_len: 49,
        ..in_order()
    };
    assert_eq!(samples(50, one).unwrap().summary(), "1 sample of 49 tokens");
    let all = held_out(HeldOut::Everything);
    assert_eq!(all.held_out(), 0..49);
    assert!(all.training_samples() == 0 && all.samples_of_step(0).unwrap().is_empty());
}

#[test]
fn shuffled_steps_cover_each_epoch() {
    let samples = samples(
        401,
        SampleOptions {
            seq_len: 4,
            batch_size: 30,
            ..SampleOptions::default()
        },
    )
    .unwrap();
    let positions: Vec<u64> = (0..10)
        .flat_map(|step| samples.samples_of_step(step).unwrap())
        .collect();
    for epoch in positions.chunks(100) {
        let mut epoch = epoch.to_vec();
        epoch.sort_unstable();
        assert_eq!(epoch, (0..100).collect::<Vec<_>>());
    }
    assert_ne!(positions[..100], positions[100..200]);
}

#[test]
fn a_resumed_run_draws_what_it_would_have_drawn() {
    let options = SampleOptions {
        seq_len: 4,
        batch_size: 6,
        ..SampleOptions::default()
    };
    let whole = samples(401, options.clone()).unwrap();
    let resumed = samples(401, options.clone()).unwrap().resumed_at(5, 30);
    for step in 5..40 {
        assert_eq!(
            resumed.samples_of_step(step).unwrap(),
            whole.samples_of_step(step).unwrap()
        );
        assert_eq!(resumed.samples_drawn(step), 6 * step);
    }
    // With batches of another size from there on, the epoch goes on where it was.
    let larger = SampleOptions {
        batch_size: 12,
        ..options
    };
    let resumed = samples(401, larger).unwrap().resumed_at(5, 30);
    let [six, seven] = [5, 6].map(|step| whole.samples_of_step(step).unwrap());
    assert_eq!(resumed.samples_of_step(5).unwrap(), [six, seven].concat());
    assert_eq!(resumed.samples_drawn(7), 54);
}

#[test]
fn text_that_is_too_short_is_refused() {
    let refused = |bytes, options| match samples(bytes, options) {
        Err(error) if error.is_input_error() => error.to_string(),
        _ => panic!("{bytes} bytes were taken"),
    };
    assert!(refused(0, in_order()).contains("empty"));
    assert!(refused(1, in_order()).contains("longer text"));
    assert!(refused(4, in_order()).contains("`data.seq_len = 3` or less"));
    let evaluated = SampleOptions {
        held_out: HeldOut::LastTenth,
        ..in_order()
    };
    assert!(refused(5, evaluated).contains("`run.eval_every = 0`"));
    // Followed, a mend works.
    for held_out in [HeldOut::Nothing, HeldOut::LastTenth, HeldOut::Everything] {
        for bytes in 1..9 {
            let options = SampleOptions {
                held_out,
                seq_len: 9,
                ..in_order()
            };
            let said = refused(bytes, options.clone());
            let mend = said.split("use `data.seq_len = ").nth(1);
            let Some((most, _)) = mend.and_then(|mend| mend.split_once('`')) else {
                assert!(bytes < 3 && said.ends_with("name a longer text"), "{said}");
                continue;
            };
            let followed = SampleOptions {
                seq_len: most.parse().unwrap(),
                ..options
            };
            assert!(samples(bytes, followed).is_ok(), "{said}");
        }
    }
    let small = SampleOptions {
        vocab: 20,
        ..in_order()
    };
    assert_eq!(
        refused(50, small),
        "the tokens: token 20 at place 20 is beyond model.vocab = 20: use `model.vocab = 50` for a new model, which its \
         tokens need, or the tokenizer that belongs to the model"
    );
    let small = SampleOptions {
        vocab: 20,
        ..in_order()
    };
    let refused_bytes = Dataset::open(&small, &Vocabulary::bytes()).err().unwrap();
    let said = refused_bytes.to_string();
    assert!(
        said.starts_with("`data.source = cicero`: token 78 at place 0 "),
        "{said}"
    );
    assert!(
        said.contains("use `model.vocab = 256` for a new model, which bytes need"),
        "{said}"
    );
    for zero in [
        SampleOptions {
            seq_len: 0,
            ..in_order()
        },
        SampleOptions {
            batch_size: 0,
            ..in_order()
        },
    ] {
        assert!(refused(50, zero).contains("from 1 up"));
    }
}

/// Sizes of a library's caller, which no configuration allows.
#[test]
fn batches_beyond_all_memory_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| {
        let path = folder.path().join(name);
        fs::write(&path, "a\nb\n").unwrap();
        path.to_str().unwrap().to_owned()
    };
    let of_text = SampleOptions {
        seq_len: 4,
        ..SampleOptions::default()
    };
    let of_pairs = SampleOptions {
        source: path("a"),
        target: Some(path("b")),
        ..of_text.clone()
    };
    let device = Host::new(1).unwrap().device(DeviceId::Cpu).unwrap();
    for options in [of_text, of_pairs.clone()] {
        for batch_size in [usize::MAX, usize::MAX / 8, 1 << 60] {
            let options = SampleOptions {
                batch_size,
                ..options.clone()
            };
            let error = Dataset::open(&options, &Vocabulary::bytes()).err().unwrap();
            assert!(error.is_input_error(), "{error}");
            let said = error.to_string();
            assert!(
                said.starts_with(&format!("`data.batch_size = {batch_size}` ")),
                "{said}"
            );
        }
    }
    // Lists of samples that can be addressed and are not there.
    let samples = SampleOptions {
        seq_len: 4,
        batch_size: 1 << 50,
        ..SampleOptions::default()
    };
    let data = Dataset::open(&samples, &Vocabulary::bytes()).unwrap();
    let refused = crate::batches::training_batch(&data, &device, 1, 0)
        .err()
        .unwrap();
    assert!(
        refused.is_input_error()
            && refused
                .to_string()
                .starts_with(&format!("`data.batch_size = {}` ", 1_u64 << 50)),
        "{refused}"
    );
    // Rows that can be addressed and are not there.
    let rows = SampleOptions {
        seq_len: 1 << 55,
        batch_size: 1,
        ..of_pairs
    };
    let data = Dataset::open(&rows, &Vocabulary::bytes()).unwrap();
    let refused = data
        .tensors(&device, &data.draws_of_step(0).unwrap())
        .unwrap_err();
    assert!(
        refused.to_string().starts_with("out of memory: "),
        "{refused}"
    );
}

/// What runs before the libraries were split wrote into their checkpoints.
#[test]
fn digests_are_those_of_earlier_checkpoints() {
    let digest = |source: &str| {
        let options = SampleOptions {
            source: source.to_owned(),
            ..SampleOptions::default()
        };
        Dataset::open(&options, &Vocabulary::bytes())
            .unwrap()
            .digest()
    };
    assert_eq!(
        digest("cicero"),
        "08c83f49409406264bdee2059b00e1a4744edab8489c1803fb02e34289362a55"
    );
    #[cfg(feature = "digits")]
    assert_eq!(
        digest("digits"),
        "02dbb904da50d0061b637bda3188be6e9a05bb08eb8521dc1cd8310c7f6e8eac"
    );
}
