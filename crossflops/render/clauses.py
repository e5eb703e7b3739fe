"""What a clause says, in words: whom it is about, under which conditions, and what it books."""

from itertools import groupby
from re import fullmatch, sub

from crossflops.core.convention import Clause, Match

_VIA = {"call": "called as module(x)", "forward": "called by .forward()"}
_REACHED = {"attribute": "by its name", "reference": "by a reference captured before"}
_LEAF = {None: "", True: "without modules in it", False: "with modules in it"}
_LAST = {None: "", True: "its last call alone", False: "but the last call"}
_NESTED = {None: "", True: "called by a function", False: "not called by a function"}
_REGISTERED = {None: "", True: "registered in the model", False: "registered nowhere"}
_MOST = 8  # operators that a line leaves out by name
_KNOWN = "a layer that is counted above"


def whom(clause: Clause) -> str:
    """The calls that a clause is about, by their targets."""
    match = clause.match
    if match.isa:
        return f"{', '.join(_together(match.isa))}, or a subclass"
    return targets(match)


def targets(match: Match) -> str:
    """The targets of a match: classes without their modules, operators without "aten".

    >>> targets(Match(targets=("torch.nn.modules.conv.Conv1d", "torch.nn.modules.conv.Conv2d")))
    'Conv1d/2d'
    >>> targets(Match(targets=("aten.linear.default", "aten.conv1d.padding", "aten.mv.*")))
    'linear, conv1d.padding, mv'
    >>> targets(Match(targets=("Conv", "*.Conv"))), targets(Match(but=("Conv", "*.Conv")))
    ('Conv', 'any but Conv')
    """
    left_out = _together(_of_any_domain(match.but))
    but = f"any but {', '.join(left_out)}" if left_out else "any"
    but = "any other" if len(left_out) > _MOST else but
    names = [one for one in _of_any_domain(match.targets) if one != "*"]
    return ", ".join(_together(tuple(names))) or but


def _of_any_domain(names: tuple[str, ...]) -> tuple[str, ...]:
    """Operators that are meant whatever their domain, each once."""
    return tuple(one for one in names if one.removeprefix("*.") == one or one[2:] not in names)


def conditions(match: Match, known: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """What else a match asks for, in words. `known` are classes that need not be listed.

    >>> conditions(Match(targets=("a.B",), settings={"bias": True}, root=False))
    ('bias=True', 'not as the whole model')
    """
    whole = {None: "", True: "as the whole model", False: "not as the whole model"}
    parts = (
        _listed("of a class named", match.named),
        _VIA.get(match.via or "", match.via or ""),
        _listed("in a subclass of", match.bases, known),
        _REACHED.get(match.reached or "", ""),
        _listed("through", match.entry),
        _listed("in", match.within, known),
        "outside of layers with a rule" if match.outside else "",
        _NESTED[match.nested],
        _listed("under", match.under),
        _REGISTERED[match.registered],
        *(f"{name}={value}" for name, value in match.settings.items()),
        _listed("with", match.has),
        _listed("without", match.lacks),
        _listed("run as", match.fused),
        _listed("of", match.dtypes),
        whole[match.root],
        _LEAF[match.leaf],
        _LAST[match.last],
    )
    return tuple(part for part in parts if part)


def booked(clause: Clause) -> str:
    """The amount of one call in words.

    >>> from crossflops.core.convention import Match
    >>> booked(Clause(id="x", cause="norm.batch", storey="module", match=Match(), kind="part",
    ...               formula="numel_in", factor=4))
    '4 x numel_in'
    """
    if not clause.formula and not clause.weights:
        return "always" if clause.kind == "fails" else "nothing"
    sum_ = " + ".join(f"{weight} x {kind}" for kind, weight in clause.weights.items())
    amount = clause.formula or (f"({sum_})" if clause.factor != 1 else sum_)
    return amount if clause.factor == 1 else f"{clause.factor} x {amount}"


def _listed(word: str, names: tuple[str, ...], known: frozenset[str] = frozenset()) -> str:
    if not names:
        return ""
    if known and set(names) == known:
        return f"{word} {_KNOWN}"
    return f"{word} {' or '.join(_together(names))}"


def _together(names: tuple[str, ...]) -> list[str]:
    """Short names, neighbours that differ in their number of dimensions as one."""
    short = [sub(r"^(torch\.nn\.modules\.\w+|aten)\.|\.(default|\*)$", "", one) for one in names]
    short = [sub(r"^torch\.nn\.functional\.", "F.", one) for one in short]
    found = []
    for (start, end), alike in groupby(map(_split, short), lambda parts: (parts[0], parts[2])):
        found.append(f"{start}{'/'.join(middle for _, middle, _ in alike)}{end}")
    return found


def _split(name: str) -> tuple[str, str, str]:
    """The name before its number of dimensions, that number, and what follows."""
    found = fullmatch(r"(.*?)([123]d)(.*)", name)
    return (found[1], found[2], found[3]) if found else (name, "", "")
