//! Redaction: rules, the engine, and what a stream makes of it.

mod window;
