# SPDX-License-Identifier: Apache-2.0
"""The examples of host/python/README.md run, one after the other, and say what
they are said to say."""
import os
import pathlib
import re
import unittest

from places import device, pyopencl

README = pathlib.Path(os.environ["WINATTN_TEST_SOURCE"], "host", "python",
                      "README.md")


class Examples(unittest.TestCase):
    def test_examples(self):
        device()
        blocks = [block for block in re.findall(
            r"```python\n(.*?)```", README.read_text(), re.S)
            if "torch" not in block]  # see tests/torch
        self.assertEqual(len(blocks), 2)
        names, printed = {}, []
        for block in blocks:
            if "pyopencl" in block and not pyopencl:
                self.skipTest("pyopencl is not installed")
            names["print"] = lambda *values: printed.append(
                " ".join(map(str, values)))
            exec(compile(block, str(README), "exec"), names)
            said = re.findall(r"^print.*# (.*)$", block, re.M)
            self.assertTrue(said)
            self.assertEqual(printed, said)
            printed.clear()


if __name__ == "__main__":
    unittest.main()
