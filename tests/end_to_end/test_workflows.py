"""The workflows of docs/ci.md, as far as they can run without the services that they are for.

Steps of others (a checkout, an interpreter, an upload) and installations are what the tests have
already. What crossflops is asked for is run: the Action by its script, commands as they stand.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from string import Template
from xml.etree import ElementTree

import pytest

from tests.docs.blocks import ROOT, blocks
from tests.onnx_files import saved, with_weights

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
pytestmark = pytest.mark.pre_commit

WORKFLOWS = {
    block.workflow: yaml.safe_load("\n".join(block.lines))
    for block in blocks(ROOT / "docs" / "ci.md")
    if block.workflow
}
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
OURS = "owner/crossflops@v0.1.0"
INSTALLS = ("pip install", "pip wheel")
EXPRESSION = re.compile(r"\$\{\{ ([^}]+) \}\}")
BUDGETS = '[budgets."model.onnx"]\nrules = ["macs <= +0%"]\n'


def steps(name):
    """All steps of a workflow of GitHub."""
    return [step for job in WORKFLOWS[name]["jobs"].values() for step in job["steps"]]


def filled(text, values):
    """The text with the value of every expression in it."""
    return EXPRESSION.sub(lambda match: str(values[match[1]]), str(text))


def run(folder, line, **more):
    """A line of a shell in that folder, in which `crossflops` and `python` are this tree's."""
    known = {
        key: text
        for key, text in os.environ.items()
        if not key.startswith(("GITHUB_", "GITLAB_", "CI_"))
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    python = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        ["bash", "-euc", line], cwd=folder, capture_output=True, text=True, timeout=300,
        env=known | {"PATH": path, "PYTHONPATH": python} | more, check=False,
    )  # fmt: skip


def run_action(folder, step, known):
    """The last step of action.yml, with the inputs of a step that uses it, and its outputs."""
    inputs = {name: entry["default"] for name, entry in ACTION["inputs"].items()} | step["with"]
    values = {f"inputs.{name}": value for name, value in inputs.items()}
    values |= {"github.action_path": ROOT, "github.token": ""} | known
    last = ACTION["runs"]["steps"][-1]
    variables = {name: filled(filled(text, values), values) for name, text in last["env"].items()}
    outputs = folder / "outputs"
    done = run(folder, last["run"], **variables, GITHUB_OUTPUT=str(outputs))
    lines = outputs.read_text("utf-8").splitlines()
    return done, dict(line.partition("=")[::2] for line in lines)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_it_asks_the_action_for_is_there(name):
    """Each input that it sets, and each output that it reads, is in action.yml."""
    for step in steps(name) if name.startswith(".github") else ():
        if step.get("uses") == OURS:
            assert set(step.get("with", ())) <= set(ACTION["inputs"])
        for _, output in re.findall(r"steps\.(\w+)\.outputs\.(\w+)", str(step)):
            assert output in ACTION["outputs"]


GROWS_OR_NOT = pytest.mark.parametrize(("columns", "status"), [(2, 0), (3, 1)])


def request_to(main, columns):
    """A clone in which the model of a repository's branch, of 4 MACs, has so many columns."""
    saved(main, product(2))
    (main / "crossflops.toml").write_text(BUDGETS)
    git(main, "init", "-q", "-b", "trunk")
    git(main, "add", ".")
    git(main, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "Add a model")
    folder = main.with_name("clone")
    git(main.parent, "clone", "-q", main, folder)
    saved(folder, product(columns))
    return folder


def product(columns):
    """A model of 1 x 2 x COLUMNS MACs."""
    text = (
        f"g (float[1,2] x, float[2,{columns}] w) => (float[1,{columns}] y) {{ y = MatMul(x, w) }}"
    )
    return with_weights(text, "w")


def git(folder, *words):
    """Run git there."""
    subprocess.run(["git", *map(str, words)], cwd=folder, check=True, capture_output=True)


@GROWS_OR_NOT
def test_budgets_on_github(tmp_path, columns, status):
    """A model of 2 x COLUMNS MACs where the branch has 4: the job ends as the check did."""
    (tmp_path / "main").mkdir()
    folder = request_to(tmp_path / "main", columns)
    values = {"github.base_ref": "trunk"}
    for step in steps(".github/workflows/flops.yml"):
        if step.get("uses") == OURS:
            done, outputs = run_action(folder, step, values)
            assert done.returncode == status, done.stdout + done.stderr
            values |= {f"steps.{step['id']}.outputs.{key}": text for key, text in outputs.items()}
        elif "run" in step:
            assert f"ended with {status}" in run(folder, filled(step["run"], values)).stdout
        elif step["uses"].startswith("actions/upload-artifact"):
            assert (folder / step["with"]["path"]).is_file()


@GROWS_OR_NOT
def test_budgets_on_gitlab(tmp_path, columns, status):
    """The lines of its script, in one shell as GitLab runs them; every report is written."""
    (job,) = WORKFLOWS[".gitlab-ci.yml"].values()
    (tmp_path / "main").mkdir()
    folder = request_to(tmp_path / "main", columns)
    git(folder, "update-ref", "-d", "refs/remotes/origin/trunk")
    target = {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "trunk"}
    variables = {
        name: Template(text).substitute(target) for name, text in job["variables"].items()
    }
    variables |= target | {"GITLAB_CI": "true", "CI_PROJECT_DIR": str(folder)}
    variables |= {"CROSSFLOPS": str(ROOT)}
    done = run(folder, "\n".join(job["script"]), **variables)
    assert done.returncode == status, done.stdout + done.stderr
    reports = job["artifacts"]["reports"]
    cases = ElementTree.parse(folder / reports["junit"]).findall(".//testcase/failure")
    assert len(cases) == status
    places = [row["location"] for row in json.loads((folder / reports["codequality"]).read_text())]
    assert places == [{"path": "crossflops.toml", "lines": {"begin": 2}}] * status
    lines = (folder / reports["dotenv"]).read_text().splitlines()
    assert lines[0] == f"CROSSFLOPS_STATUS={status}"
    for path in job["artifacts"]["paths"]:
        assert lines[1] == f"CROSSFLOPS_REPORT={folder / path}"
        assert len(json.loads((folder / path).read_text())["checks"]) == 1


def test_the_matrix_of_a_backend_names_environments_of_its_tox():
    """Each release of the matrix is one for which the example's tox.ini installs the tool."""
    name = ".github/workflows/counter.yml"
    (job,) = WORKFLOWS[name]["jobs"].values()
    tox = (ROOT / "examples" / "crossflops-mycounter" / "tox.ini").read_text("utf-8")
    lines = [step["run"] for step in job["steps"] if "run" in step]
    (line,) = (line for line in lines if not line.startswith(INSTALLS))
    for release in job["strategy"]["matrix"]["release"]:
        environment = filled(line, {"matrix.release": release}).removeprefix("tox -e ")
        assert f"    {environment}: mycounter=={release}\n" in tox
