"""How a tool folds work into one number, as data that can be printed, stored and diffed."""

from typing import Literal, TypeAlias

import msgspec

from crossflops.ir.trace import NESTED, OBSERVED, Level, Scalar, Setting, View

Kind: TypeAlias = Literal["core", "part", "unseen", "fails"]


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls a clause is about. Every field that is given must hold.

    `targets` are the names of the call's target, `fused` those of the kernel that swallowed the
    call in the setting under which the tool runs; "*" in them matches anything. `named` is what
    the enclosing module's bare class name, without its package, may look like.
    `bases` match a class from which that of the enclosing module (of the module itself, on the
    module level) is derived, `isa` that class too. `entry` matches the nearest function call
    around, `within` the class of any module call around, `under` the target of any function call
    around. `registered` asks whether the enclosing module has a name in the model. `settings` are
    compared for equality: a call's own, or on the module level the module's. `reached` is how
    that nearest function call came in: by "attribute" or by "reference". `has` and `lacks`
    name inputs of the call or parameters of the module, "*" as above. `dtypes` are those of the
    first input. `root` asks whether the module is the whole model, `leaf` whether it has no
    modules in it, `last` whether the call of the module is its last one. `outside` are classes
    such that no registered module of them, or of a subclass, was called around. `nested` asks
    whether a function of PyTorch is around.

    On the node level `targets` are operators, a domain other than ai.onnx before their name,
    `but` those that are left out, `settings` are attributes.
    """

    targets: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    via: str | None = None
    bases: tuple[str, ...] = ()
    entry: tuple[str, ...] = ()
    within: tuple[str, ...] = ()
    under: tuple[str, ...] = ()
    registered: bool | None = None
    settings: dict[str, Scalar] = {}
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    root: bool | None = None
    isa: tuple[str, ...] = ()
    leaf: bool | None = None
    last: bool | None = None
    named: tuple[str, ...] = ()
    reached: str | None = None
    outside: tuple[str, ...] = ()
    nested: bool | None = None


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a tool does.

    A "core" clause says how the contraction work of a call is counted, in MACs: the first core
    clause that matches a call holds, and stands for what the call does: for every operator
    beneath it, or those that `stands_for` names, but not for what hooks do. On the function
    level nothing else is booked beneath it. A "part" clause adds something, in the tool's own
    unit; all that match hold. An "unseen" clause, on the operator level, names why contraction
    work that no core clause covers is not seen; the first that matches holds. A "fails" clause
    says that the tool raises: on every call or node that matches, or, on the node level, with a
    formula on those for which that is not zero. The amount of the others is
    `factor` times the named `formula` of the call's specs, or `weights` over the cost of the
    nodes beneath the call, or nothing at all. `times` is a named formula of the module table,
    for tools that book one call several times.

    `again`, of a core or a part clause on the function level, is the cause under which a call is
    booked that the tool has counted already by a rule about the module around it: beside what
    that rule stands for, not in its place. `batch` is a named formula of the trace: the tool
    divides by it the sum of all that is booked so. `in_total_only` says that a tool that reports
    by module does not report this.
    """

    id: str
    cause: str
    level: Level
    match: Match
    kind: Kind
    formula: str | None = None
    factor: int = 1
    weights: dict[str, int] = {}
    times: str | None = None
    stands_for: tuple[str, ...] = ()
    reference: str = ""
    again: str = ""
    batch: str | None = None
    in_total_only: bool = False


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Which parameters a tool counts, and how often.

    Every parameter of a registered module once, unless something is said. With `modules` the tool
    goes down from the root, and counts all that is beneath a module of exactly such a class,
    once along each chain of parents; with `leaves` it counts those that modules without modules in
    them hold themselves, each module once. With `called` only where that module was called by
    `__call__`. With `trainable` frozen ones are left out. `extra` is a named formula of the trace
    that gives further elements by cause.

    A tool that counts files takes initializers: `stored` says whether "all" or those that a node
    of the graph "used", `scalar` how many elements it sees in one without axes.
    """

    modules: tuple[str, ...] = ()
    leaves: bool = False
    called: bool = False
    trainable: bool = False
    extra: str | None = None
    reference: str = ""
    stored: Literal["", "all", "used"] = ""
    scalar: int = 1


class Convention(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's clauses in one edition.

    `verified` lists the tool versions on which the clauses were held against the tool; it is empty
    for a convention that is no tool. `unit` is what the tool counts for one MAC, 0 if it counts
    none. `forces` are the parts of the setting that the tool
    imposes, whatever the caller asks. `sees` is the level on which it stands; of nodes, `opens`
    says whether it looks into functions, loops and branches, and `shapes` names what gives a graph
    the shapes that the tool infers, where these are its own. `counts_dead` says
    whether work whose result nobody uses is counted, `counts_stored` whether it is where that
    result is written into a buffer, a parameter or an input. `rules_add` says that a rule about a
    module is added to those about the modules in it, and does not stand in their place. `unseen`
    is the cause of contraction work that no clause matches. `parameters` says which parameters it
    counts, if any. `reads` names how the tool reads the calls of a level in `OBSERVED`, where it
    does not take them as they were recorded. `adds_up` names how the tool makes its number of all
    that is booked, where it is not their exact sum, and `rounds` is the cause of what it loses
    or wins so. `framework` is that of the
    models whose calls the clauses are about.
    """

    tool: str
    edition: str
    verified: tuple[str, ...]
    unit: int
    printed_as: str
    sees: Level
    clauses: tuple[Clause, ...]
    counts_dead: bool
    unseen: str
    counts_stored: bool = False
    opens: bool = True
    shapes: str | None = None
    forces: dict[str, bool | str] = {}
    rules_add: bool = False
    source: str = ""
    parameters: Parameters | None = None
    reads: None = None
    adds_up: str | None = None
    rounds: str = "precision.rounded"
    framework: str = "torch"

    def setting(self, asked: Setting) -> Setting:
        """The setting under which the tool runs when the caller asks for `asked`."""
        return msgspec.structs.replace(asked, **self.forces)

    def view(self, asked: Setting) -> View | None:
        """The real run without which the tool's number cannot be predicted; None for none."""
        setting = msgspec.structs.asdict(self.setting(asked))
        if self.sees in OBSERVED:
            return View(**setting, level=self.sees)
        kernels = {one for clause in self.clauses for one in clause.match.fused}
        if any(one.match.reached for one in self.clauses) or kernels - {f"{NESTED}*"}:
            return View(**setting, level="operator")
        return View(**setting, level="module") if kernels else None
