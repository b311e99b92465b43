//! What scripts read is what `reference/json.md` says: every kind, every key, every type.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use super::models::on_recorded;
use super::{gpipe, objects, parse, predictions, small};

/// A plan with portals.
const UNET: &str = "plan --model unet:1,4 --data synthetic --image-size 64 --batch-size 4 \
                    --stages 5 --json";
const PAGE: &str = include_str!("../../reference/json.md");

/// The documented keys of every kind with the type of their values.
fn documented() -> BTreeMap<&'static str, BTreeMap<&'static str, &'static str>> {
    let mut kinds: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let mut kind = "";
    for line in PAGE.lines() {
        if let Some(name) = line.strip_prefix("## `") {
            kind = name.trim_end_matches('`');
        } else if let Some(row) = line.strip_prefix("| `") {
            let mut cells = row.split(" | ");
            let key = cells.next().unwrap().trim_end_matches('`');
            let types = cells.next().expect("every key has a type");
            let before = kinds.entry(kind).or_default().insert(key, types);
            assert_eq!(before, None, "{kind}.{key} is documented twice");
        }
    }
    kinds
}

fn is_of(value: &Value, types: &str) -> bool {
    types
        .split(" or null")
        .flat_map(|types| types.split(" or absent"))
        .enumerate()
        .any(|(place, name)| match (place, name) {
            (0, "integer") => value.is_u64(),
            (0, "number") => value.is_f64(),
            (0, "text") => value.is_string(),
            (0, "true or false") => value.is_boolean(),
            (0, "list of texts") => value
                .as_array()
                .is_some_and(|list| list.iter().all(Value::is_string)),
            (0, "list of integers") => value
                .as_array()
                .is_some_and(|list| list.iter().all(Value::is_u64)),
            (0, "list of objects") => value
                .as_array()
                .is_some_and(|list| list.iter().all(Value::is_object)),
            (1, "") => value.is_null(),
            _ => panic!("`{types}` is no type of this test"),
        })
}

#[test]
fn every_object_has_exactly_the_documented_keys() {
    let folder = tempfile::tempdir().unwrap();
    let train = [
        "--steps",
        "2",
        "--eval-every",
        "1",
        "--json",
        "--out",
        "run",
    ];
    let printed = [
        small(folder.path(), "train", &train),
        gpipe(
            folder.path(),
            &["train", "--resume", "run", "--steps", "3", "--json"],
        ),
        small(folder.path(), "plan", &["--json"]),
        small(folder.path(), "plan", &["--profile", "--json"]),
        gpipe(folder.path(), &UNET.split(' ').collect::<Vec<_>>()),
        small(folder.path(), "verify", &["--steps", "1", "--json"]),
        gpipe(
            folder.path(),
            &["plan", "--costs", "1,2,3", "--stages", "2", "--json"],
        ),
        gpipe(
            folder.path(),
            &["plan", "--costs", "1,2,3", "--auto", "--json"],
        ),
        gpipe(
            folder.path(),
            &["plan", "--costs", "1,2,3", "--compare", "--json"],
        ),
        gpipe(folder.path(), &["devices", "--json"]),
        gpipe(folder.path(), &["check", "run", "--json"]),
        gpipe(folder.path(), &["report", "run", "--json"]),
        on_recorded("eval", &["--json"]),
        on_recorded("sample", &["--tokens", "2", "--json"]),
    ];
    let predicted = tempfile::tempdir().unwrap();
    let predicted = predictions::printed(predicted.path());
    let printed = printed.iter().chain(&predicted);
    let mut found: Vec<Value> = printed.flat_map(objects).collect();
    let diverges = [
        "--steps",
        "3",
        "--lr",
        "1e30",
        "--clip-norm",
        "0",
        "--warmup-steps",
        "0",
        "--json",
    ];
    let failed = small(
        folder.path(),
        "train",
        &[&diverges[..], &["--out", "failed"]].concat(),
    );
    found.extend(parse(&String::from_utf8(failed.stdout).unwrap()));
    let mut events = parse(&fs::read_to_string(folder.path().join("run/events.jsonl")).unwrap());
    for event in &mut events {
        let time = event.as_object_mut().unwrap().remove("time");
        assert!(time.is_some_and(|time| time.as_str().unwrap().ends_with('Z')));
    }
    found.extend(events);

    let documented = documented();
    let mut kinds = BTreeSet::new();
    for object in &found {
        let object = object.as_object().unwrap();
        let kind = object["kind"].as_str().unwrap();
        let keys = documented
            .get(kind)
            .unwrap_or_else(|| panic!("the page does not know the kind {kind}"));
        let has =
            |key: &str, types: &str| !types.ends_with(" or absent") || object.contains_key(key);
        let named = keys.iter().filter(|(key, types)| has(key, types));
        let named: BTreeSet<&str> = named.map(|(key, _)| *key).chain(["kind"]).collect();
        let got: BTreeSet<&str> = object.keys().map(String::as_str).collect();
        assert_eq!(got, named, "keys of {kind}");
        for (key, types) in keys.iter().filter(|(key, _)| named.contains(*key)) {
            assert!(
                is_of(&object[*key], types),
                "{kind}.{key} is {}, not {types}",
                object[*key]
            );
        }
        kinds.insert(kind);
    }
    // Ranks and their links are listed over ranks alone, where ranks.rs looks at them.
    let promised = documented.keys().copied();
    let promised: BTreeSet<&str> = promised
        .filter(|kind| !["rank", "link"].contains(kind))
        .collect();
    assert_eq!(
        kinds, promised,
        "kinds that were printed, and kinds in the page"
    );
}
