# SPDX-License-Identifier: Apache-2.0
"""Device memory besides the caller's tensors, over the batch."""
import csv
import pathlib

import svg

TABLE = pathlib.Path(__file__).resolve().parent / "memory.csv"
NAMES = {"swin-t-224-s1": "Swin-T, first stage (49 tokens)",
         "swinv2-b-w16": "Swin V2-B, window 16 (256 tokens)"}
LINES = [  # column, pass, colour, dash, name
    ("unfused_bytes", "backward", svg.RED, "", "unfused, backward"),
    ("unfused_bytes", "forward", svg.ORANGE, "7 4", "unfused, forward"),
    ("winattn_bytes", "backward", svg.BLUE, "", "winattn, backward"),
    ("winattn_bytes", "forward", svg.SKY, "7 4", "winattn, forward"),
]
LEFTS, WIDTH, TOP, HEIGHT = (84, 560), 270, 150, 220


def size_text(size):
    if size >= 1e9:
        return ("%.1f" % (size / 1e9)).replace(".0", "") + " GB"
    return "%.0f MB" % (size / 1e6) if size else "0"


def read():
    shapes = {}
    with open(TABLE, encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            shapes.setdefault(line["shape"], []).append(line)
    return shapes


def draw_panel(p, shape, lines, left):
    most = max(int(line["unfused_bytes"]) for line in lines)
    images = max(int(line["images"]) for line in lines)
    tick = 10.0 ** len(str(most // 10))  # one digit and zeros
    tick = tick / 2 if most < 5 * tick else tick
    if most / tick > 6:
        tick *= 2
    p.text(left - 60, TOP - 24, NAMES[shape], 14, bold=True)
    for i in range(int(most / tick) + 1):
        y = TOP + HEIGHT * (1 - i * tick / most)
        p.line(left, y, left + WIDTH, y)
        p.text(left - 8, y + 4, size_text(i * tick), 11.5, svg.MUTED, "end")
    for n in (1, 64, 128, 192, 256):
        x = left + WIDTH * n / images
        p.text(x, TOP + HEIGHT + 18, "%d" % n, 11.5, svg.MUTED, "middle")
    p.text(left + WIDTH / 2, TOP + HEIGHT + 38, "images of a batch", 12,
           svg.MUTED, "middle")
    for column, which, colour, dash, _ in LINES:
        of = [line for line in lines if line["pass"] == which]
        p.curve([(left + WIDTH * int(line["images"]) / images,
                  TOP + HEIGHT * (1 - int(line[column]) / most))
                 for line in of], colour, 2.5, dash)
    bottom = TOP + HEIGHT
    for i, (column, which, _, _, _) in enumerate(LINES):
        last = [line for line in lines if line["pass"] == which][-1]
        size = int(last[column])
        y = TOP + HEIGHT * (1 - size / most)
        # winattn's lines lie on each other
        y = bottom - 16 if i == 2 else bottom + 6 if i == 3 else y + 5
        p.text(left + WIDTH + 8, y, "%s %s" % (which, size_text(size)), 13,
               svg.BLUE if i > 1 else svg.INK, bold=True)


def draw(_):
    shapes = read()
    p = svg.Picture(
        1000, 460, "Memory against batch",
        "; ".join("%s, 256 images: %s" % (
            NAMES[shape], ", ".join(
                "%s %s" % (name, size_text(int(
                    [l for l in lines if l["pass"] == which][-1][column])))
                for column, which, _, _, name in LINES))
            for shape, lines in shapes.items()))
    p.headline("Memory that a call needs besides the caller's tensors",
               "winattn: workspace and lse, by the planner for an H200 in "
               "fp16. Unfused: S, backward P and dS, in fp32 as the bench "
               "computes it.")
    x = 24
    for _, _, colour, dash, name in LINES:
        p.line(x, 84, x + 28, 84, colour, 2.5, dash)
        p.text(x + 36, 88, name, 13)
        x += 62 + 7.6 * len(name)
    for (shape, lines), left in zip(shapes.items(), LEFTS):
        draw_panel(p, shape, lines, left)
    p.text(24, 444, "bench/pictures/memory.csv, which memory_plans computes "
           "and a test compares. In the tensors' own 16 bits the unfused way "
           "would need half.", 11.5, svg.MUTED)
    return p
