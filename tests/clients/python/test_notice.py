"""The example for receivers of notices, on a vector of Standard Webhooks' own libraries."""

import importlib.util
from pathlib import Path

EXAMPLE = Path(__file__).parents[3] / "deploy" / "verify_notice.py"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TIME = 1614265330
BODY = b'{"test": 2432232314}'
HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": str(TIME),
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


def load():
    spec = importlib.util.spec_from_file_location("verify_notice", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.verify


def test_the_example_believes_the_vector_and_nothing_else():
    verify = load()
    assert verify(SECRET, HEADERS, BODY, TIME)
    assert verify(SECRET, HEADERS, BODY, TIME + 300)
    assert not verify(SECRET, HEADERS, BODY, TIME + 301)
    assert not verify(SECRET, HEADERS, BODY, TIME - 301)
    assert not verify(SECRET, HEADERS, BODY)
    assert not verify(SECRET, HEADERS, BODY + b" ", TIME)
    assert not verify(SECRET, {**HEADERS, "webhook-id": "msg_other"}, BODY, TIME)
    later = {**HEADERS, "webhook-timestamp": str(TIME + 1)}
    assert not verify(SECRET, later, BODY, TIME)
    assert not verify("whsec_" + "A" * 32, HEADERS, BODY, TIME)
    rotated = {**HEADERS, "webhook-signature": "v1,AAAA " + HEADERS["webhook-signature"]}
    assert verify(SECRET, rotated, BODY, TIME)
