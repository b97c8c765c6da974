//! What each call is to be, and the mock provider's own account of what it served.

use std::collections::HashMap;

use serde_json::json;
use tokio::sync::watch;

use crate::support::upstream::{Recorded, Script, Step, openai};

/// Every request has as many bytes, so that each reserves as much.
pub const BODY_BYTES: usize = 256;
pub const MAX_TOKENS: u64 = 64;
/// Four bytes and one token, both in the vocabulary that the gateway counts with and by its prior:
/// what it counts for a call that was cut is just what the provider made.
const PIECE: &str = " the";
/// As the prior has it, so that an estimate is just what the provider says.
pub const INPUT_TOKENS: u64 = BODY_BYTES as u64 / 4;
/// Calls from this number on are of a provider whose tokens are shorter than the prior has them.
/// It always tells: else there is nothing to compare with but our own count.
pub const DENSE: u64 = 1_000_000;
pub const DENSE_INPUT_TOKENS: u64 = 3 * INPUT_TOKENS;

/// What a call has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    pub micro_usd: u64,
    pub tokens: u64,
}

/// The most that a call may cost: each byte a token of the request's.
pub const RESERVED: Cost =
    Cost { micro_usd: BODY_BYTES as u64 + 2 * MAX_TOKENS, tokens: INPUT_TOKENS + MAX_TOKENS };

impl Cost {
    /// At $1 and $2 a million tokens.
    const fn of(input_tokens: u64, output_tokens: u64) -> Self {
        Self { micro_usd: input_tokens + 2 * output_tokens, tokens: input_tokens + output_tokens }
    }
}

impl std::iter::Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), |sum, it| Self {
            micro_usd: sum.micro_usd + it.micro_usd,
            tokens: sum.tokens + it.tokens,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Whole,
    Streamed,
    /// The provider tells no usage.
    Silent,
    /// The client hangs up when all pieces have come that the provider makes until then.
    CutInTheMiddle,
    /// The client hangs up before the provider says anything.
    CutAtOnce,
}

/// What a call is to be, by its number alone.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub number: u64,
    pub way: Way,
    /// Tokens that the provider makes.
    pub pieces: u64,
    /// Which of two gateways it goes to.
    pub to_first: bool,
}

/// `SplitMix64`: the same calls in every run.
fn mixed(number: u64) -> u64 {
    let mut x = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl Plan {
    pub fn of(number: u64) -> Self {
        let random = mixed(number);
        let way = match random % 16 {
            parts if number >= DENSE && parts < 8 => Way::Whole,
            _ if number >= DENSE => Way::Streamed,
            0..5 => Way::Whole,
            5..9 => Way::Streamed,
            9..11 => Way::Silent,
            11..15 => Way::CutInTheMiddle,
            _ => Way::CutAtOnce,
        };
        let pieces = if way == Way::CutAtOnce { 0 } else { 1 + (random >> 8) % MAX_TOKENS };
        Self { number, way, pieces, to_first: (random >> 20).is_multiple_of(2) }
    }

    /// One that is cut in its middle.
    pub const fn held(number: u64) -> Self {
        Self { number, way: Way::CutInTheMiddle, pieces: 8, to_first: true }
    }

    pub fn id(&self) -> String {
        format!("{:?}-{:07}-{:02}", self.way, self.number, self.pieces)
    }

    const fn input_tokens(&self) -> u64 {
        if self.number < DENSE { INPUT_TOKENS } else { DENSE_INPUT_TOKENS }
    }

    pub fn cost(&self) -> Cost {
        Cost::of(self.input_tokens(), self.pieces)
    }

    pub fn body(&self) -> String {
        let of = |content: String| {
            json!({
                "model": "m", "max_tokens": MAX_TOKENS, "stream": self.way != Way::Whole,
                "stream_options": { "include_usage": true }, "user": self.id(),
                "messages": [{ "role": "user", "content": content }],
            })
            .to_string()
        };
        let room = BODY_BYTES - of(String::new()).len();
        of("x".repeat(room))
    }

    fn script(&self) -> Script {
        let usage = format!(
            r#"{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{}}}"#,
            self.input_tokens(),
            self.pieces,
            self.cost().tokens
        );
        let text = || (0..self.pieces).map(|_| openai::text(PIECE));
        let begun = || [openai::role()].into_iter().chain(text());
        let ended = || begun().chain([openai::finish("stop")]);
        match self.way {
            Way::Whole => {
                let length = usize::try_from(self.pieces).expect("a few");
                let body = format!(
                    r#"{{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{}"}},"finish_reason":"stop"}}],"usage":{usage}}}"#,
                    PIECE.repeat(length)
                );
                Script::body(200, "application/json", body)
            }
            Way::Streamed => {
                let usage = openai::event(&format!(
                    r#"{{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{usage}}}"#
                ));
                Script::events(ended().chain([usage, openai::done()]))
            }
            Way::Silent => Script::events(ended().chain([openai::done()])),
            Way::CutInTheMiddle => Script::events(begun()).then(Step::Stall),
            Way::CutAtOnce => Script::events(begun()).before_head(Step::Stall),
        }
    }
}

/// Every call that the provider was asked for, and what it made for it.
#[derive(Debug, Clone, Default)]
pub struct Account(watch::Sender<HashMap<String, Plan>>);

impl Account {
    /// Answers as planned, and notes it.
    pub fn answer(&self, request: &Recorded) -> Script {
        assert_eq!(request.body.len(), BODY_BYTES, "it is passed on as it was: {request:?}");
        let id = request.json()["user"].as_str().expect("its id").to_owned();
        let number = id.split('-').nth(1).and_then(|digits| digits.parse().ok());
        let number = number.expect("its number");
        let plan = Plan::of(number);
        let plan = if plan.id() == id { plan } else { Plan::held(number) };
        assert_eq!(plan.id(), id);
        self.0.send_modify(|served| {
            assert!(served.insert(id, plan).is_none(), "no call is sent twice");
        });
        plan.script()
    }

    /// Waits until the provider has seen this call.
    pub async fn until(&self, plan: &Plan) {
        let (mut served, id) = (self.0.subscribe(), plan.id());
        // The sender is this one.
        let _ = served.wait_for(|served| served.contains_key(&id)).await;
    }

    /// Waits until it has seen as many.
    pub async fn until_count(&self, count: usize) {
        let _ = self.0.subscribe().wait_for(|served| served.len() >= count).await;
    }

    pub fn all(&self) -> HashMap<String, Plan> {
        self.0.borrow().clone()
    }
}
