# SPDX-License-Identifier: Apache-2.0
"""Reads bench/results: the JSON that `winattn-bench --json` wrote on several
machines, and what others take."""
import csv
import json
import pathlib

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


class Device:
    def __init__(self, entry, version):
        self.name = entry["name"]
        self.platform = entry["platform"]
        self.driver = entry["driver"]
        self.date = entry["date"]
        self.copy_bandwidth = entry["copy_bandwidth"]
        self.fma_rate = entry["fma_rate"]
        # older files say the version once for all of their devices
        self.version = entry.get("winattn", version)
        self.commit = entry.get("commit", "")


class Row:
    """One line of a bench run that has a time."""

    def __init__(self, entry, device):
        self.device = device
        self.name = entry["case"].split(":")[0]
        self.is_whole = ":" not in entry["case"]
        self.case = parse_case(entry["text"])
        self.dtype, self.which = entry["dtype"], entry["pass"]
        self.tier = entry["tier"]
        self.seconds = entry["seconds"]
        self.bytes, self.operations = entry["bytes"], entry["operations"]


def read_rows(folder=FOLDER):
    """Rows with a time of all JSON files, oldest run first."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        devices = [Device(entry, report.get("winattn", ""))
                   for entry in report["devices"]]
        for entry in report["rows"]:
            if entry["seconds"] and entry["seconds"] > 0:
                rows.append(Row(entry, devices[entry["device"]]))
    return sorted(rows, key=lambda row: row.device.date)


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
