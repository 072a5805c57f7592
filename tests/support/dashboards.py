"""Dashboards in processes of their own."""

import json
import signal
import subprocess
import sys
from pathlib import Path


class Server:
    """A dashboard in a process of its own."""

    closed = False

    def __init__(self, *roots: Path) -> None:
        command = [sys.executable, "-c", "import sys; from gpuyard.cli import main; sys.exit(main())"]
        command += ["dashboard", "--no-open", "--json", *map(str, roots)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = self._process.stdout.readline()
            assert line, "the dashboard did not start"
            text += line
        self.url = json.loads(text)["url"]
        self.base = self.url.partition("/?")[0]

    def close(self) -> None:
        self.closed = True
        self._process.send_signal(signal.SIGINT)
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
