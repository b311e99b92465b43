//! What an evaluation finds of each class.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gpipe_report::{EvaluatedClass, TakenFor, numbers};

use crate::config::TrainConfig;
use crate::dataset::evaluated_names;
use crate::error::Result;
use crate::printable::printable;
use crate::text_table::table;

/// The most classes of a table.
const SHOWN: usize = 20;

/// The number of the pixels that are in a mask, as a class; 0 is that of those outside.
const INSIDE: usize = 1;

/// The classes that targets are of or are predicted to be of, by number, from the counts of targets by their class and the
/// predicted one.
///
/// # Errors
/// If the names of the classes cannot be read.
pub(crate) fn evaluated_classes(
    config: &TrainConfig,
    counts: &BTreeMap<[u32; 2], u64>,
) -> Result<Vec<EvaluatedClass>> {
    if counts.is_empty() {
        return Ok(Vec::new());
    }
    let names = match config.learns_masks() {
        true => ["outside", "inside"].map(str::to_owned).to_vec(),
        false => evaluated_names(config)?,
    };
    Ok(named_classes(&names, counts))
}

/// [`evaluated_classes`] with these names.
fn named_classes(names: &[String], counts: &BTreeMap<[u32; 2], u64>) -> Vec<EvaluatedClass> {
    let named = |class: u32| {
        let class = class as usize;
        let name = names.get(class).cloned();
        (class, name.unwrap_or_else(|| class.to_string()))
    };
    let mut classes = BTreeMap::new();
    for class in counts.keys().flatten() {
        classes.entry(*class).or_insert_with(|| {
            let (class, name) = named(*class);
            EvaluatedClass {
                class,
                name,
                targets: 0,
                correct: 0,
                predicted: 0,
                taken_for: Vec::new(),
            }
        });
    }
    for (&[target, predicted], &count) in counts {
        if let Some(class) = classes.get_mut(&predicted) {
            class.predicted += count;
        }
        let Some(class) = classes.get_mut(&target) else {
            continue;
        };
        class.targets += count;
        if target == predicted {
            class.correct += count;
        } else {
            let (class_of_it, name) = named(predicted);
            class.taken_for.push(TakenFor {
                class: class_of_it,
                name,
                targets: count,
            });
        }
    }
    let mut classes: Vec<_> = classes.into_values().collect();
    for class in &mut classes {
        class.taken_for.sort_by_key(|other| Reverse(other.targets));
    }
    classes
}

/// How well masks cover what they should: `  intersection over union 81.2 %  Dice 89.6 %`.
pub(crate) fn mask_figures(classes: &[EvaluatedClass]) -> String {
    let inside = classes.iter().find(|class| class.class == INSIDE);
    let of = |share: fn(&EvaluatedClass) -> Option<f64>| shown(inside.and_then(share));
    format!(
        "  intersection over union {}  Dice {}",
        of(EvaluatedClass::intersection_over_union),
        of(EvaluatedClass::dice)
    )
}

/// A table of the classes that have targets, by number; where they are many, of those that are recalled least.
pub(crate) fn class_table(classes: &[EvaluatedClass]) -> String {
    let mut rows: Vec<_> = classes.iter().filter(|class| class.targets > 0).collect();
    let all = rows.len();
    if all > SHOWN {
        let recall = |class: &EvaluatedClass| class.recall().unwrap_or_default();
        rows.sort_by(|a, b| recall(a).total_cmp(&recall(b)));
        rows.truncate(SHOWN);
    }
    let row = |class: &&EvaluatedClass| {
        let most = class.taken_for.first();
        let most = most.map(|other| format!("{} ({})", printable(&other.name), other.targets));
        vec![
            printable(&class.name),
            class.targets.to_string(),
            shown(class.recall()),
            shown(class.precision()),
            most.unwrap_or_default(),
        ]
    };
    let last = "most taken for";
    let heading = ["class", "images", "recall", "precision", last];
    let drawn = rows.iter().map(row).collect::<Vec<_>>();
    let drawn = table(&heading, &["class", last], &drawn);
    match all > SHOWN {
        true => format!("the {SHOWN} of {all} classes with the least recall:\n{drawn}"),
        false => drawn,
    }
}

/// A share, or a dash where it is one of nothing.
fn shown(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), numbers::per_mille)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn classes_are_those_of_targets_and_predictions() {
        let counts = [
            ([0, 0], 6),
            ([0, 1], 1),
            ([0, 3], 3),
            ([1, 1], 5),
            ([1, 0], 2),
        ];
        let classes = named_classes(&names(&["cat", "dog"]), &counts.into());
        let of = |class: &EvaluatedClass| {
            let others = class.taken_for.iter();
            let others = others
                .map(|one| (one.class, one.targets))
                .collect::<Vec<_>>();
            (
                class.class,
                class.targets,
                class.correct,
                class.predicted,
                others,
            )
        };
        assert_eq!(
            classes.iter().map(of).collect::<Vec<_>>(),
            [
                (0, 10, 6, 8, vec![(3, 3), (1, 1)]),
                (1, 7, 5, 6, vec![(0, 2)]),
                (3, 0, 0, 3, vec![]),
            ]
        );
        assert_eq!(
            class_table(&classes),
            "class  images  recall  precision  most taken for\n\
             cat        10  60.0 %     75.0 %  3 (3)\n\
             dog         7  71.4 %     83.3 %  cat (2)\n"
        );
        assert!(named_classes(&[], &BTreeMap::new()).is_empty());
    }

    #[test]
    fn a_table_of_many_classes_has_those_of_the_least_recall() {
        let counts =
            (0..30).flat_map(|class| [([class, class], 30 - u64::from(class)), ([class, 0], 1)]);
        // Class 0 is never taken for another.
        let counts = counts.filter(|(pair, count)| *pair != [0, 0] || *count > 1);
        let classes = named_classes(&[], &counts.collect());
        let table = class_table(&classes);
        let mut lines = table.lines();
        assert_eq!(
            lines.next(),
            Some("the 20 of 30 classes with the least recall:")
        );
        let shown: Vec<_> = lines
            .skip(1)
            .map(|line| line.split(' ').next().unwrap())
            .collect();
        let least: Vec<String> = (10..30).rev().map(|class: u32| class.to_string()).collect();
        assert_eq!(shown, least);
    }

    #[test]
    fn masks_have_two_classes() {
        let counts = [([0, 0], 5), ([0, 1], 2), ([1, 1], 6), ([1, 0], 2)];
        let classes = named_classes(&names(&["outside", "inside"]), &counts.into());
        assert_eq!(
            mask_figures(&classes),
            "  intersection over union 60.0 %  Dice 75.0 %"
        );
        // Nothing is in a mask, and nothing is predicted to be.
        let classes = named_classes(&[], &[([0, 0], 5)].into());
        assert_eq!(
            mask_figures(&classes),
            "  intersection over union –  Dice –"
        );
    }
}
