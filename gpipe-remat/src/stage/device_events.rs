//! Device events around the actions of a step: a GPU runs them asynchronously, some time after they
//! were launched. A CPU runs them synchronously and records no events.

use gpipe_sched::Ran;
use gpipe_tensor::{Device, DeviceEvent};

use crate::Result;

/// Device events around the actions of a step.
#[derive(Default)]
pub(crate) struct DeviceEvents {
    /// Start event of the action that is being launched, recorded when its input flow was ready.
    begun: Option<DeviceEvent>,
    /// Start and end of each action.
    ended: Vec<(DeviceEvent, DeviceEvent)>,
    /// End of the last action.
    last: Option<DeviceEvent>,
}

impl DeviceEvents {
    /// Records the start of an action.
    pub(crate) fn begin(&mut self, device: &Device) -> Result<()> {
        self.begun = device.record_event()?;
        Ok(())
    }

    /// Records the end of the action that began, if one did.
    pub(crate) fn end(&mut self, device: &Device) -> Result<()> {
        if let Some(begun) = self.begun.take()
            && let Some(end) = device.record_event()?
        {
            self.ended.push((begun, end));
        }
        Ok(())
    }

    /// Records the end of the step: all actions were launched.
    pub(crate) fn close(&mut self, device: &Device) -> Result<()> {
        if !self.ended.is_empty() {
            self.last = device.record_event()?;
        }
        Ok(())
    }

    /// The times of the actions, known once the device is done; clears the events.
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
