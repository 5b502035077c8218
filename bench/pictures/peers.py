# SPDX-License-Identifier: Apache-2.0
"""winattn beside PyTorch and the Triton originals on an H200."""
import math

import results
import svg

TITLE = "winattn beside PyTorch and the Triton originals"
PEERS = {  # shape, colour, and how far from the middle of its row
    "eager": ("PyTorch eager", "circle", svg.GREY, -9),
    "compile": ("PyTorch compile", "square", svg.GREEN, -3),
    "sdpa": ("PyTorch SDPA", "triangle", svg.PINK, 4),
    "flex": ("FlexAttention", "flipped", svg.SKY, -5),
    "triton": ("Triton original", "diamond", svg.ORANGE, 9),
}
LABELS, TIME, PLOT, BEST = 238, 66, 246, 60
ROW, TOP = 46, 150
LEAST, MOST = 0.04, 320.0


def time_text(seconds):
    if seconds < 0.9995e-3:
        return "%.3g µs" % (seconds * 1e6)
    return "%.3g ms" % (seconds * 1e3)


def factor_text(factor):
    return "%.2f×" % factor if factor < 0.995 else "%.1f×" % factor


def place(factor, left):
    at = math.log(factor / LEAST) / math.log(MOST / LEAST)
    return left + PLOT * min(max(at, 0), 1)


def draw_axis(p, which, left, rows):
    bottom = TOP + ROW * rows
    p.rect(left, TOP, place(1, left) - left, ROW * rows, "#fdf1ea")
    p.text(left - TIME + 2, TOP - 34, which, 15, bold=True)
    p.text(left - 8, TOP - 10, "winattn", 12, svg.BLUE, "end", True)
    p.text(left + PLOT + BEST - 6, TOP - 10, "fastest other", 12, svg.MUTED, "end")
    for factor in (0.1, 1, 10, 100):
        x = place(factor, left)
        p.line(x, TOP, x, bottom, svg.BLUE if factor == 1 else svg.GRID,
               2 if factor == 1 else 1)
        p.text(x, bottom + 17, "%g×" % factor, 12, svg.MUTED, "middle")
    p.text(place(1, left) - 6, TOP - 10, "faster", 11, svg.RED, "end")
    p.text(place(1, left) + 6, TOP - 10, "slower than winattn", 11, svg.MUTED)


def draw_row(p, problem, which, row, left, y):
    if not row:
        return
    p.text(left - 8, y + 5, time_text(row.seconds), 13, svg.BLUE, "end", True)
    factors = {peer: times[which] / row.seconds
               for peer, times in problem["times"].items() if which in times}
    for peer in PEERS:
        if peer in factors:
            _, kind, colour, down = PEERS[peer]
            p.shape(kind, place(factors[peer], left), y + down, colour)
    if factors:
        best = min(factors.values())
        p.text(left + PLOT + BEST - 6, y + 5, factor_text(best), 13,
               svg.RED if best < 0.995 else svg.INK, "end", True)


def draw(rows):
    found = []
    for problem in results.read_peers():
        of = {which: results.newest(rows, "H200", problem["case"], "fp16",
                                    which)
              for which in ("forward", "backward")}
        if of["forward"] or of["backward"]:
            found.append((problem, of))
    if not found:
        return svg.nothing_yet(
            TITLE, "bench/results has no run of an H200 with these shapes yet.")
    height = TOP + ROW * len(found) + 66
    lines = ["%s forward %s" % (problem["label"],
                                time_text(of["forward"].seconds))
             for problem, of in found if of["forward"]]
    p = svg.Picture(1000, height, TITLE + ", H200, fp16",
                    "How many times as long others take. winattn: "
                    + "; ".join(lines))
    p.headline(TITLE + ": NVIDIA H200, fp16",
               "How many times winattn's time the others take, on a "
               "logarithmic scale. Bias and mask, all gradients.")
    x = 24
    for name, kind, colour, _ in PEERS.values():
        p.shape(kind, x + 7, 85, colour)
        p.text(x + 20, 90, name, 13)
        x += 40 + 7.6 * len(name)
    lefts = {"forward": LABELS + TIME,
             "backward": LABELS + 2 * TIME + PLOT + BEST + 8}
    for which, left in lefts.items():
        draw_axis(p, which, left, len(found))
    for i, (problem, of) in enumerate(found):
        y = TOP + ROW * (i + 0.5)
        p.line(24, TOP + ROW * i, 982, TOP + ROW * i)
        p.text(24, y - 3, problem["label"], 13)
        p.text(24, y + 14, problem["detail"], 11.5, svg.MUTED)
        for which, left in lefts.items():
            draw_row(p, problem, which, of[which], left, y)
    device = max((row for _, of in found for row in of.values() if row),
                 key=lambda row: row.device.date).device
    made_by = " ".join(
        word for word in ("winattn", device.version, device.commit) if word)
    p.text(24, height - 18,
           "%s, driver %s, %s. The others: bench/results/peers_h200.csv; the "
           "Triton kernel of the dot variant takes no mask."
           % (made_by, device.driver, device.date[:10]), 11.5, svg.MUTED)
    return p
