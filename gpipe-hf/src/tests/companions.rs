//! What lies beside the weights is handed on as it is.

use std::fs;

use super::{model, params, written};
use crate::{CONFIG, Companions, TOKENIZER, to_files, tokenizer_file};

#[test]
fn companions_go_from_folder_to_folder() {
    let model = model();
    let params = params(&model);
    let mut first = Companions::default();
    first.ids.insert("eos_token_id".into(), 7.into());
    let folder = written(&to_files(&model, &params, &first).unwrap());
    let path = |name: &str| folder.path().join(name);
    for name in [
        "generation_config.json",
        TOKENIZER,
        "merges.txt",
        "notes.md",
    ] {
        fs::write(path(name), name).unwrap();
    }
    let names = |companions: &Companions| -> Vec<String> {
        companions
            .files
            .iter()
            .map(|(name, _)| name.clone())
            .collect()
    };
    let tokenizer = tokenizer_file(folder.path(), 500).unwrap();
    assert_eq!(tokenizer, Some(path(TOKENIZER)));
    let companions = Companions::read(Some(folder.path()), tokenizer.as_deref()).unwrap();
    assert_eq!(
        names(&companions),
        [TOKENIZER, "merges.txt", "generation_config.json"]
    );
    assert_eq!(companions.ids, first.ids);
    let again = written(&to_files(&model, &params, &companions).unwrap());
    let read = |name: &str| fs::read(again.path().join(name)).unwrap();
    for (name, bytes) in companions.files.iter() {
        assert_eq!(read(name), *bytes);
    }
    assert_eq!(read(CONFIG), fs::read(path(CONFIG)).unwrap());

    // Under another name it is the tokenizer alone.
    fs::rename(path(TOKENIZER), path("other.json")).unwrap();
    let companions = Companions::read(None, Some(&path("other.json"))).unwrap();
    assert_eq!(names(&companions), [TOKENIZER]);
    assert!(companions.ids.is_empty());
    // Tables alone are no tokenizer.
    let error = tokenizer_file(folder.path(), 256).unwrap_err();
    assert!(error.to_string().contains("merges.txt") && error.is_input_error());
    fs::remove_file(path("merges.txt")).unwrap();
    assert_eq!(tokenizer_file(folder.path(), 256).unwrap(), None);
}

#[test]
fn a_tokenizer_of_another_kind_is_not_read_as_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |known: usize, word: &str| {
        let error = tokenizer_file(folder.path(), known).unwrap_err();
        let told = error.to_string();
        assert!(error.is_input_error());
        for word in [word, "no tokenizer.json", "`data.tokenizer = bytes`"] {
            assert!(told.contains(word), "{word} in {told}");
        }
    };
    for known in [9, 256, 257, 263] {
        assert_eq!(tokenizer_file(folder.path(), known).unwrap(), None);
    }
    refused(32_000, "knows 32000 tokens");
    for name in [
        "tokenizer.model",
        "tekken.json",
        "spiece.model",
        "vocab.txt",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
    ] {
        let path = folder.path().join(name);
        fs::write(&path, "{}").unwrap();
        refused(32_000, name);
        refused(256, name);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_companion_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = folder.path().join(TOKENIZER);
    fs::create_dir(&tokenizer).unwrap();
    let error = Companions::read(None, Some(&tokenizer)).unwrap_err();
    let message = error.to_string();
    assert!(message.contains(TOKENIZER) && message.contains("no regular file"));
    assert!(error.is_input_error());
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_folder_is_not_handed_on() {
    use std::os::unix::fs::symlink;

    let root = tempfile::tempdir().unwrap();
    let secret = root.path().join("secret");
    fs::write(&secret, "mine").unwrap();
    let folder = root.path().join("cache/snapshots/main");
    let blobs = root.path().join("cache/blobs");
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(&blobs).unwrap();
    fs::write(folder.join(TOKENIZER), "{}").unwrap();
    let tokenizer = folder.join(TOKENIZER);
    let read = || Companions::read(None, Some(&tokenizer));
    for name in ["merges.txt", "vocab.json", "tokenizer_config.json"] {
        let link = folder.join(name);
        symlink(&secret, &link).unwrap();
        let error = read().unwrap_err();
        let told = error.to_string();
        assert!(
            told.contains(name) && told.contains(": is a link: "),
            "{told}"
        );
        assert!(error.is_input_error());
        fs::remove_file(&link).unwrap();
        // As in the cache of Hugging Face.
        fs::write(blobs.join(name), name).unwrap();
        symlink(format!("../../blobs/{name}"), &link).unwrap();
        let files = read().unwrap().files;
        assert!(files.contains(&(name.to_owned(), name.into())));
    }
}
