"""Which fused kernels ran while a tool counted, and what hooks change about it."""

from msgspec.structs import replace

from crossflops.core.profile import Profile
from crossflops.core.trace import Kernel, Setting
from crossflops.render.quantity import number
from crossflops.render.reasons import named

_SHOWN = 3  # kernels that are named before the rest is only numbered


def ran(profile: Profile) -> list[str]:
    """What ran in the setting of the tool; nothing where no kernel was fused, or nobody looked."""
    if not profile.kernels:
        return []
    rest = len(profile.kernels) - _SHOWN
    more = [f"and {number(rest, 'kernel')} more"] if rest > 0 else []
    where = "; ".join([*map(_where, profile.kernels[:_SHOWN]), *more])
    return [f"in {_words(profile.setting)} {where}"]


def _words(setting: Setting) -> str:
    """A setting in words.

    >>> _words(Setting(grad=False, hooked=True)), _words(Setting(training=True))
    ('evaluation without gradients, with hooks,', 'training')
    """
    mode = "training" if setting.training else "evaluation"
    mode += "" if setting.grad else " without gradients"
    return f"{mode}, with hooks," if setting.hooked else mode


def _where(kernel: Kernel) -> str:
    """A kernel and its modules.

    >>> _where(Kernel("aten._native_multi_head_attention.default", 3, ("a", "b")))
    'aten._native_multi_head_attention ran 3 times in 2 modules (a, and 1 more)'
    """
    homes = tuple(path or "the model" for path in kernel.modules)
    often = f"{kernel.times} times " if kernel.times != len(homes) else ""
    name = kernel.name.removesuffix(".default")
    return f"{name} ran {often}in {number(len(homes), 'module')} ({named(homes)})"


def changed_by_hooks(profiles: tuple[Profile, ...]) -> list[str]:
    """One line for each setting in which other kernels run when hooks sit on the modules."""
    seen: dict[str, dict[bool, list[Profile]]] = {}
    for one in profiles:
        if isinstance(one.kernels, tuple):
            plain = _words(replace(one.setting, hooked=False))
            seen.setdefault(plain, {}).setdefault(bool(one.setting.hooked), []).append(one)
    return [
        f"hooks change what runs in {setting}: {_names(both[True])} with them, "
        f"{_names(both[False])} without"
        for setting, both in seen.items()
        if len(both) == 2 and _kernels(both[True]) != _kernels(both[False])
    ]


def _kernels(profiles: list[Profile]) -> dict[str, int]:
    return {kernel.name: kernel.times for kernel in profiles[0].kernels or ()}


def _names(profiles: list[Profile]) -> str:
    kernels = _kernels(profiles)
    told = ", ".join(f"{name.removesuffix('.default')} x{n}" for name, n in kernels.items())
    return f"{told or 'no fused kernel'} ({', '.join(one.tool for one in profiles)})"
