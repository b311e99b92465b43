//! One list of costs, cut by Lingvo's rule, by the optimum, and by hand:
//! `cargo run -p gpipe-partition --example cuts`

use gpipe_partition::{Result, balance, explicit, histogram};

fn main() -> Result<()> {
    // An embedding, eight halves of Transformer blocks, and an expensive head.
    let costs: [u64; 10] = [2, 12, 24, 12, 24, 12, 24, 12, 24, 40];
    let floats = costs.map(|cost| cost as f64);
    for (rule, cut) in [
        ("histogram", histogram(&floats, 4)?),
        ("balance", balance(&costs, 4)?),
        ("by hand", explicit(&[3, 3, 2, 2], costs.len())?),
    ] {
        println!("{rule}: {cut}\n{}\n", cut.loads(&costs)?);
    }
    Ok(())
}
