# SPDX-License-Identifier: Apache-2.0
"""Makes small pictures, and what Pillow and torchvision's transforms make of
them.

    python3 make_pictures.py OUTPUT_FOLDER

Versions go to OUTPUT_FOLDER/../versions_pictures.txt. The files in pictures/
were made with the versions named in the file beside this script.

    NAME.png, NAME.jpg, NAME.ppm   a picture
    NAME_pixels.npy                uint8 [height, width, 3], as Pillow reads it,
                                   turned as EXIF says
    fit_N_pixels.npy               of colour.png, resized and cut as FITS says
    fit_N_normal.npy               the same, with mean and deviation of
                                   ImageNet, fp32 [3, height, width]
"""
import io
import pathlib
import struct
import sys
import zlib

import numpy
import torch
from PIL import Image, ImageOps
from torchvision import transforms
from torchvision.transforms import InterpolationMode

from common import write_versions

PACKAGES = ("torch", "torchvision", "pillow", "numpy")
HEIGHT, WIDTH = 45, 61

# resize (shorter side, or height and width), crop, bicubic or bilinear
FITS = ((32, (32, 32), True), (32, (32, 32), False), (19, (18, 17), True),
        (61, (33, 40), True), (45, (44, 42), True), ((30, 27), (30, 27), True),
        (52, (31, 29), False))


def smooth():
    """Waves, with some noise."""
    rng = numpy.random.default_rng(27)
    y, x = numpy.mgrid[:HEIGHT, :WIDTH]
    waves = [numpy.sin(x / 7 + c) + numpy.cos(y / (3 + c)) for c in range(3)]
    values = 127 + 70 * numpy.stack(waves, -1)
    values += rng.normal(0, 6, values.shape)
    values[5:12, 20:40] = 255 * (numpy.arange(20)[None, :, None] % 2)
    return values.clip(0, 255).astype(numpy.uint8)


def exif(order, orientation):
    """EXIF's block with another entry before the orientation; order: < or >."""
    return ((b"II*\0" if order == "<" else b"MM\0*") +
            struct.pack(order + "IH", 8, 2) +
            struct.pack(order + "HHII", 0x010e, 2, 4, 0x66666600) +
            struct.pack(order + "HHIHHI", 0x0112, 3, 1, orientation, 0, 0))


def png(height, width, depth, kind, interlaced, rows, last=b""):
    """A PNG of what Pillow does not write; rows: bytes with their filters;
    last: an eXIf behind the pixels."""
    def chunk(name, data):
        body = name + data
        return (struct.pack(">I", len(data)) + body +
                struct.pack(">I", zlib.crc32(body)))
    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0,
                         interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) +
            chunk(b"IDAT", zlib.compress(rows, 9)) +
            (chunk(b"eXIf", last) if last else b"") + chunk(b"IEND", b""))


def interlaced_rows(pixels):
    """The seven passes of Adam7."""
    rows = b""
    for y, x, dy, dx in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4),
                         (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
                         (1, 0, 2, 1)):
        for row in pixels[y::dy, x::dx]:
            rows += b"\0" + row.tobytes()
    return rows


def write_inks(folder, small):
    """CMYK; YCCK, which Pillow reads but does not write: its numbers are stored
    as inks, then Adobe's mark is changed; and inks without the mark, in blocks
    of one colour, which all decoders read alike."""
    small.convert("CMYK").save(folder / "cmyk.jpg", quality=50)
    black = Image.linear_gradient("L").resize(small.size)
    planes = [*small.convert("YCbCr").split(), black]
    data = io.BytesIO()
    Image.merge("CMYK", [ImageOps.invert(plane) for plane in planes]).save(
        data, "jpeg", quality=90)
    data = bytearray(data.getvalue())
    mark = b"\xff\xee\0\x0eAdobe"
    data[data.index(mark) + 15] = 2
    (folder / "ycck.jpg").write_bytes(data)
    rng = numpy.random.default_rng(4)
    blocks = rng.integers(0, 256, (5, 6, 4), dtype=numpy.uint8)
    data = io.BytesIO()
    Image.fromarray(blocks.repeat(8, 0).repeat(8, 1), "CMYK").save(
        data, "jpeg", quality=100)
    data = bytearray(data.getvalue())
    del data[data.index(mark):data.index(mark) + 16]
    (folder / "inks.jpg").write_bytes(data)


def write_turned(folder, small):
    """Each orientation, both orders of bytes, and EXIF behind the pixels."""
    tiny = small.crop((0, 0, 6, 4))
    for orientation in range(2, 9):
        block = exif("<>"[orientation % 2], orientation)
        tiny.save(folder / f"turned_{orientation}.png", exif=block)
    for orientation in (3, 6):
        block = b"Exif\0\0" + exif("><"[orientation % 2], orientation)
        small.save(folder / f"turned_{orientation}.jpg", quality=90, exif=block)
    pixels = numpy.asarray(small)
    (folder / "interlaced_turned.png").write_bytes(
        png(*pixels.shape[:2], 8, 2, 1, interlaced_rows(pixels), exif("<", 8)))


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    colour = Image.fromarray(smooth())
    colour.save(folder / "colour.png", optimize=True)
    small = colour.crop((0, 0, 21, 13))
    small.convert("L").save(folder / "grey.png")
    alpha = small.copy()
    alpha.putalpha(Image.linear_gradient("L").resize(small.size))
    alpha.save(folder / "alpha.png")
    few = small.quantize(13)
    few.info["transparency"] = 3
    few.save(folder / "palette.png", bits=4, transparency=3)
    small.convert("1").save(folder / "bits.png")
    pixels = numpy.asarray(small)
    (folder / "interlaced.png").write_bytes(
        png(*pixels.shape[:2], 8, 2, 1, interlaced_rows(pixels)))
    wide = pixels.astype(int) * 257
    wide[3:] += 100  # Pillow takes the upper byte
    wide = wide.clip(0, 65535).astype(">u2")
    (folder / "wide.png").write_bytes(
        png(*pixels.shape[:2], 16, 2, 0,
            b"".join(b"\0" + row.tobytes() for row in wide)))
    colour.save(folder / "colour.jpg", quality=80)
    small.save(folder / "progressive.jpg", quality=90, progressive=True,
               subsampling=0)
    small.convert("L").save(folder / "grey.jpg", quality=90)
    write_inks(folder, small)
    write_turned(folder, small)
    body = (pixels.astype(int) * 3).astype(">u2")
    (folder / "wide.ppm").write_bytes(
        b"P6\n# as wide as it is\n21\t13 # comment\n765\n" + body.tobytes())
    (folder / "grey.ppm").write_bytes(
        b"P5 21 13 255\n" + numpy.asarray(small.convert("L")).tobytes())
    for path in sorted(folder.glob("*.[jp][pn][gm]")):
        image = Image.open(io.BytesIO(path.read_bytes()))
        image = ImageOps.exif_transpose(image).convert("RGB")
        name = path.name.replace(".", "_")
        numpy.save(folder / f"{name}_pixels.npy", numpy.asarray(image))
    for i, (size, crop, cubic) in enumerate(FITS):
        fit = transforms.Compose([
            transforms.Resize(size, InterpolationMode.BICUBIC if cubic
                              else InterpolationMode.BILINEAR),
            transforms.CenterCrop(crop)])(colour)
        numpy.save(folder / f"fit_{i}_pixels.npy", numpy.asarray(fit))
        if i == 0:
            normal = transforms.Compose([
                transforms.PILToTensor(),
                transforms.ConvertImageDtype(torch.float),
                transforms.Normalize((0.485, 0.456, 0.406),
                                     (0.229, 0.224, 0.225))])(fit)
            numpy.save(folder / f"fit_{i}_normal.npy", normal.numpy())
    write_versions(folder.parent / "versions_pictures.txt", PACKAGES)


main()
