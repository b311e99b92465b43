//! Weights in several files: the index leads to files beside it, and nowhere else.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use gpipe_layers::models::ModelConfig;
use gpipe_tensor::{Tensor, safetensors};

use super::{Params, model, open, params, refusal, same, written};
use crate::{CONFIG, Companions, INDEX, index, to_files};

/// The tensors in two files and an index, which `change` may falsify.
fn sharded(change: impl Fn(&Path)) -> (ModelConfig, Params, TempDir) {
    let model = model();
    let params = params(&model);
    let folder = written(&to_files(&model, &params, &Companions::default()).unwrap()[..1]);
    let (left, right) = params.split_at(7);
    let mut map = serde_json::Map::new();
    for (file, part) in [("a.safetensors", left), ("b.safetensors", right)] {
        fs::write(
            folder.path().join(file),
            safetensors::save(part, &[]).unwrap(),
        )
        .unwrap();
        map.extend(part.iter().map(|(name, _)| (name.clone(), file.into())));
    }
    let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
    fs::write(folder.path().join(INDEX), index.to_string()).unwrap();
    change(folder.path());
    (model, params, folder)
}

#[test]
fn a_sampled_digest_tells_weights_apart_and_not_their_files() {
    let (model, mut params, folder) = sharded(|_| {});
    let digest = |folder: &Path| {
        let shapes = crate::parameter_shapes(&mut model.layers().unwrap());
        let weights = crate::Weights::open(folder, &shapes).unwrap();
        weights.sampled_digest().unwrap()
    };
    let single = |params: &Params| {
        let folder = written(&to_files(&model, params, &Companions::default()).unwrap());
        digest(folder.path())
    };
    let expected = digest(folder.path());
    assert_eq!((expected.len(), single(&params)), (64, expected.clone()));
    for place in 0..params.len() {
        let (_, value) = &mut params[place];
        let before = value.clone();
        let mut values = value.to_f32s().unwrap();
        *values.last_mut().unwrap() += 1.0;
        *value = Tensor::from_f32(value.device(), value.shape().clone(), values).unwrap();
        assert_ne!(single(&params), expected, "{}", params[place].0);
        params[place].1 = before;
    }
}

#[test]
fn an_index_leads_to_its_files_and_nowhere_else() {
    let (model, params, folder) = sharded(|_| {});
    same(&open(folder.path(), &model).unwrap(), &params);

    let refused = |change: &dyn Fn(&Path)| {
        let (model, _, folder) = sharded(change);
        refusal(folder.path(), &model)
    };
    let index = |from: &str, to: &str| {
        let (from, to) = (from.to_owned(), to.to_owned());
        move |folder: &Path| {
            let path = folder.join(INDEX);
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(&from));
            fs::write(path, text.replace(&from, &to)).unwrap();
        }
    };
    for path in [
        "../b.safetensors",
        "/etc/b.safetensors",
        "./b.safetensors",
        "x/b.safetensors",
        "b.bin",
        "..",
        "",
    ] {
        let message = refused(&index("b.safetensors", path));
        assert!(
            message.contains("only files beside it"),
            "{path}: {message}"
        );
    }
    assert!(refused(&index("b.safetensors", "c.safetensors")).contains("c.safetensors"));
    let message = refused(&index("transformer.wte.weight", "wte"));
    assert!(
        message.contains("`wte` is not in a.safetensors"),
        "{message}"
    );
    let message = refused(&index(",\"transformer.wte.weight\":\"a.safetensors\"", ""));
    assert!(
        message.contains("`transformer.wte.weight` in a.safetensors is not listed"),
        "{message}"
    );
    let twice = refused(&index(
        "{\"transformer",
        "{\"transformer.wte.weight\":\"b.safetensors\",\"transformer",
    ));
    assert!(twice.contains("twice"), "{twice}");
    let folder_as_shard = |folder: &Path| {
        fs::remove_file(folder.join("b.safetensors")).unwrap();
        fs::create_dir(folder.join("b.safetensors")).unwrap();
    };
    assert!(refused(&folder_as_shard).contains("no regular file"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        let linked = |to: &'static str| {
            move |folder: &Path| {
                fs::remove_file(folder.join("b.safetensors")).unwrap();
                symlink(to, folder.join("b.safetensors")).unwrap();
            }
        };
        assert!(refused(&linked("/dev/zero")).contains("is a link"));
        assert!(refused(&linked("b.safetensors")).contains("b.safetensors"));
        // As in the cache of Hugging Face.
        let cache = tempfile::tempdir().unwrap();
        let snapshot = cache.path().join("snapshots/main");
        fs::create_dir_all(&snapshot).unwrap();
        fs::rename(folder.path(), cache.path().join("blobs")).unwrap();
        for name in [CONFIG, INDEX, "a.safetensors", "b.safetensors"] {
            symlink(format!("../../blobs/{name}"), snapshot.join(name)).unwrap();
        }
        same(&open(&snapshot, &model).unwrap(), &params);
    }
}

#[test]
fn a_hostile_index_is_refused() {
    let deep = format!("{{\"weight_map\":{}", "{\"a\":".repeat(100_000));
    let files = [
        "",
        "/",
        "..",
        "../x.safetensors",
        "/x.safetensors",
        "a/x.safetensors",
        "a\\\\x.safetensors",
        "c:x.safetensors",
        ".safetensors",
        "x.bin",
        "x.safetensors/",
        "x.safetensors\\n",
        "x\\u0000.safetensors",
        "\\u001b[2Jx.safetensors",
    ];
    let mapped = files.map(|file| format!("{{\"weight_map\":{{\"a\":\"{file}\"}}}}"));
    let whole = [
        "",
        "{",
        "{}",
        "[]",
        "null",
        "{\"weight_map\":[]}",
        "{\"weight_map\":null}",
        "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":null}}",
        "{\"weight_map\":{},\"weight_map\":{}}",
        "{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"y.safetensors\"}}",
        "{\"weight_map\":{}} x",
        &deep,
    ];
    for text in mapped.iter().map(String::as_str).chain(whole) {
        let fault = index::parse(text.as_bytes()).expect_err(&text[..text.len().min(80)]);
        assert!(fault.len() < 600, "{fault}");
    }
    let good = "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\"}}";
    assert_eq!(index::parse(good.as_bytes()).unwrap().weight_map.len(), 1);
}
