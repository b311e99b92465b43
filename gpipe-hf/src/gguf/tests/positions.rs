//! Rotary positions of GGUF files.

use gpipe_tensor::ops::RopeScaling;

use super::*;

#[test]
fn other_architectures_and_positions_are_refused_by_name() {
    let header = |file: &Writer| Header::parse(file.0.as_slice(), file.0.len() as u64).unwrap();
    let mut other = begin(0, 1);
    other.text("general.architecture").u32(8).text("mamba");
    assert!(
        header(&other)
            .describe(None)
            .unwrap_err()
            .contains("`mamba`")
    );
    for key in ["llama.rope.scaling.factor", "llama.rope.scale_linear"] {
        let with = |kind: Option<&str>, factor: f64| -> std::result::Result<_, String> {
            let mut header = header(&model());
            if let Some(kind) = kind {
                let kind = Value::Text(kind.to_owned());
                let key = "llama.rope.scaling.type".to_owned();
                header.metadata.insert(key, kind);
            }
            header.metadata.insert(key.to_owned(), Value::Real(factor));
            let described = header.describe(None)?;
            match described.model {
                ModelConfig::Llama(config) => Ok(config.rope_scaling),
                other => panic!("{other:?}"),
            }
        };
        let linear = Ok(RopeScaling::Linear { factor: 4.0 });
        assert_eq!(with(None, 4.0), linear);
        assert_eq!(with(Some("linear"), 4.0), linear);
        for (kind, factor) in [(None, 1.0), (Some("linear"), 0.0), (Some("none"), 4.0)] {
            assert_eq!(with(kind, factor), Ok(RopeScaling::Unscaled));
        }
        assert!(with(Some("yarn"), 4.0).unwrap_err().contains("`yarn`"));
        let fault = with(None, 0.5).unwrap_err();
        assert!(
            fault.starts_with(&format!("{key}: turns slower by a factor of 0.5")),
            "{fault}"
        );
    }
}

/// The factors by which the pairs of a head turn slower, as llama.cpp's converter writes them.
fn frequency_factors(
    pairs: usize,
    theta: f32,
    [factor, low, high, positions]: [f32; 4],
) -> Vec<f32> {
    let of = |pair: usize| {
        let length = std::f32::consts::TAU * theta.powf(pair as f32 / pairs as f32);
        let smooth = (positions / length - low) / (high - low);
        match length {
            _ if length < positions / high => 1.0,
            _ if length > positions / low => factor,
            _ => 1.0 / ((1.0 - smooth) / factor + smooth),
        }
    };
    (0..pairs).map(of).collect()
}

#[test]
fn factors_of_pairs_are_the_rule_that_they_follow() {
    let described = |factors: &[f32]| {
        let pairs = factors.len() as u64;
        let tensors: [(&str, &[u64]); 1] = [("rope_freqs.weight", &[pairs])];
        let file = with_tensors(&[&TENSORS[..], &tensors].concat());
        let mut header = Header::parse(file.0.as_slice(), file.0.len() as u64).unwrap();
        let size = Value::Whole(2 * pairs as i64);
        header
            .metadata
            .insert("llama.attention.key_length".into(), size);
        let theta = Value::Real(5e5);
        header.metadata.insert("llama.rope.freq_base".into(), theta);
        assert!(header.frequency_factors()?.is_some());
        header.located().unwrap();
        match header.describe(Some(factors))?.model {
            ModelConfig::Llama(config) => Ok(config.rope_scaling),
            other => panic!("{other:?}"),
        }
    };
    for (pairs, factor, positions) in [(32, 32.0, 8192), (64, 8.0, 8192), (16, 2.5, 1000)] {
        let factors = frequency_factors(pairs, 5e5, [factor, 1.0, 4.0, positions as f32]);
        let wanted = RopeScaling::Llama3 {
            factor: factor.into(),
            low_frequency: 1.0,
            high_frequency: 4.0,
            original_positions: positions,
        };
        assert_eq!(described(&factors), Ok(wanted));
        let mut other = factors;
        other[pairs / 4] *= 1.1;
        let fault: String = described(&other).unwrap_err();
        assert!(fault.contains("are not those of Llama 3.1"), "{fault}");
    }
    assert_eq!(described(&[1.0; 32]), Ok(RopeScaling::Unscaled));
    let others = frequency_factors(32, 5e5, [32.0, 1.0, 2.0, 8192.0]);
    for others in [
        &others[..],
        &[0.0; 8],
        &[f32::NAN; 8],
        &[f32::INFINITY; 8],
        &[2.0; 8],
    ] {
        assert!(described(others).is_err(), "{others:?}");
    }
}

#[test]
fn factors_of_pairs_are_read_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let tensors: [(&str, &[u64]); 1] = [("rope_freqs.weight", &[4])];
    let tensors = [&TENSORS[..], &tensors].concat();
    let mut bytes = with_tensors(&tensors).0;
    // The last of the tensors, padded to 32 bytes. Of the four pairs, one turns as it did, one a bit slower.
    let factors = frequency_factors(4, 1e4, [8.0, 1.0, 4.0, 96.0]);
    let at = bytes.len() - 32;
    for (i, factor) in factors.iter().enumerate() {
        bytes[at + 4 * i..][..4].copy_from_slice(&factor.to_le_bytes());
    }
    std::fs::write(&path, &bytes).unwrap();
    let described = crate::read_config(&path).unwrap();
    assert_eq!(parse_gguf(&bytes).unwrap().0, described);
    let ModelConfig::Llama(config) = &described.model else {
        panic!("{described:?}");
    };
    assert_eq!(config.rope_scaling.to_string(), "llama3:8,1,4,96");
    let shapes = crate::parameter_shapes(&mut described.model.layers().unwrap());
    crate::Weights::open(&path, &shapes).unwrap();
    let tensors: [(&str, &[u64]); 1] = [("rope_freqs.weight", &[5])];
    std::fs::write(&path, with_tensors(&[&TENSORS[..], &tensors].concat()).0).unwrap();
    let error = crate::read_config(&path).unwrap_err().to_string();
    assert!(
        error.ends_with("`rope_freqs.weight` has shape [5], but heads have 4 pairs"),
        "{error}"
    );
}
