#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes of a program in PTX for OpenCL one that CUDA's driver launches.

    replayable.py FROM TO

Arrays in local memory become one that is as large as the launch says, since
others may not be larger than 48 KiB, and what OpenCL's driver passes in
registers of its own becomes what it would be: no offset, one dimension. Prints
the bytes of local memory.
"""
import re
import sys

ARRAY = re.compile(r"^\s*\.shared\s+\.align\s+(\d+)\s+\.b8\s+(\S+)\[(\d+)\];",
                   re.M)


def move_arrays(text):
    """The text with one array in place of all, and its bytes."""
    places, size, alignment = {}, 0, 16
    for align, name, count in ARRAY.findall(text):
        size = -(-size // int(align)) * int(align)
        places[name] = size
        size += int(count)
        alignment = max(alignment, int(align))
    text = ARRAY.sub("", text)
    for name, at in places.items():
        text = re.sub(re.escape(name) + r"(?![\w$])",
                      f"all_local_memory+{at}" if at else "all_local_memory",
                      text)
    declaration = (f".extern .shared .align {alignment} "
                   ".b8 all_local_memory[];\n")
    entry = re.search(r"^\s*(\.visible\s+)?\.entry", text, re.M)
    if places:
        text = text[:entry.start()] + "\n" + declaration + text[entry.start():]
    return text, size


def main():
    with open(sys.argv[1], encoding="latin1") as source:
        text, size = move_arrays(source.read())
    text = text.replace("%envreg6", "%nctaid.x")
    text = re.sub(r"%envreg\d+", "0", text)
    text = re.sub(r",\s*texmode_independent", "", text)
    with open(sys.argv[2], "w", encoding="latin1") as target:
        target.write(text)
    print(size)


main()
