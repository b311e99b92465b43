//! Schedules by name: parsed, printed, built.

use gpipe_sched::{
    BuildScheduleError, Costs, CostsError, Fault, LinkCosts, ParseScheduleError, Schedule,
    ScheduleError, ScheduleKind, StageCosts, dualpipe_v, gpipe, interleaved, looped_bfs,
    one_f_one_b, v_half, v_min, zb_h1, zb_h2, zb_v, zero_bubble,
};
use proptest::prelude::*;

fn parse(text: &str) -> Result<ScheduleKind, ParseScheduleError> {
    text.parse()
}

#[test]
fn every_kind_has_a_name_and_stages_per_device() {
    let named: Vec<(String, usize)> = ScheduleKind::all()
        .map(|kind| (kind.to_string(), kind.chunks()))
        .collect();
    let expected = [
        ("gpipe", 1),
        ("1f1b", 1),
        ("interleaved:2", 2),
        ("interleaved:4", 4),
        ("looped-bfs:2", 2),
        ("looped-bfs:4", 4),
        ("zb-h1", 1),
        ("zb-h2", 1),
        ("zb-v", 2),
        ("v-half", 2),
        ("v-min", 2),
        ("dualpipe-v", 2),
    ];
    assert_eq!(named, expected.map(|(name, n)| (name.to_owned(), n)));
    let following = [None, Some(6)].map(ScheduleKind::ZeroBubble);
    assert!(following.iter().all(|kind| kind.follows_costs()));
    assert!(!ScheduleKind::all().any(ScheduleKind::follows_costs));
    for kind in ScheduleKind::all().chain(following) {
        assert_eq!(parse(&kind.to_string()), Ok(kind));
    }
    assert_eq!(parse("zero-bubble:6"), Ok(following[1]));
    assert_eq!(
        format!("{:>6}|{:<5}|", ScheduleKind::OneFOneB, ScheduleKind::ZbV),
        "  1f1b|zb-v |"
    );
}

#[test]
fn other_texts_are_refused_with_what_to_write() {
    for text in [
        "",
        "GPIPE",
        "1f1b ",
        "interleaved",
        "looped-bfs",
        "zb-h1:2",
        "gpipe:1",
        "t.csv",
    ] {
        let error = parse(text).unwrap_err();
        assert_eq!(error, ParseScheduleError::Unknown { text: text.into() });
    }
    assert_eq!(
        parse("fifo").unwrap_err().to_string(),
        "unknown schedule `fifo`: use gpipe, 1f1b, interleaved:V, looped-bfs:V, zb-h1, zb-h2, zb-v, \
         v-half, v-min, dualpipe-v, zero-bubble or zero-bubble:N"
    );
    for text in [
        "interleaved:0",
        "interleaved:",
        "looped-bfs:-1",
        "zero-bubble:65536",
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            matches!(error, ParseScheduleError::Number { .. }),
            "{error}"
        );
    }
    assert_eq!(
        parse("interleaved:0").unwrap_err().to_string(),
        "`0` stages a worker in `interleaved:0`: use a whole number from 1 to 65535"
    );
    assert_eq!(
        parse("zero-bubble:x").unwrap_err().to_string(),
        "`x` micro-batches in flight in `zero-bubble:x`: use a whole number from 1 to 65535"
    );
}

#[test]
fn a_kind_builds_what_its_function_builds() {
    type Make = fn() -> Result<Schedule, ScheduleError>;
    let cases: [(&str, Make); 12] = [
        ("gpipe", || gpipe(8, 5)),
        ("1f1b", || one_f_one_b(8, 5)),
        ("interleaved:2", || interleaved(4, 2, 5)),
        ("interleaved:4", || interleaved(2, 4, 5)),
        ("looped-bfs:2", || looped_bfs(4, 2, 5)),
        ("looped-bfs:4", || looped_bfs(2, 4, 5)),
        ("zb-h1", || zb_h1(8, 5)),
        ("zb-h2", || zb_h2(8, 5)),
        ("zb-v", || zb_v(4, 5)),
        ("v-half", || v_half(4, 5)),
        ("v-min", || v_min(4, 5)),
        ("dualpipe-v", || dualpipe_v(4, 5)),
    ];
    let costs = Costs::even(8, 1.0, 2.0);
    for (name, make) in cases {
        let kind = parse(name).unwrap();
        let expected = make().unwrap();
        assert_eq!(kind.build(8, 5, None).unwrap(), expected, "{name}");
        assert_eq!(kind.build(8, 5, Some(&costs)).unwrap(), expected, "{name}");
    }
}

#[test]
fn zero_bubble_follows_the_costs_and_starts_from_1f1b() {
    let stage = |forward| StageCosts {
        forward,
        input_grad: 2.0,
        weight_grad: 1.0,
        recompute: 0.0,
    };
    let costs = Costs::new(vec![stage(1.0), stage(3.0), stage(2.0)]);
    for (text, held) in [("zero-bubble", 3), ("zero-bubble:2", 2)] {
        let kind = parse(text).unwrap();
        assert_eq!(kind.build(3, 8, None).unwrap(), one_f_one_b(3, 8).unwrap());
        assert_eq!(
            kind.build(3, 8, Some(&costs)).unwrap(),
            zero_bubble(3, 8, &costs, |_| held).unwrap()
        );
    }
}

#[test]
fn sizes_and_costs_that_do_not_fit_are_refused() {
    let refused = |kind: ScheduleKind, stages| kind.build(stages, 4, None).unwrap_err();
    let stages = |stages, chunks| BuildScheduleError::Stages { stages, chunks };
    assert_eq!(refused(ScheduleKind::ZbV, 7), stages(7, 2));
    assert_eq!(
        refused(ScheduleKind::ZbV, 7).to_string(),
        "7 stages but 2 on each device: use 6 or 8"
    );
    assert_eq!(
        refused(ScheduleKind::Interleaved(4), 3).to_string(),
        "3 stages but 4 on each device: use 4"
    );
    let last = usize::MAX;
    assert_eq!(
        refused(ScheduleKind::Interleaved(4), last).to_string(),
        format!("{last} stages but 4 on each device: use {}", last - 3)
    );
    assert_eq!(
        refused(ScheduleKind::Interleaved(0), 4).to_string(),
        "4 stages but 0 on each device: use 1 or more on each"
    );
    for (kind, stages) in [
        (ScheduleKind::Gpipe, 0),
        (ScheduleKind::ZbV, 0),
        (ScheduleKind::ZeroBubble(None), 0),
    ] {
        let error = refused(kind, stages);
        let BuildScheduleError::Schedule(error) = &error else {
            panic!("{kind}: {error}");
        };
        assert!(
            matches!(error.fault(), Fault::Empty { .. }),
            "{kind}: {error}"
        );
    }
    let costs = Costs::even(3, 1.0, 2.0).with_links(vec![LinkCosts::default()]);
    let error = ScheduleKind::ZeroBubble(None).build(3, 4, Some(&costs));
    assert!(matches!(
        error,
        Err(BuildScheduleError::Costs(CostsError::Count { .. }))
    ));
}

proptest! {
    #[test]
    fn no_text_breaks_the_parser_and_what_parses_prints_back(
        name in "(gpipe|1f1b|interleaved|looped-bfs|zb-h1|zero-bubble|.{0,8})",
        number in "(|:|:[0-9]{1,6}|:.{0,4})",
    ) {
        if let Ok(kind) = parse(&format!("{name}{number}")) {
            prop_assert_eq!(parse(&kind.to_string()), Ok(kind));
        }
    }
}
