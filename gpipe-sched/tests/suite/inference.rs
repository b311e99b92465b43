//! Stages that only infer, and a loss stage that collects outputs.

use gpipe_sched::{
    Action, CollectOutputs, InferenceError, InferenceStage, Item, MicroBatch, Op, Part, Pipeline,
    PipelineError, Place, Schedule, forward_only, gpipe, zb_h1, zb_v,
};

use crate::common::{Difference, Failure, Plan, batch};

/// `y = 10 x + stage`; refuses the input `bad` at stage 1.
struct Digit {
    stage: usize,
    bad: Option<i64>,
    begun: bool,
}

impl InferenceStage for Digit {
    type Flow = i64;
    type Error = Failure;

    fn begin(&mut self, _step: u64) -> Result<(), Failure> {
        self.begun = true;
        Ok(())
    }

    fn forward(&mut self, m: &MicroBatch, x: i64) -> Result<i64, Failure> {
        assert!(self.begun && !m.train);
        if self.stage == 1 && self.bad == Some(x) {
            return Err(Failure(Place::Build(Part::Stage(1))));
        }
        Ok(10 * x + self.stage as i64)
    }
}

fn digits(schedule: Schedule, bad: Option<i64>) -> Pipeline<Digit, CollectOutputs<i64>> {
    let make_stage = move |stage| {
        Ok::<_, Failure>(Digit {
            stage,
            bad,
            begun: false,
        })
    };
    Pipeline::build(schedule, make_stage, CollectOutputs::build).unwrap()
}

#[test]
fn outputs_come_in_the_order_of_the_inputs() {
    // Wherever the stages live, however many micro-batches the schedule has.
    for schedule in [forward_only(4, 3).unwrap(), zb_v(2, 3).unwrap()] {
        let mut pipeline = digits(schedule, None);
        for count in [1, 3, 40] {
            let inputs: Vec<i64> = (1..=count).rev().collect();
            let expected: Vec<i64> = inputs.iter().map(|x| 10_000 * x + 123).collect();
            assert_eq!(pipeline.infer(inputs).unwrap(), expected);
        }
    }
}

#[test]
fn outputs_are_taken_by_micro_batch_once() {
    let mut pipeline = digits(forward_only(2, 3).unwrap(), None);
    let item = |index: usize| Item {
        micro_batch: MicroBatch::new(index, 0..0, 7, false),
        input: index as i64,
        target: (),
    };
    let outcome = pipeline.forward((0..3).map(item).collect()).unwrap();
    assert!(outcome.losses.is_empty());
    assert_eq!(outcome.timeline.spans().len(), 6);
    let taken = pipeline.with_loss_stage(|outputs| {
        let taken = [outputs.take(1), outputs.take(1), outputs.take(3)];
        Ok::<_, Failure>((taken, outputs.take_all(), outputs.take_all()))
    });
    assert_eq!(
        taken.unwrap(),
        ([Some(101), None, None], vec![1, 201], vec![])
    );
}

#[test]
fn an_error_names_stage_and_micro_batch_and_the_next_call_works() {
    let mut pipeline = digits(forward_only(3, 1).unwrap(), Some(20));
    let error = pipeline.infer(vec![1, 2, 3]).unwrap_err();
    let action = Action::new(1, Op::Forward, 1);
    assert_eq!(error.place(), Some(Place::Action(action)));
    let PipelineError::Failed { source, .. } = &error else {
        panic!("{error}");
    };
    let source: &InferenceError<Failure> = source.downcast_ref().unwrap();
    assert!(matches!(source, InferenceError::Stage(Failure(_))));
    // What the failed call left behind is not handed out.
    assert_eq!(pipeline.infer(vec![5]).unwrap(), [5012]);
    assert!(matches!(
        pipeline.infer(vec![]),
        Err(PipelineError::Batch(_))
    ));
}

/// y = x
struct Same;

impl InferenceStage for Same {
    type Flow = i64;
    type Error = Failure;

    fn forward(&mut self, _m: &MicroBatch, x: i64) -> Result<i64, Failure> {
        Ok(x)
    }
}

#[test]
fn a_training_schedule_is_told_who_has_no_gradient() {
    let cases = [
        (gpipe(3, 2).unwrap(), "backward (2B0)"),
        (zb_h1(3, 2).unwrap(), "input gradient (2I0)"),
    ];
    for (schedule, what) in cases {
        let make_stage = |_| Ok::<_, Failure>(Same);
        let make_loss_stage = || Ok::<_, Failure>(Difference::new(Plan::default()));
        let mut pipeline = Pipeline::build(schedule, make_stage, make_loss_stage).unwrap();
        let error = pipeline.step(batch(0, 2, true)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "stage 2, micro-batch 0, {what}: only infers, so there is no gradient: run forward \
                 passes only, or implement `Stage`"
            )
        );
    }
}

#[test]
fn collecting_outputs_is_no_loss() {
    let make_stage = |_| Ok::<_, Failure>(Same);
    let mut pipeline =
        Pipeline::build(gpipe(1, 1).unwrap(), make_stage, CollectOutputs::build).unwrap();
    let item = Item {
        micro_batch: MicroBatch::new(0, 0..1, 0, true),
        input: 0,
        target: (),
    };
    let error = pipeline.step(vec![item]).unwrap_err();
    assert_eq!(error.place(), Some(Place::Loss { micro_batch: 0 }));
    assert!(error.to_string().contains("only infers"), "{error}");
}
