# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the documents that show bench/results. (windows.svg is
written by hand.)

    python3 bench/pictures/draw.py                  draws all beside itself
    python3 bench/pictures/draw.py --check          fails if one is not as it
                                                    would be drawn

Needs nothing but Python 3.6 or later."""
import argparse
import pathlib
import sys

import devices
import peers
import results

HERE = pathlib.Path(__file__).resolve().parent
PICTURES = {"peers": peers, "devices": devices}


def main():
    parser = argparse.ArgumentParser(description="Draws the pictures.")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows = results.read_rows()
    old = 0
    for name, picture in PICTURES.items():
        path = HERE / (name + ".svg")
        drawn = picture.draw(rows).written().encode("utf-8")
        if not options.check:
            path.write_bytes(drawn)
        elif not path.exists() or path.read_bytes() != drawn:
            print("%s is old: python3 bench/pictures/draw.py" % path.name)
            old += 1
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
