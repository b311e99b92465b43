//! What enters and leaves a stage: flows between neighbours, and tensors through portals.

use std::sync::Arc;

use gpipe_sched::Direction;
use gpipe_tensor::{Device, Tensor, Tensors};

use super::portal_table::{Key, PortalTable};
use crate::portals::{Place, Portals};
use crate::{Error, Result};

/// The entrance and the exit of one stage.
pub(crate) struct Exchange {
    stage: usize,
    device: Device,
    /// Counts the bytes in flows between stages, which are in neither stage's bytes.
    transit: Device,
    /// Whether outputs go to the loss, which has the stage's worker.
    is_last: bool,
    portals: Option<(Arc<Portals>, Arc<PortalTable>)>,
}

/// Tensors that pass a stage within the flow, by the index of their portal, which leads to another process.
/// The stage does not receive them: they still count as in transit.
pub(crate) type Aside = Vec<(usize, Tensor)>;

/// How the tensor at a place of a flow crosses a boundary of the stage.
enum Way {
    /// In the flow.
    Flow,
    /// Through a portal that begins or ends here.
    Portal(usize),
    /// Through a portal past this stage.
    Past,
    /// Past this stage, but within the flow.
    Aside(usize),
}

impl Exchange {
    /// That of a stage on `device`, which may be the last; flows count on `transit`.
    pub fn new(stage: usize, is_last: bool, device: Device, transit: Device) -> Self {
        Self {
            stage,
            device,
            transit,
            is_last,
            portals: None,
        }
    }

    /// The same with portals, through a table that all stages share.
    pub fn connect(&mut self, portals: Arc<Portals>, table: Arc<PortalTable>) {
        self.portals = Some((portals, table));
    }

    /// Drops what the stage gave in an earlier step and nobody took.
    pub fn clear(&self) {
        if let Some((_, table)) = &self.portals {
            table.clear(self.stage);
        }
    }

    /// The flow that the layers take, of what was sent and of what waits in portals: from here on, the stage's
    /// device counts its bytes. A tensor without elements stands for one that passes the stage.
    pub fn arrive(
        &self,
        direction: Direction,
        micro_batch: usize,
        sent: Tensors,
    ) -> Result<(Tensors, Aside)> {
        let Some((portals, table)) = &self.portals else {
            let receive = |tensor: Tensor| Ok(tensor.receive(&self.device)?);
            let flow = sent.into_iter().map(receive);
            return Ok((flow.collect::<Result<_>>()?, Aside::new()));
        };
        let boundary = match direction {
            Direction::Forward => self.stage,
            Direction::Backward => self.stage + 1,
        };
        let mut sent = sent.into_iter();
        let mut next = || sent.next().ok_or_else(|| self.short(micro_batch));
        let (mut flow, mut aside) = (Tensors::new(), Aside::new());
        for place in places(portals, boundary, direction) {
            let tensor = match self.way(table, place, boundary) {
                Way::Flow => next()?.receive(&self.device)?,
                Way::Portal(tensor) => {
                    let key = Key {
                        direction,
                        tensor,
                        micro_batch,
                    };
                    table.take(key)?.receive(&self.device)?
                }
                Way::Past => stand_in(&self.transit, place.is_float)?,
                Way::Aside(tensor) => {
                    aside.push((tensor, next()?));
                    stand_in(&self.transit, place.is_float)?
                }
            };
            flow.push(tensor);
        }
        flow.extend(sent);
        Ok((flow, aside))
    }

    /// The flow that is sent, without what goes through portals: from here on, its bytes count as in transit.
    pub fn depart(
        &self,
        direction: Direction,
        micro_batch: usize,
        flow: Tensors,
        mut aside: Aside,
    ) -> Result<Tensors> {
        let stays = self.is_last && direction == Direction::Forward;
        let send = |tensor: Tensor| {
            Ok(match stays {
                true => tensor.hold(&self.transit)?,
                false => tensor.send(&self.transit)?,
            })
        };
        let flow = send_doubled(flow, &self.transit)?;
        let Some((portals, table)) = &self.portals else {
            return flow.into_iter().map(send).collect();
        };
        let boundary = match direction {
            Direction::Forward => self.stage + 1,
            Direction::Backward => self.stage,
        };
        let mut flow = flow.into_iter();
        let mut sent = Tensors::new();
        for place in places(portals, boundary, direction) {
            let tensor = flow.next().ok_or_else(|| self.short(micro_batch))?;
            match self.way(table, place, boundary) {
                Way::Flow => sent.push(send(tensor)?),
                Way::Portal(portal)
                    if direction == Direction::Backward && !table.has_gradient(portal) => {}
                Way::Portal(portal) => {
                    let key = Key {
                        direction,
                        tensor: portal,
                        micro_batch,
                    };
                    table.give(key, tensor)?;
                }
                Way::Past => {}
                Way::Aside(portal) => {
                    let own = aside.iter().position(|(other, _)| *other == portal);
                    let own = own.ok_or_else(|| self.short(micro_batch))?;
                    sent.push(aside.swap_remove(own).1);
                }
            }
        }
        for tensor in flow {
            sent.push(send(tensor)?);
        }
        Ok(sent)
    }

    fn way(&self, table: &PortalTable, place: Place, boundary: usize) -> Way {
        let Some(tensor) = place.portal else {
            return Way::Flow;
        };
        let portal = table.portal(tensor);
        let begins = portal.from == self.stage && boundary == self.stage + 1;
        let ends = portal.to == self.stage && boundary == self.stage;
        match (begins || ends, table.rides(tensor)) {
            (true, false) => Way::Portal(tensor),
            (true, true) => Way::Flow,
            (false, false) => Way::Past,
            (false, true) => Way::Aside(tensor),
        }
    }

    fn short(&self, micro_batch: usize) -> Error {
        Error::Assembly(format!(
            "the flow of micro-batch {micro_batch} at stage {} has fewer tensors than the costs of its layers say",
            self.stage
        ))
    }
}

/// Sends tensors of which the flow has several, such as both outputs of a `Fork`: their buffer counts as in transit
/// once. One by one, none could leave the count of a GPU, as the others hold its buffer.
fn send_doubled(mut flow: Tensors, transit: &Device) -> Result<Tensors> {
    for first in 0..flow.len() {
        let same = |place: &usize| *place > first && flow[*place].is_same(&flow[first]);
        let others: Vec<usize> = (0..flow.len()).filter(same).collect();
        if others.is_empty() || flow[first].device().is(transit) {
            continue;
        }
        for &place in &others {
            flow[place] = stand_in(transit, true)?;
        }
        let sent = std::mem::replace(&mut flow[first], stand_in(transit, true)?).send(transit)?;
        for place in others {
            flow[place] = sent.clone();
        }
        flow[first] = sent;
    }
    Ok(flow)
}

/// The places of a boundary; of a flow of gradients, those of floats.
fn places(
    portals: &Portals,
    boundary: usize,
    direction: Direction,
) -> impl Iterator<Item = Place> + '_ {
    let places = portals.boundary(boundary).iter().copied();
    places.filter(move |place| direction == Direction::Forward || place.is_float)
}

/// A tensor without elements. `device` is a handle of the processor.
pub(crate) fn stand_in(device: &Device, is_float: bool) -> Result<Tensor> {
    Ok(match is_float {
        true => Tensor::empty(device, [0])?,
        false => Tensor::from_u32(device, [0], Vec::new())?,
    })
}
