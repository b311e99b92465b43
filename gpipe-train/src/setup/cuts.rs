//! The cut of a run beside the best and that of Lingvo's rule.

use gpipe_layers::CostModel;
use gpipe_partition::{CutRule, Partition};
use gpipe_remat::StagePrices;
use gpipe_report::{Cut, Cuts};

use super::Setup;
use crate::config::TrainConfig;
use crate::error::{Error, Result};

/// The cut of layers of these costs beside the best cut into as many stages and that of Lingvo's rule, whose first stages
/// have `before` layers more; `unit` is that of the costs.
///
/// # Errors
/// [`Error::Input`] if there is not one cost for each layer.
pub fn cuts(unit: &str, used: &Partition, prices: &StagePrices, before: usize) -> Result<Cuts> {
    let cut = |partition: &Partition| {
        let loads = prices.loads(partition).map_err(Error::input)?;
        Ok::<_, Error>(Cut {
            layers: partition.sizes(),
            costs: loads.loads().to_vec(),
        })
    };
    let by = |rule: CutRule| prices.cut(&rule, used.parts(), before);
    let best = by(CutRule::Balance).map_err(Error::input)?;
    // The rule may leave a stage without a layer.
    let lingvo = by(CutRule::Histogram).ok();
    let lingvo = lingvo.as_ref().map(cut).transpose()?;
    Ok(Cuts::new(unit, cut(used)?, cut(&best)?, lingvo))
}

impl Setup {
    /// The cut beside others, by the configured cost model.
    ///
    /// # Errors
    /// None in practice: there is a cost for each layer.
    pub fn cuts(&self, config: &TrainConfig) -> Result<Cuts> {
        let before = self.costs.before();
        cuts(unit(config), &self.partition, &self.prices, before)
    }

    /// The quality of the cut as text.
    pub fn verdict(&self) -> String {
        let over = self.loads.over_optimum();
        let quality = match over > 1.0 {
            true => format!("{:.1} % above the best cut", 100.0 * (over - 1.0)),
            false => "no cut is better".to_owned(),
        };
        let counted = match self.prices.counts_recomputation() {
            true => ", with what it computes again",
            false => "",
        };
        format!(
            "most expensive stage: {:.2} times the mean{counted}; {quality}",
            self.loads.imbalance()
        )
    }
}

/// The unit of [`Setup::loads`]: the formulas of Lingvo count other operations than are computed.
pub fn unit(config: &TrainConfig) -> &'static str {
    match *config.pipeline.cost_model {
        CostModel::Complete => "FLOPs",
        CostModel::Lingvo => "Lingvo FLOPs",
        CostModel::Time(_) => "FLOP equivalents",
    }
}
