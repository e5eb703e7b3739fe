"""How the name of a device is read: as words, with and without its vendor."""

import re
from collections.abc import Iterator
from functools import lru_cache

from crossflops.core.device import Device

Words = tuple[str, ...]
_BRANDS = {"NVIDIA": "tesla"}  # words that drivers put between the vendor and the product
_MARKS = re.compile(r"\((?:r|tm|c)\)|[®™©]", re.IGNORECASE)
# What drivers write behind a name: the clock of a processor, the bus of a GPU in OpenGL, the
# revision of a board.
_TAILS = re.compile(r"(?: CPU)? ?@ ?[0-9.]+ ?GHz$|/PCIe(?:/SSE2)?$| Rev [0-9.]+$", re.IGNORECASE)
_SIZE = re.compile(r"([0-9]{1,4})gb")


@lru_cache(4096)
def words(name: str) -> Words:
    """The words of a name, in lower case; spaces, hyphens and underscores set them apart.

    Marks such as (R) are none of them, nor is what drivers write behind a name, and a slash binds
    what stands around it.

    >>> words("Intel(R) Xeon(R) CPU @ 2.70GHz"), words("MI250X / MI250")
    (('intel', 'xeon'), ('mi250x/mi250',))
    """
    plain = re.sub(r"[\s_-]+", " ", _MARKS.sub(" ", name)).strip()
    return tuple(re.sub(r" ?/ ?", "/", _TAILS.sub("", plain)).casefold().split())


def spellings(name: str, vendor: str) -> Iterator[Words]:
    """The name with and without the vendor, and the brand, in front of it."""
    maker, brand = vendor.casefold(), _BRANDS.get(vendor, "")
    bare = words(name)
    while len(bare) > 1 and bare[0] in (maker, brand):
        bare = bare[1:]
    yield from (bare, (maker, *bare)) if maker else (bare,)
    if brand:
        yield from ((brand, *bare), (maker, brand, *bare))


def sized(spelled: Words) -> tuple[Words, float] | None:
    """The words without the size of a memory, and that size in bytes; None where there is none.

    >>> sized(("a100", "80gb", "sxm"))
    (('a100', 'sxm'), 80000000000.0)
    """
    sizes = [
        (place, found) for place, one in enumerate(spelled) if (found := _SIZE.fullmatch(one))
    ]
    if len(sizes) != 1 or len(spelled) < 2:
        return None
    place, found = sizes[0]
    return (*spelled[:place], *spelled[place + 1 :]), int(found[1]) * 1e9


def labels(device: Device) -> tuple[str, ...]:
    """Everything that a device is called."""
    return device.label, device.name, *device.aliases


def contains(device: Device, text: str) -> bool:
    """Whether a name of the device contains the text, or what else it is begins a word with it."""
    wanted = " ".join(words(text))
    told = (device.vendor, device.kind, device.architecture)
    return any(wanted in " ".join(words(one)) for one in labels(device)) or any(
        f" {wanted}" in " ".join(("", *words(one))) for one in told
    )
