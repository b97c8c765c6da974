//! Once a window.

use jiff::Timestamp;
use tollgate::budget::Busts;

fn window(number: i64) -> Timestamp {
    Timestamp::from_second(number * 3_600).unwrap()
}

#[test]
fn each_budget_is_told_of_once_a_window() {
    let busts = Busts::default();
    assert!(busts.first("agent:a", window(1)));
    assert!(!busts.first("agent:a", window(1)));
    assert!(busts.first("agent:b", window(1)), "another budget");
    assert!(busts.first("agent:a", window(2)), "another window");
    assert!(!busts.first("agent:a", window(1)), "one that is over");
    assert!(!busts.first("agent:b", window(1)));
}

#[test]
fn of_many_that_ask_at_once_one_is_first() {
    let busts = Busts::default();
    let firsts: usize = std::thread::scope(|scope| {
        let ask = || (0..1_000).filter(|_| busts.first("b", window(1))).count();
        let asking: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(firsts, 1);
}

#[test]
fn the_oldest_are_forgotten_first() {
    let busts = Busts::bounded(3);
    for key in ["a", "b", "c", "d"] {
        assert!(busts.first(key, window(1)));
    }
    assert!(!busts.first("b", window(1)) && !busts.first("d", window(1)));
    assert!(busts.first("a", window(1)), "was forgotten for d");
    assert!(busts.first("b", window(1)), "was forgotten for a");
    // A new window makes a budget a young one: it is its old window that is forgotten.
    assert!(busts.first("d", window(2)), "c is forgotten");
    assert!(busts.first("e", window(1)), "d's old window is");
    assert!(!busts.first("d", window(2)));
}
