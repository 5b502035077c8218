# SPDX-License-Identifier: Apache-2.0
"""What fusing saves: bytes that each step of the unfused chain reads and
writes, beside the one kernel that works in place. Computed, not measured."""
import svg

# Swin-T's first stage at batch 64, fp16.
NAME = "Swin-T, first stage, 64 images of 224 × 224, fp16"
IMAGES, SIDE, HEADS, DIM, TOKENS, BYTES = 64, 56, 3, 32, 49, 2
TENSOR = IMAGES * SIDE * SIDE * HEADS * DIM * BYTES  # q, k, v, o or a gradient
WINDOWS = IMAGES * SIDE * SIDE // TOKENS
SCORES = WINDOWS * HEADS * TOKENS * TOKENS * BYTES  # S, P, dP or dS

# Step, tensors of tokens and matrices of scores that it reads and writes.
CHAIN = {
    "forward": [("partition q, k, v", 6, 0), ("S = scale QKᵀ", 2, 1),
                ("bias, mask, softmax", 0, 2), ("O = PV", 2, 1),
                ("reverse o", 2, 0)],
    "backward": [("partition dO", 2, 0), ("dV = PᵀdO", 2, 1),
                 ("dP = dO Vᵀ", 2, 1), ("dS of P, dP", 0, 3),
                 ("dBias: sum of dS", 0, 1), ("dQ = scale dS K", 2, 1),
                 ("dK = scale dSᵀQ", 2, 1), ("reverse dq, dk, dv", 6, 0)],
}
FUSED = {"forward": ("q, k, v in, o out", 4),
         "backward": ("q, k, v, dO in, dq, dk, dv out", 7)}
ROW, TOP = 26, 150
LEFT, WIDTH = {"forward": 176, "backward": 664}, 250


def megabytes(size):
    return "%.0f MB" % (size / 1e6)


def total(which):
    return sum(t * TENSOR + s * SCORES for _, t, s in CHAIN[which])


def draw_pass(p, which, scale):
    left, y, at = LEFT[which], TOP, 0.0
    p.text(left - 150, TOP - 18, which, 15, bold=True)
    for name, tensors, scores in CHAIN[which]:
        p.text(left - 8, y + 16, name, 12.5, anchor="end")
        size = tensors * TENSOR + scores * SCORES
        x = left + at * scale
        p.rect(x, y + 4, tensors * TENSOR * scale, ROW - 8, svg.ORANGE)
        p.rect(x + tensors * TENSOR * scale, y + 4, scores * SCORES * scale,
               ROW - 8, svg.PINK)
        p.line(x, y, x, y + 4, svg.GREY)
        at += size
        p.text(left + at * scale + 5, y + 17, megabytes(size), 11.5,
               svg.MUTED)
        y += ROW
    return y


def draw_sums(p, which, scale, y):
    left, fused = LEFT[which], FUSED[which][1] * TENSOR
    p.line(left - 150, y, left + WIDTH + 60, y)
    for name, size, colour in (("unfused, together", total(which), svg.GREY),
                               ("winattn, in place", fused, svg.BLUE)):
        p.text(left - 8, y + 23, name, 12.5, anchor="end", bold=True)
        p.rect(left, y + 9, size * scale, ROW - 6, colour)
        p.text(left + size * scale + 6, y + 24, megabytes(size), 13,
               bold=True)
        y += ROW + 2
    p.text(left, y + 20, "1 / %.1f of the bytes: %s"
           % (total(which) / fused, FUSED[which][0]), 12, svg.BLUE)


def draw(_):
    p = svg.Picture(
        1000, 502, "What fusing saves",
        "Bytes moved for %s: forward %s unfused and %s in place, backward %s "
        "and %s." % (NAME, megabytes(total("forward")),
                     megabytes(FUSED["forward"][1] * TENSOR),
                     megabytes(total("backward")),
                     megabytes(FUSED["backward"][1] * TENSOR)))
    p.headline("What fusing saves: bytes to and from memory", NAME +
               ": each tensor of tokens has %s, each matrix of scores %s."
               % (megabytes(TENSOR), megabytes(SCORES)))
    p.rect(24, 76, 14, 14, svg.ORANGE)
    p.text(44, 88, "tokens: q, k, v, o and their gradients", 13)
    p.rect(330, 76, 14, 14, svg.PINK)
    p.text(350, 88, "scores: S, P, dP, dS of all windows", 13)
    scale = WIDTH / max(total(which) for which in CHAIN)
    bottom = max(draw_pass(p, which, scale) for which in CHAIN)
    for which in CHAIN:
        draw_sums(p, which, scale, bottom + 8)
    p.text(24, 486, "Counted: inputs once, output once, scores in fp16, no "
           "caches; q, k, v and P are kept from the forward pass. A few MB "
           "of bias, mask, lse and sums are left out.", 11.5, svg.MUTED)
    return p
