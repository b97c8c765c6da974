//! Redaction: rules, the engine, and what a stream makes of it.

mod answer;
mod stream;
mod window;
