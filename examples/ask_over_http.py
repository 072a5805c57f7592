"""A scheduler of yours that asks a policy over HTTP, with nothing but the standard library.

Start the policy first: gpuyard serve http --policy sjf+easy --mode active --control start
Without an answer within two seconds, do what your scheduler would do by itself.
"""

import http.client
import json
import socket
import sys


class Agent(http.client.HTTPConnection):
    """A connection over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("agent", timeout=2.0)
        self.path = path

    def connect(self) -> None:
        """Connect to the socket's path instead of a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def decide(path: str, state: dict) -> list[dict]:
    """What to do now; nothing if the policy does not answer."""
    agent = Agent(path)
    try:
        agent.request("POST", "/v1/decide", json.dumps(state), {"Content-Type": "application/json"})
        answer = agent.getresponse()
        document = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"no answer: {error}", file=sys.stderr)
        return []
    finally:
        agent.close()
    if answer.status != 200:
        print(f"{document['error']}; {document['do']}", file=sys.stderr)
        return []
    return document["actions"]


STATE = {
    "source": "my scheduler",
    "now_s": 1_800_000_100.0,
    "nodes": [{"name": "gn1", "gpus": 8, "cpus": 64, "memory_mib": 512_000}],
    "jobs": [
        {"id": "long", "phase": "waiting", "held": "agent", "submit_s": 1.8e9, "gpus": 8, "limit_s": 7200.0},
        {"id": "short", "phase": "waiting", "held": "agent", "submit_s": 1.8e9, "gpus": 8, "limit_s": 600.0},
    ],
}

if __name__ == "__main__":
    for action in decide(sys.argv[1] if len(sys.argv) > 1 else "gpuyard-serve/agent.socket", STATE):
        print(action)
