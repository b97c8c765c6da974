//! What comes back to a rate.

use super::{Store, actual, settle, standing, take, tokens};

const SECOND: u64 = 1_000_000;

/// A refund moves all that came after it nearer; what had leaked of those by then stays gone.
pub(super) async fn a_refund_gives_back_nothing_of_those_that_came_later(store: impl Store) {
    let (thirty, twenty) = ([tokens(60, 60, 30)], [tokens(60, 60, 20)]);
    let (first, second) = (take(&store, &thirty).await, take(&store, &thirty).await);
    store.wait_micros(10 * SECOND).await;
    settle(&store, first, actual(0, 0)).await;
    assert_eq!(standing(&store, &thirty[0]).await.used, 30, "20 of the first came back");
    take(&store, &twenty).await;
    store.wait_micros(20 * SECOND).await;
    settle(&store, second, actual(0, 0)).await;
    assert_eq!(standing(&store, &thirty[0]).await.used, 20, "all of the third is still there");
}
