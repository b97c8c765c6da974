"""Just enough of an SSE reader to judge what curl printed."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """One event: its fields as they were written, comments left out."""

    fields: dict

    @property
    def id(self):
        return self.fields.get("id")

    @property
    def name(self):
        return self.fields.get("event")

    @property
    def json(self):
        return json.loads(self.fields["data"])


def events_in(text):
    """The events of a whole stream; one that its blank line doesn't end is a fault."""
    assert text.endswith("\n\n"), f"the last event is not whole: {text[-80:]!r}"
    events = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        fields = dict(line.split(": ", 1) for line in lines)
        assert len(fields) == len(lines), f"a field twice in one event: {block!r}"
        if fields:
            events.append(Event(fields))
    return events


def frames_in(text):
    """The frames of a native stream; its `retry:` line is not one."""
    return [event for event in events_in(text) if "data" in event.fields]


TERMINAL = ("done", "canceled", "error")


def assert_whole(frames, first=1):
    """`first`, `first + 1`, … without gap or double, each under its own id, one terminal last."""
    assert [frame.json["seq"] for frame in frames] == list(range(first, first + len(frames)))
    assert all(frame.id == str(frame.json["seq"]) for frame in frames)
    assert [frame.name in TERMINAL for frame in frames] == [False] * (len(frames) - 1) + [True]
