//! Waiting for what can't be waited for.

use std::time::Duration;

use tokio::time::Instant;

/// Waits until something is so, by looking again and again; panics when it takes too long.
pub async fn eventually(patience: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !is_so().await {
        assert!(Instant::now() < deadline, "it did not come to be within {patience:?}");
        // The one sleep in the tests: between two looks at what can't be waited for, such as a
        // row in a database. It decides how soon a test goes on, never whether it passes.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
