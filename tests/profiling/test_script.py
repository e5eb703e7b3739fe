"""`crossflops profile -- COMMAND`: a training script as it is, and one of its steps profiled."""

import json
import os
import shlex
import subprocess
import sys

import pytest

NET = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.last = nn.Linear(32, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))

torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    loss = nn.functional.mse_loss(net(torch.randn(10, 16)), torch.zeros(10, 4))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
print("left", len(net._forward_hooks), "forward" in vars(net))
sys.exit(int(sys.argv[1]))
"""
FORWARD = 10 * (16 * 32 + 32 * 4)
BACKWARD = FORWARD + 10 * 32 * 4  # of weights, and of what the last layer reads


def profiled(tmp_path, *words, options=()):
    """The command, run by this Python in that folder."""
    line = [sys.executable, "-m", "crossflops", "profile", *options, "--", *words]
    return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)


def error(done):
    """The two lines of a refusal, with status 2."""
    lines = done.stderr.splitlines()
    assert done.returncode == 2, done.stderr
    assert [line.partition(":")[0] for line in lines[-2:]] == ["error", "hint"]
    return lines[-2]


@pytest.mark.torch
def test_a_script_is_profiled_as_it_is(tmp_path):
    """It prints what it prints alone, ends as it ends, and nothing is left on its model."""
    (tmp_path / "train.py").write_text(NET)
    alone = subprocess.run(
        [sys.executable, "train.py", "0"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    done = profiled(
        tmp_path, sys.executable, "train.py", "7",
        options=("--step", "3", "-o", "step.json", "--peak-tflops", "1", "--depth", "0"),
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert done.stdout == alone.stdout
    step = json.loads((tmp_path / "step.json").read_text())
    assert [row["path"] for row in step["modules"]] == [""]  # the layers are a level deeper
    work = step["work"]
    assert work["forward_macs"] == FORWARD
    assert work["backward_input_macs"] + work["backward_weight_macs"] == BACKWARD


@pytest.mark.torch
def test_a_script_with_fewer_steps_says_so(tmp_path):
    """The profile of step 9 of a script of 4."""
    (tmp_path / "train.py").write_text(NET)
    done = profiled(tmp_path, sys.executable, "train.py", "0", options=("--step", "9"))
    assert error(done) == (
        "error: no step was profiled: the optimizer made only 4 steps, but step 9 was requested"
    )


@pytest.mark.torch
def test_a_script_that_compiles_a_function_around_its_model_says_so(tmp_path):
    """No call of the model is seen before the script ends."""
    compiled = 'run = torch.compile(lambda m, x: m(x), backend="eager")\nfor step'
    script = NET.replace("for step", compiled).replace("net(torch", "run(net, torch")
    (tmp_path / "train.py").write_text(script)
    done = profiled(tmp_path, sys.executable, "train.py", "0", options=("--step", "3"))
    assert "torch.compile compiled its calls into an enclosing function" in error(done)
    assert "TORCH_COMPILE_DISABLE=1" in error(done)


def test_a_program_without_an_optimizer_says_so(tmp_path):
    """A sitecustomize of its own runs as before."""
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    line = f"PYTHONPATH=$PYTHONPATH:. {shlex.quote(sys.executable)} -c 'print(1)'"
    done = profiled(tmp_path, "sh", "-c", line)
    assert done.stdout == "mine\n1\n"
    assert "none of its processes imported torch.optim" in error(done)


@pytest.mark.parametrize(
    ("words", "options", "why"),
    [
        (("no-such-command", "x"), (), "command 'no-such-command' was not found"),
        ((sys.executable, "x.py"), ("--step", "1"), "the first step of a script"),
        (
            (sys.executable, "x.py"),
            ("--device", "h1oo"),
            "the peak of device 'h1oo' is unknown",
        ),
        (
            (sys.executable, "x.py"),
            ("--as", "deepsped"),
            "no convention is known for the tool 'deepsped'",
        ),
        ((sys.executable, "x.py"), ("--input", "1x3"), "--input has no effect here"),
    ],
)
def test_a_wrong_request_is_refused_before_it_runs(tmp_path, words, options, why):
    """Two lines, and status 2."""
    (tmp_path / "x.py").write_text("open('ran', 'w')")
    assert error(profiled(tmp_path, *words, options=options)).startswith(f"error: {why}")
    assert os.listdir(tmp_path) == ["x.py"]


GAN = """
import torch
from torch import nn

critic = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
maker = nn.Sequential(nn.Linear(4, 16))
of_critic, of_maker = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (critic, maker))
for _ in range(4):
    fake = maker(torch.randn(10, 4))
    (critic(torch.randn(10, 16)).mean() - critic(fake.detach()).mean()).backward()
    of_critic.step()
    critic(fake).mean().backward()
    of_maker.step()
"""


@pytest.mark.torch
def test_a_step_of_two_optimizers_ends_with_the_second(tmp_path):
    """The maker's backward pass is in the step of its forward pass."""
    (tmp_path / "train.py").write_text(GAN)
    done = profiled(
        tmp_path, sys.executable, "train.py",
        options=("--step", "3", "-o", "step.json", "--peak-tflops", "1"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    step = json.loads((tmp_path / "step.json").read_text())
    critic, maker = 10 * (16 * 32 + 32), 10 * 4 * 16
    assert step["work"]["forward_macs"] == 3 * critic
    assert step["work"]["backward_weight_macs"] == 3 * critic
    # of the second layer in each call, of the first one where the maker stands in front
    assert step["work"]["backward_input_macs"] == 3 * 10 * 32 + 10 * 16 * 32
    (beside,) = step["beside"]
    assert beside["training"]["forward_macs"] == maker
    assert beside["training"]["backward_weight_macs"] == maker
