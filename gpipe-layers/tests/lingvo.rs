//! Lingvo's cost formulas against values worked out by hand.

use gpipe_layers::lingvo::{self, Activation, Formula, Meta, Order, Padding, Projection};
use gpipe_layers::{Error, Result};
use gpipe_tensor::Shape;

/// Fails unless a formula gives these FLOPs and hands on one tensor of this shape.
#[track_caller]
fn check<const RANK: usize>(meta: Result<Meta>, flops: u64, shape: [usize; RANK]) {
    let expected = Meta {
        flops,
        outputs: vec![shape.into()],
    };
    assert_eq!(meta.unwrap(), expected);
}

/// What the error says.
#[track_caller]
fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_convolution_costs_two_flops_a_multiply_add() {
    // Each of H·W·o outputs takes k·k·c multiplications and as many additions (one of them the
    // bias, or the start from zero): k·k·c·H·W·o multiply-adds, twice as many FLOPs. Here k = 3,
    // c = 64, H = W = 56, o = 128.
    let multiply_adds = 231_211_008;
    let image = Shape::from([1, 56, 56, 64]);
    check(
        lingvo::conv2d(&image, [3, 3, 64, 128], [1, 1], Padding::Same),
        2 * multiply_adds,
        [1, 56, 56, 128],
    );
}

#[test]
fn strides_and_borders_of_a_convolution() {
    let image = Shape::from([2, 7, 8, 3]);
    // Same: ⌈7/2⌉ = 4, ⌈8/3⌉ = 3.  Valid: ⌈(7−5+1)/2⌉ = 2, ⌈(8−2+1)/3⌉ = 3.
    check(
        lingvo::conv2d(&image, [5, 2, 3, 4], [2, 3], Padding::Same),
        2 * 2 * 4 * 3 * 5 * 2 * 3 * 4,
        [2, 4, 3, 4],
    );
    check(
        lingvo::conv2d(&image, [5, 2, 3, 4], [2, 3], Padding::Valid),
        2 * 2 * 2 * 3 * 5 * 2 * 3 * 4,
        [2, 2, 3, 4],
    );
    assert_eq!(
        message(lingvo::conv2d(&image, [3, 3, 4, 4], [1, 1], Padding::Same)),
        "conv2d: expected 4 channels, got [2, 7, 8, 3]"
    );
    let too_large = message(lingvo::conv2d(&image, [8, 1, 3, 4], [1, 1], Padding::Valid));
    assert!(too_large.starts_with("conv2d: a filter of 8 with stride 1 has no place on 7 pixels"));
    assert!(lingvo::conv2d(&image, [1, 1, 3, 4], [0, 1], Padding::Same).is_err());
    assert!(lingvo::conv2d(&Shape::from([7, 8, 3]), [1, 1, 3, 4], [1, 1], Padding::Same).is_err());
}

#[test]
fn layers_that_charge_each_element() {
    let x = Shape::from([2, 3, 4]); // 24 elements
    check(lingvo::batch_norm(&x), 240, [2, 3, 4]);
    check(lingvo::group_norm(&x), 240, [2, 3, 4]);
    check(lingvo::layer_norm(&x), 240, [2, 3, 4]);
    check(lingvo::dropout(&x), 240, [2, 3, 4]);
    check(lingvo::per_dim_scale(&x), 120, [2, 3, 4]);
    check(lingvo::bias(&x), 24, [2, 3, 4]);
    check(lingvo::residual_add(&x), 48, [2, 3, 4]);
    check(lingvo::stochastic_residual(&x), 144, [2, 3, 4]);
    let y = Shape::from([30]);
    check(lingvo::memory_add(&x, &y), 48, [30]);
    check(lingvo::padding(&x, &y), 60, [2, 3, 4]);
    check(lingvo::padding(&x, &Shape::from([2, 3])), 48, [2, 3, 4]);
}

#[test]
fn every_activation_has_its_price() {
    let table = [
        (Activation::None, 0),
        (Activation::Relu, 1),
        (Activation::Relu6, 1),
        (Activation::LeakyRelu, 5),
        (Activation::Sigmoid, 4),
        (Activation::Tanh, 7),
        (Activation::Gelu, 15),
        (Activation::GeluRaw, 15),
        (Activation::GeluApproximate, 6),
        (Activation::Swish, 5),
        (Activation::Softplus, 3),
        (Activation::SquaredRelu, 2),
        (Activation::Glu, 5),
        (Activation::BilinearGlu, 1),
        (Activation::ReluGlu, 2),
        (Activation::GeluGlu, 16),
        (Activation::SwishGlu, 6),
    ];
    for (activation, flops) in table {
        assert_eq!(activation.flops().unwrap(), flops, "{activation:?}");
        check(
            lingvo::activation(&[10, 2].into(), activation),
            20 * flops,
            [10, 2],
        );
    }
    assert_eq!(
        message(lingvo::activation(&[10, 2].into(), Activation::Silu)),
        "lingvo has no cost for the activation silu: use swish, the same function"
    );
}

#[test]
fn projections() {
    let x = Shape::from([2, 5, 3]); // 10 rows of 3
    check(lingvo::linear(&x, 7), 2 * 30 * 7, [2, 5, 7]);
    let plain = Projection {
        outputs: 7,
        activation: Activation::Tanh,
        bias: false,
        batch_norm: false,
        weight_norm: false,
    };
    // 10 rows: products 2·10·3·7 = 420, tanh 10·7·7 = 490.
    check(lingvo::projection(&x, &plain), 910, [2, 5, 7]);
    // The bias once: 7. Batch norm 10·10·7 = 700. Weight norm 2·3 + 2·3·7 + 2 = 50.
    let bias = Projection {
        bias: true,
        ..plain
    };
    check(lingvo::projection(&x, &bias), 917, [2, 5, 7]);
    let batch_norm = Projection {
        batch_norm: true,
        ..plain
    };
    check(lingvo::projection(&x, &batch_norm), 1610, [2, 5, 7]);
    let weight_norm = Projection {
        weight_norm: true,
        ..plain
    };
    check(lingvo::projection(&x, &weight_norm), 960, [2, 5, 7]);
    // A gate doubles the inner width to 14, but its own cost is by the output: 2·10·3·14 = 840,
    // GLU 10·7·5 = 350, bias 14, batch norm 1400, weight norm 6 + 84 + 2 = 92.
    let gated = Projection {
        outputs: 7,
        activation: Activation::Glu,
        bias: true,
        batch_norm: true,
        weight_norm: true,
    };
    check(lingvo::projection(&x, &gated), 2696, [2, 5, 7]);
    // 7 → 2 without activation: 2·10·7·2 = 280.
    let last = Projection {
        outputs: 2,
        activation: Activation::None,
        ..plain
    };
    check(
        lingvo::feed_forward(&x, &[plain, last]),
        910 + 280,
        [2, 5, 2],
    );
    check(lingvo::feed_forward(&x, &[]), 0, [2, 5, 3]);
    // Hyperplanes 2·30·4·6 = 1440, powers 2·10·4·6 = 480, reduction 10·4·7 = 280.
    check(lingvo::lsh_memory(&x, 4, 6, 7), 2200, [2, 5, 7]);
    // 5·30·8 + 5·10·2·8 = 1200 + 800.
    check(lingvo::gating_network(&x, 8, 2), 2000, [2, 5, 2]);
}

#[test]
fn sequences_and_attention() {
    // oc = 4·2·3 = 24; 5·2·9·1·5·24.
    check(
        lingvo::depthwise_conv(&[2, 9, 1, 4].into(), [5, 1, 4, 2], 3),
        10_800,
        [2, 9, 1, 24],
    );
    assert!(lingvo::depthwise_conv(&[2, 9, 2, 4].into(), [5, 1, 4, 2], 3).is_err());
    // b 2, t 3, s 5, d 4: 15·2·3·5·4 + 4·(2·3·16 + 2·5·16) = 1800 + 4·256.
    let attention = lingvo::multi_headed_attention(&[2, 3, 4].into(), 5, 2).unwrap();
    assert_eq!(attention.flops, 2824);
    assert_eq!(
        attention.outputs,
        [Shape::from([2, 3, 4]), Shape::from([2, 2, 3, 5])]
    );

    let x = Shape::from([2, 9, 4]);
    check(lingvo::stride_pooling(&x, 1, 2, None), 1, [2, 5, 4]);
    check(lingvo::stride_pooling(&x, 1, 2, Some(4)), 1, [2, 2, 4]);
    check(lingvo::stride_pooling(&x, 2, 0, Some(3)), 1, [2, 9, 1]);
    assert!(lingvo::stride_pooling(&x, 0, 2, None).is_err());
    assert!(lingvo::stride_pooling(&x, 3, 2, None).is_err());
    assert!(lingvo::stride_pooling(&x, 1, 2, Some(0)).is_err());
    assert!(lingvo::stride_pooling(&x, 1, 2, Some(10)).is_err());
}

#[test]
fn gpipe_layers_have_the_prices_that_mislead() {
    // T 7, B 2, D 3: 5·49·2·3.
    check(
        lingvo::transformer_layer(&[7, 2, 3].into(), Order::TimeMajor),
        1470,
        [7, 2, 3],
    );
    check(
        lingvo::transformer_layer(&[2, 7, 3].into(), Order::BatchMajor),
        1470,
        [2, 7, 3],
    );
    check(
        lingvo::transformer_softmax(&[2, 7, 3].into(), 50_000),
        100,
        [2, 7, 50_000],
    );
    check(
        lingvo::transformer_embedding(&[2, 7].into(), 100, 3),
        8400,
        [2, 7, 3],
    );
    // The paper's model: the embedding weighs as 12.5 layers, where it does next to nothing.
    let ids = Shape::from([32, 1024]);
    let embedding = lingvo::transformer_embedding(&ids, 32_000, 2048).unwrap();
    let layer = lingvo::transformer_layer(&embedding.outputs[0], Order::BatchMajor).unwrap();
    assert_eq!(embedding.flops as f64 / layer.flops as f64, 12.5);
}

#[test]
fn layers_that_hold_layers() {
    let x = [Shape::from([4, 3])];
    let widen: &Formula = &|x| lingvo::linear(&x[0], 6); // from 3: 144, from 6: 288
    let norm: &Formula = &|x| lingvo::layer_norm(&x[0]); // of 4·6: 240
    check(
        lingvo::sequential(&x, &[widen, norm], 2),
        144 + 240 + 288 + 240,
        [4, 6],
    );
    check(lingvo::sequential(&x, &[widen], 0), 0, [4, 3]);
    // Repeat takes the shapes to stay, whatever the body does.
    check(lingvo::repeat(&x, widen, 5), 720, [4, 3]);
    // On each of 4 slices of shape [3]: 2·3·6 = 36.
    check(lingvo::parallel_repeat(&x, widen, 4), 144, [4, 6]);
    assert!(lingvo::parallel_repeat(&[Shape::default()], widen, 4).is_err());

    let add = |outputs: &[Vec<Shape>]| {
        assert_eq!(outputs.len(), 2);
        lingvo::residual_add(&outputs[0][0])
    };
    check(
        lingvo::parallel(&x, &[widen, widen], add),
        2 * 144 + 48,
        [4, 6],
    );

    let two = [Shape::from([1]), Shape::from([2])];
    assert_eq!(lingvo::free(&two).outputs, two);
    assert_eq!(lingvo::free(&two).flops, 0);
    assert_eq!(lingvo::first_n(&two, 1).outputs, two[..1]);
    assert_eq!(lingvo::first_n(&two, 0).outputs, two[..1]);
    assert_eq!(lingvo::first_n(&two, 9).outputs, two);
}

#[test]
fn counts_that_do_not_fit_are_refused() {
    let huge = Shape::from([1 << 31, 1 << 31]);
    for result in [
        lingvo::layer_norm(&huge),
        lingvo::linear(&huge, 4),
        lingvo::transformer_embedding(&huge, 2, 2),
        lingvo::batch_norm(&[usize::MAX, 2].into()),
        lingvo::repeat(
            &[[1, 1].into()],
            &|x| lingvo::bias(&x[0].with_rows(1 << 40)),
            1 << 40,
        ),
    ] {
        assert!(
            matches!(&result, Err(Error::Config(text)) if text.contains("does not fit 64 bits")),
            "{result:?}"
        );
    }
    // A product with a zero in it fits, however large the rest.
    check(lingvo::linear(&huge, 0), 0, [1 << 31, 0]);
}
