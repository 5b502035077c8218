# SPDX-License-Identifier: Apache-2.0
"""Reads bench/results: the JSON that `winattn-bench --json` wrote on several
machines, and what others take."""
import csv
import json
import pathlib

FORMAT = 1
FOLDER = pathlib.Path(__file__).resolve().parent.parent / "results"

# What a case has that its text does not name (tests/kit/cases.c).
STANDARD = {"variant": "dot", "windows": "2", "heads": "2", "queries": "49",
            "dim": "32", "bias": "none", "mask": "none", "tf32": "0"}
# What makes no other problem of it: which numbers, and how many masks.
IGNORED = ("mask_windows", "logit_scale", "seed", "lse", "given", "dtype",
           "pass", "tier", "windows_of_grid")


def parse_case(text):
    """The fields of a case, so that two texts of one problem are equal."""
    case = dict(STANDARD)
    case.update(word.split("=", 1) for word in text.split())
    if "grid" in case:
        for follows in ("windows", "queries", "keys"):
            case.pop(follows, None)
    else:
        case.setdefault("keys", case["queries"])
    case.setdefault("kv_heads", case["heads"])
    return {name: value for name, value in case.items()
            if name not in IGNORED}


def plain(text):
    """What a terminal may be shown."""
    return "".join(c if c.isprintable() else "?" for c in str(text))


class Device:
    def __init__(self, entry, version, source):
        self.name = plain(entry["name"])
        self.platform = plain(entry["platform"])
        self.driver = plain(entry["driver"])
        self.date = plain(entry["date"])
        self.source = plain(source)
        self.copy_bandwidth = float(entry["copy_bandwidth"])
        self.fma_rate = float(entry["fma_rate"])
        # older files say the version once for all of their devices
        self.version = plain(entry.get("winattn", version))
        self.commit = plain(entry.get("commit", ""))


class Row:
    """One line of a bench run that has a time."""

    def __init__(self, entry, device):
        self.device = device
        self.name = plain(entry["case"]).split(":")[0]
        self.is_whole = ":" not in entry["case"]
        self.case = parse_case(entry["text"])
        self.dtype, self.which = plain(entry["dtype"]), plain(entry["pass"])
        self.tier = entry["tier"]
        self.seconds = float(entry["seconds"])
        self.bytes = float(entry["bytes"])
        self.operations = float(entry["operations"])
        self.unfused = float(entry.get("unfused") or 0)
        # own cases of two machines may share a name, hence the text
        self.line = (self.name, entry.get("whole", ""), self.which,
                     self.dtype)


def read_files(paths):
    """Rows with a time of JSON files, oldest run first. ValueError: one is
    damaged."""
    rows = []
    for path in paths:
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            if report["format"] != FORMAT:
                raise ValueError("another format")
            devices = [Device(entry, report.get("winattn", ""), path.name)
                       for entry in report["devices"]]
            rows += [Row(entry, devices[entry["device"]])
                     for entry in report["rows"]
                     if entry["seconds"] and entry["seconds"] > 0]
        except (AttributeError, IndexError, KeyError, TypeError,
                ValueError) as error:
            raise ValueError("%s is no report of winattn-bench: %s"
                             % (path, error))
    return sorted(rows, key=lambda row: row.device.date)


def read_rows(folder=FOLDER):
    return read_files(sorted(folder.glob("*.json")))


def newest(rows, name, case, dtype, which):
    """The last row of a device so named; None if there is none."""
    wanted = parse_case(case)
    found = [row for row in rows
             if name in row.device.name and row.case == wanted and
             row.dtype == dtype and row.which == which]
    return found[-1] if found else None


def read_peers(path=FOLDER / "peers_h200.csv"):
    """[{label, detail, case, times: {peer: {pass: seconds}}}], in order."""
    text = path.read_text(encoding="utf-8").splitlines()
    problems = []
    for line in csv.DictReader(l for l in text if not l.startswith("#")):
        if not problems or problems[-1]["case"] != line["case"]:
            problems.append({"label": line["label"], "case": line["case"],
                             "detail": line["detail"], "times": {}})
        problems[-1]["times"][line["peer"]] = {
            which: float(line[which + "_ms"]) * 1e-3
            for which in ("forward", "backward") if line[which + "_ms"]}
    return problems
