//! From configuration's words to the domain's.

use tollgate::{
    config::{Config, ModelConfig},
    domain::Price,
};

use super::{BASE, base_with};

fn model(price: &str) -> ModelConfig {
    let text = base_with("{ input = 1, output = 2.5 }", price);
    Config::from_toml_str(&text).unwrap().models.remove(0)
}

#[test]
fn a_price_becomes_whole_micro_dollars_per_million_tokens() {
    let price = model("{ input = 0.35, cached_input = 0.1, output = 0.75 }").price();
    assert_eq!(price, Some(Price { input: 350_000, cached_input: 100_000, output: 750_000 }));
}

#[test]
fn cached_input_costs_what_input_does_where_nothing_is_said() {
    let price = model("{ input = 2, output = 3 }").price().unwrap();
    assert_eq!(price.cached_input, 2_000_000);
}

#[test]
fn a_price_is_rounded_to_the_nearest_micro_dollar() {
    let price = model("{ input = 0.0000015, cached_input = 0.0000014, output = 1e6 }").price();
    assert_eq!(price, Some(Price { input: 2, cached_input: 1, output: 1_000_000_000_000 }));
}

#[test]
fn a_model_without_a_price_has_none() {
    let text = base_with("price = { input = 1, output = 2.5 }\n", "");
    assert_eq!(Config::from_toml_str(&text).unwrap().models[0].price(), None);
}

#[test]
fn the_vocabulary_knows_its_words_alone() {
    let words = Config::from_toml_str(BASE).unwrap().capabilities.vocabulary();
    assert!(words.get("fleet:read").is_some());
    assert!(words.get("fleet:write").is_none());
}
