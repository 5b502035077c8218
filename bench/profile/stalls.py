#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What waves of a kernel wait for.

    stalls.py SOURCE.csv [PERCENT]

SOURCE.csv is what `ncu --page source --csv` prints. The first part has all
samples by reason, the second how often how many instructions were executed,
so that a loop is told from what surrounds it, the third which those are of
the largest three, as both sides of a question may be in it under predicates,
the fourth the instructions with at least PERCENT (1) of the samples.
"""
import collections
import csv
import sys


def read(path):
    with open(path, encoding="latin1") as table:
        rows = list(csv.reader(table))
    head = next(n for n, row in enumerate(rows) if "Source" in row)
    return rows[head], rows[head + 1:]


def main():
    head, rows = read(sys.argv[1])
    least = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    samples, source = head.index("# Samples"), head.index("Source")
    executed = head.index("Instructions Executed")
    reasons = [(n, name[len("stall_"):]) for n, name in enumerate(head)
               if name.startswith("stall_") and "(" not in name]
    total = sum(int(row[samples]) for row in rows) or 1

    print("samples by reason, %")
    by_reason = {name: sum(int(row[n] or 0) for row in rows)
                 for n, name in reasons}
    for name, count in sorted(by_reason.items(), key=lambda x: -x[1]):
        if count * 200 > total:
            print(f"  {name:18s} {100 * count / total:5.1f}")

    print("executions, instructions so often, millions, % of samples")
    often, seen = collections.Counter(), collections.Counter()
    for row in rows:
        often[int(row[executed])] += 1
        seen[int(row[executed])] += int(row[samples])
    for times in sorted(often, key=lambda x: -x * often[x])[:12]:
        print(f"  {times:10d} {often[times]:5d} {times * often[times] / 1e6:8.2f}"
              f" {100 * seen[times] / total:6.2f}")

    print("instructions by name, of so many executions")
    for times in sorted(often, key=lambda x: -x * often[x])[:3]:
        texts = [row[source].split() for row in rows
                 if int(row[executed]) == times and row[source].strip()]
        predicated = [text[0].startswith("@") for text in texts]
        names = collections.Counter(text[asks].split(".")[0]
                                    for text, asks in zip(texts, predicated))
        print(f"  {times:10d} " + ", ".join(
            f"{name} {count}" for name, count in names.most_common(10)) +
            f"; under predicates {sum(predicated)}")

    print("instructions, % of samples, executions")
    for number, row in enumerate(rows):
        share = 100 * int(row[samples]) / total
        if share >= least:
            worst = max(reasons, key=lambda x: int(row[x[0]] or 0))[1]
            print(f"  {number:5d} {share:6.2f} {row[executed]:>10s} "
                  f"{row[source].strip()[:60]:60s} {worst}")


main()
