"""How much one core computes in a clock, from its instruction set and its model.

FLOPs per clock and core, 2 per FMA. A flag says which instructions there are, not how many units
execute them: where that depends on the product, family and model decide, and where they do not
tell, nothing is said. FP64 is half of FP32.

Sources: Intel, 64 and IA-32 Optimization Reference Manual (ports of each microarchitecture) and
ARK ("# of AVX-512 FMA Units"); AMD, Software Optimization Guides for families 17h, 19h and 1Ah;
Arm, Software Optimization Guides of Neoverse N1, V1, N2, V2 and of Cortex-A72 and A76; Fujitsu,
A64FX Microarchitecture Manual.
"""

import re
from collections.abc import Mapping

import msgspec

AMX = "AMX"
SVE = "SVE"
_ONE_UNIT = re.compile(r"\b(?:bronze|silver|gold 5\d\d\d)\b", re.IGNORECASE)
_TWO_512 = {85, 87, 106, 108, 143, 173, 174, 207}  # SKX to GNR, and Xeon Phi
_ONE_512 = {102, 125, 126, 140, 141, 167}  # client: Cannon, Ice, Tiger and Rocket Lake
_ATOMS = {0x86, 0x96, 0x9C, 0xBE, 0xAF}  # two 128-bit units, where they have AVX2
_HALF_ZEN5 = (*range(0x20, 0x30), *range(0x60, 0x70))  # Strix and Krackan Point: 256-bit paths
_ARM = {  # (implementer, part): name, FP32, and where they are known BF16 and INT8
    (0x41, 0xD03): ("Cortex-A53, one 64-bit unit or one 128-bit unit of half rate", 8, 0, 0),
    (0x41, 0xD07): ("Cortex-A57, one 128-bit unit", 8, 0, 0),
    (0x41, 0xD08): ("Cortex-A72, one 128-bit unit", 8, 0, 0),
    (0x41, 0xD0B): ("Cortex-A76, two 128-bit units", 16, 0, 64),
    (0x41, 0xD0C): ("Neoverse N1, two 128-bit units", 16, 0, 64),
    (0x41, 0xD0D): ("Cortex-A77, two 128-bit units", 16, 0, 64),
    (0x41, 0xD41): ("Cortex-A78, two 128-bit units", 16, 0, 64),
    (0x41, 0xD40): ("Neoverse V1, two 256-bit SVE units", 32, 128, 256),
    (0x41, 0xD44): ("Cortex-X1, four 128-bit units", 32, 0, 128),
    (0x41, 0xD49): ("Neoverse N2, two 128-bit units", 16, 0, 0),
    (0x41, 0xD4F): ("Neoverse V2, four 128-bit units", 32, 128, 256),
    (0x46, 0x001): ("A64FX, two 512-bit SVE units", 64, 0, 256),
    (0xC0, 0xAC3): ("AmpereOne, two 128-bit units", 16, 0, 0),
}


class Core(msgspec.Struct, frozen=True):
    """What a core is by its own words. `family` and `model` are those of x86, or None."""

    architecture: str
    vendor: str
    family: int | None
    model: int | None
    name: str
    flags: frozenset[str]
    implementer: int | None = None
    part: int | None = None


def flops_per_clock(core: Core) -> tuple[str, dict[str, int]]:
    """Which units, and FLOPs (OPs) per clock by precision; none where they are not known."""
    if core.architecture in ("x86_64", "AMD64", "i386", "i686"):
        return _x86(core)
    if core.architecture in ("aarch64", "arm64"):
        return _arm(core)
    return f"the units of {core.architecture} are not known", {}


def _x86(core: Core) -> tuple[str, dict[str, int]]:
    text, fp32 = _vector(core)
    if not fp32:
        return text, {}
    wide = "avx512f" in core.flags
    found = {"fp32": fp32, "fp64": fp32 // 2}
    if wide and "avx512_bf16" in core.flags:
        found["bf16"] = 2 * fp32
    if (wide and "avx512_vnni" in core.flags) or "avx_vnni" in core.flags:
        found["int8"] = 4 * fp32
    if "amx_tile" in core.flags:
        amx = {"amx_bf16": ("bf16", 1024), "amx_fp16": ("fp16", 1024), "amx_int8": ("int8", 2048)}
        found |= dict(row for flag, row in amx.items() if flag in core.flags)
        text += f", {AMX}"
    return text, found


def _vector(core: Core) -> tuple[str, int]:
    """The vector units of x86, and their FP32 FLOPs per clock; 0 where nobody knows."""
    if "avx512f" in core.flags:
        return _avx512(core)
    if "avx2" in core.flags and "fma" in core.flags:
        first_zen = core.family == 23 and (core.model or 0) < 0x30
        if first_zen or core.family == 24:  # Hygon's is the first Zen, too
            return "AVX2 on two 128-bit FMA units", 16
        if core.family == 6 and core.model in _ATOMS:
            return "AVX2 on two 128-bit FMA units", 16
        return "AVX2, two 256-bit FMA units", 32
    if "avx" in core.flags:
        return "AVX, a 256-bit multiplier and a 256-bit adder", 16
    return "SSE, a 128-bit multiplier and a 128-bit adder", 8


def _avx512(core: Core) -> tuple[str, int]:
    two, one = ("AVX-512, two 512-bit FMA units", 64), ("AVX-512, one 512-bit FMA unit", 32)
    halves = "AVX-512 on two 256-bit FMA units", 32
    if core.vendor == "AuthenticAMD":
        if core.family == 25:
            return halves
        if core.family == 26:
            return halves if core.model in _HALF_ZEN5 else two
    elif core.family == 6:
        if core.model == 85 and _ONE_UNIT.search(core.name):
            return one
        if core.model in _TWO_512:
            return two
        if core.model in _ONE_512:
            return one
    return "AVX-512, on one unit or two: this model is not known", 0


def _arm(core: Core) -> tuple[str, dict[str, int]]:
    known = _ARM.get((core.implementer or -1, core.part or -1))
    if known is None:
        scalable = f", with {SVE}" if "sve" in core.flags else ""
        return f"the units of this Arm core are not known{scalable}", {}
    text, fp32, bf16, int8 = known
    extra: Mapping[str, tuple[int, bool]] = {
        "bf16": (bf16, "bf16" in core.flags),
        "int8": (int8, bool(core.flags & {"asimddp", "i8mm"})),
    }
    more = {name: rate for name, (rate, there) in extra.items() if rate and there}
    return text, {"fp32": fp32, "fp64": fp32 // 2, **more}
