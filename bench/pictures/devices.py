# SPDX-License-Identifier: Apache-2.0
"""How near each device comes to what it can do."""
import re

import svg

TITLE = "How near each device comes to its own ceiling"
CASES = [  # name of the bench's case, pass, label
    ("swin-t-224-s1-b64", "forward", "Swin-T windows, forward"),
    ("swin-t-224-s1-b64", "backward", "backward"),
    ("swinv2-t-w8-b64", "forward", "Swin V2-T windows, forward"),
    ("swinv2-t-w8-b64", "backward", "backward"),
    ("swinv2-b-w16-b32", "forward", "Swin V2-B, window 16, forward"),
    ("hat-ocab", "forward", "HAT, 256 × 576, forward"),
    ("swin-t-map-b64", "forward", "Swin-T map in place, forward"),
    ("swin-t-map-b64", "backward", "backward"),
    ("swba-narrow", "forward", "sliding, 4 blocks, forward"),
    ("swba-narrow", "backward", "backward"),
]
TYPES = {"fp32": svg.SKY, "fp16": svg.BLUE}
LABELS, ROW, TOP, RIGHT = 236, 34, 150, 976
ROW_OF_DEVICES = 4  # panels side by side


def fraction(row):
    """Of the nearer ceiling; what a matrix unit can multiply is not measured,
    so there bytes alone count."""
    copy = row.bytes / row.seconds / row.device.copy_bandwidth
    fma = row.operations / row.seconds / row.device.fma_rate
    return copy if "matrix" in row.tier else max(copy, fma)


def short_name(device):
    """Without what all of its kind share: PoCL's "pthread-haswell-Intel(R)
    ..." is "PoCL, haswell", "llvmpipe (LLVM 15...)" is "llvmpipe", an
    H100's memory is left out."""
    cpu = re.match(r"(?:pthread|cpu)-([a-z0-9.-]*[a-z0-9])", device.name)
    name = "PoCL, " + cpu.group(1) if cpu else re.sub(r" (\(|\d+ ?GB).*", "",
                                                      device.name)
    return name if len(name) <= 22 else name[:21] + "…"


def rate_text(rate, unit):
    return ("%.0f %s" if rate >= 100 else "%.3g %s") % (rate, unit)


def gather(rows):
    """{device's name: (device, {(case, pass, dtype): row})}, newest last."""
    wanted = {(name, which) for name, which, _ in CASES}
    found = {}
    for row in rows:
        if (row.name, row.which) in wanted and row.dtype in TYPES:
            entry = found.setdefault(row.device.name, [row.device, {}])
            entry[0] = row.device
            entry[1][row.name, row.which, row.dtype] = row
    return [tuple(entry) for _, entry in sorted(found.items())]


def draw_panel(p, device, of, cases, left, width, top):
    bottom = top + ROW * len(cases)
    p.text(left, top - 30, short_name(device), 13, bold=True)
    p.text(left, top - 12, rate_text(device.copy_bandwidth * 1e-9, "GB/s, ")
           + rate_text(device.fma_rate * 1e-12, "TFLOP/s"), 11.5, svg.MUTED)
    for tick in (0, 0.5, 1):
        x = left + width * tick
        p.line(x, top, x, bottom, svg.GREY if tick != 0.5 else svg.GRID)
        p.text(x, bottom + 16, "%g" % tick, 11.5, svg.MUTED, "middle")
    for i, (name, which, _) in enumerate(cases):
        for j, dtype in enumerate(TYPES):
            row = of.get((name, which, dtype))
            if not row:
                continue
            part = fraction(row)
            end = left + width * min(part, 1.02)
            y = top + ROW * i + 5 + 12 * j
            p.rect(left, y, end - left, 11, TYPES[dtype])
            p.text(end + 4, y + 9.5, "%.2f" % part, 10.5,
                   svg.MUTED)


def draw(rows):
    devices = gather(rows)
    if not devices:
        return svg.nothing_yet(TITLE, "bench/results has no run yet.")
    cases = [case for case in CASES
             if any(key[:2] == case[:2] for _, of in devices for key in of)]
    across = min(len(devices), ROW_OF_DEVICES)
    bands = -(-len(devices) // across)
    band = ROW * len(cases) + 82
    height = TOP - 40 + band * bands + 30
    p = svg.Picture(1000, height, TITLE,
                    "Fractions of copy bandwidth or multiply-add rate, for "
                    + ", ".join(device.name for device, _ in devices))
    p.headline(TITLE, "1 is the device's measured copy bandwidth or fp32 "
               "multiply-add rate, whichever is nearer; on matrix units the "
               "bandwidth.")
    for i, (dtype, colour) in enumerate(TYPES.items()):
        p.rect(24 + 80 * i, 72, 14, 14, colour)
        p.text(44 + 80 * i, 84, dtype, 13)
    step = (RIGHT - LABELS) / across
    for b in range(bands):
        top = TOP + band * b
        for i, (_, _, label) in enumerate(cases):
            if b or i:
                p.line(24, top + ROW * i, RIGHT, top + ROW * i)
            p.text(LABELS - 12, top + ROW * i + 21, label, 12.5, anchor="end")
        for i, (device, of) in enumerate(devices[b * across:(b + 1) * across]):
            draw_panel(p, device, of, cases, LABELS + step * i, step - 50, top)
    p.text(24, height - 16, "Each from the newest run of the device in "
           "bench/results; slow devices were given fewer windows. Where "
           "a bar is missing, that run has no such row.", 11.5,
           svg.MUTED)
    return p
