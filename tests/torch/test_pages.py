# SPDX-License-Identifier: Apache-2.0
"""Every example on the pages for people who use PyTorch."""
import os
import pathlib
import re
import unittest

from test_models import WindowAttention
from torch import nn

PAGES = pathlib.Path(os.environ["WINATTN_TEST_SOURCE"], "host", "python")


def run(page, printed, names, needs=""):
    """Runs what has `needs` in it, in one namespace; says how many."""
    blocks = [block for block in re.findall(
        r"```python\n(.*?)```", (PAGES / page).read_text(), re.S)
        if needs in block]
    names["print"] = lambda *words: printed.append(words)
    for block in blocks:
        # as a file, so that a decorator finds the text
        exec(compile(block, page, "exec"), names)
    return len(blocks)


class Pages(unittest.TestCase):
    def test_readme(self):
        printed, names = [], {"model": nn.Sequential(WindowAttention())}
        self.assertEqual(run("README.md", printed, names, "torch"), 2)
        self.assertEqual(names["o"].shape, (64, 3, 49, 32))
        self.assertEqual(len(printed[0][0].replaced), 1)

    def test_page(self):
        """What comments say is printed is."""
        try:
            import torchvision  # noqa: F401
        except ImportError as missing:
            self.skipTest(str(missing))
        printed, names = [], {}
        self.assertEqual(run("torch.md", printed, names), 8)
        of_flash, of_v2, report, shapes, error = printed
        self.assertEqual([*of_flash, *of_v2], [(64, 49, 96)] * 2)
        self.assertEqual((len(report[0].replaced), report[0].left), (12, {}))
        self.assertEqual(shapes, ((2, 56, 60, 3, 32), (169, 3)))
        self.assertIn("has the shape (64, 49, 4, 3, 32)", str(error[0]))


if __name__ == "__main__":
    unittest.main()
