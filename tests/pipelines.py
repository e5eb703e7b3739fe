"""The list of passes of a frontend in other orders, and without one of them."""

import random

import msgspec

from crossflops.frontends.passes import PassGroup, PassOrderError


def _levels(passes):
    """Each list of passes, and what puts another list in its place."""
    yield passes, lambda other: other
    for at, step in enumerate(passes):
        if isinstance(step, PassGroup):
            for level, rebuild in _levels(step.passes):

                def put_back(other, at=at, step=step, rebuild=rebuild):
                    group = msgspec.structs.replace(step, passes=rebuild(other))
                    return (*passes[:at], group, *passes[at + 1 :])

                yield level, put_back


def with_passes(pipeline, passes):
    """The pipeline with other passes."""
    return msgspec.structs.replace(pipeline, passes=tuple(passes))


def is_accepted(pipeline):
    """Whether the order is right; where it is not, the message names a requirement."""
    try:
        pipeline.check_order()
    except PassOrderError as error:
        if " requires '" not in str(error):
            raise
        return False
    return True


def not_needed(pipeline):
    """The names of the passes and groups without which nothing is missed."""
    return [
        level[at].name
        for level, rebuild in _levels(pipeline.passes)
        for at in range(len(level))
        if is_accepted(with_passes(pipeline, rebuild((*level[:at], *level[at + 1 :]))))
    ]


def _swapped(passes, at):
    return (*passes[:at], passes[at + 1], passes[at], *passes[at + 2 :])


def free_pairs(pipeline):
    """The names of neighbours that may change places."""
    return {
        (level[at].name, level[at + 1].name)
        for level, rebuild in _levels(pipeline.passes)
        for at in range(len(level) - 1)
        if is_accepted(with_passes(pipeline, rebuild(_swapped(level, at))))
    }


def accepted_orders(pipeline, number, seed=0, steps=60):
    """So many orders of the passes that are accepted, drawn by this seed."""
    draw = random.Random(seed)
    for _ in range(number):
        current = pipeline
        for _ in range(steps):
            level, rebuild = draw.choice([at for at in _levels(current.passes) if len(at[0]) > 1])
            other = rebuild(_swapped(level, draw.randrange(len(level) - 1)))
            other = with_passes(pipeline, other)
            current = other if is_accepted(other) else current
        yield current


def flat(pipeline):
    """The passes, those of groups in their places."""
    pending = list(pipeline.passes)
    while pending:
        step = pending.pop(0)
        if isinstance(step, PassGroup):
            pending = [*step.passes, *pending]
        else:
            yield step
