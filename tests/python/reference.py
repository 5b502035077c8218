# SPDX-License-Identifier: Apache-2.0
"""What the package must compute, in plain numpy and float64, from the formulas
of winattn.h; numbers to compute it of; and how far off a result may be."""
import numpy

# Of a result and of a gradient, in the 2-norm; README.md promises them.
ERRORS = {"float32": (5e-6, 1e-5), "float16": (5e-4, 1e-3),
          "bfloat16": (4e-3, 6e-3)}


def random(seed, *shape):
    """Float32 numbers that float16 and bfloat16 hold exactly, too."""
    generator = numpy.random.default_rng(seed)
    return (generator.integers(-64, 65, shape) / 32).astype(numpy.float32)


def to_bf16(array):
    """float32 -> the bits of bfloat16, for numbers that it holds."""
    bits = numpy.ascontiguousarray(array, numpy.float32).view(numpy.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(numpy.uint16)


def from_bf16(array):
    return (array.astype(numpy.uint32) << 16).view(numpy.float32)


def expect_close(test, got, want, dtype="float32", gradient=False, name=""):
    got = numpy.asarray(got, numpy.float64)
    test.assertEqual(got.shape, want.shape, name)
    norm = numpy.linalg.norm(want)
    error = numpy.linalg.norm(got - want) / (norm if norm else 1)
    # not so NaN
    test.assertTrue(error <= ERRORS[dtype][gradient], f"{name}: {error}")


def lengths(x):
    return numpy.maximum(numpy.sqrt((x * x).sum(-1, keepdims=True)), 1e-12)


def attend(q, k, v, scale=None, logit_scale=None, cosine=False, added=0,
           d_o=None, d_lse=None):
    """[windows, heads, tokens, D] -> o, lse; with d_o also a dictionary of
    gradients, `added` among them (of what is added to the logits). All of
    float64; the heads of k must divide those of q."""
    q, k, v = (numpy.asarray(x, numpy.float64) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k_all, v_all = (numpy.repeat(x, group, 1) for x in (k, v))
    factor = numpy.full(q.shape[1], q.shape[-1] ** -0.5
                        if scale is None else scale)
    cosine = cosine or logit_scale is not None
    if logit_scale is not None:
        factor = numpy.exp(numpy.minimum(logit_scale.astype(numpy.float64),
                                         numpy.log(100)))
    factor = factor[:, None, None]
    q_used = q / lengths(q) if cosine else q
    k_used = k_all / lengths(k_all) if cosine else k_all
    dots = q_used @ k_used.swapaxes(-1, -2)
    s = factor * dots + added
    most = s.max(-1, keepdims=True)
    most = numpy.where(numpy.isfinite(most), most, 0)
    p = numpy.exp(s - most)
    total = p.sum(-1, keepdims=True)
    with numpy.errstate(divide="ignore"):
        lse = (most + numpy.log(total))[..., 0]
    p /= numpy.where(total > 0, total, 1)
    o = p @ v_all
    if d_o is None:
        return o, lse
    d_o = numpy.asarray(d_o, numpy.float64)
    dp = d_o @ v_all.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)
              + (0 if d_lse is None else d_lse[..., None]))
    dq = factor * ds @ k_used
    dk = (factor * ds).swapaxes(-1, -2) @ q_used
    if cosine:  # through the division by the length
        dq = (dq - q_used * (dq * q_used).sum(-1, keepdims=True)) / lengths(q)
        dk = ((dk - k_used * (dk * k_used).sum(-1, keepdims=True))
              / lengths(k_all))

    def join(x):  # heads that share a key head
        return x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2)

    return o, lse, {
        "dq": dq, "dk": join(dk), "dv": join(p.swapaxes(-1, -2) @ d_o),
        "added": ds,
        "d_logit_scale": (ds * dots).sum((0, 2, 3)) * factor[:, 0, 0]
        * (1 if logit_scale is None else logit_scale < numpy.log(100))}


def relative_index(window):
    """[tokens, tokens]: the entry of a table for each query and key."""
    tokens = numpy.stack(numpy.meshgrid(
        *(numpy.arange(n) for n in window), indexing="ij"), -1)
    tokens = tokens.reshape(-1, len(window))
    difference = tokens[:, None] - tokens + numpy.array(window) - 1
    index = 0
    for axis, extent in enumerate(window):
        index = index * (2 * extent - 1) + difference[..., axis]
    return index


def grid_tokens(size, window, shift, roll_first=False):
    """([windows, tokens], the same): for each token of each window its number
    on the grid, -1 where it is padding; and its region."""
    number = numpy.arange(numpy.prod(size)).reshape(size)
    region = numpy.zeros((), int)
    for axis, (n, w, s) in enumerate(zip(size, window, shift)):
        more = -n % w
        padding = [(0, 0)] * len(size)
        padding[axis] = (0, more)
        if roll_first:
            number = numpy.roll(number, -s, axis)
        number = numpy.pad(number, padding, constant_values=-1)
        if not roll_first:
            s = 0 if n + more == w else s
            number = numpy.roll(number, -s, axis)
        at = numpy.arange(n + more)
        band = (at >= n + more - w).astype(int) + (at >= n + more - s)
        region = region[..., None] * 3 + (band if s else 0 * band)
    return tuple(cut(x, window) for x in (number, region))


def cut(array, window):
    """A padded grid -> [windows, tokens]."""
    shape = []
    for n, w in zip(array.shape, window):
        shape += [n // w, w]
    axes = len(window)
    order = [*range(0, 2 * axes, 2), *range(1, 2 * axes, 2)]
    return array.reshape(shape).transpose(order).reshape(
        -1, int(numpy.prod(window)))


def sliding_mask(queries, keys, block, first_block=None, window_blocks=None,
                 sink=0, query_offset=0):
    """0 where a query sees a key, else -infinity."""
    first = block if first_block is None else first_block
    i = numpy.arange(queries)[:, None] + query_offset
    j = numpy.arange(keys)

    def block_of(x):
        return numpy.where(x < first, 0, 1 + (x - first) // block)

    seen = block_of(j) <= block_of(i)
    if window_blocks is not None:
        seen &= (block_of(j) > block_of(i) - window_blocks) | (j < sink)
    return numpy.where(seen, 0, -numpy.inf)
