# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the documents from bench/results and from what the
scripts beside it compute.

    python3 bench/pictures/draw.py                  draws all beside itself
    python3 bench/pictures/draw.py --check          fails if one is not as it
                                                    would be drawn
    python3 bench/pictures/draw.py --results FOLDER --to FOLDER

Needs nothing but Python 3.6 or later."""
import argparse
import pathlib
import sys

import devices
import memory
import peers
import results
import traffic
import windows

HERE = pathlib.Path(__file__).resolve().parent
PICTURES = {"peers": peers, "windows": windows, "traffic": traffic,
            "devices": devices, "memory": memory}


def main():
    parser = argparse.ArgumentParser(description="Draws the pictures.")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--results", type=pathlib.Path,
                        default=results.FOLDER)
    parser.add_argument("--to", type=pathlib.Path, default=HERE)
    options = parser.parse_args()
    rows = results.read_rows(options.results)
    old = 0
    for name, picture in PICTURES.items():
        path = options.to / (name + ".svg")
        drawn = picture.draw(rows).written().encode("utf-8")
        if not options.check:
            path.write_bytes(drawn)
        elif not path.exists() or path.read_bytes() != drawn:
            print("%s is old: python3 bench/pictures/draw.py" % path.name)
            old += 1
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
