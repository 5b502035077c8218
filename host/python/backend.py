# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel: the package, the library, and the three files about it.

As a backend of PEP 517 it configures and builds the library first, with CMake
(pip wheel host/python). As a program it takes one that is built:

    python3 backend.py LIBRARY FOLDER

and writes the wheel to FOLDER, in which no other wheel of winattn stays. One
wheel serves every Python 3 of a platform, as nothing in it is compiled against
Python.
"""
import base64
import hashlib
import io
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
# A source distribution has the same folders, and pyproject.toml at their root.
ROOT = HERE.parent.parent
# What a source distribution needs of the repository.
SOURCES = ("CMakeLists.txt", "LICENSE", "cl", "host", "include")

# What every system with glibc has (PEP 600); the loader's name ends with the
# processor's.
SYSTEM_LIBRARIES = re.compile(r"lib(c|m|pthread|dl)\.so\.\d|ld-linux.*")

METADATA = """Metadata-Version: 2.1
Name: winattn
Version: {version}
Summary: Windowed attention for every OpenCL device
License: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.8
Requires-Dist: numpy
Provides-Extra: pyopencl
Requires-Dist: pyopencl; extra == "pyopencl"
Provides-Extra: torch
Requires-Dist: torch>=2.4; extra == "torch"
Provides-Extra: bfloat16
Requires-Dist: ml_dtypes; extra == "bfloat16"
Keywords: attention,OpenCL,GPU,Swin Transformer
Classifier: Operating System :: MacOS
Classifier: Operating System :: Microsoft :: Windows
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

"""


def version():
    """Of the header, as CMake reads it."""
    text = (ROOT / "include" / "winattn.h").read_text(encoding="utf-8")
    return ".".join(
        re.search(rf"^#define WINATTN_VERSION_{part} (\d+)\b", text,
                  re.M).group(1) for part in ("MAJOR", "MINOR", "PATCH"))


def metadata():
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    return METADATA.format(version=version()) + readme


# ---- The platform's tag ----

def readelf(option, library):
    return subprocess.run(["readelf", "--wide", option, library], check=True,
                          capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


def linux_tag(library, machine):
    """manylinux_X_Y by the newest symbol of glibc that the library asks for
    (PEP 600); linux where it asks for none, as with musl. A library that is
    not on every system must not be needed."""
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]",
                        readelf("--dynamic", library))
    strangers = [name for name in needed
                 if not SYSTEM_LIBRARIES.fullmatch(name)]
    asked = [tuple(map(int, pair)) for pair in
             re.findall(r"Name: GLIBC_(\d+)\.(\d+)",
                        readelf("--version-info", library))]
    if not asked:
        return f"linux_{machine}"
    if strangers:
        raise SystemExit(f"{library} needs {', '.join(strangers)}, which not "
                         "every system has")
    return "manylinux_{}_{}_{}".format(*max(asked), machine)


def macos_tag():
    """The library is for the processor that builds, and for systems from the
    one that builds on, or from what the compiler is told. (Python's own tag
    may be of both processors, and of an older system.)"""
    system = (os.environ.get("MACOSX_DEPLOYMENT_TARGET")
              or platform.mac_ver()[0]).split(".")
    minor = system[1] if system[0] == "10" else "0"
    return f"macosx_{system[0]}_{minor}_{platform.machine()}"


def platform_tag(library):
    tag = re.sub(r"[-.]", "_", sysconfig.get_platform())
    if tag.startswith("linux_"):
        return linux_tag(library, tag[len("linux_"):])
    return macos_tag() if tag.startswith("macosx_") else tag


# ---- The wheel ----

def pack(library, folder):
    """Writes the wheel with this library and returns its name."""
    info = f"winattn-{version()}.dist-info"
    tag = f"py3-none-{platform_tag(library)}"
    suffix = pathlib.Path(library).suffix
    files = {path.relative_to(HERE).as_posix(): path.read_bytes()
             for path in sorted((HERE / "winattn").rglob("*"))
             if path.suffix in (".py", ".typed")}
    files["winattn/_version.py"] = (
        "# Written by backend.py.\n"
        f'VERSION = "{version()}"\n'
        f'LIBRARY = "libwinattn{suffix}"\n').encode()
    files[f"winattn/libwinattn{suffix}"] = pathlib.Path(library).read_bytes()
    files[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: winattn\n"
        f"Root-Is-Purelib: false\nTag: {tag}\n").encode()
    record = "".join(
        "{},sha256={},{}\n".format(
            name,
            base64.urlsafe_b64encode(hashlib.sha256(content).digest())
            .rstrip(b"=").decode(), len(content))
        for name, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()

    folder = pathlib.Path(folder)
    for old in folder.glob("winattn-*.whl"):
        old.unlink()
    name = f"winattn-{version()}-{tag}.whl"
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            # the same bytes whenever it is made
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            executable = path.endswith(suffix)
            entry.external_attr = (0o755 if executable else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content)
    return name


# ---- PEP 517 ----

def get_requires_for_build_wheel(config_settings=None):
    return [] if shutil.which("cmake") else ["cmake", "ninja"]


def build_wheel(wheel_directory, config_settings=None,
                metadata_directory=None):
    with tempfile.TemporaryDirectory() as build:
        configure = ["cmake", "-S", str(ROOT), "-B", build,
                     "-DCMAKE_BUILD_TYPE=Release", "-DWINATTN_SHARED=ON"]
        configure += [f"-DWINATTN_{part}=OFF"
                      for part in ("STATIC", "TESTS", "BENCH", "INSTALL")]
        if shutil.which("ninja"):
            configure += ["-G", "Ninja"]
        for command in (configure,
                        ["cmake", "--build", build, "--config", "Release",
                         "--target", "winattn_python", "--parallel",
                         str(os.cpu_count() or 1)]):
            subprocess.run(command, check=True)
        libraries = [path for path in pathlib.Path(build, "host",
                                                   "python").rglob("*winattn*")
                     if path.suffix in (".so", ".dll", ".dylib")]
        if len(libraries) != 1:
            raise SystemExit(f"not one library was built: {libraries}")
        return pack(libraries[0], wheel_directory)


def build_sdist(sdist_directory, config_settings=None):
    """The parts of the repository that the wheel needs, with pyproject.toml
    moved to their root."""
    base = f"winattn-{version()}"
    texts = {
        "PKG-INFO": metadata(),
        "pyproject.toml": (HERE / "pyproject.toml").read_text(
            encoding="utf-8").replace('["."]', '["host/python"]'),
    }

    def wanted(entry):
        hidden = re.search(r"__pycache__|/\.|~$", entry.name)
        return None if hidden else entry

    name = f"{base}.tar.gz"
    with tarfile.open(pathlib.Path(sdist_directory, name), "w:gz",
                      format=tarfile.PAX_FORMAT) as archive:
        for path in SOURCES:
            archive.add(ROOT / path, f"{base}/{path}", filter=wanted)
        for path, text in texts.items():
            entry = tarfile.TarInfo(f"{base}/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return name


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    print(pathlib.Path(sys.argv[2], pack(sys.argv[1], sys.argv[2])))
