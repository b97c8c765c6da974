"""The wire as curl sees it, byte for byte."""

import json
import os
import re
import subprocess

import pytest
from sse import assert_whole, events_in, frames_in

URL = os.environ["TOLLGATE_URL"]
TOKEN = os.environ["TOLLGATE_TOKEN"]
WITHIN_S = 60


class Answer:
    """A status, headers by lower-case name, and the body as text."""

    def __init__(self, raw):
        head, _, self.text = raw.partition("\r\n\r\n")
        status, *headers = head.split("\r\n")
        self.status = int(status.split()[1])
        self.headers = {}
        for name, _, value in (header.partition(":") for header in headers):
            self.headers[name.strip().lower()] = value.strip()

    @property
    def json(self):
        return json.loads(self.text)


def curl(path, *options, token=TOKEN, body=None):
    command = ["curl", "-sSN", "-i", "--max-time", str(WITHIN_S), *options, URL + path]
    if token is not None:
        command += ["-H", f"Authorization: Bearer {token}"]
    if body is not None:
        text = body if isinstance(body, str) else json.dumps(body)
        command += ["-H", "Content-Type: application/json", "--data-binary", text]
    done = subprocess.run(command, capture_output=True, timeout=WITHIN_S + 5)
    assert done.returncode == 0, done.stderr.decode()
    return Answer(done.stdout.decode())


def ask(model, text, **more):
    return {"model": model, "messages": [{"role": "user", "content": text}], **more}


def native_stream(body):
    answer = curl("/v1/streams", body=body)
    assert answer.status in (200, 201), answer.text
    return answer


def test_a_chat_stream_has_nothing_that_a_client_breaks_on():
    answer = curl("/v1/chat/completions", body=ask("demo-fast", "an okapi please", stream=True))
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events_in(answer.text)
    assert done.fields == {"data": "[DONE]"}
    for chunk in chunks:
        assert list(chunk.fields) == ["data"], "no id, no retry, no event names"
        assert {"id", "object", "created", "model", "choices"} <= set(chunk.json)
        assert chunk.json.get("usage") is None, "usage that nobody asked for"
    assert chunks[-1].json["choices"][0]["finish_reason"] == "stop"


def test_asked_for_usage_is_null_until_the_last_chunk():
    request = ask("demo-fast", "count", stream=True, stream_options={"include_usage": True})
    *chunks, usage, done = events_in(curl("/v1/chat/completions", body=request).text)
    assert done.fields == {"data": "[DONE]"}
    assert usage.json["choices"] == []
    assert usage.json["usage"]["total_tokens"] > 0
    assert all(chunk.json["usage"] is None for chunk in chunks)


def test_a_native_stream_says_where_it_is():
    answer = native_stream(ask("demo-fast", "an okapi please"))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["location"].endswith("/v1/streams/" + answer.headers["x-stream-id"])
    assert answer.text.startswith("retry: 1000\n"), "how soon to come back is said first"
    frames = frames_in(answer.text)
    assert_whole(frames)
    assert [frame.name for frame in frames][-2:] == ["usage", "done"]
    usage = frames[-2].json
    assert usage["output_tokens"] > 0
    assert "okapi" in "".join(frame.json["delta"] for frame in frames if frame.name == "token")


def test_a_stream_resumes_after_the_last_event_id():
    answer = native_stream(ask("demo-fast", "one two three four five six"))
    whole = frames_in(answer.text)
    path = "/v1/streams/" + answer.headers["x-stream-id"]
    resumed = curl(path, "-H", "Last-Event-ID: 3")
    assert resumed.status == 200
    assert resumed.headers["content-type"].startswith("text/event-stream")
    frames = frames_in(resumed.text)
    assert_whole(frames, first=4)
    assert [frame.fields for frame in frames] == [frame.fields for frame in whole[3:]]


def test_a_stream_without_a_last_event_id_replays_from_its_start():
    answer = native_stream(ask("demo-fast", "one two three"))
    again = curl("/v1/streams/" + answer.headers["x-stream-id"])
    assert [frame.fields for frame in frames_in(again.text)] == [
        frame.fields for frame in frames_in(answer.text)
    ]


def test_a_stream_that_was_read_to_its_end_has_no_more():
    answer = native_stream(ask("demo-fast", "one two three"))
    last = frames_in(answer.text)[-1].id
    again = curl("/v1/streams/" + answer.headers["x-stream-id"], "-H", f"Last-Event-ID: {last}")
    assert again.status in (200, 204)
    assert "data:" not in again.text


def test_no_token_is_401_with_a_challenge():
    answer = curl("/v1/models", token=None)
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["x-tollgate-source"] == "gateway"
    assert answer.headers["x-request-id"]
    assert answer.json["error"]["code"] == "missing_token"


@pytest.mark.parametrize("body", ["", "{", '{"model":', "null", "[]"])
def test_a_body_that_is_no_json_object_is_a_400(body):
    answer = curl("/v1/chat/completions", "-X", "POST", body=body)
    assert answer.status == 400
    assert answer.json["error"]["code"] in ("invalid_json", "invalid_request")


def test_the_openapi_document_and_its_page_need_no_token():
    document = curl("/openapi.json", token=None)
    assert document.status == 200
    assert document.json["openapi"].startswith("3.1")
    page = curl("/docs", "-L", token=None)
    assert page.text.lower().count("<html") == 1


def test_the_docs_page_loads_nothing_from_elsewhere():
    page = curl("/docs/", token=None).text
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", page)


def test_health_is_not_on_the_public_port():
    for path in ["/livez", "/readyz", "/metrics"]:
        assert curl(path, token=None).status in (401, 404)
