"""What the tests share: clients that differ in whose token they carry."""

import os

import pytest
from openai import AsyncOpenAI, OpenAI

BASE_URL = os.environ["TOLLGATE_URL"] + "/v1"
TIMEOUT_S = 30


def client_with(api_key, max_retries=0):
    """A client that tries once, so that a test sees what the gateway said first."""
    return OpenAI(base_url=BASE_URL, api_key=api_key, max_retries=max_retries, timeout=TIMEOUT_S)


@pytest.fixture
def client():
    with client_with(os.environ["TOLLGATE_TOKEN"]) as client:
        yield client


@pytest.fixture
def bare_client():
    """Whose token has no capability."""
    with client_with(os.environ["TOLLGATE_TOKEN_BARE"]) as client:
        yield client


@pytest.fixture
def free_client():
    """Whose tier has 5 requests a minute and 2 at once, for each model apart."""
    with client_with(os.environ["TOLLGATE_TOKEN_FREE"]) as client:
        yield client


@pytest.fixture
def async_client():
    """A function: an async client belongs to the event loop that it is first used in."""
    return lambda: AsyncOpenAI(
        base_url=BASE_URL,
        api_key=os.environ["TOLLGATE_TOKEN"],
        max_retries=0,
        timeout=TIMEOUT_S,
    )


def says(text):
    """Messages of one turn."""
    return [{"role": "user", "content": text}]


def text_of(chunks):
    """What a list of chunks says, all deltas together."""
    return "".join(
        choice.delta.content or "" for chunk in chunks for choice in chunk.choices
    )


# Long enough that `demo`, which streams at a reader's pace, is still at it a few seconds later.
LONG = " ".join(f"word{number}" for number in range(400))

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
