//! Sampling of the next token from a model's scores.

/// Settings of the sampling of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divisor of the scores: below 1, likely tokens become likelier; 0 chooses the likeliest token.
    pub temperature: f64,
    /// Number of likeliest tokens to choose from; all if `None`.
    pub top_k: Option<usize>,
    /// Share of the probability, at this temperature, that the likeliest tokens to choose from have at
    /// least, as few as there can be (nucleus sampling, arXiv:1904.09751); all if `None`.
    pub top_p: Option<f64>,
}

/// A token that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// The token.
    pub token: usize,
    /// ln of its probability, before temperature and top-k.
    pub log_probability: f64,
}

impl Sampling {
    /// The token that `draw`, uniform from 0 to below 1, chooses by these scores. Of equal scores
    /// the token of the lowest number counts as the likelier. `None` if there is no score, or one
    /// is not finite.
    pub fn choose(&self, scores: &[f32], draw: f64) -> Option<Choice> {
        if scores.iter().any(|score| !score.is_finite()) {
            return None;
        }
        let mut order: Vec<usize> = (0..scores.len()).collect();
        // The sum makes 0 of −0, which is no less.
        let score = |token: usize| scores[token] + 0.0;
        let likelier =
            |&a: &usize, &b: &usize| score(b).total_cmp(&score(a)).then_with(|| a.cmp(&b));
        let kept = match self.temperature > 0.0 {
            true => self
                .top_k
                .unwrap_or(scores.len())
                .clamp(1, scores.len().max(1)),
            false => 1,
        };
        if kept < order.len() {
            order.select_nth_unstable_by(kept, likelier);
            order.truncate(kept);
        }
        order.sort_unstable_by(likelier);
        let best = f64::from(scores[*order.first()?]);
        let weight = |&token: &usize| ((f64::from(scores[token]) - best) / self.temperature).exp();
        if let Some(top_p) = self.top_p.filter(|_| order.len() > 1) {
            let total: f64 = order.iter().map(weight).sum();
            let mut sum = 0.0;
            let enough = order.iter().position(|token| {
                sum += weight(token);
                sum >= top_p * total
            });
            order.truncate(enough.map_or(order.len(), |last| last + 1));
        }
        let token = match order[..] {
            [only] => only,
            _ => {
                let total: f64 = order.iter().map(weight).sum();
                let mut left = draw * total;
                let chosen = order.iter().find(|token| {
                    left -= weight(token);
                    left < 0.0
                });
                // A rest from rounding belongs to the last token.
                *chosen.or(order.last())?
            }
        };
        let total: f64 = scores
            .iter()
            .map(|&score| (f64::from(score) - best).exp())
            .sum();
        Some(Choice {
            token,
            log_probability: f64::from(scores[token]) - best - total.ln(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCORES: [f32; 4] = [1.0, 3.0, 3.0, -2.0];

    fn chosen(temperature: f64, top_k: Option<usize>, draw: f64) -> usize {
        let sampling = Sampling {
            temperature,
            top_k,
            top_p: None,
        };
        sampling.choose(&SCORES, draw).unwrap().token
    }

    #[test]
    fn no_temperature_takes_the_likeliest_and_of_equals_the_first() {
        assert!(
            [0.0, 0.5, 0.999]
                .iter()
                .all(|&draw| chosen(0.0, None, draw) == 1)
        );
        assert_eq!(chosen(5.0, Some(1), 0.9), 1);
        let zeros = Sampling {
            temperature: 0.0,
            top_k: None,
            top_p: None,
        };
        assert_eq!(zeros.choose(&[-0.0, 0.0], 0.0).unwrap().token, 0);
    }

    #[test]
    fn tokens_come_as_often_as_they_are_likely() {
        let draws = 10_000;
        for (temperature, top_k) in [(1.0, None), (2.0, None), (1.0, Some(2)), (0.5, Some(3))] {
            let kept = top_k.unwrap_or(4);
            let mut counts = [0.0; 4];
            for i in 0..draws {
                counts[chosen(temperature, top_k, (f64::from(i) + 0.5) / f64::from(draws))] += 1.0;
            }
            // 1, 2, 0, 3 is the order from the likeliest on.
            let weights = [1, 2, 0, 3]
                .map(|token: usize| (token, (f64::from(SCORES[token]) / temperature).exp()));
            let total: f64 = weights[..kept].iter().map(|(_, weight)| weight).sum();
            for (place, (token, weight)) in weights.into_iter().enumerate() {
                let wanted = if place < kept { weight / total } else { 0.0 };
                let share = counts[token] / f64::from(draws);
                assert!(
                    (share - wanted).abs() < 2e-4,
                    "{token}: {share} for {wanted}"
                );
            }
        }
    }

    #[test]
    fn a_nucleus_has_as_few_tokens_as_have_the_share() {
        // 1, 2, 0, 3 is the order from the likeliest on; their shares are 0.467, 0.467, 0.063, 0.003.
        let last = |top_p, top_k| {
            let sampling = Sampling {
                temperature: 1.0,
                top_k,
                top_p: Some(top_p),
            };
            sampling.choose(&SCORES, 0.999_999).unwrap().token
        };
        for (top_p, token) in [(0.0, 1), (0.46, 1), (0.47, 2), (0.95, 0), (1.0, 3)] {
            assert_eq!(last(top_p, None), token, "{top_p}");
        }
        // Of the k likeliest, the share is one of theirs.
        assert_eq!([last(0.49, Some(2)), last(0.51, Some(2))], [1, 2]);
    }

    #[test]
    fn the_probability_is_that_of_the_model() {
        let sampling = Sampling {
            temperature: 0.1,
            top_k: Some(1),
            top_p: None,
        };
        let total: f64 = SCORES.iter().map(|&score| f64::from(score).exp()).sum();
        let choice = sampling.choose(&SCORES, 0.0).unwrap();
        assert!((choice.log_probability - (3.0 - total.ln())).abs() < 1e-12);
    }

    #[test]
    fn scores_that_are_no_numbers_choose_nothing() {
        let sampling = Sampling {
            temperature: 1.0,
            top_k: None,
            top_p: None,
        };
        assert_eq!(sampling.choose(&[], 0.5), None);
        assert_eq!(sampling.choose(&[1.0, f32::NAN], 0.5), None);
        assert_eq!(sampling.choose(&[f32::INFINITY], 0.5), None);
    }
}
