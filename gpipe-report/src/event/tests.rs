//! Events as JSON: their keys, which are a contract, and times.

use std::time::Duration;

use super::*;

#[test]
fn keys_are_a_contract() {
    let step = Event::Step {
        step: 1,
        loss: 0.1 + 0.2,
        grad_norm: f64::NAN,
        lr: 1e-300,
        tokens_per_second: 3.0,
        step_seconds: 0.5,
        host_seconds: 0.4,
        cpu_seconds: None,
        bubble: 0.25,
        peak_bytes: vec![1, 2],
    };
    let line = step.to_json().unwrap();
    assert_eq!(
        line,
        r#"{"kind":"step","step":1,"loss":0.30000000000000004,"grad_norm":null,"lr":1e-300,"tokens_per_second":3.0,"step_seconds":0.5,"asking_seconds":0.4,"cpu_seconds":null,"bubble":0.25,"peak_bytes":[1,2]}"#
    );
    let read: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(read["loss"].as_f64(), Some(0.1 + 0.2));
    let plan = Event::Plan {
        cut: vec![2, 1],
        loads: vec![3, 4],
        optimum: 4,
        bubble: 0.5,
        step_seconds: None,
        peak_bytes: None,
        parameters: None,
        trained_parameters: None,
        portals: Vec::new(),
        forward_only_layers: None,
        message_bytes: None,
        basis: None,
        checkpoint_bytes: None,
        faults: Vec::new(),
    };
    assert_eq!(
        plan.to_json().unwrap(),
        r#"{"kind":"plan","cut":[2,1],"loads":[3,4],"optimum":4,"bubble":0.5,"step_seconds":null,"peak_bytes":null,"parameters":null,"trained_parameters":null}"#
    );
}

#[test]
fn an_evaluation_without_training_has_no_step() {
    let event = Event::eval(None, 0.0, 0.25, 5).to_json().unwrap();
    assert_eq!(
        event,
        r#"{"kind":"eval","step":null,"loss":0.0,"perplexity":1.0,"accuracy":0.25,"tokens":5}"#
    );
    let token = Event::Token {
        token: 65,
        text: "A\n".into(),
        log_probability: -0.5,
        prompt: 0,
    };
    assert_eq!(
        token.to_json().unwrap(),
        r#"{"kind":"token","token":65,"text":"A\n","log_probability":-0.5,"prompt":0}"#
    );
}

#[test]
fn every_event_of_a_file_has_a_time() {
    let event = Event::eval(Some(3), 0.0, 0.5, 5);
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_767_323_045_700);
    assert_eq!(
        event.to_json_at(now).unwrap(),
        r#"{"kind":"eval","step":3,"loss":0.0,"perplexity":1.0,"accuracy":0.5,"tokens":5,"time":"2026-01-02T03:04:05Z"}"#
    );
}
