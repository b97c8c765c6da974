//! Providers, models, tools and tiers.

use super::{refused, taken};
use crate::config::{BASE, base_with, errors_of, keys_of};

const URL: &str = "https://up.example/v1";

#[test]
fn capabilities_of_models_and_tools_are_in_the_vocabulary() {
    let (model, tool) = ("requires = [\"model:reasoning\"]", "requires = [\"fleet:read\"]");
    let message = "is not in capabilities.vocabulary";
    refused(model, "requires = [\"model:vision\"]", "models[0].requires[0]", message);
    refused(tool, "requires = [\"fleet:read\", \"x:y\"]", "tools[0].requires[1]", message);
    let budget = "requires = [\"budget:usd-per-day:5\"]";
    refused(model, budget, "models[0].requires[0]", "admits to nothing");
    refused(tool, budget, "tools[0].requires[0]", "admits to nothing");
    taken(model, "requires = []");
}

#[test]
fn a_provider_s_url_is_one() {
    let key = "providers[0].base_url";
    refused(&format!("base_url = \"{URL}\"\n"), "", key, "is missing");
    for (url, message) in [
        ("up.example/v1", "is not a URL"),
        ("", "is not a URL"),
        ("file:///etc/passwd", "is not a URL"),
        ("https://key@up.example/v1", "credentials"),
        ("https://up.example/v1?key=x", "query"),
        ("https://up.example/v1#x", "fragment"),
    ] {
        refused(URL, url, key, message);
    }
    for url in ["http://localhost:11434/v1", "http://vllm.internal:8000", "https://x.example/"] {
        taken(URL, url);
    }
}

#[test]
fn a_provider_s_key_fits_a_header() {
    for secret in ["", "   ", "a\\nb", "a\\u0000"] {
        let line = format!("api_key = \"{secret}\"");
        refused("api_key = \"a-provider-key\"", &line, "providers[0].api_key", "header");
    }
    taken("api_key = \"a-provider-key\"\n", "");
}

#[test]
fn keys_of_another_kind_of_provider_are_refused() {
    let text = base_with("kind = \"openai\"", "kind = \"scripted\"");
    assert_eq!(keys_of(&text), ["providers[0].base_url", "providers[0].api_key"]);
    let pace = "kind = \"openai\"\ntoken_interval_ms = 20";
    refused("kind = \"openai\"", pace, "providers[0].token_interval_ms", "scripted");
    let openai = format!("kind = \"openai\"\nbase_url = \"{URL}\"\napi_key = \"a-provider-key\"");
    taken(&openai, "kind = \"scripted\"\ntoken_interval_ms = 20");
}

#[test]
fn names_are_sane() {
    let long = "n".repeat(65);
    for name in ["", "a b", "ä", "a/b", long.as_str()] {
        let text = base_with("name = \"up\"", &format!("name = \"{name}\""))
            .replace("provider = \"up\"", &format!("provider = \"{name}\""));
        assert_eq!(keys_of(&text), ["providers[0].name"], "{name}");
        let tool = format!("name = \"{name}\"");
        refused("name = \"fleet_ps\"", &tool, "tools[0].name", "is no name");
        refused("name = \"pro\"", &tool, "tiers[0].name", "is no name");
    }
    refused("name = \"fleet_ps\"", "name = \"a.b\"", "tools[0].name", "is no name");
    for name in ["", "*", "a b", "ä"] {
        let model = format!("name = \"{name}\"");
        refused("name = \"m\"", &model, "models[0].name", "is no name");
    }
    taken("name = \"m\"", "name = \"meta-llama/Llama-3.3-70B:free@v1\"");
}

#[test]
fn names_are_unique() {
    let twice = |head: &str| {
        let start = BASE.find(head).unwrap();
        let table = &BASE[start..];
        let end = table[2..].find("\n\n[").map_or(table.len(), |end| end + 3);
        format!("{BASE}\n{}", &table[..end])
    };
    for (head, key) in [
        ("[[auth.issuers]]", "auth.issuers[1].issuer"),
        ("[[providers]]", "providers[1].name"),
        ("[[models]]", "models[1].name"),
        ("[[tools]]", "tools[1].name"),
        ("[[tiers]]", "tiers[1].name"),
        ("[[tiers.limits]]", "tiers[0].limits[1].model"),
    ] {
        let errors = errors_of(&twice(head));
        assert_eq!(errors.len(), 1, "{head}: {errors:?}");
        assert_eq!(errors[0].key, key);
        assert!(errors[0].message.contains("is taken by"), "{}", errors[0]);
    }
}

#[test]
fn a_model_leads_to_a_provider_that_is_there() {
    let route = "{ provider = \"up\", model = \"upstream-m\" }";
    let second = format!("{route}, {{ provider = \"down\", model = \"x\" }}");
    let message = "there is no provider \"down\"";
    refused(route, &second, "models[0].routes[1].provider", message);
    refused(route, "", "models[0].routes", "is empty");
    let nameless = "{ provider = \"up\", model = \"\" }";
    refused(route, nameless, "models[0].routes[0].model", "is empty");
}

#[test]
fn prices_are_numbers_that_can_be_paid() {
    let price = "{ input = 1, output = 2.5 }";
    for bad in ["-0.1", "nan", "inf", "-inf", "1_000_001"] {
        let input = format!("{{ input = {bad}, output = 1 }}");
        refused(price, &input, "models[0].price.input", "from 0 to 1000000");
        let cached = format!("{{ input = 1, cached_input = {bad}, output = 1 }}");
        refused(price, &cached, "models[0].price.cached_input", "from 0 to 1000000");
        let output = format!("{{ input = 1, output = {bad} }}");
        refused(price, &output, "models[0].price.output", "from 0 to 1000000");
    }
    taken(price, "{ input = 0, output = 1_000_000 }");
}

#[test]
fn limits_name_a_model_that_is_there() {
    let key = "tiers[0].limits[0].model";
    refused("model = \"*\"", "model = \"n\"", key, "there is no model \"n\"");
    taken("model = \"*\"", "model = \"m\"");
}

#[test]
fn budgets_are_numbers_that_can_be_kept() {
    let limit = "requests_per_minute = 60";
    for (name, bad) in [
        ("requests_per_minute", "0"),
        ("requests_per_minute", "60_000_001"),
        ("tokens_per_minute", "0"),
        ("tokens_per_minute", "60_000_001"),
        ("concurrent", "0"),
    ] {
        let key = format!("tiers[0].limits[0].{name}");
        refused(limit, &format!("{name} = {bad}"), &key, "must be from 1 to");
    }
    let key = "tiers[0].limits[0].tokens_burst";
    refused(limit, &format!("{limit}\ntokens_burst = 5"), key, "give the rate");
    taken(limit, &format!("{limit}\nrequests_burst = 5\ntokens_per_minute = 9\ntokens_burst = 99"));

    let tier = "name = \"pro\"";
    for bad in ["-1", "nan", "inf", "1e10"] {
        for name in ["usd_per_day", "usd_per_month"] {
            let key = format!("tiers[0].{name}");
            refused(tier, &format!("{tier}\n{name} = {bad}"), &key, "from 0 to");
        }
    }
    refused(tier, &format!("{tier}\nweight = 0"), "tiers[0].weight", "must be from 1 to");
    taken(tier, &format!("{tier}\nusd_per_day = 0.5\nusd_per_month = 10\nweight = 3"));

    let price = "price = { input = 1, output = 2.5 }";
    for name in ["max_input_tokens", "max_output_tokens", "concurrent"] {
        let key = format!("models[0].{name}");
        refused(price, &format!("{price}\n{name} = 0"), &key, "must be from 1 to");
        taken(price, &format!("{price}\n{name} = 10"));
    }
}

#[test]
fn a_claims_budget_is_of_a_claim_that_is_mapped_and_sets_a_limit() {
    let tool = "[[tools]]";
    let claim = |more: &str| format!("[[budget.claims]]\n{more}\n{tool}");
    let unmapped = claim("claim = \"cost_center\"\nvalue = \"*\"\nusd_per_day = 1\n");
    refused(tool, &unmapped, "budget.claims[0].claim", "is mapped by no issuer");
}
