//! An event stream parser written straight from the text of WHATWG HTML §9.2.5 and §9.2.6, a byte
//! at a time: slow and plain. The client reads with it, and the decoder is held against it.

/// What a browser would do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    Event(ServerSentEvent),
    /// The text after the colon.
    Comment(Vec<u8>),
    /// The reconnection time was set, in milliseconds.
    Retry(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSentEvent {
    /// `message` if the stream gave none.
    pub event: String,
    pub data: Vec<u8>,
    pub last_event_id: String,
}

impl ServerSentEvent {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.data).expect("the data is UTF-8")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.data)
            .unwrap_or_else(|error| panic!("the data is no JSON: {error}: {}", self.text()))
    }
}

#[derive(Debug, Default)]
pub struct EventStream {
    /// Bytes that may turn out to be the byte order mark.
    maybe_bom: Vec<u8>,
    past_bom: bool,
    last_was_cr: bool,
    line: Vec<u8>,
    data: Vec<u8>,
    event_type: Vec<u8>,
    last_event_id: Vec<u8>,
}

impl EventStream {
    /// The items of a whole stream.
    pub fn parse(bytes: &[u8]) -> Vec<Item> {
        let mut stream = Self::default();
        bytes.iter().flat_map(|byte| stream.push(*byte)).collect()
    }

    pub fn push(&mut self, byte: u8) -> Vec<Item> {
        if self.past_bom {
            return self.push_decoded(byte).into_iter().collect();
        }
        self.maybe_bom.push(byte);
        let bom = "\u{FEFF}".as_bytes();
        if self.maybe_bom == bom {
            self.past_bom = true;
            self.maybe_bom.clear();
        } else if !bom.starts_with(&self.maybe_bom) {
            self.past_bom = true;
            let waiting = std::mem::take(&mut self.maybe_bom);
            return waiting.into_iter().filter_map(|byte| self.push_decoded(byte)).collect();
        }
        Vec::new()
    }

    fn push_decoded(&mut self, byte: u8) -> Option<Item> {
        let after_cr = std::mem::replace(&mut self.last_was_cr, byte == b'\r');
        match byte {
            b'\n' if after_cr => None,
            b'\n' | b'\r' => {
                let line = std::mem::take(&mut self.line);
                self.process_line(&line)
            }
            _ => {
                self.line.push(byte);
                None
            }
        }
    }

    fn process_line(&mut self, line: &[u8]) -> Option<Item> {
        if line.is_empty() {
            return self.dispatch();
        }
        match line.iter().position(|byte| *byte == b':') {
            Some(0) => Some(Item::Comment(line[1..].to_vec())),
            Some(colon) => {
                let value = &line[colon + 1..];
                self.process_field(&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => self.process_field(line, b""),
        }
    }

    fn process_field(&mut self, name: &[u8], value: &[u8]) -> Option<Item> {
        match name {
            b"event" => self.event_type = value.to_vec(),
            b"data" => {
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            b"id" if !value.contains(&0) => self.last_event_id = value.to_vec(),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                return std::str::from_utf8(value).ok()?.parse().ok().map(Item::Retry);
            }
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<Item> {
        let event_type = std::mem::take(&mut self.event_type);
        let mut data = std::mem::take(&mut self.data);
        // The specification's last check: an empty buffer dispatches nothing.
        data.pop()?;
        let event = if event_type.is_empty() { b"message".to_vec() } else { event_type };
        Some(Item::Event(ServerSentEvent {
            event: String::from_utf8_lossy(&event).into_owned(),
            data,
            last_event_id: String::from_utf8_lossy(&self.last_event_id).into_owned(),
        }))
    }
}
