"""Runs each suite of clients against a gateway of its own, and counts.

A gateway for each suite: what one suite spends or breaks is nothing to the next.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from gateway import Gateway, GatewayError, environment

HERE = Path(__file__).resolve().parent
TARGET = Path(os.environ["TOLLGATE_TARGET"])
VENV_BIN = TARGET / "clients" / "venv" / "bin"


def python_suite(_gateway, _env, report):
    return [VENV_BIN / "pytest", *pytest_options(report), HERE / "python"]


def curl_suite(_gateway, _env, report):
    return [VENV_BIN / "pytest", *pytest_options(report), HERE / "curl"]


def pytest_options(report):
    return ["-q", "-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}"]


def node_suite(_gateway, _env, report):
    return [
        VENV_BIN / "node", "--test", "--test-timeout=60000",
        "--test-reporter=spec", "--test-reporter-destination=stdout",
        "--test-reporter=junit", f"--test-reporter-destination={report}",
        *sorted((HERE / "node").glob("*.test.mjs")),
    ]  # fmt: skip


def schemathesis_suite(gateway, env, report):
    """Requests made up from the OpenAPI document; schemathesis.toml says which, and why."""
    return [
        VENV_BIN / "schemathesis", "--config-file", HERE / "schemathesis.toml",
        "run", f"{gateway.url}/openapi.json",
        "--header", f"Authorization: Bearer {env['TOLLGATE_TOKEN_AUDITOR']}",
        "--no-color", "--report", "junit", "--report-junit-path", report,
    ]  # fmt: skip


@dataclass(frozen=True)
class Suite:
    name: str
    command: callable
    within_s: int


SUITES = [
    Suite("python", python_suite, 180),
    Suite("node", node_suite, 180),
    Suite("curl", curl_suite, 120),
    Suite("schemathesis", schemathesis_suite, 300),
]


@dataclass
class Count:
    passed: int = 0
    failed: int = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed


def read_report(path):
    """Counts a JUnit report's cases."""
    count = Count()
    if not path.exists():
        return count
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed += 1
        elif case.find("skipped") is None:
            count.passed += 1
    return count


def run_bounded(command, env, within_s, directory):
    """The exit code, or None where it had to be killed with all that it started."""
    process = subprocess.Popen(
        [str(part) for part in command],
        env=env, cwd=directory, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run_suite(suite, binary, options):
    say(f"    {suite.name}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tollgate-report-") as directory:
        # The suites run in there too: some leave caches where they are started.
        report = Path(directory) / "junit.xml"
        gateway = Gateway(binary)
        with gateway:
            env = environment(gateway, VENV_BIN)
            command = suite.command(gateway, env, report)
            # After the program and its first word: node takes options before files only.
            command[2:2] = options
            code = run_bounded(command, env, suite.within_s, directory)
            count = read_report(report)
            if (code != 0 and count.failed == 0) or (code == 0 and count.passed == 0):
                ended = "took too long" if code is None else f"ended with {code}"
                say(f"    {suite.name}: {ended}, with {count.passed} passed in its report")
                count.failed += 1
            if count.failed:
                say(gateway.log())
        for fault in gateway.faults:
            say(f"    gateway: {fault}")
        count.failed += bool(gateway.faults)
    took_s = time.monotonic() - started
    say(f"    {suite.name}: {count.passed} passed, {count.failed} failed ({took_s:.1f} s)")
    return count


def say(line):
    print(line, flush=True)


def main(arguments):
    options = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, options = arguments[:at], arguments[at + 1 :]
    known = [suite.name for suite in SUITES]
    unknown = [name for name in arguments if name not in known]
    if unknown:
        sys.exit(f"no such suite: {', '.join(unknown)}; there are {', '.join(known)}")
    binary = Path(os.environ.get("TOLLGATE_BIN", TARGET / "debug" / "tollgate"))
    if not binary.exists():
        sys.exit(f"{binary} is not there: `cargo build --bin tollgate` makes it")

    total = Count()
    for suite in SUITES:
        if arguments and suite.name not in arguments:
            continue
        try:
            total.add(run_suite(suite, binary.resolve(), options))
        except GatewayError as error:
            say(f"    {suite.name}: the gateway failed: {error}")
            total.failed += 1
    say(f"clients: {total.passed} passed, {total.failed} failed")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
