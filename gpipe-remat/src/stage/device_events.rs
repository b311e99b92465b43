//! Device events around the actions of a step: a GPU runs them asynchronously, some time after they
//! were launched. A CPU runs them synchronously and records no events.

use gpipe_sched::Ran;
use gpipe_tensor::{Device, DeviceEvent};

use crate::Result;

/// Device events around the actions of a step.
#[derive(Default)]
pub(crate) struct DeviceEvents {
    /// Of the action that is being asked for, where its flow was there.
    begun: Option<DeviceEvent>,
    /// The beginning and the end of each action.
    ended: Vec<(DeviceEvent, DeviceEvent)>,
    /// Where all of them were over.
    last: Option<DeviceEvent>,
}

impl DeviceEvents {
    /// An action begins.
    pub(crate) fn begin(&mut self, device: &Device) -> Result<()> {
        self.begun = device.record_event()?;
        Ok(())
    }

    /// The action that began, if one did, was asked for to its end.
    pub(crate) fn end(&mut self, device: &Device) -> Result<()> {
        if let Some(begun) = self.begun.take()
            && let Some(end) = device.record_event()?
        {
            self.ended.push((begun, end));
        }
        Ok(())
    }

    /// All actions of the step were asked for.
    pub(crate) fn close(&mut self, device: &Device) -> Result<()> {
        if !self.ended.is_empty() {
            self.last = device.record_event()?;
        }
        Ok(())
    }

    /// When each action ran, which is known once the device is done; leaves nothing marked.
    pub(crate) fn take(&mut self) -> Result<Vec<Ran>> {
        let Self { ended, last, .. } = std::mem::take(self);
        let Some(last) = last else {
            return Ok(Vec::new());
        };
        let ran = ended.iter().map(|(begun, end)| {
            Ok(Ran {
                start: begun.seconds_until(&last)?,
                end: end.seconds_until(&last)?,
            })
        });
        ran.collect()
    }
}
