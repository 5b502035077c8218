# SPDX-License-Identifier: Apache-2.0
"""The wheel and the library in it. The environment says where they come from:
WINATTN_TEST_SOURCE, _WHEEL, and _CC, _NM, the compiler with its options."""
import base64
import ctypes
import hashlib
import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
import zipfile

import numpy
import winattn
from places import device, pyopencl
from winattn import _library, _problem

SOURCE = pathlib.Path(os.environ["WINATTN_TEST_SOURCE"])
HEADER = (SOURCE / "include" / "winattn.h").read_text()
LIBRARY = pathlib.Path(winattn.__file__).with_name("libwinattn.so")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True,
                          timeout=7200, **options)


class Wheel(unittest.TestCase):
    def test_files(self):
        path = pathlib.Path(os.environ["WINATTN_TEST_WHEEL"])
        with zipfile.ZipFile(path) as wheel:
            files = {name: wheel.read(name) for name in wheel.namelist()}
        info = f"winattn-{winattn.__version__}.dist-info"
        listed = {}
        for line in files[f"{info}/RECORD"].decode().splitlines():
            name, digest, size = line.split(",")
            listed[name] = (digest, size)
        self.assertEqual(set(listed), set(files))
        self.assertEqual(listed.pop(f"{info}/RECORD"), ("", ""))
        for name, (digest, size) in listed.items():
            sha = hashlib.sha256(files[name]).digest()
            self.assertEqual(digest, "sha256=" + base64.urlsafe_b64encode(
                sha).rstrip(b"=").decode())
            self.assertEqual(int(size), len(files[name]))
        tag = path.stem[len(f"winattn-{winattn.__version__}-"):]
        self.assertTrue(tag.startswith("py3-none-"))
        self.assertIn(f"Tag: {tag}\n", files[f"{info}/WHEEL"].decode())
        folder = SOURCE / "host" / "python"
        self.assertEqual(
            {each.relative_to(folder).as_posix()
             for each in (folder / "winattn").rglob("*.*")
             if each.suffix in (".py", ".typed")}
            | {"winattn/_version.py", "winattn/libwinattn.so"},
            {name for name in files if name.startswith("winattn/")})

    def test_version(self):
        numbers = [re.search(rf"VERSION_{part} (\d+)", HEADER).group(1)
                   for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(winattn.__version__, ".".join(numbers))

    def test_other_library(self):
        """One that is older than the package, or of another minor version, is
        refused."""
        for change, fits in (((0, 0, 0), True), ((0, 0, 1), False),
                             ((0, 1, 0), False), ((0, -1, 0), False),
                             ((1, 0, 0), False)):
            version = ".".join(str(int(number) + more) for number, more in zip(
                winattn.__version__.split("."), change))
            done = run(sys.executable, "-c", f"""
import importlib.util, sys, types
package = types.ModuleType("winattn")
package.__path__ = importlib.util.find_spec(
    "winattn").submodule_search_locations
sys.modules["winattn"] = package
import winattn._version
winattn._version.VERSION = {version!r}
import winattn._library
""")
            self.assertEqual(done.returncode == 0, fits, done.stderr)
            self.assertEqual("ImportError: winattn" in done.stderr, not fits)


class Library(unittest.TestCase):
    def test_structs(self):
        """Sizes, offsets and numbers are those of the header."""
        claims = []
        for struct, name in (
                (_library.Strides, "winattn_strides"),
                (_library.Grid, "winattn_grid"),
                (_library.Table, "winattn_table"),
                (_library.Desc, "winattn_desc"),
                (_library.Tensor, "winattn_tensor"),
                (_library.Forward, "winattn_forward"),
                (_library.Backward, "winattn_backward")):
            claims.append((f"sizeof({name})", ctypes.sizeof(struct)))
            for field, *_ in struct._fields_:
                at = getattr(struct, field)
                claims += [(f"offsetof({name}, {field})", at.offset),
                           (f"sizeof((({name} *)0)->{field})", at.size)]
        for prefix, names in (("", _library.VARIANTS),
                              ("", _library.DTYPES),
                              ("TIER_", _library.TIERS),
                              ("PADDING_", _library.PADDINGS)):
            claims += [(f"WINATTN_{prefix}{name.upper()}", number)
                       for number, name in enumerate(names)]
        claims += [(f"WINATTN_{name.upper()}", 1 << bit)
                   for bit, name in enumerate(_library.GRADIENTS)]
        claims += [(f"WINATTN_{name}", getattr(_library, name))
                   for name in dir(_library)
                   if re.match("(BIAS|MASK|TERM|PASS|GRID|INVALID)_|AXES",
                               name)]
        text = "#include <stddef.h>\n#include <winattn.h>\n" + "".join(
            f'_Static_assert({what} == {value}, "{what}");\n'
            for what, value in claims)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "layout.c")
            path.write_text(text)
            done = run(*shlex.split(os.environ["WINATTN_TEST_CC"]),
                       "-fsyntax-only", str(path))
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_symbols(self):
        nm = os.environ["WINATTN_TEST_NM"]
        shown = run(nm, "-D", "--defined-only", str(LIBRARY)).stdout
        of_cuda = (SOURCE / "host" / "cuda" / "cuda.h").read_text()
        public = re.findall(r"^WINATTN_API[^;(]*?(winattn_\w+)\(",
                            HEADER + of_cuda, re.M)
        self.assertGreater(len(public), 15)
        self.assertEqual({line.split()[-1] for line in shown.splitlines()},
                         {*public, "winattn_bind_opencl"})
        asked = run(nm, "-D", "--undefined-only", str(LIBRARY)).stdout
        self.assertNotRegex(asked, r"\bcl[A-Z]")

    def test_functions_of_opencl(self):
        """opencl.c has those that the library's code calls, and no others;
        what is missing there does not link. Models and their tools are not in
        the wheel."""
        here = SOURCE / "host" / "python" / "opencl.c"
        passed_on = re.findall(r"\bX\((cl[A-Z]\w+)\)", here.read_text())
        called = set()
        host = SOURCE / "host"
        for path in host.rglob("*.[ch]"):
            room = path.relative_to(host).parts[0]
            if path != here and room not in {"models", "swin", "unfused"}:
                called |= set(re.findall(
                    r"(?:\b(?=cl[A-Z]\w+\()|\bWA_CL\()(cl[A-Z]\w+)",
                    path.read_text()))
        self.assertEqual(sorted(passed_on), sorted(called))

    def test_unbound(self):
        """Without OpenCL the library fails, and does not crash; it takes all
        functions or none."""
        done = run(sys.executable, "-c", f"""
import ctypes
library = ctypes.CDLL({str(LIBRARY)!r})
kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
library.winattn_bind_opencl.restype = ctypes.c_char_p
library.winattn_status_name.restype = ctypes.c_char_p
names = []
def find(name):
    names.append(name)
    return 1 if len(names) < 20 else None
def create():
    programs = ctypes.c_void_p()
    there = ctypes.create_string_buffer(64)
    status = library.winattn_programs_create(there, there,
                                             ctypes.byref(programs))
    print(library.winattn_status_name(status).decode(), programs.value)
create()
missing = library.winattn_bind_opencl(kind(find))
print(missing == names[-1], len(names))
create()
""")
        self.assertEqual(done.stdout.splitlines(), [
            "CL_PLATFORM_NOT_FOUND_KHR None", "True 20",
            "CL_PLATFORM_NOT_FOUND_KHR None"], done.stderr)

    @unittest.skipUnless(sys.platform == "linux", "hides Linux's loader")
    def test_what_is_lacking(self):
        """Without OpenCL's loader, and without a driver."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libOpenCL.so.1", "libOpenCL.so",
                         "libnvidia-opencl.so.1"):
                pathlib.Path(folder, name).write_text("no library")
            for hidden, lacks in (
                    ({"LD_LIBRARY_PATH": folder}, "is not installed: there is "
                     "no libOpenCL.so.1 nor"),
                    ({"OCL_ICD_VENDORS": folder, "OCL_ICD_FILENAMES": ""},
                     "has no device: install the driver")):
                environment = {**os.environ, **hidden}
                environment.pop("WINATTN_DEVICE", None)
                done = run(sys.executable, "-c", """
import sys
sys.modules["pyopencl"] = None  # which may bring a loader
import numpy, winattn
try:
    winattn.window_attention(*[numpy.zeros((1, 1, 4, 8), "f")] * 3)
except winattn.OpenCLError as error:
    print(error)
""", env=environment)
                self.assertIn(f"OpenCL {lacks}", done.stdout, done.stderr)

    @unittest.skipUnless(sys.platform == "linux", "reads /proc")
    def test_one_loader(self):
        """numpy's arrays first, then pyopencl: both have the same loader."""
        device()
        if not pyopencl:
            self.skipTest("pyopencl is not installed")
        done = run(sys.executable, "-W", "ignore", "-c", """
import winattn
winattn.devices()
import pyopencl
pyopencl.get_platforms()
print({line.split()[-1] for line in open("/proc/self/maps")
       if line.rsplit("/", 1)[-1].startswith("libOpenCL")})
""")
        self.assertEqual(len(eval(done.stdout)), 1, done.stdout + done.stderr)


class Package(unittest.TestCase):
    def test_strides(self):
        """The same tensor has the same strides, however numpy writes it."""
        numbers = numpy.zeros((3, 4, 5), "float32")
        for array, wanted in (
                (numbers, None), (numbers[:, :1], [20, 0, 1]),
                (numbers[:1, :1], None), (numbers.swapaxes(0, 1), [5, 20, 1]),
                (numbers[:0, ::2], None),
                (numpy.broadcast_to(numbers[:1, 0, 0], (3, 1, 5)), [0, 1, 0]),
                (numpy.broadcast_to(numbers[0], (2, 4, 5)), [0, 5, 1])):
            self.assertEqual(_problem.element_strides("x", array), wanted)

    def test_every_field_is_used(self):
        """Whoever adds a field to the descriptor must decide what it is in
        Python."""
        spec = importlib.util.find_spec("winattn._problem")
        text = pathlib.Path(spec.origin).read_text()
        left = {name for name, *_ in _library.Desc._fields_} - {
            # set by _calls, or never
            "struct_size", "passes", "build_options",
            # by the names of arrays
            "q", "k", "v", "o", "lse", "d_o", "d_lse", "dq", "dk", "dv"}
        for name in left:
            self.assertRegex(text, rf'desc\.{name}\b|"{name}"', name)
        self.assertTrue(_problem.Problem.__doc__)

    def test_names(self):
        for name in winattn.__all__:
            value = getattr(winattn, name)
            if callable(value):
                self.assertTrue(value.__doc__, name)


if __name__ == "__main__":
    unittest.main()
