//! Convolutions against sums written out, and against finite differences.

use super::*;
use crate::testing::{
    assert_close, assert_same_bits_for_any_threads, device, f64s, numeric_gradient, random,
};

/// A convolution: input shape, outputs, groups, window.
type Case = ([usize; 4], usize, usize, Window);

const fn window(kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Window {
    Window {
        kernel,
        stride,
        padding,
    }
}

fn cases() -> Vec<Case> {
    vec![
        ([2, 4, 5, 3], 4, 1, Window::square(3, 1, 1)),
        ([1, 5, 5, 1], 2, 1, Window::square(3, 1, 0)),
        ([2, 5, 4, 2], 3, 1, Window::square(1, 1, 0)),
        ([2, 5, 4, 2], 3, 1, Window::square(1, 2, 0)),
        ([2, 6, 7, 2], 3, 1, Window::square(3, 2, 1)),
        ([1, 9, 8, 3], 2, 1, Window::square(7, 2, 3)),
        ([1, 7, 7, 2], 2, 1, Window::square(2, 3, 0)),
        ([2, 4, 6, 2], 2, 1, window([1, 3], [1, 2], [0, 1])),
        ([2, 6, 4, 2], 2, 1, window([3, 1], [2, 1], [1, 0])),
        ([2, 4, 4, 4], 6, 2, Window::square(3, 1, 1)),
        ([1, 5, 5, 3], 3, 3, Window::square(3, 2, 1)),
        ([1, 2, 2, 1], 1, 1, Window::square(3, 1, 2)),
        ([1, 3, 3, 2], 1, 1, Window::square(3, 5, 1)),
    ]
}

/// The convolution as the sum of its definition.
fn plain(x: &[f64], weight: &[f64], bias: &[f64], case: &Case) -> Vec<f64> {
    let ([samples, height, width, channels], outputs, groups, window) = *case;
    let [h, w] = window.output([height, width]).unwrap();
    let (inputs, outputs_a_group) = (channels / groups, outputs / groups);
    let [kernel, kernel_width] = window.kernel;
    let mut y = Vec::new();
    for n in 0..samples {
        for (p, q) in (0..h).flat_map(|p| (0..w).map(move |q| (p, q))) {
            for (j, bias) in bias.iter().enumerate() {
                let mut sum = *bias;
                for (k, l) in (0..kernel).flat_map(|k| (0..kernel_width).map(move |l| (k, l))) {
                    let row = (p * window.stride[0] + k).checked_sub(window.padding[0]);
                    let column = (q * window.stride[1] + l).checked_sub(window.padding[1]);
                    let (Some(row), Some(column)) = (row, column) else {
                        continue;
                    };
                    if row >= height || column >= width {
                        continue;
                    }
                    for c in 0..inputs {
                        let from = ((n * height + row) * width + column) * channels;
                        let channel = j / outputs_a_group * inputs + c;
                        let tap = ((j * kernel + k) * kernel_width + l) * inputs + c;
                        sum += x[from + channel] * weight[tap];
                    }
                }
                y.push(sum);
            }
        }
    }
    y
}

fn operands(device: &crate::Device, case: &Case) -> [Tensor; 3] {
    let (input, outputs, groups, window) = *case;
    let [height, width] = window.kernel;
    [
        random(device, input, 1),
        random(device, [outputs, height, width, input[3] / groups], 2),
        random(device, [outputs], 3),
    ]
}

#[test]
fn results_equal_the_definition() {
    let device = device();
    for case in cases() {
        let [x, weight, bias] = operands(&device, &case);
        let y = conv2d(&x, &weight, Some(&bias), &case.3).unwrap();
        let wanted = plain(&f64s(&x), &f64s(&weight), &f64s(&bias), &case);
        assert_close(&y, &wanted, 2e-6);
        let without = conv2d(&x, &weight, None, &case.3).unwrap();
        let zeros = vec![0.0; case.1];
        let wanted = plain(&f64s(&x), &f64s(&weight), &zeros, &case);
        assert_close(&without, &wanted, 2e-6);
    }
}

#[test]
fn gradients_equal_finite_differences() {
    let device = device();
    for case in cases() {
        let [x, weight, bias] = operands(&device, &case);
        let y = conv2d(&x, &weight, Some(&bias), &case.3).unwrap();
        let dy = random(&device, y.shape().clone(), 4);
        let weights = f64s(&dy);
        let inner = |y: Vec<f64>| y.iter().zip(&weights).map(|(y, w)| y * w).sum::<f64>();
        let [xs, ws, bs] = [&x, &weight, &bias].map(f64s);
        let dx = conv2d_input_grad(&dy, &weight, x.shape(), &case.3).unwrap();
        let wanted = numeric_gradient(&xs, |x| inner(plain(x, &ws, &bs, &case)));
        assert_close(&dx, &wanted, 5e-6);
        let mut dw = Tensor::zeros(&device, weight.shape().clone()).unwrap();
        for times in 1..3 {
            conv2d_weight_grad(&x, &dy, &mut dw, &case.3).unwrap();
            let wanted = numeric_gradient(&ws, |w| inner(plain(&xs, w, &bs, &case)));
            let wanted: Vec<f64> = wanted.iter().map(|w| w * f64::from(times)).collect();
            assert_close(&dw, &wanted, 1e-5);
        }
    }
}

#[test]
fn many_rows_in_blocks_equal_the_definition() {
    // More than one block of rows, forward and in both gradients.
    let case = ([3, 40, 40, 64], 16, 2, Window::square(3, 1, 1));
    let device = device();
    let [x, weight, bias] = operands(&device, &case);
    let y = conv2d(&x, &weight, Some(&bias), &case.3).unwrap();
    let wanted = plain(&f64s(&x), &f64s(&weight), &f64s(&bias), &case);
    assert_close(&y, &wanted, 2e-5);
}

#[test]
fn threads_do_not_change_the_bits() {
    for (input, outputs, stride) in [([2, 9, 9, 32], 160, 1), ([3, 62, 61, 32], 32, 2)] {
        let case = (input, outputs, 1, Window::square(3, stride, 1));
        let all = |device: &crate::Device| {
            let [x, weight, bias] = operands(device, &case);
            let y = conv2d(&x, &weight, Some(&bias), &case.3).unwrap();
            let dx = conv2d_input_grad(&y, &weight, x.shape(), &case.3).unwrap();
            let mut dw = Tensor::zeros(device, weight.shape().clone()).unwrap();
            conv2d_weight_grad(&x, &y, &mut dw, &case.3).unwrap();
            let values = [y, dx, dw].map(|tensor| tensor.to_f32s().unwrap()).concat();
            Tensor::from_f32(device, [values.len()], values).unwrap()
        };
        assert_same_bits_for_any_threads(all);
    }
}

#[test]
fn no_images_and_no_channels_are_fine() {
    let device = device();
    for (input, outputs) in [([0, 4, 4, 2], 3), ([2, 4, 4, 2], 0)] {
        let case = (input, outputs, 1, Window::square(3, 1, 1));
        let [x, weight, bias] = operands(&device, &case);
        let y = conv2d(&x, &weight, Some(&bias), &case.3).unwrap();
        assert_eq!(y.shape().dims(), [input[0], 4, 4, outputs]);
        let dx = conv2d_input_grad(&y, &weight, x.shape(), &case.3).unwrap();
        assert!(dx.f32s().unwrap().iter().all(|&x| x == 0.0));
        let mut dw = Tensor::zeros(&device, weight.shape().clone()).unwrap();
        conv2d_weight_grad(&x, &y, &mut dw, &case.3).unwrap();
        assert!(dw.f32s().unwrap().iter().all(|&dw| dw == 0.0));
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let device = device();
    let window = Window::square(3, 1, 1);
    let x = random(&device, [1, 4, 4, 4], 1);
    let weight = |shape: [usize; 4]| random(&device, shape, 2);
    for shape in [
        [2, 3, 3, 3],
        [2, 3, 1, 4],
        [3, 3, 3, 2],
        [2, 3, 3, 8],
        [2, 3, 3, 0],
    ] {
        let error = conv2d(&x, &weight(shape), None, &window).unwrap_err();
        let wanted = "a weight (outputs, 3, 3, inputs a group) for 4 channels, got";
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let bias = random(&device, [3], 3);
    let error = conv2d(&x, &weight([2, 3, 3, 4]), Some(&bias), &window).unwrap_err();
    assert_eq!(error.to_string(), "conv2d: a bias of 2 elements, got [3]");
    let flat = random(&device, [4, 16], 1);
    assert!(conv2d(&flat, &weight([2, 3, 3, 4]), None, &window).is_err());
    let dy = random(&device, [1, 4, 4, 3], 4);
    let mut dw = weight([2, 3, 3, 4]);
    assert!(conv2d_input_grad(&dy, &dw, x.shape(), &window).is_err());
    assert!(conv2d_weight_grad(&x, &dy, &mut dw, &window).is_err());
    let small = random(&device, [1, 4, 4, 4], 1);
    assert!(
        conv2d(
            &small,
            &weight([2, 9, 9, 4]),
            None,
            &Window::square(9, 1, 1)
        )
        .is_err()
    );
}
