"""Limits as the SDK meets them. The tier `free`: 5 requests a minute, 2 at once, per model."""

import os
import time

import openai
import pytest
from conftest import LONG, client_with, says

REQUESTS_A_MINUTE = 5
# One slot of five a minute, and a second for rounding up.
LONGEST_WAIT_S = 60 / REQUESTS_A_MINUTE + 1
# A refusal for at least so long stays one for the length of a test's next step.
SETTLED_S = 3
ASK = {"model": "demo-fast", "messages": says("hello")}


def spend_all(client):
    """Asks until the gateway refuses and will go on doing so for a while; gives the refusal."""
    for _ in range(2 * REQUESTS_A_MINUTE):
        try:
            client.chat.completions.create(**ASK)
        except openai.RateLimitError as error:
            if int(error.response.headers["retry-after"]) >= SETTLED_S:
                return error
            # The next slot is near: take it, rather than race it in the test.
            time.sleep(1)
    pytest.fail(f"{2 * REQUESTS_A_MINUTE} requests at once passed")


def test_a_spent_budget_is_a_rate_limit_error_that_says_when(free_client):
    error = spend_all(free_client)
    assert error.status_code == 429
    assert error.code == "rate_limited"
    assert error.request_id
    headers = error.response.headers
    assert headers["x-tollgate-source"] == "gateway"
    assert 1 <= int(headers["retry-after"]) <= LONGEST_WAIT_S
    assert headers["x-ratelimit-limit-requests"] == str(REQUESTS_A_MINUTE)
    assert headers["x-ratelimit-remaining-requests"] == "0"


def test_a_spent_budget_is_a_rate_limit_error_on_a_stream_too(free_client):
    spend_all(free_client)
    with pytest.raises(openai.RateLimitError) as raised:
        free_client.chat.completions.create(**ASK, stream=True)
    assert raised.value.code == "rate_limited"


def test_the_sdk_waits_as_told_and_then_succeeds(free_client):
    spend_all(free_client)
    with client_with(os.environ["TOLLGATE_TOKEN_FREE"], max_retries=2) as patient:
        started = time.monotonic()
        raw = patient.chat.completions.with_raw_response.create(**ASK)
        took_s = time.monotonic() - started
    assert raw.parse().choices[0].finish_reason == "stop"
    assert raw.retries_taken == 1, "the first wait was the right one"
    # retry-after is in whole seconds, so that the wait is at least half of one.
    assert 0.5 < took_s < LONGEST_WAIT_S + 2


def test_one_model_s_limit_is_not_another_s(free_client):
    spend_all(free_client)
    answer = free_client.chat.completions.create(model="demo-tool", messages=says("hello"))
    assert answer.choices


def test_too_many_at_once_is_a_rate_limit_error_until_one_ends(free_client):
    ask = {"model": "demo", "messages": says(LONG), "stream": True}
    streams = [free_client.chat.completions.create(**ask) for _ in range(2)]
    for stream in streams:
        next(stream)
    with pytest.raises(openai.RateLimitError) as raised:
        free_client.chat.completions.create(**ask)
    assert raised.value.code == "concurrency_limited"
    assert int(raised.value.response.headers["retry-after"]) >= 1
    for stream in streams:
        stream.close()

    deadline = time.monotonic() + 5
    while True:
        try:
            free_client.chat.completions.create(**ask).close()
            return
        except openai.RateLimitError as error:
            assert error.code == "concurrency_limited", "a refusal spends no request"
            assert time.monotonic() < deadline, "a closed stream gives its place back"
            time.sleep(0.1)
