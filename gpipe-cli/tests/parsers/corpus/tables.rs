//! Tables of schedules.

use super::{Hostile, hostile};

pub fn all() -> Vec<Hostile> {
    let table = |what: &str, text: &str| hostile("schedule table", what, text, " ");
    vec![
        table("nothing", ""),
        table("rows without actions", ",,,\n,,,\n"),
        table("a stage beyond counting", "18446744073709551616F0\n"),
        table(
            "the last stage there can be",
            "18446744073709551615F0,0B0\n",
        ),
        table(
            "the last micro-batch there can be",
            "0F18446744073709551615\n",
        ),
        table(
            "four thousand million micro-batches",
            "0F4294967295,0B4294967295\n",
        ),
        table(
            "stages from a thousand million on",
            "1000000000F0\n1000000000B0\n",
        ),
        table("a backward pass first", "0B0,0F0\n"),
        table("an action twice", "0F0,0F0,0B0\n"),
        hostile("schedule table", "no backward pass", "0F0\n", ""),
        table("weights before inputs", "0F0,0W0,0I0\n"),
        table(
            "one waiting for the other",
            "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
        ),
        table("a stage in two places", "0F0,0B0\n0F1,0B1\n"),
        table("a minus", "-1F0\n"),
        table("a plus", "+1F0\n"),
        table("a fraction", "0.5F0\n"),
        table("a letter that is no action", "0X0\n"),
        table("sends", "0F0,0SEND_F0\n1RECV_F0\n"),
        table("half an overlap", "(0F0;0B0\n"),
        table("an overlap of nothing", "()OVERLAP_F_B\n"),
        table(
            "overlaps in overlaps",
            &format!("{}{}", "(".repeat(50_000), ")OVERLAP_F_B".repeat(50_000)),
        ),
        hostile("schedule table", "quotes", "\"0F0\",\"0B0\"\n", ""),
        table("semicolons between cells", "0F0;0B0\n"),
        table("tabs between cells", "0F0\t0B0\n"),
        table("a NUL", "0F0,\0\n"),
        table("a right-to-left mark", "0F0,\u{202e}0B0\n"),
        table("a million empty cells", &",".repeat(1_000_000)),
        table("a hundred thousand empty rows", &"\n".repeat(100_000)),
        table("a cell of a megabyte", &"9".repeat(1 << 20)),
        table("other digits", "٣F٣\n"),
    ]
}
