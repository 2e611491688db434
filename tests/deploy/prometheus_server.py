"""A real Prometheus on a free port of loopback: that of the tests of dashboards, and that of the live alerts."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
import urllib.parse
import urllib.request
from typing import Any


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Prometheus:
    """Runs from its making to stop(). `configuration` is a file in a folder where it may write."""

    def __init__(self, program: str, configuration: pathlib.Path) -> None:
        folder = configuration.parent
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = folder / "prometheus.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={configuration}",
                    f"--storage.tsdb.path={folder / 'series'}",
                    f"--web.listen-address={self.url.removeprefix('http://')}",
                    "--log.level=error",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            self.ask("query", query="vector(1)")
        except OSError:
            return False
        return True

    def ask(self, path: str, **arguments: str) -> Any:
        """The data of its answer; an exception where it is not up, or refuses. Once it has ended: why."""
        if self._process.poll() is not None:
            raise RuntimeError(f"Prometheus has ended: {self._log.read_text()[-2000:]}")
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=10) as reply:
            answer = json.load(reply)
        assert answer["status"] == "success"
        return answer["data"]

    def query(self, expression: str) -> list[float]:
        """The values of an instant query."""
        return [float(series["value"][1]) for series in self.ask("query", query=expression)["result"]]

    def samples(self, selector: str, seconds: int) -> list[tuple[float, float]]:
        """(time, value) of each sample of all series that it selects, in so many last seconds, in order."""
        found = self.ask("query", query=f"{selector}[{seconds}s]")["result"]
        return sorted((float(at), float(value)) for series in found for at, value in series["values"])

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(10)
