"""How the name of a device is read: as words, with and without its vendor."""

import re
from collections.abc import Iterator
from functools import lru_cache

from crossflops.core.device import Device

Words = tuple[str, ...]
_BRANDS = {"NVIDIA": "tesla"}  # words that drivers put between the vendor and the product
_MARKS = re.compile(r"\((?:r|tm|c)\)|[®™©]", re.IGNORECASE)


@lru_cache(4096)
def words(name: str) -> Words:
    """The words of a name, in lower case; spaces, hyphens and underscores set them apart.

    Marks such as (R) are none of them, and a slash binds what stands around it.

    >>> words("Intel(R) Xeon(R) Platinum 8480+"), words("MI250X / MI250")
    (('intel', 'xeon', 'platinum', '8480+'), ('mi250x/mi250',))
    """
    plain = re.sub(r"\s*/\s*", "/", _MARKS.sub(" ", name))
    return tuple(re.sub(r"[\s_-]+", " ", plain).casefold().split())


def spellings(name: str, vendor: str) -> Iterator[Words]:
    """The name with and without the vendor, and the brand, in front of it."""
    maker, brand = vendor.casefold(), _BRANDS.get(vendor, "")
    bare = words(name)
    while len(bare) > 1 and bare[0] in (maker, brand):
        bare = bare[1:]
    yield from (bare, (maker, *bare)) if maker else (bare,)
    if brand:
        yield from ((brand, *bare), (maker, brand, *bare))


def labels(device: Device) -> tuple[str, ...]:
    """Everything that a device is called."""
    return device.id, device.name, *device.aliases


def contains(device: Device, text: str) -> bool:
    """Whether a name of the device contains the text, or what else it is begins a word with it."""
    wanted = " ".join(words(text))
    told = (device.vendor, device.kind, device.architecture)
    return any(wanted in " ".join(words(one)) for one in labels(device)) or any(
        f" {wanted}" in " ".join(("", *words(one))) for one in told
    )
