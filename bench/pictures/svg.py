# SPDX-License-Identifier: Apache-2.0
"""A picture as SVG text. Numbers are rounded before they are written, so that
the same data give the same bytes wherever Python runs."""
from xml.sax.saxutils import escape

# Read by any system's own sans serif; sizes leave room for the widest.
FONTS = ("-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, "
         "'DejaVu Sans', sans-serif")

# The picture is a light card, so that it reads on light and dark pages alike.
PAPER, EDGE, INK, MUTED, GRID = (
    "#ffffff", "#d0d7de", "#1f2328", "#57606a", "#e1e5ea")
# Okabe and Ito's colours, which colour-blind readers tell apart.
BLUE, SKY, GREEN, ORANGE, RED, PINK, GREY = (
    "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7",
    "#8c959f")


def number(x):
    """At most one decimal."""
    text = "%.1f" % x
    return text[:-2] if text.endswith(".0") else text


class Picture:
    def __init__(self, width, height, title, description):
        self.width, self.height = width, height
        self.lines = [
            '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
            'viewBox="0 0 %d %d" width="%d" height="%d" font-family="%s">'
            % (width, height, width, height, FONTS),
            "<title>%s</title>" % escape(title),
            "<desc>%s</desc>" % escape(description),
            '<rect x="0.5" y="0.5" width="%d" height="%d" rx="8" fill="%s" '
            'stroke="%s"/>' % (width - 1, height - 1, PAPER, EDGE)]

    def rect(self, x, y, width, height, fill):
        self.lines.append(
            '<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>'
            % (number(x), number(y), number(width), number(height), fill))

    def line(self, x1, y1, x2, y2, stroke=GRID, width=1):
        self.lines.append(
            '<path d="M%s %sL%s %s" stroke="%s" stroke-width="%s" '
            'fill="none"/>'
            % (number(x1), number(y1), number(x2), number(y2), stroke,
               number(width)))

    def shape(self, kind, x, y, fill, size=6.5):
        """circle, square, triangle, flipped (that, upside down) or diamond,
        centred."""
        outline = ' stroke="%s" stroke-width="1"' % PAPER
        if kind == "circle":
            self.lines.append('<circle cx="%s" cy="%s" r="%s" fill="%s"%s/>'
                              % (number(x), number(y), number(size), fill,
                                 outline))
            return
        r = size
        corners = {
            "square": [(-r * 0.9, -r * 0.9), (r * 0.9, -r * 0.9),
                       (r * 0.9, r * 0.9), (-r * 0.9, r * 0.9)],
            "triangle": [(0, -r * 1.15), (r * 1.1, r * 0.85),
                         (-r * 1.1, r * 0.85)],
            "flipped": [(0, r * 1.15), (r * 1.1, -r * 0.85),
                        (-r * 1.1, -r * 0.85)],
            "diamond": [(0, -r * 1.3), (r * 1.3, 0), (0, r * 1.3),
                        (-r * 1.3, 0)],
        }[kind]
        self.lines.append(
            '<path d="M%sZ" fill="%s"%s/>'
            % ("L".join("%s %s" % (number(x + dx), number(y + dy))
                        for dx, dy in corners), fill, outline))

    def text(self, x, y, text, size=13, fill=INK, anchor="start", bold=False):
        self.lines.append(
            '<text x="%s" y="%s" font-size="%s" fill="%s"%s%s>%s</text>'
            % (number(x), number(y), number(size), fill,
               "" if anchor == "start" else ' text-anchor="%s"' % anchor,
               ' font-weight="600"' if bold else "", escape(text)))

    def headline(self, title, *lines):
        self.text(24, 36, title, 18, bold=True)
        for i, line in enumerate(lines):
            self.text(24, 58 + 18 * i, line, 13, MUTED)

    def written(self):
        return "\n".join(self.lines + ["</svg>", ""])


def nothing_yet(title, why):
    """The picture of data that are not there."""
    p = Picture(1000, 96, title, why)
    p.headline(title, why)
    return p
