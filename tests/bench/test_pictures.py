# SPDX-License-Identifier: Apache-2.0
"""Do the pictures show what stands in reports? Made-up reports in a folder of
their own, whose numbers must be read in the pictures."""
import json
import pathlib
import sys
import tempfile
import unittest
import xml.dom.minidom

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]
                       / "bench/pictures"))

import devices
import draw
import peers
import results


def make_report(folder, file, rows, **device):
    """As winattn-bench writes it; `rows` are fields that are not usual."""
    usual = {"device": 0, "case": "own1", "text": "", "dtype": "fp16",
             "pass": "forward", "tier": "matrix", "seconds": 1e-3,
             "bytes": 1e9, "operations": 1e9}
    device = dict({"platform": "P", "name": "NVIDIA H200", "driver": "580",
                   "date": "2026-01-01T00:00:00Z", "copy_bandwidth": 4e12,
                   "fma_rate": 6e13}, **device)
    (folder / file).write_text(json.dumps(
        {"format": 1, "winattn": "9.8.7", "devices": [device],
         "rows": [dict(usual, **row) for row in rows]}), encoding="utf-8")


class Pictures(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def rows(self):
        return results.read_rows(self.folder)

    def test_cases_are_equal_however_they_are_written(self):
        # what the bench writes of a case, and how a user asks for it
        self.assertEqual(
            results.parse_case("dtype=fp16 windows=4096 heads=3 kv_heads=3 "
                               "keys=49 bias=same mask=regions "
                               "mask_windows=64 lse=0"),
            results.parse_case("windows=4096 heads=3 queries=49 dim=32 "
                               "bias=same mask=regions"))
        self.assertNotEqual(
            results.parse_case("windows=4096 bias=same"),
            results.parse_case("windows=2048 bias=same"))
        self.assertNotEqual(results.parse_case("grid=2 size=56x56"),
                            results.parse_case("grid=2 size=56x48"))

    def test_factors_are_the_others_time_over_the_newest_run(self):
        problem = results.read_peers()[0]
        best = min(t["forward"] for t in problem["times"].values())
        text = problem["case"] + " mask_windows=64 lse=0"
        make_report(self.folder, "new.json",
                    [{"text": text, "seconds": best / 2.5},
                     {"text": text, "pass": "backward", "seconds": 1e3}],
                    date="2026-02-01T00:00:00Z", winattn="9.9.9",
                    commit="c0ffee")
        make_report(self.folder, "old.json",
                    [{"text": text, "seconds": best / 7}])
        drawn = peers.draw(self.rows()).written()
        self.assertIn(">2.5×<", drawn)
        self.assertNotIn(">7.0×<", drawn)
        self.assertIn(">0.00×<", drawn)  # backward: slower, and it says so
        self.assertIn("winattn 9.9.9 c0ffee, driver 580, 2026-02-01", drawn)
        self.assertIn(problem["label"], drawn)
        # only of problems that have a time
        self.assertNotIn(results.read_peers()[1]["label"], drawn)

    def test_rows_without_time_count_as_not_there(self):
        make_report(self.folder, "a.json",
                    [{"case": "swin-t-224-s1-b64", "seconds": 0}])
        self.assertEqual(self.rows(), [])
        self.assertIn("no run yet", devices.draw(self.rows()).written())
        self.assertIn("no run of an H200", peers.draw(self.rows()).written())

    def test_damaged_files_are_refused(self):
        for text in ("", "[]", "{", '{"format": 2}', '{"format": 1}',
                     '{"format": 1, "devices": [{}], "rows": []}',
                     '{"format": 1, "devices": [], "rows": [{"seconds": 1}]}'):
            (self.folder / "a.json").write_text(text, encoding="utf-8")
            with self.assertRaisesRegex(ValueError, "a.json is no report"):
                self.rows()

    def test_terminals_see_plain_texts(self):
        make_report(self.folder, "a.json", [{}], name="\x1b[2J\x9b Gerät 图")
        self.assertEqual(self.rows()[0].device.name, "?[2J? Gerät 图")

    def test_fractions_are_of_the_nearer_ceiling(self):
        name = "swin-t-224-s1-b64"
        make_report(self.folder, "gpu.json", [
            # 1e9 bytes in 1 ms of 4e12 a second; on matrix units whatever
            # the multiply-add rate says
            {"case": name, "operations": 5e10},
            {"case": name, "dtype": "fp32", "tier": "local",
             "operations": 3e10}])
        make_report(self.folder, "cpu.json",
                    [{"case": name + ":w64", "tier": "cpu", "seconds": 1}],
                    name="pthread-haswell-Intel(R) Xeon(R)",
                    copy_bandwidth=1e10, fma_rate=1e11)
        drawn = devices.draw(self.rows()).written()
        for text in (">0.25<", ">0.50<", ">0.10<", ">NVIDIA H200<",
                     ">PoCL, haswell<"):
            self.assertIn(text, drawn)

    def test_all_pictures_are_xml_with_a_title(self):
        for picture in draw.PICTURES.values():
            drawn = xml.dom.minidom.parseString(
                picture.draw(self.rows()).written())
            self.assertEqual(len(drawn.getElementsByTagName("title")), 1)


if __name__ == "__main__":
    unittest.main()
