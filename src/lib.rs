//! Tollgate: a gateway between agents and what they spend.
//!
//! Agents call it as they would call a model's provider, with a short-lived JWT of their user's in
//! the place of the provider's key. It knows who calls, what they may use and how much of it,
//! takes secrets out of what leaves, and records every call before and after.
//!
//! # The house
//!
//! Each module knows of those below it and of none above; `tests/it/contract/imports.rs` holds
//! this, and which crates stay behind which module.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`cli`] | the commands of the binary: `serve`, `dev`, `check-config`, `mint-token`, `migrate`, `openapi`, `audit` |
//! | [`app`] | the one place where a configuration becomes a running gateway, and where it ends |
//! | [`http`] | the wire: `router` has every route, `layers` what each request passes and why in that order, `openai/` and `streams` the handlers, `error` the one responder, `openapi/` the document, [`http::server`] the accept loop |
//! | [`pipeline`] | the story of a call, its stages, and its one end |
//! | [`auth`] | JWTs verified, JWKS kept, claims mapped; tokens minted for development |
//! | [`budget`] | reserve before, settle after: the ledger and its buckets; who is told of a bust |
//! | [`redact`] | secrets taken out of what leaves |
//! | [`provider`] | what answers: one file a dialect, and the registry of models |
//! | [`stream`] | frames and chunks on their way to a client: the hub, the replay log, what cuts a stream off |
//! | [`audit`] | the record of every call: entries and their chain, the writer's thread, the spool, what ships from it, the sink's trait, checkpoints over the chain and their verification |
//! | [`storage`] | all SQL, behind the traits of the modules that the rows belong to |
//! | [`telemetry`] | log lines, spans, and the names they use |
//! | [`config`] | `tollgate.toml` and the environment: every error at once, and what reloads; open to all |
//! | [`offload`] | what computes for too long for an async thread; open to all |
//! | [`fail_point`] | where tests kill the gateway: nothing in a release build; open to all |
//! | [`domain`] | the words that all others speak: ids, [`domain::Caller`], [`domain::ModelCall`], [`domain::Frame`], [`domain::Kind`]; no input or output |
//!
//! # A call's way
//!
//! ```text
//! http::server       accept: bounded in number, in time and in size
//! http::layers       respond       the request's id, its span; on the way out, every refusal is
//!                                  written and audited here
//!                    shed          as many in flight as may be
//!                    per address   a limit before any work
//!                    authenticate  auth: who calls
//!                    per caller    a limit for each subject
//! http (a handler)   the body, decoded as far as it must be
//! pipeline::stage    authorize     may this caller use this model, and these tools?  → Authorized
//! ── from here on a task of its own owns the call; its client only reads along ──
//! pipeline           audit: intent, in the spool before anything leaves
//!                    budget: reserve                                                 → Reservation
//!                    redact                                                          → Redacted
//!                    route: the model's providers in order, until one answers
//!                    pump: chunk by chunk into an outlet (stream)
//! pipeline::finish   settle the budget, tell the client the end, write the terminal audit row,
//!                    end the span: once, whatever happened
//! ```
//!
//! Each stage takes the type that only the one before it can make, so none can be left out. A
//! client that hangs up, `DELETE`, the request's timeout, a panic and the end of the drain all cut
//! the story short at an await, and all come to the same end. [`pipeline`] tells it in one short
//! function, `model_call::story`.
//!
//! # Where to put something new
//!
//! - A route: a handler in [`http`] with its `utoipa::path`, a line in `http::router`, then `make
//!   openapi`. The contract's tests call it without a token and without a capability by themselves.
//! - A provider's dialect: a [`provider::Provider`] in a file of its own, and its kind in the
//!   registry.
//! - A setting: a field of its section in [`config`], its rule in `config::validate`, its line in
//!   `deploy/tollgate.toml`.
//! - An error that clients see: a row in the table of [`domain::Kind`]. Codes never change.
//! - SQL: in [`storage`], behind a trait of the module that wants it.

pub mod app;
pub mod audit;
pub mod auth;
pub mod budget;
pub mod cli;
pub mod config;
pub mod domain;
pub mod fail_point;
pub mod http;
pub mod offload;
pub mod pipeline;
pub mod provider;
pub mod redact;
pub mod storage;
pub mod stream;
pub mod telemetry;
