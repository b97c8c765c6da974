//! Redaction: rules, the engine, and what a stream makes of it.

mod document;
mod request;
mod view;
mod window;
