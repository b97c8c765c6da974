"""How a receiver of `budget.notify_url` knows that a POST is Tollgate's, and a new one.

Any library of https://www.standardwebhooks.com does the same. Answer 2xx within 10 seconds and
do the work afterwards; drop a `webhook-id` that came before (keep them for ten minutes).
"""

import base64
import hashlib
import hmac
import time


def verify(secret: str, headers, body: bytes, now=None) -> bool:
    """`headers` by lower-case name; `body` as it came, not parsed and written again."""
    encoded = secret.startswith("whsec_")
    key = base64.b64decode(secret.removeprefix("whsec_")) if encoded else secret.encode()
    sent_at = headers["webhook-timestamp"]
    if abs((now or time.time()) - int(sent_at)) > 300:
        return False
    content = f"{headers['webhook-id']}.{sent_at}.".encode() + body
    expected = b"v1," + base64.b64encode(hmac.digest(key, content, hashlib.sha256))
    given = headers["webhook-signature"].encode().split(b" ")
    return any(hmac.compare_digest(expected, signature) for signature in given)
