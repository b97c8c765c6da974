"""The three lines that `tollgate dev` prints, run as printed."""

import os
import subprocess
from pathlib import Path

import pytest
from sse import assert_whole, events_in, frames_in

WITHIN_S = 60


def printed_lines():
    """The lines of its stdout that are to be pasted; a line that ends in `\\` goes on."""
    text = Path(os.environ["TOLLGATE_DEV_STDOUT"]).read_text().replace("\\\n", " ")
    return [
        line for line in text.splitlines() if line.startswith(("curl ", "python3 -c "))
    ]


def paste(line):
    """What a person sees who pastes the line into a shell."""
    shell = ["bash", "-c", line]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def one_line(*marks, start="curl "):
    lines = printed_lines()
    found = [
        line for line in lines if line.startswith(start) and all(mark in line for mark in marks)
    ]
    assert len(found) == 1, f"one line with {marks} expected among {lines}"
    return found[0]


def test_there_are_three_lines():
    starts = [line.split()[0] for line in printed_lines()]
    assert starts == ["curl", "curl", "python3"]


def test_the_chat_line_streams_an_answer():
    *chunks, done = events_in(paste(one_line("/v1/chat/completions")))
    assert done.fields == {"data": "[DONE]"}
    deltas = [choice["delta"] for chunk in chunks for choice in chunk.json["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas).strip()


def test_the_native_line_streams_frames():
    frames = frames_in(paste(one_line("/v1/streams")))
    assert_whole(frames)
    assert frames[-1].name == "done"
    assert "".join(frame.json["delta"] for frame in frames if frame.name == "token").strip()


def test_the_python_line_prints_an_answer():
    assert paste(one_line("openai", start="python3 -c ")).strip()


@pytest.mark.parametrize("mark", ["/v1/chat/completions", "/v1/streams"])
def test_the_curl_lines_do_not_buffer(mark):
    line = one_line(mark)
    assert " -N" in line or "--no-buffer" in line or " -sN" in line
