//! What a layer cannot take, it refuses with its name, in its cost and in its passes alike.

use gpipe_layers::layers::{
    At, CausalAttention, Dropout, InstanceNorm, LayerNorm, Layout, Linear, MultiHeadAttention,
    Pad2d, Permute, Pool2d, RotaryQkv, TransparentWeights, Upsample2d,
};
use gpipe_layers::{AdamW, Error, Flow, Layer, Optimizer, Pending, Saved, check, make, try_params};
use gpipe_tensor::ops::{Rope, RopeScaling, Window};
use gpipe_tensor::{Tensor, Tensors};

use super::cases::{Case, Sizes, all, cx, device, one, random};

const SIZES: Sizes = Sizes {
    batch: 2,
    time: 3,
    heads: 2,
    size: 2,
    vocab: 5,
};

/// Layers that take anything.
fn takes_all(case: &Case) -> bool {
    case.layer.name() == "identity"
}

#[test]
fn a_flow_that_does_not_fit_is_an_error_of_the_layer() {
    for case in all(SIZES).into_iter().filter(|case| !takes_all(case)) {
        let name = case.layer.name();
        let other = match case.input.dtype.is_float() {
            true => Flow::u32([2, 3]),
            false => Flow::f32([2, 3, 4]),
        };
        let twice = [case.input.clone(), case.input.clone()];
        for flow in [&[][..], &[other], &twice] {
            let error = case.layer.cost(flow).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name}: ")), "{error}");
            assert!(case.layer.lingvo(flow).is_err(), "{name}");
        }
        let x = Tensors::from_iter([case.input(&device(), SIZES), case.input(&device(), SIZES)]);
        let error = case.layer.forward(&cx(SIZES.batch), x).unwrap_err();
        assert!(
            error.to_string().starts_with(&format!("{name}: ")),
            "{error}"
        );
    }
}

#[test]
fn sizes_that_do_not_fit_the_machine_are_errors() {
    for case in all(SIZES).into_iter().filter(|case| !takes_all(case)) {
        let name = case.layer.name();
        let mut flow = case.input.clone();
        flow.shape = flow.shape.with_rows(usize::MAX / 4);
        assert!(case.layer.cost(&[flow]).is_err(), "{name}");
    }
}

#[test]
fn a_layer_that_was_not_made_says_so() {
    let device = device();
    for mut case in all(SIZES) {
        let mut params = 0;
        case.layer.params(&mut |_| params += 1);
        if params == 0 {
            continue;
        }
        let x = one(case.input(&device, SIZES));
        let error = case.layer.forward(&cx(SIZES.batch), x).unwrap_err();
        assert!(matches!(error, Error::State { .. }), "{error}");
        assert!(error.to_string().contains("was not made"), "{error}");
    }
}

#[test]
fn what_another_layer_left_is_refused() {
    let device = device();
    // Some of the layers need nothing of what they saved.
    let keeps_nothing = ["kept", "identity", "nothing inside", "scale"];
    for mut case in all(SIZES) {
        case.make(&device);
        if keeps_nothing.contains(&case.layer.name()) {
            continue;
        }
        let dy = one(random(&device, &case.input.shape, "gradient"));
        let error = case.layer.input_grad(Saved::default(), dy).unwrap_err();
        assert!(matches!(error, Error::State { .. }), "{error}");
    }
    for mut case in all(SIZES) {
        case.make(&device);
        let mut params = 0;
        case.layer.params(&mut |_| params += 1);
        if params > 0 {
            let error = case.layer.weight_grad(Pending::default()).unwrap_err();
            assert!(matches!(error, Error::State { .. }), "{error}");
        }
    }
}

#[test]
fn a_token_beyond_the_vocabulary_and_a_sequence_beyond_the_context_are_errors() {
    let device = device();
    for mut case in all(SIZES) {
        if case.input.dtype.is_float() {
            continue;
        }
        case.make(&device);
        let ids = Tensor::from_u32(&device, [1, 2], vec![0, 5]).unwrap();
        let error = case.layer.forward(&cx(1), one(ids)).unwrap_err();
        assert!(
            error.to_string().contains("index 5 is outside of 0..5"),
            "{error}"
        );
        if case.layer.name() == "wte" {
            let long = Tensor::from_u32(&device, [1, 6], vec![0; 6]).unwrap();
            let error = case.layer.forward(&cx(1), one(long)).unwrap_err();
            let wanted = "wte: expected indices of shape (batch, up to 5), got u32 [1, 6]";
            assert_eq!(error.to_string(), wanted);
        }
    }
}

#[test]
fn settings_that_make_no_sense_are_errors() {
    for rate in [-0.1, 1.0, f32::NAN] {
        assert!(Dropout::new("d", rate).is_err());
        assert!(CausalAttention::new("a", 4, 2, rate).is_err());
    }
    for heads in [0, 3, 8] {
        let error = CausalAttention::new("a", 4, heads, 0.0).unwrap_err();
        assert!(
            error.to_string().contains("use a divisor of the width"),
            "{error}"
        );
    }
}

#[test]
fn what_a_pass_refuses_costs_refuse_too() {
    let wide = Window::square(2, 1, 2);
    let layers: [(Box<dyn Layer>, Flow); 5] = [
        (Box::new(Pool2d::max("m", wide)), Flow::f32([1, 4, 4, 2])),
        (
            Box::new(Pool2d::average("a", wide)),
            Flow::f32([1, 4, 4, 2]),
        ),
        (
            Box::new(Pool2d::max("e", Window::square(2, 1, 1))),
            Flow::f32([1, 0, 4, 2]),
        ),
        (
            Box::new(Dropout::of_channels("d", 0.5).unwrap()),
            Flow::f32([7]),
        ),
        (
            Box::new(At::new([0], Permute::new("p", [1, 0]))),
            Flow::f32([7]),
        ),
    ];
    for (layer, flow) in layers {
        assert!(layer.cost(&[flow]).is_err(), "{}", layer.name());
        assert_eq!(layer.handed_on(), [], "{}", layer.name());
    }
}

/// Images without channels have no bytes, however large they are.
#[test]
fn sizes_that_a_pass_refuses_costs_refuse_too() {
    const MANY: usize = 1 << 31;
    let device = device();
    let layers: [(Box<dyn Layer>, [usize; 4]); 6] = [
        (Box::new(Pad2d::new("below", [1, 0])), [1, MANY - 1, 1, 0]),
        (Box::new(Pad2d::new("right", [0, MANY])), [1, 1, 1, 0]),
        (Box::new(Pad2d::shift("up", [1, 0])), [1, 1, MANY, 0]),
        (Box::new(Pad2d::shift("far", [MANY, 0])), [1, 1, 1, 0]),
        (Box::new(Upsample2d::new("up")), [1, MANY / 2, 1, 0]),
        (Box::new(Upsample2d::new("none")), [1, 0, 1, 1]),
    ];
    for (layer, shape) in layers {
        let x = one(Tensor::zeros(&device, shape).unwrap());
        let refused = layer.forward(&cx(1), x).unwrap_err().to_string();
        let priced = layer.cost(&[Flow::f32(shape)]).unwrap_err().to_string();
        assert!(
            priced.starts_with(&format!("{}: ", layer.name())),
            "{priced}"
        );
        assert_eq!(priced, refused);
    }
}

/// The forward pass takes any groups; the gradient, which needs them, would be the first to tell.
#[test]
fn heads_that_the_projections_do_not_have_are_refused_before_a_pass() {
    let qkv = |widths: [usize; 3], groups, size| {
        let [q, k, v] = widths;
        let project = |name, width| Linear::new(name, 3, width, Layout::OutIn);
        let projections = [project("q", q), project("k", k), project("v", v)];
        let rope = Rope {
            size,
            theta: 1e4,
            scaling: RopeScaling::Unscaled,
            first: 0,
        };
        RotaryQkv::new("qkv", projections, groups, rope)
    };
    let x = [Flow::f32([1, 2, 3])];
    assert!(qkv([8, 4, 4], 2, 2).cost(&x).is_ok());
    for (widths, groups, size) in [
        ([8, 4, 4], 1, 2),
        ([8, 4, 2], 2, 2),
        ([7, 4, 4], 2, 2),
        ([9, 3, 3], 1, 3),
        ([8, 0, 0], 0, 2),
        ([8, 4, 4], 2, 0),
        ([8, 4, 4], usize::MAX, 4),
    ] {
        let priced = qkv(widths, groups, size).cost(&x).unwrap_err().to_string();
        assert!(priced.starts_with("qkv: expected heads of"), "{priced}");
    }
}

#[test]
fn angles_that_a_pass_refuses_costs_refuse_too() {
    let device = device();
    let qkv = |theta, first| {
        let project = |name| Linear::new(name, 3, 4, Layout::OutIn);
        let rope = Rope {
            size: 4,
            theta,
            scaling: RopeScaling::Unscaled,
            first,
        };
        let mut qkv = RotaryQkv::new("qkv", ["q", "k", "v"].map(project), 1, rope);
        make(&mut qkv, &device, 1).unwrap();
        qkv
    };
    let x = || Tensor::zeros(&device, [1, 2, 3]).unwrap();
    assert!(qkv(1e4, 0).cost(&[Flow::f32([1, 2, 3])]).is_ok());
    for (theta, first) in [
        (0.0, 0),
        (-1.0, 0),
        (f64::NAN, 0),
        (1e-300, 0),
        (1e4, u64::MAX),
    ] {
        let layer = qkv(theta, first);
        let refused = layer.forward(&cx(1), one(x())).unwrap_err().to_string();
        let priced = layer.cost(&[Flow::f32([1, 2, 3])]).unwrap_err().to_string();
        assert_eq!(priced, refused);
    }
}

#[test]
fn sizes_at_their_limits_are_no_panics() {
    let width = usize::MAX / 4 + 1;
    assert!(MultiHeadAttention::of_itself("m", width, 1, false).is_ok());
    assert!(TransparentWeights::new("w", 0, 0.0).is_err());
    let norm = InstanceNorm::new("n");
    let many = Flow::f32([0, usize::MAX, usize::MAX, 3]);
    assert!(norm.cost(&[many]).is_ok());
    assert_eq!(
        At::new([usize::MAX], Permute::new("p", [0])).arity(),
        usize::MAX
    );
}

#[test]
fn bytes_of_no_images_are_predicted() {
    let device = device();
    let x = one(Tensor::zeros(&device, [0, 3, 3, 4]).unwrap());
    check::bytes(&mut InstanceNorm::new("n"), &cx(0), &x).unwrap();
}

#[test]
fn decays_that_round_to_one_are_refused() {
    let adamw = AdamW {
        beta2: 0.999_999_999,
        ..AdamW::default()
    };
    let error = Optimizer::from(adamw).check().unwrap_err().to_string();
    assert_eq!(
        error,
        "beta2 is 0.999999999, which single precision rounds to 1: use a number up to 0.9999999"
    );
}

/// An error of the caller, who is not asked again.
#[test]
fn the_first_error_of_a_visit_ends_it() {
    let (mut norm, mut visited) = (LayerNorm::new("norm", 4, 1e-5), 0);
    let refused = try_params(&mut norm, |_| {
        visited += 1;
        Err(visited)
    });
    assert_eq!(refused, Err(1));
    assert_eq!(visited, 1);
}
