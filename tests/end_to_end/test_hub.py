"""`hf:org/name`: the config alone is fetched, once; without a network that is said at once."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools

ROOT = Path(__file__).resolve().parents[2]
CONFIG = json.dumps(
    {"model_type": "bert", "architectures": ["BertModel"], "num_hidden_layers": 1,
     "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 11}
).encode()  # fmt: skip
# Four tokens: projections of attention 4 x (4 x 8 x 8), scores and values 2 x (4 x 4 x 8),
# feed-forward 2 x (4 x 8 x 16), the pooler 8 x 8 on the first token.
MACS = 1024 + 256 + 1024 + 64


class Hub(BaseHTTPRequestHandler):
    """A hub with the config of me/tiny."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.server.paths.append(self.path)
        is_known = self.path == "/me/tiny/resolve/main/config.json"
        self.send_response(200 if is_known else 404)
        self.send_header("Content-Length", str(len(CONFIG) if is_known else 0))
        self.send_header("ETag", f'"{hashlib.sha1(CONFIG).hexdigest()}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(CONFIG)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def hub():
    """A server on this machine, until the test closes it."""
    server = HTTPServer(("127.0.0.1", 0), Hub)
    server.paths = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def count(name, home, port):
    """Exit status, MACs and stderr of the command with that hub and that cache."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "crossflops", "count", f"hf:{name}", "--seq", "4", "--json"],
        env=os.environ
        | {"PYTHONPATH": path, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0",
           "HF_ENDPOINT": f"http://127.0.0.1:{port}", "NO_PROXY": "127.0.0.1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    macs = json.loads(done.stdout)["totals"]["macs"] if done.stdout else None
    return done.returncode, macs, done.stderr


def test_the_config_alone_is_fetched_and_kept(hub, tmp_path):
    """No weights, no code; a second count asks for nothing of the repository."""
    for expected in ({"/me/tiny/resolve/main/config.json"}, set()):
        hub.paths.clear()
        status, macs, err = count("me/tiny", tmp_path, hub.server_port)
        assert (status, macs) == (0, MACS), err
        assert {path for path in hub.paths if "tiny" in path} == expected


def test_a_hub_that_is_not_reached_is_one_line(hub, tmp_path):
    """A name that it does not have, too; with what to do."""
    for port in (hub.server_port, 9):  # 9 discards, and nobody listens there
        status, _, err = count("me/other", tmp_path, port)
        assert status == 2
        assert err.startswith("error: the config of me/other is not in the local cache, and was")
        assert err.splitlines()[1:] == [
            "hint: check the name and the network, or give hf:config.json"
        ]
