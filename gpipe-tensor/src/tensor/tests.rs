//! Views, copies, and who counts which bytes.

use super::*;
use crate::testing::{bits, device, random};
use crate::{DeviceId, Host};

/// Two handles of one host.
fn two() -> [Device; 2] {
    let host = Host::new(1).unwrap();
    [0, 1].map(|_| host.device(DeviceId::Cpu).unwrap())
}

fn counts(devices: &[Device; 2]) -> [u64; 2] {
    devices.each_ref().map(Device::live_bytes)
}

#[test]
fn live_and_peak_bytes_count_buffers_once() {
    let device = device();
    let a = random(&device, [10, 100], 1);
    assert_eq!((device.live_bytes(), device.peak_bytes()), (4000, 4000));
    let shared = [a.clone(), a.reshape([1000]).unwrap(), a.rows(2..5).unwrap()];
    assert_eq!(device.live_bytes(), 4000);
    let ids = Tensor::from_u32(&device, [3], vec![1, 2, 3]).unwrap();
    assert_eq!((device.live_bytes(), ids.bytes()), (4012, 12));
    drop(ids);
    drop(a);
    assert_eq!((device.live_bytes(), device.peak_bytes()), (4000, 4012));
    drop(shared);
    assert_eq!((device.live_bytes(), device.peak_bytes()), (0, 4012));
    device.reset_peak();
    assert_eq!(device.peak_bytes(), 0);
}

#[test]
fn buffers_that_went_through_the_pool_count_like_new_ones() {
    let device = device();
    for _ in 0..3 {
        let tensor = Tensor::empty(&device, [5000]).unwrap();
        assert_eq!(device.live_bytes(), 20_000);
        drop(tensor);
        assert_eq!(device.live_bytes(), 0);
    }
    assert_eq!(device.peak_bytes(), 20_000);
}

#[test]
fn zeros_are_zeros_whatever_their_buffer_held_before() {
    let device = device();
    for n in [3, 5000] {
        drop(random(&device, [n], 1));
        assert!(
            bits(&Tensor::zeros(&device, [n]).unwrap())
                .iter()
                .all(|&v| v == 0)
        );
    }
}

#[test]
fn a_tensor_that_nothing_else_holds_moves_with_its_bytes() {
    let devices = two();
    let tensor = random(&devices[0], [6, 4], 1);
    let (place, before) = (tensor.f32s().unwrap().as_ptr(), bits(&tensor));
    let moved = tensor.receive(&devices[1]).unwrap();
    assert_eq!(moved.f32s().unwrap().as_ptr(), place);
    assert_eq!(bits(&moved), before);
    assert!(moved.device().is(&devices[1]));
    assert_eq!(counts(&devices), [0, 96]);
    assert_eq!(devices[1].peak_bytes(), 96);
    drop(moved);
    assert_eq!(counts(&devices), [0, 0]);
}

#[test]
fn a_tensor_that_something_else_holds_is_copied() {
    let devices = two();
    let kept = random(&devices[0], [6, 4], 1);
    let copy = kept.clone().receive(&devices[1]).unwrap();
    assert_ne!(copy.f32s().unwrap().as_ptr(), kept.f32s().unwrap().as_ptr());
    assert_eq!(bits(&copy), bits(&kept));
    assert_eq!(counts(&devices), [96, 96]);

    let ids = Tensor::from_u32(&devices[0], [2], vec![8, 9]).unwrap();
    let copy = ids.clone().receive(&devices[1]).unwrap();
    assert_eq!(copy.u32s().unwrap(), [8, 9]);
    assert_eq!(counts(&devices), [104, 104]);
}

#[test]
fn a_part_of_a_buffer_is_copied_so_that_the_rest_is_freed() {
    let devices = two();
    let part = random(&devices[0], [6, 4], 1).rows(1..3).unwrap();
    assert!(part.is_unique());
    assert_eq!((part.bytes(), devices[0].live_bytes()), (32, 96));
    let before = bits(&part);
    let received = part.receive(&devices[1]).unwrap();
    assert_eq!(bits(&received), before);
    assert_eq!(counts(&devices), [0, 32]);
}

#[test]
fn a_handle_receives_its_own_tensors_as_they_are() {
    let device = device();
    let tensor = random(&device, [6, 4], 1);
    let same = tensor.clone().receive(&device).unwrap();
    assert_eq!(
        same.f32s().unwrap().as_ptr(),
        tensor.f32s().unwrap().as_ptr()
    );
    assert_eq!(device.live_bytes(), 96);
}

#[test]
fn rows_are_views_of_the_outermost_extent() {
    let device = device();
    let values: Vec<f32> = (0..24).map(|v| v as f32).collect();
    let tensor = Tensor::from_f32(&device, [4, 3, 2], values).unwrap();
    let middle = tensor.rows(1..3).unwrap();
    assert_eq!(middle.shape().dims(), [2, 3, 2]);
    assert_eq!(middle.matrix().unwrap()[[0, 0]], 6.0);
    let last = middle.rows(1..2).unwrap();
    assert_eq!(last.f32s().unwrap(), [12., 13., 14., 15., 16., 17.]);
    assert_eq!(tensor.rows(4..4).unwrap().elements(), 0);
    assert_eq!(
        random(&device, [0, 3], 1)
            .rows(0..0)
            .unwrap()
            .shape()
            .dims(),
        [0, 3]
    );
    assert_eq!(device.live_bytes(), 96);

    let message = tensor.rows(2..5).unwrap_err().to_string();
    assert_eq!(message, "rows: index 5 is outside of 0..4");
    let backwards = Range { start: 3, end: 2 };
    assert!(matches!(
        tensor.rows(backwards),
        Err(Error::Argument { .. })
    ));
    assert!(matches!(middle.rows(1..3), Err(Error::Index { .. })));
}

#[test]
fn only_a_tensor_alone_on_its_buffer_changes_in_place() {
    let device = device();
    let mut tensor = random(&device, [4, 2], 1);
    let view = tensor.rows(0..1).unwrap();
    assert!(!tensor.is_unique());
    assert!(matches!(tensor.f32s_mut(), Err(Error::Shared { .. })));
    drop(view);
    tensor.f32s_mut().unwrap()[0] = 7.0;
    assert_eq!(tensor.f32s().unwrap()[0], 7.0);
}

#[test]
fn elements_have_one_type_and_one_number() {
    let device = device();
    let floats = random(&device, [2, 3], 1);
    let mut ids = Tensor::from_u32(&device, [2], vec![1, 2]).unwrap();
    assert_eq!((floats.dtype(), ids.dtype()), (DType::F32, DType::U32));
    assert!(matches!(floats.u32s(), Err(Error::DType { .. })));
    assert!(matches!(ids.f32s(), Err(Error::DType { .. })));
    assert!(matches!(ids.f32s_mut(), Err(Error::DType { .. })));
    assert_eq!(
        floats.reshape([7]).unwrap_err().to_string(),
        "reshape: 6 elements, got [7]"
    );
    let message = Tensor::from_f32(&device, [2, 2], [0.0; 3])
        .unwrap_err()
        .to_string();
    assert_eq!(message, "tensor: values for shape [2, 2], got 3 values");
    assert_eq!(format!("{ids:?}"), "Tensor(u32 [2] on cpu)");
}

#[test]
fn sizes_beyond_the_machine_are_errors_and_count_nothing() {
    let device = device();
    for shape in [[usize::MAX, 2], [usize::MAX / 8, 4]] {
        assert!(matches!(
            Tensor::empty(&device, shape),
            Err(Error::Size { .. })
        ));
    }
    let outcome = Tensor::zeros(&device, [1 << 25, 1 << 20]);
    assert!(matches!(outcome, Err(Error::OutOfMemory { bytes }) if bytes == 1 << 47));
    assert_eq!((device.live_bytes(), device.peak_bytes()), (0, 0));
}

#[test]
fn a_limit_refuses_what_would_exceed_it_and_counts_nothing() {
    let (device, other) = (device(), device());
    device.set_limit(80);
    let kept = Tensor::zeros(&device, [16]).unwrap();
    let refused = |outcome: Result<Tensor>| {
        assert!(matches!(
            outcome,
            Err(Error::Limit {
                bytes: 20,
                limit: 80
            })
        ));
        assert_eq!((device.live_bytes(), device.peak_bytes()), (64, 64));
    };
    refused(Tensor::zeros(&device, [5]));
    refused(Tensor::empty(&device, [5]));
    refused(Tensor::from_u32(&device, [5], vec![0; 5]));
    // Whether it would be copied or change hands.
    let theirs = random(&other, [5], 1);
    refused(theirs.clone().receive(&device));
    refused(theirs.receive(&device));
    assert_eq!(other.live_bytes(), 0);
    drop(Tensor::zeros(&device, [4]).expect("as much as there may be"));
    drop(kept);
    assert!(Tensor::zeros(&device, [20]).is_ok());
}

#[cfg(feature = "failing")]
#[test]
fn the_buffer_that_is_to_fail_fails_once() {
    let device = device();
    device.fail_after(2);
    let outcomes = [(); 5].map(|()| Tensor::zeros(&device, [4]).is_ok());
    assert_eq!(outcomes, [true, true, false, true, true]);
    assert!(!device.disarm());
    device.fail_after(9);
    assert!(device.disarm());
}
