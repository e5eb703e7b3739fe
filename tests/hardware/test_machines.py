"""A name of several devices gets no peak: the options that say the same are in the error.

How many devices a machine has is that of its vendor's page: AWS "Accelerated computing", Google
"GPU machine types" and "TPU versions", Azure "GPU accelerated", NVIDIA's data sheets.
"""

import json
from importlib.resources import files

import pytest

from crossflops.errors import UnknownNameError
from crossflops.hardware.devices.catalogue import catalogue_devices, find_device

H100 = "h100-sxm | h100-pcie | h100-nvl"
OPTIONS = {
    "H100x8": f"--device {H100} --devices 8",
    "8xH100": f"--device {H100} --devices 8",
    "8 x H100 SXM": "--device h100-sxm --devices 8",
    "A100-80GB x 4": "--device a100-pcie-80gb | a100-sxm4-80gb --devices 4",
    "p4d": "--device a100-sxm4-40gb --devices 8",
    "p5.48xlarge": "--device h100-sxm --devices 8",
    "g5.xlarge": "--device a10g",
    "a3-highgpu-8g": "--device h100-sxm --devices 8",
    "ND96isr_H100_v5": "--device h100-sxm --devices 8",
    "Standard_ND96isr_H100_v5": "--device h100-sxm --devices 8",
    "DGX A100": "--device a100-sxm4-40gb | a100-sxm4-80gb --devices 8",
    "NVIDIA DGX H100": "--device h100-sxm --devices 8",
    "GB200 NVL72": "--device gb200 --devices 72",
    "trn1.32xlarge": "--device trainium1 --devices 32",  # two NeuronCores a chip
    "TPU v5p-256": "--device tpu-v5p --devices 128",  # two TensorCores a chip, one device
    "v3-8": "--device tpu-v3 --devices 8",  # each core is a device
    "v5litepod-16": "--device tpu-v5e --devices 16",
    "v6e-256": "--device tpu-v6e --devices 256",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_name_of_several_devices_is_refused_with_the_options_to_give(name):
    """A share by the peak of one of them would be several times too high."""
    with pytest.raises(UnknownNameError, match="is a machine, not a device") as caught:
        find_device(name)
    devices, _, number = OPTIONS[name].removeprefix("--device ").partition(" --devices ")
    more = f"; `crossflops efficiency` takes --devices {number} with it" if number else ""
    assert caught.value.hint == f"name the device: {devices}{more}"


@pytest.mark.parametrize("name", ["0xH100", "8xfoo", "x8", "v9-8", "dgx"])
def test_what_is_no_machine_either_is_unknown(name):
    """No count and no machine is invented."""
    with pytest.raises(UnknownNameError, match=r"is unknown"):
        find_device(name)


def test_the_devices_of_all_machines_are_in_the_catalogue():
    """By their ids."""
    text = files("crossflops.hardware.devices").joinpath("machines.json").read_text("utf-8")
    named = {label for rows in json.loads(text).values() for _, label in rows.values()}
    assert named <= {device.label for device in catalogue_devices()}
