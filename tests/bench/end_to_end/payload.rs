//! What is asked and what the mock upstream answers.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The path that is called, at every target.
pub const PATH: &str = "/v1/chat/completions";

/// Tokens of a stream in a burst.
pub const BURST_TOKENS: u64 = 64;

/// The pause between two tokens of a paced stream.
pub const PACE_MS: u64 = 10;

/// The whole answer's text; its arrival shows that the answer is the upstream's.
pub const ANSWER: &str = "A token bucket fills at a steady rate up to its depth, and each call \
    takes from it what it is about to spend. A call that finds too little is turned away at once \
    and told when to come back, so a burst is paid for out of what was saved before it, and over \
    any length of time no more is admitted than the depth and the rate allow.";

/// How the mock upstream answers; asked for by the model's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// One JSON body.
    Whole,
    /// A stream, as fast as it can be written.
    Burst,
    /// A stream of a token each [`PACE_MS`].
    Paced,
    /// A stream that stops after its first token and stays open.
    Idle,
}

impl Answer {
    pub const ALL: [Self; 4] = [Self::Whole, Self::Burst, Self::Paced, Self::Idle];

    pub const fn model(self) -> &'static str {
        match self {
            Self::Whole => "bench-whole",
            Self::Burst => "bench-burst",
            Self::Paced => "bench-paced",
            Self::Idle => "bench-idle",
        }
    }

    pub fn of_model(model: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answer| answer.model() == model)
    }
}

/// One request to be sent, over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub answer: Answer,
    /// Of a stream.
    pub tokens: u64,
}

impl Ask {
    pub const WHOLE: Self = Self { answer: Answer::Whole, tokens: BURST_TOKENS };
    pub const BURST: Self = Self { answer: Answer::Burst, tokens: BURST_TOKENS };
    pub const IDLE: Self = Self { answer: Answer::Idle, tokens: BURST_TOKENS };

    pub const fn paced(tokens: u64) -> Self {
        Self { answer: Answer::Paced, tokens }
    }

    /// The events that a client that did not ask for usage must receive: the role, the tokens,
    /// the end and `[DONE]`; the role and one token of an idle stream.
    pub const fn events(self) -> u64 {
        match self.answer {
            Answer::Whole => 0,
            Answer::Burst | Answer::Paced => self.tokens + 3,
            Answer::Idle => 2,
        }
    }

    /// A chat request of some 1.5 KB, as an agent in the middle of its work sends it.
    pub fn body(self) -> Bytes {
        let body = serde_json::json!({
            "model": self.answer.model(),
            "messages": [
                { "role": "system", "content": SYSTEM },
                { "role": "user", "content": "Why did yesterday's import stop half way?" },
                { "role": "assistant", "content": FINDING },
                { "role": "user", "content": "Explain how the limit works, in three sentences." },
            ],
            "stream": self.answer != Answer::Whole,
            "max_tokens": self.tokens,
            "temperature": 0.2,
            "top_p": 0.95,
            "seed": 7,
            "user": "bench-user",
        });
        Bytes::from(body.to_string())
    }
}

const SYSTEM: &str = "You are the operations assistant of a logistics company. You answer \
    questions about imports, shipments and the services that run them. Cite the log line or the \
    metric that you rely on; say plainly when you do not know. Never guess a customer's name, an \
    address or a price. Answer in the language of the question, in full sentences, without \
    headings. If a step could change data, describe it and ask for a confirmation first; list \
    what it would touch, how long it would take and how it could be undone. Times are UTC unless \
    the question names another zone. Amounts keep their currency and their digits.";

const FINDING: &str = "The import of 03:00 stopped after 41,200 of 88,000 rows. The worker's log \
    says `429 Too Many Requests` from 03:12:07 on, with a retry-after of 48 seconds each time; \
    the worker gave up after five attempts, as its settings say. The rows that had been written \
    stayed, since each batch of 400 is committed by itself, so the import can be taken up again \
    from row 41,201 without harm.";
