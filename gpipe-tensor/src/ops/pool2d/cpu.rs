//! Loops over the pixels of pools.

use super::plan::Plan;
use crate::simd::vectorised;
use std::ops::Range;

/// Channels whose largest values are looked for together: as many as two vectors of 16 hold.
const GROUP: usize = 32;

/// The outputs whose windows hold a pixel, of those that are there.
fn covering(plan: &Plan, axis: usize, pixel: usize) -> Range<usize> {
    let (kernel, stride) = (plan.window.kernel[axis], plan.window.stride[axis]);
    let padded = pixel + plan.window.padding[axis];
    let first = (padded + 1).saturating_sub(kernel).div_ceil(stride);
    first..(padded / stride + 1).min(plan.output[axis])
}

/// The pixels of an output's window that lie in the image.
fn window(plan: &Plan, axis: usize, output: usize) -> Range<usize> {
    let begin = output * plan.window.stride[axis];
    let padding = plan.window.padding[axis];
    let end = begin + plan.window.kernel[axis];
    let inside = |at: usize| at.saturating_sub(padding).min(plan.input.size[axis]);
    inside(begin)..inside(end)
}

/// Runs `visit` on each pixel's channels in a window of one image, in scan order.
#[inline(always)]
fn for_pixels(
    image: &[f32],
    plan: &Plan,
    lines: Range<usize>,
    columns: &Range<usize>,
    mut visit: impl FnMut(&[f32]),
) {
    let channels = plan.input.channels;
    for line in lines {
        let at = (line * plan.input.size[1] + columns.start) * channels;
        image[at..][..columns.len() * channels]
            .chunks_exact(channels)
            .for_each(&mut visit);
    }
}

/// Fills one line of outputs with the largest values of their windows.
pub(super) fn max(plan: &Plan, image: &[f32], line: usize, y: &mut [f32]) {
    vectorised!({
        let lines = window(plan, 0, line);
        for (column, y) in y.chunks_exact_mut(plan.input.channels).enumerate() {
            let columns = window(plan, 1, column);
            y.fill(f32::NEG_INFINITY);
            for_pixels(
                image,
                plan,
                lines.clone(),
                &columns,
                #[inline(always)]
                |x| {
                    for (y, x) in y.iter_mut().zip(x) {
                        *y = if is_larger(*x, *y) { *x } else { *y };
                    }
                },
            );
        }
    });
}

/// Whether a later value takes the place of the largest so far: what is not a number does, so that it shows.
#[inline(always)]
fn is_larger(later: f32, largest: f32) -> bool {
    (later > largest || later.is_nan()) && !largest.is_nan()
}

/// Adds to some lines of one image's gradient what the windows over them pass to their first largest value.
pub(super) fn max_grad(
    plan: &Plan,
    image: &[f32],
    dy: &[f32],
    lines: Range<usize>,
    dx: &mut [f32],
) {
    let (channels, width) = (plan.input.channels, plan.input.size[1]);
    let outputs = covering(plan, 0, lines.start).start..covering(plan, 0, lines.end - 1).end;
    vectorised!({
        for output in outputs.clone() {
            for column in 0..plan.output[1] {
                let (rows, columns) = (window(plan, 0, output), window(plan, 1, column));
                let dy = &dy[(output * plan.output[1] + column) * channels..][..channels];
                for first in (0..channels).step_by(GROUP) {
                    let count = GROUP.min(channels - first);
                    let mut largest = [f32::NEG_INFINITY; GROUP];
                    let mut place = [0_u32; GROUP];
                    let mut pixel = 0_u32;
                    for_pixels(
                        image,
                        plan,
                        rows.clone(),
                        &columns,
                        #[inline(always)]
                        |x| {
                            let x = &x[first..][..count];
                            for ((x, largest), place) in x.iter().zip(&mut largest).zip(&mut place)
                            {
                                let takes = is_larger(*x, *largest);
                                *place = if takes { pixel } else { *place };
                                *largest = if takes { *x } else { *largest };
                            }
                            pixel += 1;
                        },
                    );
                    let mut pixel = 0_u32;
                    for row in rows.clone() {
                        let within = lines.contains(&row);
                        for column in columns.clone() {
                            if within {
                                let at = ((row - lines.start) * width + column) * channels + first;
                                let dx = &mut dx[at..][..count];
                                let dy = &dy[first..][..count];
                                for ((dx, dy), place) in dx.iter_mut().zip(dy).zip(&place) {
                                    *dx += if *place == pixel { *dy } else { 0.0 };
                                }
                            }
                            pixel += 1;
                        }
                    }
                }
            }
        }
    });
}

/// Fills one line of outputs with the means of their windows, over the pixels that are there.
pub(super) fn average(plan: &Plan, image: &[f32], line: usize, y: &mut [f32]) {
    vectorised!({
        let lines = window(plan, 0, line);
        for (column, y) in y.chunks_exact_mut(plan.input.channels).enumerate() {
            let columns = window(plan, 1, column);
            y.fill(0.0);
            for_pixels(
                image,
                plan,
                lines.clone(),
                &columns,
                #[inline(always)]
                |x| {
                    for (y, x) in y.iter_mut().zip(x) {
                        *y += x;
                    }
                },
            );
            let count = (lines.len() * columns.len()) as f32;
            y.iter_mut().for_each(|y| *y /= count);
        }
    });
}

/// Fills one line of an image's gradient: the sum over the windows that hold a pixel of their share.
pub(super) fn average_grad(plan: &Plan, dy: &[f32], line: usize, dx: &mut [f32]) {
    let channels = plan.input.channels;
    vectorised!({
        for (column, dx) in dx.chunks_exact_mut(channels).enumerate() {
            dx.fill(0.0);
            for output in covering(plan, 0, line) {
                for output_column in covering(plan, 1, column) {
                    let rows = window(plan, 0, output).len();
                    let count = (rows * window(plan, 1, output_column).len()) as f32;
                    let at = (output * plan.output[1] + output_column) * channels;
                    for (dx, dy) in dx.iter_mut().zip(&dy[at..][..channels]) {
                        *dx += dy / count;
                    }
                }
            }
        }
    });
}
