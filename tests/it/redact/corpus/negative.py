"""The kinds of ordinary text, and how many lines of each."""

from negative_code import compiled, python, rust, script, sql, style
from negative_data import diffs, hashes, images, lock, logs, settings, urls
from negative_text import about, alike, prose


def code(r):
    return r.choice([rust, python, script, compiled])(r)


def chat(r):
    """What agents send: JSON of prose and code."""
    import json

    text = "\n".join(r.choice([prose, code, about, logs])(r) for _ in range(r.randint(1, 3)))
    return json.dumps({"role": r.choice(["user", "assistant", "tool"]), "content": text}, ensure_ascii=r.random() < 0.5)


KINDS = [
    ("rust", 1700, rust),
    ("python", 1700, python),
    ("script", 1700, script),
    ("compiled", 1700, compiled),
    ("style", 1000, style),
    ("sql", 1000, sql),
    ("lock", 1300, lock),
    ("hash", 2000, hashes),
    ("image", 900, images),
    ("log", 1700, logs),
    ("settings", 2000, settings),
    ("diff", 1300, lambda r: diffs(r, code)),
    ("url", 1300, urls),
    ("prose", 1800, prose),
    ("about", 1500, about),
    ("alike", 2000, alike),
    ("chat", 700, chat),
]
