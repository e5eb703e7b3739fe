"""A model that grows by 2 % fails in pytest, in pre-commit and in the GitHub Action, by
its module; a layer less passes, and is said.
"""

import contextlib
import importlib
import json
import os
import random
import shlex
import shutil
import socketserver
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.onnx_files import saved, with_weights

ROOT = Path(__file__).resolve().parents[2]
RULES = '[tool.crossflops.budgets."model.onnx"]\nrules = ["macs <= +1%", "params <= 1k"]\n'
TESTS = """import pytest

@pytest.mark.flops_budget("macs <= +1%")
def test_of_a_mark(flops_budget):
    flops_budget("model.onnx")

def test_of_the_configuration(flops_budget):
    assert flops_budget("model.onnx").checks[0].rule == "macs <= +1%"
"""
GREW, LESS = "head.more +20", "macs <= +1%: 200 saved"
GREW_OR_LESS = pytest.mark.parametrize(
    ("layers", "status", "words"), [(("body", "head", "more"), 1, GREW), (("body",), 0, LESS)]
)
# 10 x 8 x 10 = 800, 10 x 10 x 2 = 200, and 20 more MACs, which are 2 % of the first 1000
LAYERS = {
    "body": ("body/MatMul", "float[8,10] a", "a"),
    "head": ("body/head/MatMul", "float[10,2] b", "b"),
    "more": ("body/head/more/MatMul", "float[2,1] c", "c"),
}


def model(layers):
    """Products one after the other, each under its own module."""
    weights = [LAYERS[layer][1] for layer in layers]
    names = ["x", *(f"h{k}" for k in range(len(layers) - 1)), "y"]
    body = "\n".join(
        f"{names[k + 1]} = MatMul({names[k]}, {LAYERS[layer][2]})"
        for k, layer in enumerate(layers)
    )
    outputs = LAYERS[layers[-1]][1].partition("]")[0].rpartition(",")[2]
    text = f"g (float[10,8] x, {', '.join(weights)}) => (float[10,{outputs}] y) {{ {body} }}"
    made = with_weights(text, *(LAYERS[layer][2] for layer in layers))
    for node, layer in zip(made.graph.node, layers, strict=True):
        node.name = f"/{LAYERS[layer][0]}"
    return made


def run(folder, *words, **more):
    """A command of this Python in that folder, with the package of this tree."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    known = {key: text for key, text in os.environ.items() if not key.startswith("GITHUB_")}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=300,
        env=known | {"PYTHONPATH": path, "COLUMNS": "200"} | more, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A repository with a model of 1000 MACs, its budget, a test, and the baseline of it."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "pyproject.toml").write_text(RULES)
    (folder / "test_budget.py").write_text(TESTS)
    saved(folder, model(("body", "head")))
    assert run(folder, "-m", "crossflops", "check", "--update").returncode == 0
    tests = "-m", "pytest", "-q", "-p", "crossflops.pytest_plugin", "--update-flops"
    assert run(folder, *tests).returncode == 0
    return folder


@GREW_OR_LESS
def test_in_pytest(project, layers, status, words):
    """By the rules of a mark, and by those of the configuration."""
    saved(project, model(layers))
    done = run(project, "-m", "pytest", "-q", "-p", "crossflops.pytest_plugin", "--strict-markers")
    assert done.returncode == status, done.stdout + done.stderr
    assert words in done.stdout
    assert f"2 {'failed' if status else 'passed'}" in done.stdout
    assert "Traceback" not in done.stdout


def test_pytest_starts_without_the_package():
    """Until a test asks, the plugin brings itself along, and no library."""
    code = (
        "import sys, pytest; before = set(sys.modules); import crossflops.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    names = run(ROOT, "-c", code).stdout.split()
    assert [name for name in names if name.startswith("crossflops")] == [
        "crossflops", "crossflops.pytest_plugin",
    ]  # fmt: skip
    assert not {"click", "msgspec", "numpy", "onnx", "rich"} & set(names)
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    [(name, module)] = table["entry-points"]["pytest11"].items()
    assert name == module == "crossflops.pytest_plugin"


@GREW_OR_LESS
def test_in_pre_commit(project, layers, status, words):
    """Its entry on the files that changed; one that has no budget is named, and passes."""
    entry = next(
        line.partition(":")[2].split()
        for line in (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8").splitlines()
        if line.strip().startswith("entry:")
    )
    saved(project, model(layers))
    saved(project, model(layers), "other.onnx")
    done = run(project, "-m", *entry, "model.onnx", "other.onnx")
    assert (done.returncode, done.stderr) == (status, "")
    assert words in done.stdout
    assert "other.onnx has no budget" in done.stdout
    alone = run(project, "-m", *entry, "other.onnx")
    assert (alone.returncode, alone.stdout.strip()) == (0, "other.onnx has no budget.")


@pytest.fixture(scope="module")
def hooked(project, tmp_path_factory):
    """A repository of git with that project, whose commits run the hook of this working tree.

    pre-commit takes a hook from a commit, so that the files that make the package are in one.
    """
    source, folder = (tmp_path_factory.mktemp(name) for name in ("source", "hooked"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "crossflops", source / "crossflops")
    committed(source)
    revision = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=source, text=True)
    for name in ("pyproject.toml", "crossflops-baseline.json"):
        shutil.copy(project / name, folder)
    (folder / ".pre-commit-config.yaml").write_text(
        f"repos: [{{repo: {source}, rev: {revision.strip()}, hooks: [{{id: crossflops-check}}]}}]"
    )
    committed(folder)
    done = run(folder, "-m", "pre_commit", "install")
    assert done.returncode == 0, done.stderr
    return folder


def committed(folder, **more):
    """Commit everything in a folder: whether git did so, and the words that it and its hook print.

    Lines are wrapped at the width of the terminal, so the words are joined by single spaces.
    """
    if not (folder / ".git").is_dir():
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    names = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(
        ["git", *names, "commit", "-m", "x"], cwd=folder, capture_output=True, text=True,
        env=os.environ | more, timeout=600, check=False,
    )  # fmt: skip
    return done.returncode == 0, " ".join((done.stdout + done.stderr).split())


@pytest.mark.pre_commit
def test_a_commit_runs_the_hook(hooked, tmp_path_factory):
    """It installs this package for itself; what grew is not committed, a layer less is, and both
    are said.
    """
    home = {"PRE_COMMIT_HOME": str(tmp_path_factory.mktemp("home"))}
    saved(hooked, model(("body", "head", "more")))
    is_committed, printed = committed(hooked, **home)
    assert GREW in printed
    assert not is_committed
    saved(hooked, model(("body",)))
    is_committed, printed = committed(hooked, **home)
    assert LESS in printed
    assert is_committed


class GitHub(BaseHTTPRequestHandler):
    """The comments of pull request 7, with others before ours; each has its writer's login.

    Of the token of a job REST gives `github-actions[bot]`, and GraphQL's viewer may be without
    the ending.
    """

    def answer(self, content):
        self.server.calls.append(self.command)
        body = json.dumps(content).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def content(self):
        assert self.headers["Authorization"] == "Bearer secret"
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def do_GET(self):
        path, _, query = self.path.partition("?")
        assert path == "/repos/me/mine/issues/7/comments"
        assert query.startswith("per_page=100&page=")
        page = int(query.rpartition("=")[2])
        rows = [
            {"id": key, "body": text, "user": {"login": login} if login else None}
            for key, (login, text) in self.server.comments.items()
        ]
        self.answer(rows[(page - 1) * 100 : page * 100])

    def do_POST(self):
        content = self.content()
        if self.path == "/graphql":
            assert content == {"query": "query { viewer { login } }"}
            self.answer({"data": {"viewer": {"login": "github-actions"}}})
            return
        assert self.path == "/repos/me/mine/issues/7/comments"
        key = max(self.server.comments) + 1
        self.server.comments[key] = ("github-actions[bot]", content["body"])
        self.answer({})

    def do_PATCH(self):
        key = int(self.path.removeprefix("/repos/me/mine/issues/comments/"))
        assert key in self.server.comments
        login, _ = self.server.comments[key]
        assert login == "github-actions[bot]"  # as GitHub, which lets nobody write others' words
        self.server.comments[key] = (login, self.content()["body"])
        self.answer({})

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def github():
    """A server that plays GitHub, with 100 comments of others, some of whom begin as ours do."""
    server = HTTPServer(("127.0.0.1", 0), GitHub)
    server.calls, server.status = [], 200
    server.comments = dict.fromkeys(
        range(1, 99), ("someone", "what is <!-- crossflops check: . -->?")
    )
    server.comments[99] = ("someone", "<!-- crossflops check: . -->\ncopied from elsewhere")
    server.comments[100] = ("", "<!-- crossflops check: . -->\nof an account that was deleted")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def action(monkeypatch):
    """The script, with the module that writes the comment."""
    monkeypatch.syspath_prepend(str(ROOT / "action"))
    return importlib.import_module("check")


class Raw(socketserver.StreamRequestHandler):
    """Answer every request with the bytes that the server is to reply, or never."""

    def handle(self):
        while self.rfile.readline().strip():
            pass
        if self.server.reply is None:
            self.server.ended.wait(20)
            return
        with contextlib.suppress(OSError):
            self.wfile.write(self.server.reply)


@pytest.fixture
def answering(monkeypatch, tmp_path):
    """A server of bytes, at which the script looks for GitHub, and for GitLab."""
    event = tmp_path / "event.json"
    event.write_text('{"pull_request": {"number": 7}}')
    for name in ("GITLAB_CI", "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Raw) as server:
        server.daemon_threads, server.ended, server.reply = True, threading.Event(), b""
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        api = f"http://127.0.0.1:{server.server_address[1]}"
        for name, text in {
            "GITHUB_API_URL": api,
            "GITHUB_GRAPHQL_URL": f"{api}/graphql",
            "GITHUB_REPOSITORY": "me/mine",
            "GITHUB_EVENT_PATH": str(event),
            "CI_API_V4_URL": api,
            "CI_PROJECT_ID": "3",
            "CI_MERGE_REQUEST_IID": "7",
            "GITLAB_TOKEN": "secret",
            "no_proxy": "127.0.0.1",
        }.items():
            monkeypatch.setenv(name, text)  # fmt: skip
        yield server
        server.ended.set()
        server.shutdown()


def acted(project, github, folder, **inputs):
    """A run of the Action's script for pull request 7."""
    api = f"http://127.0.0.1:{github.server_port}"
    event = folder / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}))
    return run(
        project, str(ROOT / "action" / "check.py"),
        GITHUB_API_URL=api, GITHUB_GRAPHQL_URL=f"{api}/graphql", GITHUB_TOKEN="secret",
        GITHUB_REPOSITORY="me/mine", GITHUB_EVENT_PATH=str(event),
        GITHUB_STEP_SUMMARY=str(folder / "summary.md"), CHECK_JUNIT=str(folder / "checks.xml"),
        no_proxy="127.0.0.1", **inputs,
    )  # fmt: skip


def test_in_the_action(project, github, tmp_path):
    """One comment, made at the first run and brought up to date at the next; the job's summary has
    the page, JUnit the failure. What others wrote stays, also where it begins as ours does.
    """
    others = dict(github.comments)
    saved(project, model(("body", "head", "more")))
    done = acted(project, github, tmp_path)
    assert done.returncode == 1, done.stderr
    assert github.calls == ["GET", "GET", "POST", "POST"]  # both pages, who we are, the comment
    assert len(github.comments) == 101
    assert GREW in github.comments[101][1]
    assert GREW in (tmp_path / "summary.md").read_text()
    suite = ElementTree.parse(tmp_path / "checks.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert GREW in suite[0][0].get("message")

    saved(project, model(("body",)))
    assert acted(project, github, tmp_path).returncode == 0
    assert github.calls[4:] == ["GET", "GET", "POST", "PATCH"]
    assert len(github.comments) == 101
    assert "200 saved" in github.comments[101][1]
    assert acted(project, github, tmp_path).returncode == 0
    assert github.calls[8:] == ["GET", "GET", "POST"]
    assert github.comments.items() >= others.items()


class GitLab(BaseHTTPRequestHandler):
    """The notes of merge request 7 of project 3: one of somebody else begins as ours does."""

    def answer(self, content):
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def content(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]

    def do_GET(self):
        assert self.headers["PRIVATE-TOKEN"] == "secret"
        if self.path == "/user":
            self.answer({"id": 5, "username": "bot"})
            return
        assert self.path == "/projects/3/merge_requests/7/notes?sort=asc&per_page=100&page=1"
        self.answer([
            {"id": key, "body": text, "author": {"username": login}}
            for key, (login, text) in self.server.notes.items()
        ])  # fmt: skip

    def do_POST(self):
        assert self.path == "/projects/3/merge_requests/7/notes?sort=asc"
        self.server.notes[len(self.server.notes) + 1] = ("bot", self.content())
        self.answer({})

    def do_PUT(self):
        key = int(self.path.removeprefix("/projects/3/merge_requests/7/notes/"))
        assert self.server.notes[key][0] == "bot"
        self.server.notes[key] = ("bot", self.content())
        self.answer({})

    def log_message(self, *_):
        """Say nothing."""


def test_in_gitlab(project, tmp_path):
    """One note, made and brought up to date; code quality at the line of the rule; variables."""
    server = HTTPServer(("127.0.0.1", 0), GitLab)
    server.notes = {1: ("someone", "<!-- crossflops check: . -->\ncopied")}
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    names = {
        "GITLAB_CI": "true", "CI_API_V4_URL": f"http://127.0.0.1:{server.server_port}",
        "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7", "GITLAB_TOKEN": "secret",
        "CHECK_JUNIT": str(tmp_path / "checks.xml"), "no_proxy": "127.0.0.1",
        "CHECK_CODE_QUALITY": str(tmp_path / "quality.json"),
        "CHECK_DOTENV": str(tmp_path / "check.env"),
    }  # fmt: skip
    for layers, status, words in (
        (("body", "head", "more"), 1, GREW), (("body",), 0, "200 saved"),
    ):  # fmt: skip
        saved(project, model(layers))
        done = run(project, str(ROOT / "action" / "check.py"), **names)
        assert done.returncode == status, done.stderr
        assert words in server.notes[2][1]
        assert "::" not in done.stdout
        found = json.loads((tmp_path / "quality.json").read_text())
        assert len(found) == status
        if found:
            assert found[0]["location"] == {"path": "pyproject.toml", "lines": {"begin": 2}}
            assert words in found[0]["description"]
    assert server.notes[1] == ("someone", "<!-- crossflops check: . -->\ncopied")
    assert len(server.notes) == 2
    lines = (tmp_path / "check.env").read_text().splitlines()
    assert lines[0] == "CROSSFLOPS_STATUS=1"
    assert lines[2] == "CROSSFLOPS_STATUS=0"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_job_without_a_token_for_its_note_says_so(action, monkeypatch, capsys):
    """In a merge request alone, and where a note is wanted; the status is the check's."""
    monkeypatch.setattr(action, "run_check", lambda: action.Outcome(1, "page", ()))
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CI_MERGE_REQUEST_IID", "7")
    for token in ("", None):
        if token is None:
            monkeypatch.delenv("GITLAB_TOKEN")
        else:
            monkeypatch.setenv("GITLAB_TOKEN", token)
        assert action.main() == 1
        printed = capsys.readouterr().out
        assert "the job has no GITLAB_TOKEN" in printed
        assert "a token of the project with the scope api" in printed
    for name, text in (("CHECK_COMMENT", "false"), ("CI_MERGE_REQUEST_IID", "")):
        monkeypatch.setenv(name, text)
        assert action.main() == 1
        assert "GITLAB_TOKEN" not in capsys.readouterr().out
        monkeypatch.delenv("CHECK_COMMENT", raising=False)


def test_no_report_of_an_earlier_run_stays(project, tmp_path):
    """Where the check is refused, and where no file is like a target."""
    names = {
        "RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "out"),
        "CHECK_JUNIT": str(tmp_path / "checks.xml"),
    }  # fmt: skip
    saved(project, model(("body",)))
    for target, status in (("model.onnx", 0), ("no/*.onnx", 2), ("model.onnx", 0), ("no.onnx", 2)):
        (tmp_path / "out").write_text("")
        done = run(project, str(ROOT / "action" / "check.py"), CHECK_TARGETS=target, **names)
        assert done.returncode == status, done.stdout
        kept = [(tmp_path / name).exists() for name in ("crossflops.json", "checks.xml")]
        assert kept == [not status] * 2
        assert ("report=\n" in (tmp_path / "out").read_text()) == bool(status)


def test_two_uses_have_a_comment_each(project, github, tmp_path):
    """The one of all models, and the one of some; neither writes over the other's."""
    saved(project, model(("body",)))
    for _ in range(2):
        assert acted(project, github, tmp_path).returncode == 0
        assert acted(project, github, tmp_path, CHECK_TARGETS="model.onnx").returncode == 0
    heads = [github.comments[key][1].partition("\n")[0] for key in sorted(github.comments)[100:]]
    assert heads == ["<!-- crossflops check: . -->", "<!-- crossflops check: . model.onnx -->"]


def test_a_comment_that_is_refused_is_a_warning(project, github, tmp_path):
    """A token that may not write, as for a fork's pull request, fails nothing that holds."""
    saved(project, model(("body",)))
    github.status = 403
    done = acted(project, github, tmp_path)
    assert done.returncode == 0
    assert "::warning::crossflops could not write the comment: GitHub answered 403" in (
        done.stdout
    )
    assert "pull-requests: write" in done.stdout


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        ("\x1b[31m", {}, "it is no HTTP"),
        (403, {"X-RateLimit-Remaining": "0"}, "a limit of its API"),
        (429, {}, "a limit of its API"),
        (401, {}, "permissions: pull-requests: write"),
        (503, {}, "an outage"),
        (418, {}, "GitHub answered 418"),
    ],
)
def test_the_warning_fits_the_cause(action, answering, status, headers, words):
    """A limit, an outage, a token that may not write."""
    lines = {"Content-Length": 2, **headers}.items()
    head = "".join(f"{name}: {text}\r\n" for name, text in lines)
    answering.reply = f"HTTP/1.1 {status} No\r\n{head}\r\n{{}}".encode()
    host = action.host_of_job()
    with pytest.raises(action.CommentError) as caught:
        action.write_comment(host, "<!-- mark -->", "text")
    message = f"{caught.value} {caught.value.remedy}"
    assert words in message
    assert message.isprintable()


@pytest.mark.parametrize("host", ["GitHub", "GitLab"])
def test_whatever_a_host_answers_the_status_is_that_of_the_check(
    action, answering, monkeypatch, capsys, host
):
    """200 random ways: statuses, cuts, types, delays, no HTTP at all."""
    draw = random.Random(30)
    monkeypatch.setattr(sys.modules["comments"], "SECONDS_A_CALL", 0.05)
    if host == "GitLab":
        monkeypatch.setenv("GITLAB_CI", "true")
    kinds = [
        b"", b"{", b"[]", b"{}", b"[1, null]", b"null", b'[{"body": "<!-- crossflops"}]',
        b'{"data": []}', b"[" * 90_000, b"\xff\xfe", b"<html>", b'[{"body": {}}]',
        b'[{"body": "<!-- crossflops check: . -->", "id": [], "user": 3, "author": {}}]',
        b'{"data": {"viewer": {"login": "me"}}, "username": "me"}',
    ]  # fmt: skip
    for number in range(100):
        status = draw.choice([0, 1, 2])
        monkeypatch.setattr(action, "run_check", lambda s=status: action.Outcome(s, "page", ()))
        answering.reply = None if number % 25 == 0 else random_answer(draw, kinds)
        assert action.main() == status
    assert "Traceback" not in capsys.readouterr().out


def random_answer(draw, kinds):
    """Bytes that a server might send."""
    body = draw.choice(kinds)
    length = draw.choice([len(body), len(body) + 9, max(0, len(body) - 1), None, "many"])
    status = draw.choice([200, 200, 200, 201, 204, 301, 304, 400, 403, 404, 422, 429, 500, 502])
    head = f"HTTP/1.1 {status} X\r\n"
    head += "" if length is None else f"Content-Length: {length}\r\n"
    head += draw.choice(["", "Location: /elsewhere\r\n", "Transfer-Encoding: chunked\r\n"])
    whole = f"{head}\r\n".encode() + body
    return draw.choice([whole, whole[: draw.randrange(len(whole))], b"no HTTP\n"])


def test_a_server_that_never_ends_is_left(action, answering, monkeypatch):
    """The check is over then, and the job with it."""
    monkeypatch.setattr(sys.modules["comments"], "SECONDS_IN_ALL", 0.5)
    answering.reply = None
    with pytest.raises(action.CommentError, match="took over"):
        action.write_comment(action.host_of_job(), "<!-- mark -->", "text")


def test_a_comment_names_nobody_and_no_path_of_the_runner(action, monkeypatch):
    """It is cut behind a whole row."""
    monkeypatch.setenv("GITHUB_WORKSPACE", "/home/runner/work/x")
    monkeypatch.setenv("RUNNER_TEMP", "/home/runner/temp")
    page = f"@someone /home/runner/work/x/a.onnx /home/runner/temp/t {sys.prefix}/lib/site.py\n"
    body = action.comment_body("<!-- m -->", "t", page)
    assert "@someone" not in body
    assert "/home/runner" not in body
    assert sys.prefix not in body
    assert "a.onnx t lib/site.py" in body
    long = action.comment_body("<!-- m -->", "t", "| a | row |\n" * 9000)
    assert len(long) < 65_536
    assert all(line == "| a | row |" for line in long.splitlines()[3:-2])


@pytest.mark.parametrize(
    "event", ["", "[]", "null", "{}", '{"pull_request": null}', '{"pull_request": {"number": []}}']
)
def test_an_event_without_a_pull_request_has_no_comment(project, github, tmp_path, event):
    """Whatever it holds; the exit status is the check's."""
    saved(project, model(("body",)))
    (tmp_path / "other.json").write_text(event)
    done = run(
        project, str(ROOT / "action" / "check.py"), GITHUB_EVENT_PATH=str(tmp_path / "other.json"),
        GITHUB_API_URL=f"http://127.0.0.1:{github.server_port}", no_proxy="127.0.0.1",
    )  # fmt: skip
    assert done.returncode == 0
    assert github.calls == []


def test_a_failing_rule_is_an_annotation_and_the_status_an_output(project, tmp_path):
    """At the line of its budget; a target with an apostrophe and a pattern are read."""
    saved(project, model(("body", "head", "more")))
    outputs = tmp_path / "outputs"
    done = run(
        project, str(ROOT / "action" / "check.py"), CHECK_TARGETS="m*.onnx",
        GITHUB_OUTPUT=str(outputs), RUNNER_TEMP=str(tmp_path), GITHUB_WORKSPACE=str(project),
    )  # fmt: skip
    assert done.returncode == 1
    assert "::error file=pyproject.toml,line=2::model.onnx: macs <= +1%" in done.stdout
    assert "status=1" in outputs.read_text()
    assert json.loads((tmp_path / "crossflops.json").read_text())["checks"][0]["holds"] is False
    done = run(project, str(ROOT / "action" / "check.py"), CHECK_TARGETS="it's.onnx")
    assert done.returncode == 2
    assert "it's.onnx" in done.stdout


def test_extras_of_tools_are_plugins_that_lie_beside(monkeypatch):
    """No index need have them."""
    monkeypatch.syspath_prepend(str(ROOT / "action"))
    install = importlib.import_module("install")
    whole, *plugins = install.requirements("tools, torch", ROOT)
    assert whole == f"{ROOT}[torch]"
    assert [Path(folder).name for folder in plugins] == [
        "crossflops-calflops", "crossflops-fvcore", "crossflops-onnx-opcounter",
        "crossflops-onnx-tool", "crossflops-ptflops", "crossflops-thop", "crossflops-torch",
        "crossflops-torchinfo", "crossflops-torchprofile", "crossflops-torchstat",
    ]  # fmt: skip
    assert install.requirements("", ROOT) == [str(ROOT)]


def test_what_the_check_says_is_code_in_a_comment(project, tmp_path):
    """A name that would end a block of code, and what would be an image behind it."""
    summary = tmp_path / "summary.md"
    asked = "'```\n![x](y)'"
    done = run(project, str(ROOT / "action" / "check.py"), CHECK_TARGETS=asked,
               GITHUB_STEP_SUMMARY=str(summary))  # fmt: skip
    assert done.returncode == 2
    lines = summary.read_text().splitlines()
    assert lines[1] == "### crossflops check: the budgets could not be checked"
    assert "![x](y)" in summary.read_text()
    assert all(line.startswith("    ") for line in lines[3:] if line)


def test_the_action_runs_its_script():
    """With the variables that the script reads."""
    text = (ROOT / "action.yml").read_text("utf-8")
    script = "".join(
        (ROOT / "action" / name).read_text("utf-8") for name in ("check.py", "hosts.py")
    )
    for name in ("CHECK_TARGETS", "CHECK_FOLDER", "CHECK_JUNIT", "CHECK_COMMENT", "GITHUB_TOKEN"):
        assert f"{name}:" in text
        assert f'"{name}"' in script or f"'{name}'" in script
    [line] = [line for line in text.splitlines() if "check.py" in line]
    assert shlex.split(line.partition("run:")[2]) == ["python", "$ACTION/action/check.py"]
    assert "action/install.py" in text
