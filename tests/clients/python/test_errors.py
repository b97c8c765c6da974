"""Refusals as the SDK's error classes, with the code that a program can rely on."""

import os
import re

import openai
import pytest
from conftest import client_with, says

ASK = {"model": "demo-fast", "messages": says("hello")}


def assert_ours(error, code):
    """A refusal of the gateway's: stable code, all four keys, an id to quote, a hint of origin."""
    assert error.code == code
    assert error.message
    assert set(error.body) == {"message", "type", "param", "code"}
    assert isinstance(error.body["type"], str)
    assert error.request_id
    assert error.request_id == error.response.headers["x-request-id"]
    assert error.response.headers["x-tollgate-source"] == "gateway"


def test_a_bad_token_is_an_authentication_error():
    token = os.environ["TOLLGATE_TOKEN"]
    header, _, rest = token.partition(".")
    for bad in ["nonsense", "a.b.c", f"{token}x", f"{header}x.{rest}"]:
        with client_with(bad) as client, pytest.raises(openai.AuthenticationError) as raised:
            client.chat.completions.create(**ASK)
        assert_ours(raised.value, "invalid_token")
        assert raised.value.status_code == 401
        assert raised.value.response.headers["www-authenticate"].startswith("Bearer")
        assert bad not in str(raised.value), "a token is not for error texts"


def test_a_bad_token_is_an_authentication_error_on_a_stream_too():
    with client_with("nonsense") as client, pytest.raises(openai.AuthenticationError) as raised:
        client.chat.completions.create(**ASK, stream=True)
    assert_ours(raised.value, "invalid_token")


def test_a_missing_capability_is_a_permission_denied_error(bare_client):
    for stream in [False, True]:
        with pytest.raises(openai.PermissionDeniedError) as raised:
            bare_client.chat.completions.create(**ASK, stream=stream)
        assert_ours(raised.value, "capability_denied")
        assert raised.value.status_code == 403


def test_an_unknown_model_is_a_not_found_error(client):
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="no-such-model", messages=says("hello"))
    assert_ours(raised.value, "model_not_found")
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("no-such-model")
    assert_ours(raised.value, "model_not_found")


def test_a_bad_request_names_the_field_at_fault(client):
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model="demo-fast", messages="not a list")
    assert_ours(raised.value, "invalid_request")
    assert raised.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**ASK, extra_body={"stream": "yes"})
    assert_ours(raised.value, "invalid_request")
    assert raised.value.param == "stream"


def test_an_unknown_route_is_a_not_found_error(client):
    with pytest.raises(openai.NotFoundError) as raised:
        client.post("/no-such-route", body={}, cast_to=object)
    assert_ours(raised.value, "not_found")


def test_every_answer_names_its_request_and_its_trace(client):
    raw = client.chat.completions.with_raw_response.create(**ASK)
    headers = raw.headers
    assert headers["x-request-id"] == raw.request_id
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", headers["traceparent"])
    assert headers.get("x-tollgate-source", "upstream") == "upstream"
    assert raw.parse()._request_id == raw.request_id


def test_every_answer_says_what_is_left(client):
    raw = client.chat.completions.with_raw_response.create(**ASK)
    limit = int(raw.headers["x-ratelimit-limit-requests"])
    remaining = int(raw.headers["x-ratelimit-remaining-requests"])
    assert 0 <= remaining < limit
    assert raw.headers["x-ratelimit-reset-requests"]


def test_a_caller_s_own_ids_are_kept(client):
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    raw = client.chat.completions.with_raw_response.create(
        **ASK,
        extra_headers={
            "x-request-id": "my-request-7",
            "traceparent": f"00-{trace_id}-00f067aa0ba902b7-01",
        },
    )
    assert raw.headers["x-request-id"] == "my-request-7"
    assert raw.headers["traceparent"].split("-")[1] == trace_id
