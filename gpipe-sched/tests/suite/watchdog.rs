//! A stage that never comes back: the step ends all the same, and says who waits for whom.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpipe_sched::{Doing, Empty, MicroBatch, Pipeline, PipelineError, Stage, one_f_one_b};

/// Stage 1 waits in its first forward pass until the test lets it go.
struct Sleeper {
    index: usize,
    bed: Arc<Mutex<Receiver<()>>>,
}

impl Stage for Sleeper {
    type Flow = ();
    type Error = Infallible;

    fn begin(&mut self, _step: u64) -> Result<(), Infallible> {
        Ok(())
    }

    fn forward(&mut self, m: &MicroBatch, _x: ()) -> Result<(), Infallible> {
        if self.index == 1 && m.index == 1 && m.step == 1 {
            // Dropping the other end wakes it too.
            let _ = self.bed.lock().unwrap().recv();
        }
        Ok(())
    }

    fn input_grad(&mut self, _m: &MicroBatch, _dy: ()) -> Result<Option<()>, Infallible> {
        Ok(Some(()))
    }

    fn weight_grad(&mut self, _m: &MicroBatch) -> Result<(), Infallible> {
        Ok(())
    }
}

fn pipeline() -> (Pipeline<Sleeper, Empty>, Sender<()>) {
    let (wake, bed) = channel();
    let bed = Arc::new(Mutex::new(bed));
    let make_stage = move |index| {
        let bed = bed.clone();
        Ok::<_, Infallible>(Sleeper { index, bed })
    };
    let schedule = one_f_one_b(3, 4).unwrap();
    let made = Pipeline::build(schedule, make_stage, || Ok::<_, Infallible>(Empty));
    (made.unwrap(), wake)
}

#[test]
fn a_step_that_hangs_ends_and_says_who_waits_for_whom() {
    let (mut pipeline, _wake) = pipeline();
    pipeline.set_deadline(Some(Duration::from_secs(5)));
    pipeline.step(Empty::batch(4, 0)).unwrap();
    pipeline.set_deadline(Some(Duration::from_millis(200)));
    let error = pipeline.step(Empty::batch(4, 1)).unwrap_err();
    let PipelineError::Overdue { seconds, stuck } = &error else {
        panic!("{error}");
    };
    assert!(*seconds >= 0.2);
    let doing: Vec<(usize, Doing)> = stuck
        .iter()
        .map(|stuck| (stuck.device, stuck.doing))
        .collect();
    let action = |text: &str| text.parse().unwrap();
    assert_eq!(
        doing,
        [
            (1, Doing::Acting(action("1F1"))),
            (
                0,
                Doing::Waiting {
                    action: action("0B0"),
                    from: Some(1)
                }
            ),
            (
                2,
                Doing::Waiting {
                    action: action("2F1"),
                    from: Some(1)
                }
            ),
        ]
    );
    let text = error.to_string();
    for part in [
        "device 1 runs 1F1; device 0 waits before 0B0 for gradients of micro-batch 0 for stage 0 \
         from stage 1",
        "device 2 waits before 2F1 for activations of micro-batch 1 for stage 2 from stage 1",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // The worker that is left behind is not waited for, not even to drop the pipeline.
    assert!(matches!(
        pipeline.step(Empty::batch(4, 2)),
        Err(PipelineError::Gone { device: 1 })
    ));
    let visited = pipeline.each(|_, _| Ok::<_, Infallible>(()));
    assert!(matches!(visited, Err(PipelineError::Gone { device: 1 })));
}

#[test]
fn a_worker_that_comes_back_late_is_not_left_behind() {
    let (mut pipeline, wake) = pipeline();
    pipeline.set_deadline(Some(Duration::from_millis(100)));
    // Awake before the answer is missed for good: the pipeline stays usable.
    let helper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(wake);
    });
    let error = pipeline.step(Empty::batch(4, 1)).unwrap_err();
    helper.join().unwrap();
    assert!(matches!(error, PipelineError::Overdue { .. }), "{error}");
    pipeline.set_deadline(None);
    pipeline.step(Empty::batch(4, 2)).unwrap();
}
