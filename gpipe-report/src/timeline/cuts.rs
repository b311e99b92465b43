//! The cuts that a model may have: the one in use, the best, and that of Lingvo's rule.

use serde::{Deserialize, Serialize};

use crate::numbers;

/// The cut of a run beside others of as many stages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cuts {
    /// The unit of the costs, such as `FLOPs`; empty if unknown.
    pub unit: String,
    /// The cut in use.
    pub used: Cut,
    /// The cut with the least expensive bottleneck.
    pub best: Cut,
    /// The cut by Lingvo's rule; `None` if it leaves a stage without a layer.
    pub lingvo: Option<Cut>,
}

/// A cut of layers into stages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The number of layers of each stage.
    pub layers: Vec<usize>,
    /// The cost of each stage.
    pub costs: Vec<u64>,
}

impl Cut {
    /// The most expensive stage, the first of several, and its cost.
    pub fn bottleneck(&self) -> (usize, u64) {
        let costs = self.costs.iter().copied().enumerate().rev();
        costs.max_by_key(|&(_, cost)| cost).unwrap_or((0, 0))
    }

    /// The layers of each stage as text: `3,2,2`; the middle of many is left out.
    pub fn sizes(&self) -> String {
        const ENDS: usize = 6;
        let text = |layers: &[usize]| -> String {
            let sizes: Vec<String> = layers.iter().map(usize::to_string).collect();
            sizes.join(",")
        };
        let layers = &self.layers;
        match layers.len() {
            all if all > 2 * ENDS + 1 => {
                let (head, tail) = (&layers[..ENDS], &layers[all - ENDS..]);
                format!("{},…,{}", text(head), text(tail))
            }
            _ => text(layers),
        }
    }
}

impl Cuts {
    /// The cuts in a unit of cost.
    pub fn new(unit: impl Into<String>, used: Cut, best: Cut, lingvo: Option<Cut>) -> Self {
        Self {
            unit: unit.into(),
            used,
            best,
            lingvo,
        }
    }

    /// A row for each cut: its name, the layers of its stages, its most expensive stage, and the
    /// excess over that of the best cut. The cut in use has a row of its own if it is none of the others.
    pub fn rows(&self) -> Vec<[String; 4]> {
        let best = self.best.bottleneck().1;
        let row = |name: &str, cut: &Cut| {
            let (stage, cost) = cut.bottleneck();
            let over = match cost == best {
                true => String::new(),
                false => format!("{} more", excess(cost, best)),
            };
            let cost = self.cost(cost);
            [
                name.to_owned(),
                cut.sizes(),
                format!("stage {stage}: {cost}"),
                over,
            ]
        };
        let name = |name: &str, cut: &Cut| match cut.layers == self.used.layers {
            true => format!("{name} (used)"),
            false => name.to_owned(),
        };
        let others = [
            ("best", Some(&self.best)),
            ("Lingvo's rule", self.lingvo.as_ref()),
        ];
        let is_other = |cut: &Cut| cut.layers == self.used.layers;
        let mut rows = Vec::new();
        if !others.iter().any(|(_, cut)| cut.is_some_and(is_other)) {
            rows.push(row("used", &self.used));
        }
        for (of, cut) in others {
            rows.extend(cut.map(|cut| row(&name(of, cut), cut)));
        }
        rows
    }

    /// The difference between Lingvo's cut and the best in one sentence.
    pub fn explanation(&self) -> String {
        let rule =
            "Lingvo's rule ends a stage before the layer that crosses its share of the total";
        let Some(lingvo) = &self.lingvo else {
            return format!("{rule}, which leaves a stage without a layer here.");
        };
        let (best, found) = (&self.best, lingvo);
        let pairs = best.layers.iter().zip(&found.layers);
        let Some((stage, (ours, theirs))) = pairs.enumerate().find(|(_, (a, b))| a != b) else {
            return format!("{rule}; here that is the best cut too.");
        };
        let ((at, cost), (_, least)) = (found.bottleneck(), best.bottleneck());
        let effect = match cost == least {
            true => "its most expensive stage costs the same".to_owned(),
            false => format!(
                "its most expensive stage, {at}, costs {} more than that of the best cut",
                excess(cost, least)
            ),
        };
        format!(
            "{rule}: stage {stage} gets {} instead of {ours}, and {effect}.",
            numbers::counted(*theirs as u64, "layer")
        )
    }

    /// A cost with its unit.
    fn cost(&self, cost: u64) -> String {
        match self.unit.as_str() {
            "" => cost.to_string(),
            unit => format!("{} {unit}", numbers::short(cost as f64)),
        }
    }
}

/// How much more `cost` is than `least`.
fn excess(cost: u64, least: u64) -> String {
    match least {
        0 => "infinitely".to_owned(),
        least => numbers::per_mille(cost as f64 / least as f64 - 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(layers: &[usize], costs: &[u64]) -> Cut {
        Cut {
            layers: layers.to_vec(),
            costs: costs.to_vec(),
        }
    }

    #[test]
    fn the_difference_is_one_sentence_with_its_stages() {
        let best = cut(&[3, 2, 2], &[50, 60, 60]);
        let lingvo = cut(&[2, 3, 2], &[40, 75, 55]);
        let cuts = Cuts::new("FLOPs", best.clone(), best.clone(), Some(lingvo));
        assert_eq!(
            cuts.explanation(),
            "Lingvo's rule ends a stage before the layer that crosses its share of the total: stage 0 gets \
             2 layers instead of 3, and its most expensive stage, 1, costs 25.0 % more than that of the \
             best cut."
        );
        let rows = cuts.rows();
        assert_eq!(rows[0], ["best (used)", "3,2,2", "stage 1: 60 FLOPs", ""]);
        assert_eq!(
            rows[1],
            ["Lingvo's rule", "2,3,2", "stage 1: 75 FLOPs", "25.0 % more"]
        );
        let same = Cuts::new("", best.clone(), best.clone(), Some(best.clone()));
        assert!(same.explanation().ends_with("the best cut too."));
        assert!(same.rows().iter().all(|row| row[0].ends_with("(used)")));
        let none = Cuts::new("", cut(&[5, 1, 1], &[9, 1, 1]), best, None);
        assert!(none.explanation().contains("without a layer"));
        assert_eq!(none.rows()[0][..2], ["used", "5,1,1"]);
    }

    #[test]
    fn a_long_cut_shows_its_ends() {
        assert_eq!(cut(&[1; 64], &[1; 64]).sizes(), "1,1,1,1,1,1,…,1,1,1,1,1,1");
    }
}
