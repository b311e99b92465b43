//! Pools against their definition, and against finite differences.

use super::*;
use crate::testing::{
    assert_close, assert_same_bits_for_any_threads, device, f64s, numeric_gradient, random,
};

const CASES: [([usize; 4], Window); 7] = [
    ([2, 4, 6, 3], Window::square(2, 2, 0)),
    ([2, 5, 5, 2], Window::square(3, 2, 1)),
    ([1, 7, 6, 1], Window::square(3, 1, 1)),
    ([1, 7, 6, 33], Window::square(2, 3, 1)),
    (
        [2, 4, 3, 5],
        Window {
            kernel: [4, 3],
            stride: [1, 1],
            padding: [0, 0],
        },
    ),
    (
        [1, 5, 4, 2],
        Window {
            kernel: [1, 2],
            stride: [2, 1],
            padding: [0, 1],
        },
    ),
    ([1, 3, 3, 2], Window::square(1, 2, 0)),
];

/// The values of each window, output by output.
fn windows(x: &[f64], shape: [usize; 4], window: &Window) -> Vec<Vec<f64>> {
    let [samples, height, width, channels] = shape;
    let [h, w] = window.output([height, width]).unwrap();
    let mut all = Vec::new();
    for sample in 0..samples {
        for (p, q, c) in
            (0..h * w * channels).map(|i| (i / channels / w, i / channels % w, i % channels))
        {
            let mut values = Vec::new();
            for k in 0..window.kernel[0] {
                for l in 0..window.kernel[1] {
                    let row = (p * window.stride[0] + k).checked_sub(window.padding[0]);
                    let column = (q * window.stride[1] + l).checked_sub(window.padding[1]);
                    if let (Some(row), Some(column)) = (row, column)
                        && row < height
                        && column < width
                    {
                        values.push(x[((sample * height + row) * width + column) * channels + c]);
                    }
                }
            }
            all.push(values);
        }
    }
    all
}

fn max(x: &[f64], shape: [usize; 4], window: &Window) -> Vec<f64> {
    let windows = windows(x, shape, window).into_iter();
    windows
        .map(|values| values.into_iter().fold(f64::NEG_INFINITY, f64::max))
        .collect()
}

fn mean(x: &[f64], shape: [usize; 4], window: &Window) -> Vec<f64> {
    let windows = windows(x, shape, window).into_iter();
    windows
        .map(|values| values.iter().sum::<f64>() / values.len() as f64)
        .collect()
}

#[test]
fn results_equal_the_definition() {
    let device = device();
    for (shape, window) in CASES {
        let x = random(&device, shape, 1);
        assert_close(
            &max_pool2d(&x, &window).unwrap(),
            &max(&f64s(&x), shape, &window),
            0.0,
        );
        assert_close(
            &avg_pool2d(&x, &window).unwrap(),
            &mean(&f64s(&x), shape, &window),
            1e-6,
        );
    }
}

#[test]
fn gradients_equal_finite_differences() {
    let device = device();
    for (shape, window) in CASES {
        let x = random(&device, shape, 1);
        let y = max_pool2d(&x, &window).unwrap();
        let dy = random(&device, y.shape().clone(), 2);
        let weights = f64s(&dy);
        let inner = |y: Vec<f64>| y.iter().zip(&weights).map(|(y, w)| y * w).sum::<f64>();
        let wanted = numeric_gradient(&f64s(&x), |x| inner(max(x, shape, &window)));
        assert_close(&max_pool2d_grad(&x, &dy, &window).unwrap(), &wanted, 1e-5);
        let wanted = numeric_gradient(&f64s(&x), |x| inner(mean(x, shape, &window)));
        assert_close(
            &avg_pool2d_grad(&dy, x.shape(), &window).unwrap(),
            &wanted,
            1e-5,
        );
    }
}

#[test]
fn of_equal_values_the_first_gets_the_gradient() {
    let device = device();
    let x = Tensor::from_f32(
        &device,
        [1, 2, 4, 1],
        [3.0, 3.0, 0.0, -1.0, 3.0, 1.0, 0.0, -0.0],
    )
    .unwrap();
    let dy = Tensor::from_f32(&device, [1, 1, 2, 1], [5.0, 7.0]).unwrap();
    let dx = max_pool2d_grad(&x, &dy, &Window::square(2, 2, 0)).unwrap();
    assert_eq!(dx.f32s().unwrap(), [5.0, 0.0, 7.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn what_is_not_a_number_shows() {
    let device = device();
    for place in 0..4 {
        let mut values = [1.0, 2.0, 3.0, 4.0];
        values[place] = f32::NAN;
        let x = Tensor::from_f32(&device, [1, 2, 2, 1], values).unwrap();
        let window = Window::square(2, 2, 0);
        assert!(max_pool2d(&x, &window).unwrap().f32s().unwrap()[0].is_nan());
        let dy = Tensor::from_f32(&device, [1, 1, 1, 1], [1.0]).unwrap();
        let dx = max_pool2d_grad(&x, &dy, &window).unwrap();
        assert_eq!(dx.f32s().unwrap()[place], 1.0);
    }
}

#[test]
fn threads_do_not_change_the_bits() {
    let (shape, window) = ([2, 61, 63, 24], Window::square(3, 2, 1));
    let gradient = |device: &crate::Device, largest: bool| {
        let x = random(device, shape, 1);
        if largest {
            let dy = max_pool2d(&x, &window).unwrap();
            return max_pool2d_grad(&x, &dy, &window).unwrap();
        }
        let dy = avg_pool2d(&x, &window).unwrap();
        avg_pool2d_grad(&dy, x.shape(), &window).unwrap()
    };
    assert_same_bits_for_any_threads(|device| gradient(device, true));
    assert_same_bits_for_any_threads(|device| gradient(device, false));
}

#[test]
fn bands_of_lines_equal_one_image() {
    // An image of several bands: each window counts once, wherever bands end.
    let device = device();
    let (shape, window) = ([1, 70, 40, 32], Window::square(3, 2, 1));
    let x = random(&device, shape, 1);
    let y = max_pool2d(&x, &window).unwrap();
    let dy = Tensor::from_f32(&device, y.shape().clone(), vec![1.0; y.elements()]).unwrap();
    let dx = max_pool2d_grad(&x, &dy, &window).unwrap();
    assert_eq!(crate::ops::sum(&dx).unwrap(), y.elements() as f64);
}

#[test]
fn a_stride_beyond_the_image_leaves_one_window() {
    let device = device();
    let x = random(&device, [2, 5, 4, 3], 1);
    let gradients = |stride| {
        let window = Window::square(2, stride, 0);
        let y = max_pool2d(&x, &window).unwrap();
        assert_eq!(y.shape().dims(), [2, 1, 1, 3]);
        crate::testing::bits(&max_pool2d_grad(&x, &y, &window).unwrap())
    };
    assert_eq!(gradients(usize::MAX), gradients(9));
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let device = device();
    let x = random(&device, [1, 4, 4, 2], 1);
    let error = max_pool2d(&x, &Window::square(2, 2, 2))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("use a padding of at most half of it"),
        "{error}"
    );
    assert!(avg_pool2d(&x, &Window::square(9, 1, 0)).is_err());
    assert!(max_pool2d(&random(&device, [4, 8], 1), &Window::square(2, 2, 0)).is_err());
    let window = Window::square(2, 2, 0);
    for (shape, window) in [
        ([1, 0, 4, 2], Window::square(2, 2, 1)),
        ([0, 1 << 30, 1 << 30, 1 << 20], window),
        ([0, 1 << 16, 1 << 16, 1], window),
    ] {
        let x = Tensor::zeros(&device, shape).unwrap();
        assert!(max_pool2d(&x, &window).is_err(), "{shape:?}");
        assert!(avg_pool2d(&x, &window).is_err(), "{shape:?}");
    }
    assert!(max_pool2d_grad(&x, &x, &window).is_err());
    assert!(avg_pool2d_grad(&x, x.shape(), &window).is_err());
}
