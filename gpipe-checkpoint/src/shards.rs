//! Files in several parts, named as on the Hugging Face hub: `model-00001-of-00004.safetensors` and so on, beside
//! `model.safetensors.index.json`, which says where each tensor is.

use std::collections::BTreeMap;

use gpipe_tensor::safetensors::FileContents;
use serde_json::json;

const EXTENSION: &str = ".safetensors";

/// The name of a part, from 1, of a file that has several.
pub fn part_name(whole: &str, part: usize, parts: usize) -> String {
    let stem = whole.strip_suffix(EXTENSION).unwrap_or(whole);
    format!("{stem}-{part:05}-of-{parts:05}{EXTENSION}")
}

/// The name of the index beside the parts.
pub fn index_name(whole: &str) -> String {
    format!("{whole}.index.json")
}

/// The parts of a file among these names, in order: the file itself, or all that it was split into, or none.
///
/// # Errors
/// If a part is missing, or both are there.
pub fn parts<'a>(
    whole: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<Vec<String>, String> {
    let stem = whole.strip_suffix(EXTENSION).unwrap_or(whole);
    let is_part = |name: &&str| {
        let number = |digits: &str| digits.len() == 5 && digits.bytes().all(|b| b.is_ascii_digit());
        let middle = name
            .strip_prefix(stem)
            .and_then(|rest| rest.strip_prefix('-'));
        let middle = middle.and_then(|rest| rest.strip_suffix(EXTENSION));
        let numbers = middle.and_then(|middle| middle.split_once("-of-"));
        numbers.is_some_and(|(part, parts)| number(part) && number(parts))
    };
    let mut found: Vec<&str> = names.clone().filter(is_part).collect();
    found.sort_unstable();
    match (names.clone().any(|name| name == whole), found.len()) {
        (true, 0) => Ok(vec![whole.to_owned()]),
        (true, _) => Err(format!("holds {whole} and parts of it")),
        (false, count) => {
            let all: Vec<String> = (1..=count)
                .map(|part| part_name(whole, part, count))
                .collect();
            match all.iter().eq(&found) {
                true => Ok(all),
                false => Err(format!("does not hold all parts of {whole}")),
            }
        }
    }
}

/// The index of these files, which lie beside it.
///
/// # Errors
/// Those of the JSON library; there are none for names and numbers.
pub fn index(files: &[(String, &FileContents)]) -> serde_json::Result<Vec<u8>> {
    let mut tensors = BTreeMap::new();
    for (name, contents) in files {
        let beside = name.rsplit_once('/').map_or(&**name, |(_, beside)| beside);
        tensors.extend(contents.names().iter().map(|tensor| (tensor, beside)));
    }
    let bytes = files.iter().map(|(_, contents)| contents.tensor_bytes());
    let total: u64 = bytes.sum();
    let index = json!({"metadata": {"total_size": total}, "weight_map": tensors});
    let mut bytes = serde_json::to_vec_pretty(&index)?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "model/model.safetensors";

    #[test]
    fn all_parts_are_found_or_none_is_taken() {
        let found = |names: &[&str]| parts(WHOLE, names.iter().copied());
        assert_eq!(found(&[]), Ok(Vec::new()));
        assert_eq!(found(&[WHOLE, "x"]), Ok(vec![WHOLE.to_owned()]));
        let [one, two, three] = [1, 2, 3].map(|part| part_name(WHOLE, part, 3));
        assert_eq!(one, "model/model-00001-of-00003.safetensors");
        let index = index_name(WHOLE);
        let others = [
            "model/model-extra.safetensors",
            "model/model-extra-of-parts.safetensors",
            "model/model-000001-of-000003.safetensors",
        ];
        let all = found(&[&[&*two, &index, &three, &one], &others[..]].concat());
        assert_eq!(all, Ok(vec![one.clone(), two.clone(), three.clone()]));
        for wrong in [
            vec![&*one, &two],
            vec![&one, &three],
            vec![&one, &two, &two],
            vec![&one, &two, &three, WHOLE],
            vec![&one, &two, "model/model-00003-of-00004.safetensors"],
            vec!["model/model-00000-of-00001.safetensors"],
            vec!["model/model-00002-of-00002.safetensors"],
        ] {
            assert!(found(&wrong).is_err(), "{wrong:?}");
        }
    }
}
