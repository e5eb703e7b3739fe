"""A team's monorepo: three folders, five models, six kinds of budgets, and three requests.

One adds work by a node that nobody counts, one grows a layer, one moves a file. The page, the
comment, JUnit and the exit status tell them apart.
"""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.onnx_files import saved, with_weights

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATIONS = {
    "vision": """[budgets."net.onnx"]
rules = ["macs <= +1%"]
[budgets."small.onnx"]
rules = ["params <= 1k"]
""",
    "text": """[budgets."encoder.onnx"]
rules = ["model_bytes <= +0%"]
[budgets."encoder.onnx".modules]
"head" = ["macs <= 100"]
""",
    "audio": """[budgets."wave.onnx"]
rules = ["peak_activation_memory <= 1k"]
[budgets."wave.onnx".operators]
Softmax = ["nodes == 0"]
[budgets."voice.onnx"]
rules = ["macs <= 1k"]
""",
}  # six kinds: growth, a number, bytes, a module, the peak, an operator
MODELS = {
    "vision": ("net.onnx", "small.onnx"),
    "text": ("encoder.onnx",),
    "audio": ("wave.onnx", "voice.onnx"),
}


def model(columns=2, odd=False):
    """MACs of body 8 x 10 = 80 and of head 10 x COLUMNS, and a node of nobody's domain."""
    tail = "z = Relu(y) }" if not odd else "z = nobody.Mystery(y) }"
    text = (
        f"g (float[1,8] x, float[8,10] a, float[10,{columns}] b) => (float[1,{columns}] z) "
        f"{{ h = MatMul(x, a) y = MatMul(h, b) {tail}"
    )
    made = with_weights(text, "a", "b")
    for node, name in zip(made.graph.node, ("/body/MatMul", "/head/MatMul", "/tail"), strict=True):
        node.name = name
    if odd:
        made.opset_import.add(domain="nobody", version=1)
    return made


def add_unknown_node(repository):
    """One request: the net of vision ends in an operator that nobody counts."""
    saved(repository / "vision", model(odd=True), "net.onnx")


def grow_layer(repository):
    """Another: the head of the encoder has three columns in place of two."""
    saved(repository / "text", model(columns=3), "encoder.onnx")


def move_file(repository):
    """A third: a model of audio has another name."""
    (repository / "audio" / "voice.onnx").rename(repository / "audio" / "speech.onnx")
    file = repository / "audio" / "crossflops.toml"
    file.write_text(file.read_text().replace("voice.onnx", "speech.onnx"))


def git(folder, *words):
    """Run git there."""
    subprocess.run(["git", *words], cwd=folder, check=True)


def commit(folder):
    """Commit all that is there."""
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "Change models")


class Comments(BaseHTTPRequestHandler):
    """A pull request without comments, to which they are added."""

    def answer(self, content):
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer([])

    def do_POST(self):
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.comments.append(content["body"])
        self.answer({})

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def service():
    """A server that plays GitHub."""
    server = HTTPServer(("127.0.0.1", 0), Comments)
    server.comments = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def repository(tmp_path):
    """The three folders, committed, and a branch for a request."""
    folder = tmp_path / "mono"
    for name, models in MODELS.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "crossflops.toml").write_text(CONFIGURATIONS[name])
        for file in models:
            saved(folder / name, model(), file)
    git(folder, "init", "-q", "-b", "trunk")
    commit(folder)
    git(folder, "switch", "-qc", "request")
    return folder


def run_job(repository, folder, service):
    """The script of the Action in one folder; its exit status, page, comments and test cases."""
    known = {key: text for key, text in os.environ.items() if not key.startswith("GITHUB_")}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    event = repository.parent / "event.json"
    event.write_text('{"pull_request": {"number": 7}}')
    api = f"http://127.0.0.1:{service.server_port}"
    service.comments.clear()
    done = subprocess.run(
        [sys.executable, str(ROOT / "action" / "check.py")], cwd=repository / folder,
        capture_output=True, text=True, check=False, timeout=120,
        env=known | {
            "PYTHONPATH": path, "CHECK_FOLDER": folder, "CHECK_AGAINST": "trunk",
            "CHECK_JUNIT": "checks.xml", "CHECK_COMMENT": "changes", "no_proxy": "127.0.0.1",
            "GITHUB_EVENT_PATH": str(event), "GITHUB_API_URL": api, "GITHUB_REPOSITORY": "me/mine",
            "GITHUB_WORKSPACE": str(repository),
        },
    )  # fmt: skip
    cases = ElementTree.parse(repository / folder / "checks.xml")
    return done.returncode, done.stdout, list(service.comments), cases


# What each request does to the job of the folder that it touches: the status, the types of
# JUnit's failures, and the words of page and comment. 10 x 1 x 4 bytes are 40 more.
UNKNOWN = (add_unknown_node, "vision", 1, ["uncounted"], "Mystery")
LARGER = (grow_layer, "text", 1, ["limit"], "head +40")
MOVED = (move_file, "audio", 0, [], "moved from voice.onnx")
REQUESTS = (UNKNOWN, LARGER, MOVED)


@pytest.mark.parametrize(("change", "touched", "status", "types", "words"), REQUESTS)
def test_requests_are_told_apart(repository, service, change, touched, status, types, words):
    """By all that a job shows; the jobs of the other folders hold and comment nothing."""
    change(repository)
    commit(repository)
    for folder in MODELS:
        code, page, comments, cases = run_job(repository, folder, service)
        failures = [failure.get("type") for failure in cases.findall(".//failure")]
        if folder != touched:
            assert (code, comments, failures) == (0, [], [])
            continue
        assert (code, failures) == (status, types), page
        (comment,) = comments
        others = {case[-1] for case in REQUESTS} - {words}
        assert ("::error" in page) == bool(types)
        assert ("and nobody counted /tail" in page) == (types == ["uncounted"])
        for text in (page, comment, ElementTree.tostring(cases.getroot(), "unicode")):
            assert words in text
            assert not any(other in text for other in others), text
