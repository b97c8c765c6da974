//! The one integration test binary.

#[cfg(test)]
mod sse;
#[cfg(test)]
mod support;
#[cfg(test)]
mod support_test;
