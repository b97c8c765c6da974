#!/usr/bin/env python3
"""Writes the corpus beside it: `positive-*.tsv` and `negative-*.txt`. The same each time.

A positive is a rule's name, a tab, and a text with `⟦…⟧` about what must go; `⁞` is taken out and `⏎`
is a line's end. A negative is a line of ordinary text; `⁞` is taken out there too.
Run it after a change to a rule or a format: python3 tests/it/redact/corpus/generate.py
"""

import pathlib
import random

import formats
import negative
import secret

HERE = pathlib.Path(__file__).parent
POSITIVES_EACH = 9


def seeded(name):
    return random.Random(f"tollgate {name}")


def positives():
    for line in formats.FORMATS.strip().splitlines():
        rule, _, templates = line.partition(" ")
        r, templates = seeded(rule), templates.split(" | ")
        for number in range(max(POSITIVES_EACH, 3 * len(templates))):
            yield f"{rule}\t{secret.positive(r, rule, templates[number % len(templates)])}"


def write(name, lines):
    text = "".join(f"{line}\n" for line in lines)
    (HERE / name).write_text(text, encoding="utf-8")
    print(f"{name}: {len(lines)} lines, {len(text.encode())} bytes")


def main():
    write("positive.tsv", list(positives()))
    for name, count, make in negative.KINDS:
        r, lines = seeded(name), []
        while len(lines) < count:
            lines += make(r).split("\n")
        write(f"negative-{name}.txt", lines[:count])


if __name__ == "__main__":
    main()
