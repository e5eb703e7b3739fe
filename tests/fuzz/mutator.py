"""Damaged files: one model with everything in it, cut or with a few bits turned."""

import random
from collections.abc import Iterator

SEED = (
    "g (float[batch,8,16] x, float[16,16] w, bool k) => (y) "
    "<int64 m = {3}, int64[3] s = {0, 4, 32}> { a = local.F <alpha = 0.5> (x, w) "
    "l = Loop (m, , a) <body = b (int64 i, bool c, float[batch,8,16] v) => (d, e) "
    "{ d = Identity(c) e = MatMul(v, w) }> f = If (k) <then_branch = t () => (p) "
    "{ p = MatMul(l, w) }, else_branch = o () => (q) { q = Identity(l) }> "
    "g = SequenceConstruct(f, f) h = SequenceMap <body = n (z) => (r) { r = Relu(z) }> (g) "
    "y = Reshape(f, s) } "
    '<domain: "local", opset_import: ["": 17]> F <alpha> (p, q) => (r) '
    "{ t = MatMul(p, q) r = LeakyRelu <alpha: float = @alpha> (t) }"
)


def mutants(data: bytes, number: int, seed: int = 0) -> Iterator[bytes]:
    """So many damaged copies of a file."""
    chance = random.Random(seed)
    for _ in range(number):
        changed = bytearray(data)
        if chance.random() < 0.3:
            del changed[chance.randrange(len(changed)) :]
        if changed and chance.random() < 0.2:  # a piece from elsewhere in the file
            begin, to = chance.randrange(len(data)), chance.randrange(len(changed))
            piece = data[begin : begin + chance.randint(1, 64)]
            changed[to : to + len(piece) * chance.randint(0, 1)] = piece
        for _ in range(chance.randint(0, 6)):
            if changed:
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        yield bytes(changed)
