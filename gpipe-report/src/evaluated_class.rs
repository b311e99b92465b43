//! What an evaluation finds of a class.

use serde::Serialize;

/// What a model predicts for the targets of a class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EvaluatedClass {
    /// Number, from 0.
    pub class: usize,
    /// Name, or the number for a model without names.
    pub name: String,
    /// Targets of the class.
    pub targets: u64,
    /// Those of them that are predicted to be of it.
    pub correct: u64,
    /// Targets of any class that are predicted to be of it.
    pub predicted: u64,
    /// Classes that its other targets are predicted to be of, the most frequent first.
    pub taken_for: Vec<TakenFor>,
}

impl EvaluatedClass {
    /// The share of the targets of the class that are predicted to be of it; none without targets.
    pub fn recall(&self) -> Option<f64> {
        share(self.correct, self.targets)
    }

    /// The share of the targets predicted to be of the class that are of it; none where there are none.
    pub fn precision(&self) -> Option<f64> {
        share(self.correct, self.predicted)
    }

    /// The share of the targets that are of the class and predicted to be among those that are either (Jaccard's index); none
    /// where there are none.
    pub fn intersection_over_union(&self) -> Option<f64> {
        share(self.correct, self.targets + self.predicted - self.correct)
    }

    /// Twice the targets that are of the class and predicted to be, divided by the sum of both counts (Dice's coefficient, the
    /// F1 score); none where there are none.
    pub fn dice(&self) -> Option<f64> {
        share(2 * self.correct, self.targets + self.predicted)
    }
}

/// Another class that targets are predicted to be of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TakenFor {
    /// Number, from 0.
    pub class: usize,
    /// Name, or the number for a model without names.
    pub name: String,
    /// Targets.
    pub targets: u64,
}

fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_targets_predictions_and_either() {
        let mut class = EvaluatedClass {
            class: 1,
            name: "cat".into(),
            targets: 8,
            correct: 6,
            predicted: 12,
            taken_for: Vec::new(),
        };
        assert_eq!(class.recall(), Some(0.75));
        assert_eq!(class.precision(), Some(0.5));
        assert_eq!(class.intersection_over_union(), Some(6.0 / 14.0));
        assert_eq!(class.dice(), Some(0.6));
        (class.targets, class.correct) = (0, 0);
        assert_eq!((class.recall(), class.precision()), (None, Some(0.0)));
        class.predicted = 0;
        assert_eq!(class.precision(), None);
        assert_eq!(class.intersection_over_union(), None);
        assert_eq!(class.dice(), None);
    }
}
