# SPDX-License-Identifier: Apache-2.0
"""Windows of a feature map, their shift, and the boundaries that it makes."""
import svg

SIZE, WINDOW, SHIFT = 8, 4, 2  # tokens along an axis
CELL, TOP = 25, 122
SIDE = SIZE * CELL
GAP = 46
# A window has a colour; its regions, which do not see each other, shades.
SHADES = {"A": ("#9fcae6",), "B": ("#f3cf80", "#e0a52a"),
          "C": ("#8fd0bc", "#3fa98a"),
          "D": ("#efc1da", "#dd9cc2", "#c57aa8", "#a85a8a")}


def region_of(x):
    """Of a rolled coordinate: the first windows, before the boundary, behind."""
    return 0 if x < SIZE - WINDOW else 1 if x < SIZE - SHIFT else 2


def name_of(y, x):
    """Window and region of a token of the rolled map."""
    row, column = region_of(y), region_of(x)
    window = "ABCD"[2 * (row > 0) + (column > 0)]
    part = 2 * max(row - 1, 0) + max(column - 1, 0)
    if window == "B":
        part = column - 1
    if window == "C":
        part = row - 1
    return window, part


def label_of(window, part):
    return window if window == "A" else "%s%d" % (window, part + 1)


def rolled_place(y, x):
    return (y - SHIFT) % SIZE, (x - SHIFT) % SIZE


def draw_tokens(p, left, colour_of):
    for y in range(SIZE):
        for x in range(SIZE):
            p.rect(left + x * CELL + 1, TOP + y * CELL + 1, CELL - 2,
                   CELL - 2, colour_of(y, x))


def cut(p, left, at, dash=""):
    """Lines across the map before tokens `at`, along both axes."""
    for i in at:
        p.line(left + i * CELL, TOP - 4, left + i * CELL, TOP + SIDE + 4,
               svg.INK, 2.5, dash)
        p.line(left - 4, TOP + i * CELL, left + SIDE + 4, TOP + i * CELL,
               svg.INK, 2.5, dash)


def label_pieces(p, left, place):
    """Each region's name in the middle of its tokens, as `place` has them."""
    pieces = {}
    for y in range(SIZE):
        for x in range(SIZE):
            rolled = rolled_place(y, x)
            at = rolled if place == "rolled" else (y, x)
            pieces.setdefault(name_of(*rolled), []).append(at)
    for (window, part), tokens in sorted(pieces.items()):
        y = sum(t[0] for t in tokens) / len(tokens) + 0.5
        x = sum(t[1] for t in tokens) / len(tokens) + 0.5
        p.text(left + x * CELL, TOP + y * CELL + 5, label_of(window, part),
               14, "#000000", "middle", True)


def caption(p, left, title, *lines):
    p.text(left, TOP - 14, title, 14, bold=True)
    for i, line in enumerate(lines):
        p.text(left, TOP + SIDE + 26 + 17 * i, line, 12, svg.MUTED)


def draw_mask(p, left):
    """What tokens of the last window see of each other."""
    tokens = [(SIZE - WINDOW + y, SIZE - WINDOW + x)
              for y in range(WINDOW) for x in range(WINDOW)]
    step = SIDE / len(tokens)
    for i, query in enumerate(tokens):
        for j, key in enumerate(tokens):
            window, part = name_of(*query)
            seen = name_of(*key) == (window, part)
            p.rect(left + j * step, TOP + i * step, step - 1, step - 1,
                   SHADES[window][part] if seen else "#eef0f2")


def draw(_):
    p = svg.Picture(
        1000, 394, "Windows and shift boundary",
        "A map of 8 x 8 tokens in windows of 4 x 4; shifted by 2, windows at "
        "the far edges hold tokens from opposite ends, which a mask keeps "
        "apart.")
    p.headline("Windows and shift boundary",
               "Attention stays inside a window; every second layer shifts "
               "the windows, so that neighbours meet. A mask keeps",
               "apart what the shift brings together from opposite ends. "
               "winattn reads and writes tokens as in 2; mask and 3 are "
               "never stored.")
    lefts = [28 + i * (SIDE + GAP) for i in range(4)]
    plain = ["#dbe9f4", "#f7e7c3", "#cdeae1", "#f3dbe8"]
    draw_tokens(p, lefts[0],
                lambda y, x: plain[2 * (y // WINDOW) + x // WINDOW])
    cut(p, lefts[0], (WINDOW,))
    caption(p, lefts[0], "1  windows", "8 × 8 tokens, windows of 4 × 4.")

    def shade(y, x):
        window, part = name_of(y, x)
        return SHADES[window][part]
    draw_tokens(p, lefts[1], lambda y, x: shade(*rolled_place(y, x)))
    cut(p, lefts[1], (SHIFT, SHIFT + WINDOW))
    label_pieces(p, lefts[1], "map")
    caption(p, lefts[1], "2  shifted by 2", "B, C and D wrap around:",
            "four windows in nine pieces.")
    draw_tokens(p, lefts[2], shade)
    cut(p, lefts[2], (WINDOW,))
    cut(p, lefts[2], (SIZE - SHIFT,), "5 4")
    label_pieces(p, lefts[2], "rolled")
    caption(p, lefts[2], "3  as it is computed", "Rolled and cut. Dashed: shift",
            "boundary, 2 tokens before the end.")
    draw_mask(p, lefts[3])
    caption(p, lefts[3], "4  mask of window D", "16 queries × 16 keys. Grey:", "−100 is added.")
    return p
