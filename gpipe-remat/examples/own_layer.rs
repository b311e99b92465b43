//! An own layer, an own loss and a schedule from a table: `cargo run -p gpipe-remat --example own_layer`

use gpipe_layers::{AdamW, Cost, Error, Flow, Init, Kind, Layer, Memory, Optimizer, Param};
use gpipe_layers::{PassContext, Pending, Result, Saved, TensorSet, check, layers, make};
use gpipe_remat::{Assembly, Trainer, batch_items};
use gpipe_sched::Schedule;
use gpipe_tensor::{DeviceId, Host, Result as TensorResult, Tensor, Tensors, ops};

/// Root mean square normalisation (arXiv:1910.07467): a row becomes gain · x / √(mean(x²) + ε).
struct RmsNorm(Param);

fn scale(row: &[f32]) -> f32 {
    let squares: f32 = row.iter().map(|x| x * x).sum();
    (squares / row.len() as f32 + 1e-5).sqrt().recip()
}

fn normalise(x: &Tensor, gain: &[f32]) -> TensorResult<Tensor> {
    let mut y = Vec::with_capacity(x.elements());
    for x in x.f32s()?.chunks(gain.len()) {
        let scale = scale(x);
        y.extend(x.iter().zip(gain).map(|(x, gain)| gain * x * scale));
    }
    Tensor::from_f32(x.device(), x.shape().clone(), y)
}

/// The gradients of x and of the gain: dx = scale · (g − x · scale² · mean(g · x)), g = gain · dy.
fn gradients(x: &Tensor, dy: &Tensor, gain: &[f32]) -> TensorResult<[Tensor; 2]> {
    let (mut dx, mut dgain, width) = (Vec::new(), vec![0.0; gain.len()], gain.len());
    for (x, dy) in x.f32s()?.chunks(width).zip(dy.f32s()?.chunks(width)) {
        let dot: f32 = (0..width).map(|i| gain[i] * dy[i] * x[i]).sum();
        let (scale, mean) = (scale(x), dot / width as f32);
        for (i, sum) in dgain.iter_mut().enumerate() {
            dx.push(scale * (gain[i] * dy[i] - x[i] * scale * scale * mean));
            *sum += dy[i] * x[i] * scale;
        }
    }
    let dx = Tensor::from_f32(x.device(), x.shape().clone(), dx)?;
    Ok([dx, Tensor::from_f32(x.device(), [width], dgain)?])
}

impl Layer for RmsNorm {
    fn name(&self) -> &str {
        "norm"
    }

    fn cost(&self, inputs: &[Flow]) -> Result<Cost> {
        let (elements, gain) = (inputs[0].elements(), 4 * self.0.elements());
        let memory = Memory::new()
            .with_saved_inputs(TensorSet::All)
            .with_pending_own(gain)
            .with_forward_peak(4 * elements)
            .with_input_grad_peak(4 * elements + gain)
            .with_param_only_grad_peak(4 * elements + gain);
        let cost = Cost::new(inputs.to_vec()).with_flops(4 * elements, 7 * elements, 3 * elements);
        Ok(cost.with_params(self.0.elements()).with_memory(memory))
    }

    fn forward(&self, _: &PassContext, x: Tensors) -> Result<(Tensors, Saved)> {
        let gain = self.0.value()?.f32s();
        let y = gain.and_then(|gain| normalise(&x[0], gain));
        let y = y.map_err(Error::within("norm"))?;
        Ok((Tensors::from_iter([y]), Saved::new(x)))
    }

    fn input_grad(&self, mut saved: Saved, dy: Tensors) -> Result<(Tensors, Pending)> {
        let ([x], gain) = (saved.take_tensors("norm")?, self.0.value()?.f32s());
        let gradients = gain.and_then(|gain| gradients(&x, &dy[0], gain));
        let [dx, dgain] = gradients.map_err(Error::within("norm"))?;
        Ok((Tensors::from_iter([dx]), Pending::new([dgain])))
    }

    fn weight_grad(&mut self, mut pending: Pending) -> Result<()> {
        let [dgain] = pending.take_tensors("norm")?;
        ops::add_assign(self.0.grad_mut()?, &dgain).map_err(Error::within("norm"))
    }

    fn params(&mut self, visit: &mut dyn FnMut(&mut Param)) {
        visit(&mut self.0);
    }
}

/// The sum of |y − target|, and its gradient.
fn absolute_error(y: &Tensor, target: Vec<f32>) -> gpipe_remat::Result<(f64, Tensor)> {
    let off: Vec<f32> = y.f32s()?.iter().zip(target).map(|(y, t)| y - t).collect();
    let loss = off.iter().map(|off| f64::from(off.abs())).sum();
    let dy: Vec<f32> = off.into_iter().map(f32::signum).collect();
    Ok((loss, Tensor::from_f32(y.device(), y.shape().clone(), dy)?))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let host = Host::new(2)?;
    let cpu = host.device(DeviceId::Cpu)?;
    let mut norm = RmsNorm(Param::new("norm.weight", [4], Kind::Vector, Init::Ones));
    // Gradients, bytes and the split backward pass are what the layer says.
    make(&mut norm, &cpu, 1)?;
    let rows = Tensor::from_f32(&cpu, [2, 4], [0.5, -1.0, 2.0, 0.7, 1.0, 0.3, -0.2, 0.8])?;
    let rows = Tensors::from_iter([rows]);
    let cx = PassContext::training(1, 0, 0..2);
    for check in [check::gradients, check::bytes, check::split] {
        check(&mut norm, &cx, &rows)?;
    }
    let mix = layers::Linear::new("mix", 4, 1, layers::Layout::OutIn);
    let optimizer = Optimizer::from(AdamW::default());
    // 1F1B on two devices, as PyTorch writes it.
    let schedule = Schedule::from_csv("0F0,0F1,,0B0,0F2,0B1,,0B2\n,1F0,1B0,1F1,1B1,1F2,1B2\n")?;
    let run = Assembly::builder(vec![Box::new(norm), Box::new(mix)])
        .batch(48, |samples| vec![Flow::f32([samples, 4])])
        .with_schedule(schedule)
        .optimizer(&optimizer)
        .build_with_loss(&host, absolute_error)?;
    let mut trainer = Trainer::new(run, optimizer, |_| 0.05);
    let x: Vec<f32> = (0..192).map(|i| (i * i * 31 % 97) as f32 - 48.0).collect();
    let targets: Vec<f32> = x.chunks(4).map(|x| 3.0 * x[0] * scale(x)).collect();
    let x = [Tensor::from_f32(&cpu, [48, 4], x)?];
    let batch = |step| batch_items(&x, 3, step, true, |rows| Ok(targets[rows].to_vec()));
    let losses = (0..100).map(|_| Ok(trainer.step_on(batch)?.loss));
    let losses = losses.collect::<gpipe_remat::Result<Vec<f64>>>()?;
    println!("loss {:.2} at first, {:.2} at last", losses[0], losses[99]);
    Ok(())
}
