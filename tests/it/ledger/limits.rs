//! Which buckets a call meets, and how much it may take of each.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate::{
    budget::{Forecast, Limit, LimitTable, Measure, ModelBounds, Period, Scope},
    config::Config,
    domain::{Caller, CapabilitySet, Kind, ModelCall, Price, TrustLevel, Vocabulary},
};

const CONFIG: &str = r#"
    [[models]]
    name = "m"
    routes = []
    [[models]]
    name = "other"
    routes = []
    [[tiers]]
    name = "pro"
    weight = 3
    usd_per_month = 12.5
    [[tiers.limits]]
    model = "*"
    requests_per_minute = 10
    concurrent = 2
    [[tiers.limits]]
    model = "m"
    tokens_per_minute = 1000
    tokens_burst = 500
    [[tiers]]
    name = "free"
    [[budget.claims]]
    claim = "cost_center"
    value = "cc-1"
    usd_per_day = 5
    [[budget.claims]]
    claim = "cost_center"
    value = "*"
    usd_per_day = 1
"#;

fn table() -> LimitTable {
    #[derive(serde::Deserialize)]
    struct Part {
        models: Vec<tollgate::config::ModelConfig>,
        tiers: Vec<tollgate::config::TierConfig>,
        budget: tollgate::config::BudgetConfig,
    }
    let Part { models, tiers, budget } = toml::from_str(CONFIG).expect("a configuration");
    LimitTable::new(&Config { models, tiers, budget, ..Config::default() })
}

fn caller(tier: &str, capabilities: &[&str], cost_center: Option<&str>) -> Caller {
    let vocabulary = Vocabulary::new::<&str>([]);
    let known = |name: &&str| vocabulary.get(name).unwrap_or_else(|| panic!("{name}"));
    Caller {
        subject: "alice".to_owned(),
        issuer: "i".to_owned(),
        tier: tier.to_owned(),
        capabilities: capabilities.iter().map(known).collect::<CapabilitySet>(),
        agent: Some("crawler".to_owned()),
        trust: TrustLevel::L0,
        extra: cost_center
            .map(|value| ("cost_center".to_owned(), value.to_owned()))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
    }
}

fn limits(caller: &Caller, model: &str) -> Vec<Limit> {
    let buckets = table().buckets(caller, Some(model)).expect("a known tier");
    buckets.into_iter().map(|bucket| bucket.limit).collect()
}

const fn money(period: Period, limit: u64) -> Limit {
    Limit::Window { measure: Measure::MicroUsd, period, limit }
}

#[test]
fn the_most_specific_limit_wins_whole() {
    let tokens = Limit::Rate { measure: Measure::Tokens, per_minute: 1_000, burst: 500 };
    let requests = Limit::Rate { measure: Measure::Requests, per_minute: 10, burst: 10 };
    let month = money(Period::Month, 12_500_000);
    assert_eq!(limits(&caller("pro", &[], None), "m"), [tokens, month]);
    assert_eq!(limits(&caller("pro", &[], None), "other"), [requests, Limit::Slots(2), month]);
    assert_eq!(limits(&caller("free", &[], None), "m"), [], "a tier without limits has none");
    assert_eq!((table().weight("pro"), table().weight("free"), table().weight("?")), (3, 1, 1));
    for unknown in ["", "*", "PRO", "pro\n"] {
        let denial = table().buckets(&caller(unknown, &[], None), Some("m")).expect_err("a denial");
        assert_eq!(denial.kind, Kind::UnknownTier);
        assert!(!denial.message.contains('\n'));
    }
}

#[test]
fn an_agents_capabilities_set_its_windows_and_the_smaller_one_counts() {
    let capabilities = [
        "budget:tokens-per-minute:1_000",
        "budget:tokens-per-hour:1_000_000",
        "budget:tokens-per-day:20",
        "budget:tokens-per-day:3_000_000",
        "budget:usd-per-day:0.25",
        "budget:usd-per-month:7",
    ];
    let mut found = limits(&caller("free", &capabilities, None), "m");
    let tokens = |period, limit| Limit::Window { measure: Measure::Tokens, period, limit };
    let mut expected = vec![
        Limit::Rate { measure: Measure::Tokens, per_minute: 1_000, burst: 1_000 },
        tokens(Period::Hour, 1_000_000),
        tokens(Period::Day, 20),
        money(Period::Day, 250_000),
        money(Period::Month, 7_000_000),
    ];
    let order = |limit: &Limit| format!("{limit:?}");
    found.sort_by_key(order);
    expected.sort_by_key(order);
    assert_eq!(found, expected);
    let agent = &table().buckets(&caller("free", &capabilities, None), None).expect("buckets")[0];
    assert_eq!(agent.scope, Scope::Agent { issuer: "i".to_owned(), agent: "crawler".to_owned() });
    for broken in ["budget:usd-per-day:1.2.3", "budget:tokens-per-day:1.5"] {
        let limit = limits(&caller("free", &[broken], None), "m")[0];
        assert_eq!(limit.most(), 0, "{broken}: what can't be read allows nothing");
    }
}

#[test]
fn a_claim_has_a_budget_by_its_value() {
    let of = |value| limits(&caller("free", &[], value), "m");
    assert_eq!(of(Some("cc-1")), [money(Period::Day, 5_000_000)]);
    assert_eq!(of(Some("cc-9")), [money(Period::Day, 1_000_000)]);
    assert_eq!(of(None), []);
}

fn call(more: &Value) -> ModelCall {
    let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hello" }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ModelCall::parse(Bytes::from(body.to_string())).expect("a call")
}

const PRICE: Price = Price { input: 1_000_000, cached_input: 100_000, output: 2_000_000 };
const BOUNDS: ModelBounds = ModelBounds {
    max_input_tokens: None,
    max_output_tokens: Some(1_000),
    price: Some(PRICE),
    attempts: 1,
};

/// What is reserved of the token bucket (which holds 500) and of the month's money.
fn charged(call: &ModelCall, bounds: &ModelBounds) -> Result<(u64, u64), Kind> {
    let forecast = Forecast::new(call, 20, *bounds);
    let charges = table().charges(&caller("pro", &[], None), "m", &forecast);
    let charges = charges.map_err(|denial| denial.kind)?;
    Ok((charges[0].amount, charges[1].amount))
}

#[test]
fn a_call_reserves_what_it_may_spend_at_most() {
    let plain = call(&json!({ "max_tokens": 100 }));
    let bytes = u64::try_from(plain.body_len()).unwrap();
    assert_eq!(charged(&plain, &BOUNDS), Ok((120, bytes + 2 * 100)));
    let newer = call(&json!({ "max_tokens": 900, "max_completion_tokens": 100 }));
    assert_eq!(charged(&newer, &BOUNDS).unwrap().0, 120);
    let several = call(&json!({ "max_tokens": 100, "n": 3 }));
    assert_eq!(charged(&several, &BOUNDS).unwrap().0, 320);
    let twice = ModelBounds { attempts: 2, ..BOUNDS };
    assert_eq!(charged(&plain, &twice), Ok((120, 2 * bytes + 2 * 100)));
}

#[test]
fn the_models_bound_holds_for_money_and_does_not_pin_a_smaller_bucket() {
    let open = call(&json!({}));
    let bytes = u64::try_from(open.body_len()).unwrap();
    assert_eq!(charged(&open, &BOUNDS), Ok((500, bytes + 2 * 1_000)));
    let beyond = call(&json!({ "max_tokens": 70_000 }));
    assert_eq!(charged(&beyond, &BOUNDS).unwrap().0, 1_020, "the model never writes more");
}

#[test]
fn images_and_files_are_bounded_by_the_models_context_alone() {
    let part = |part: Value| {
        let content = json!([{ "type": "text", "text": "what is it?" }, part]);
        call(&json!({ "max_tokens": 100, "messages": [{ "role": "user", "content": content }] }))
    };
    let bounded = ModelBounds { max_input_tokens: Some(50_000), ..BOUNDS };
    for hidden in [
        json!({ "type": "image_url", "image_url": { "url": "https://example.com/a.png" } }),
        json!({ "type": "file", "file": { "file_id": "file-1" } }),
        json!({ "image": "https://example.com/a.png" }),
        json!("of a shape that nobody knows"),
    ] {
        let call = part(hidden);
        assert_eq!(charged(&call, &BOUNDS), Err(Kind::InvalidRequest));
        assert_eq!(charged(&call, &bounded).expect("bounded").1, 50_000 + 2 * 100);
    }
    let searched = call(&json!({ "max_tokens": 100, "web_search_options": {} }));
    assert_eq!(charged(&searched, &BOUNDS), Err(Kind::InvalidRequest));
    for plain in [
        json!({ "type": "text", "text": "\"type\": \"image_url\"" }),
        json!({ "type": "input_audio", "input_audio": { "data": "UklGRg==", "format": "wav" } }),
    ] {
        let call = part(plain);
        let bytes = u64::try_from(call.body_len()).unwrap();
        assert_eq!(charged(&call, &BOUNDS).expect("bounded").1, bytes + 2 * 100);
        let small = ModelBounds { max_input_tokens: Some(10), ..BOUNDS };
        assert_eq!(charged(&call, &small).expect("bounded").1, 10 + 2 * 100);
    }
}

#[test]
fn money_admits_nothing_that_has_no_price_or_no_end() {
    let (open, bounded) = (call(&json!({})), call(&json!({ "max_tokens": 1 })));
    let unpriced = ModelBounds { price: None, ..BOUNDS };
    assert_eq!(charged(&bounded, &unpriced), Err(Kind::UnpricedModel));
    let endless = ModelBounds { max_output_tokens: None, ..BOUNDS };
    assert_eq!(charged(&open, &endless), Err(Kind::InvalidRequest));
    assert!(charged(&bounded, &endless).is_ok());
    let forecast = Forecast::new(&open, 20, ModelBounds { price: None, ..endless });
    assert!(
        table().charges(&caller("free", &[], None), "m", &forecast).is_ok(),
        "no money applies"
    );
}
