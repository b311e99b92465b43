//! Values as bytes: what ranks tell each other.

use crate::executor::transport::Parcel;

/// Values of a type as parcels, which one rank writes and another reads.
pub trait Codec<T>: Send + Sync {
    /// Appends a value.
    ///
    /// # Errors
    /// If the value cannot be read from its device.
    fn pack(&self, value: T, out: &mut Writer) -> Result<(), String>;

    /// Reads a value that [`pack`](Self::pack) wrote.
    ///
    /// # Errors
    /// If the bytes are not a value, or there is no room for it.
    fn unpack(&self, from: &mut Reader) -> Result<T, String>;

    /// [`pack`](Self::pack) of a flow for a worker of another rank. The worker `route.from` calls it, for one flow after
    /// the other in the order in which they arrive.
    ///
    /// # Errors
    /// As [`pack`](Self::pack).
    fn pack_flow(&self, value: T, route: Route, out: &mut Writer) -> Result<(), String> {
        let _ = route;
        self.pack(value, out)
    }

    /// Reads a flow that [`pack_flow`](Self::pack_flow) wrote on another rank. Called for every flow that arrives, also
    /// those of a call that has failed.
    ///
    /// # Errors
    /// As [`unpack`](Self::unpack).
    fn unpack_flow(&self, route: Route, from: &mut Reader) -> Result<T, String> {
        let _ = route;
        self.unpack(from)
    }
}

/// The workers between which a flow passes, by the numbers of their devices in the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The one that sends it.
    pub from: usize,
    /// The one that receives it.
    pub to: usize,
}

/// Writes a parcel. Numbers are little-endian.
#[derive(Debug, Default)]
pub struct Writer {
    parcel: Parcel,
}

impl Writer {
    /// Appends a whole number.
    pub fn number(&mut self, number: usize) {
        self.bits(number as u64);
    }

    /// Appends 64 bits.
    pub fn bits(&mut self, bits: u64) {
        self.parcel.head.extend(bits.to_le_bytes());
    }

    /// Appends a floating-point number, to the bit.
    pub fn float(&mut self, float: f64) {
        self.bits(float.to_bits());
    }

    /// Appends a text.
    pub fn text(&mut self, text: &str) {
        self.number(text.len());
        self.parcel.head.extend(text.as_bytes());
    }

    /// Appends bytes that are not copied.
    pub fn body(&mut self, body: Vec<u8>) {
        self.parcel.bodies.push(body);
    }

    /// Appends a parcel, which is [the rest](Reader::rest) of what is read.
    pub fn append(&mut self, parcel: Parcel) {
        self.parcel.head.extend(parcel.head);
        self.parcel.bodies.extend(parcel.bodies);
    }

    /// The parcel.
    pub fn finish(self) -> Parcel {
        self.parcel
    }
}

/// Reads a parcel in the order in which it was written.
#[derive(Debug)]
pub struct Reader {
    parcel: Parcel,
    at: usize,
    body: usize,
}

impl Reader {
    /// From the start of a parcel.
    pub fn new(parcel: Parcel) -> Self {
        Self {
            parcel,
            at: 0,
            body: 0,
        }
    }

    /// 64 bits.
    ///
    /// # Errors
    /// If there are none left.
    pub fn bits(&mut self) -> Result<u64, String> {
        let bytes = self.take(8)?.first_chunk().ok_or_else(short)?;
        Ok(u64::from_le_bytes(*bytes))
    }

    /// A whole number.
    ///
    /// # Errors
    /// If there is none left.
    pub fn number(&mut self) -> Result<usize, String> {
        usize::try_from(self.bits()?).map_err(|error| error.to_string())
    }

    /// A floating-point number.
    ///
    /// # Errors
    /// If there is none left.
    pub fn float(&mut self) -> Result<f64, String> {
        self.bits().map(f64::from_bits)
    }

    /// A text.
    ///
    /// # Errors
    /// If there is none.
    pub fn text(&mut self) -> Result<String, String> {
        let length = self.number()?;
        let bytes = self.take(length)?.to_vec();
        String::from_utf8(bytes).map_err(|error| error.to_string())
    }

    /// The next body.
    ///
    /// # Errors
    /// If there is none left.
    pub fn body(&mut self) -> Result<Vec<u8>, String> {
        let body = self.parcel.bodies.get_mut(self.body).ok_or_else(short)?;
        self.body += 1;
        Ok(std::mem::take(body))
    }

    /// All that is left.
    pub fn rest(mut self) -> Parcel {
        self.parcel.head.drain(..self.at);
        self.parcel.bodies.drain(..self.body);
        self.parcel
    }

    fn take(&mut self, bytes: usize) -> Result<&[u8], String> {
        let end = self.at.checked_add(bytes).ok_or_else(short)?;
        let taken = self.parcel.head.get(self.at..end).ok_or_else(short)?;
        self.at = end;
        Ok(taken)
    }
}

fn short() -> String {
    "a message is too short".to_owned()
}
