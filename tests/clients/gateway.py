"""A gateway in dev mode, as a process: start it, mint tokens, end it and see how it went."""

import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

READY_WITHIN_S = 20
# A dev gateway drains for 30 s at most, and then needs a moment.
STOPPED_WITHIN_S = 45


class GatewayError(Exception):
    """The gateway did not start, mint or end as it must; holds what it said."""


def free_ports(count):
    """Ports that were free a moment ago; all held at once, so that they differ."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in held]
    for listener in held:
        listener.close()
    return ports


class Gateway:
    """`with Gateway(binary) as gateway:` runs one on free ports with an empty data directory.

    Leaving the block ends it by SIGTERM; `faults` then says what was wrong with its end.
    """

    def __init__(self, binary):
        self.binary = str(binary)
        self.faults = []

    def __enter__(self):
        self._dir = tempfile.TemporaryDirectory(prefix="tollgate-clients-")
        root = Path(self._dir.name)
        self.data, self.stdout, self.stderr = root / "data", root / "stdout", root / "stderr"
        port, admin_port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        self._ready_url = f"http://127.0.0.1:{admin_port}/readyz"
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self._process = subprocess.Popen(
                [
                    self.binary, "dev",
                    "--listen", f"127.0.0.1:{port}",
                    "--admin-listen", f"127.0.0.1:{admin_port}",
                    "--data", str(self.data),
                ],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=root,
            )  # fmt: skip
        try:
            self._wait_until_ready()
        except BaseException:
            self._process.kill()
            self._process.wait()
            self._dir.cleanup()
            raise
        return self

    def _wait_until_ready(self):
        deadline = time.monotonic() + READY_WITHIN_S
        while not self._is_ready():
            if self._process.poll() is not None:
                raise GatewayError(f"it ended with {self._process.returncode}\n{self._said()}")
            if time.monotonic() > deadline:
                raise GatewayError(f"not ready after {READY_WITHIN_S} s\n{self._said()}")
            time.sleep(0.05)

    def _is_ready(self):
        try:
            with urllib.request.urlopen(self._ready_url, timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def mint(self, subject, tier, capabilities=(), agent=None, ttl="10m"):
        command = [self.binary, "mint-token", "--data", str(self.data), "--ttl", ttl]
        command += ["--subject", subject, "--tier", tier]
        for capability in capabilities:
            command += ["--capability", capability]
        if agent:
            command += ["--agent", agent]
        minted = subprocess.run(command, capture_output=True, text=True, timeout=20)
        token = minted.stdout.strip()
        if minted.returncode != 0 or not token or len(token.split()) != 1:
            raise GatewayError(
                f"mint-token must print one token alone; exit code {minted.returncode}, "
                f"stdout {minted.stdout!r}, stderr {minted.stderr!r}"
            )
        return token

    def log(self, lines=60):
        """The end of its log, which it writes to stderr."""
        text = self.stderr.read_text(errors="replace").splitlines()
        return "\n".join(["--- the gateway's log, last lines", *text[-lines:], "---"])

    def _said(self):
        return f"{self.log()}\n{self.stdout.read_text(errors='replace')}"

    def __exit__(self, *_):
        try:
            self._stop()
            if "panicked at" in self.stderr.read_text(errors="replace"):
                self.faults.append("it panicked")
            if self.faults:
                self.faults.append(self.log())
        finally:
            self._dir.cleanup()

    def _stop(self):
        if self._process.poll() is not None:
            self.faults.append(f"it ended by itself with {self._process.returncode}")
            return
        self._process.terminate()
        try:
            code = self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self.faults.append(f"it was still there {STOPPED_WITHIN_S} s after SIGTERM")
            return
        if code != 0:
            self.faults.append(f"after SIGTERM it ended with {code} instead of 0")


def environment(gateway, bin_dir):
    """What every suite finds in its environment."""
    reasoning = ["model:reasoning"]
    reading = ["audit:read", "audit:content"]
    return {
        **os.environ,
        "PATH": f"{bin_dir}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONDONTWRITEBYTECODE": "1",
        # A proxy of the machine's has no business between a test and its gateway.
        "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
        "TOLLGATE_URL": gateway.url,
        "TOLLGATE_DEV_STDOUT": str(gateway.stdout),
        "TOLLGATE_TOKEN": gateway.mint("alice", "pro", reasoning, agent="clients"),
        "TOLLGATE_TOKEN_STRANGER": gateway.mint("bob", "pro", reasoning),
        "TOLLGATE_TOKEN_FREE": gateway.mint("carol", "free", reasoning),
        "TOLLGATE_TOKEN_AUDITOR": gateway.mint("erin", "pro", reasoning + reading),
        "TOLLGATE_TOKEN_BARE": gateway.mint("dave", "pro"),
    }  # fmt: skip
