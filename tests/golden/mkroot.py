#!/usr/bin/env python3
"""Write a small set of ROOT files, the same bytes every time.

usage: mkroot.py OUTDIR     (needs the Python packages uproot, awkward, numpy)

NAME_COMP.root: a TTree 'events' (flat and jagged branches) with one of ROOT's
compressions; hists.root: histograms and a TObjString. About 2.3 MiB in all.
"""
import os
import sys
import uuid

import awkward as ak
import numpy as np
import uproot
import uproot._util
import uproot.compression as comp

# uproot stamps files with the time of day and a random UUID; pin both
uproot._util.datetime_to_code = lambda _dt: 0x72A10000
UUID = uuid.UUID("74687563-6b00-4000-8000-000000000001")

CONFIGS = {
    "zlib": (comp.ZLIB(6), 9000),
    "lzma": (comp.LZMA(6), 9000),
    "lz4": (comp.LZ4(9), 8000),
    "zstd": (comp.ZSTD(5), 9000),
    "none": (None, 2500),
}


def create(path, compression):
    return uproot.recreate(path, compression=compression, uuid_function=lambda: UUID)


def events(rng, n):
    njet = rng.poisson(2, n)
    jets = ak.unflatten(rng.exponential(40.0, njet.sum()).astype("f4"), njet)
    return {
        "run": np.full(n, 362062, dtype="i4"),
        "event": np.cumsum(rng.integers(1, 9, n)).astype("i8"),
        "met": rng.exponential(30.0, n).astype("f4"),
        "mll": rng.normal(91.19, 2.5, n),
        "trig": rng.integers(0, 256, n).astype("u1"),
        "jet_pt": jets,
    }


def main(out):
    os.makedirs(out, exist_ok=True)
    for i, (name, (compression, n)) in enumerate(CONFIGS.items()):
        rng = np.random.default_rng(20240501 + i)
        with create(os.path.join(out, f"events_{name}.root"), compression) as f:
            first = events(rng, n // 2)
            f.mktree("events", {k: (v.dtype if isinstance(v, np.ndarray) else v.type)
                                for k, v in first.items()})
            f["events"].extend(first)
            f["events"].extend(events(rng, n - n // 2))
    rng = np.random.default_rng(7)
    with create(os.path.join(out, "hists.root"), comp.ZLIB(9)) as f:
        f["dir/h_mll"] = np.histogram(rng.normal(91.19, 2.5, 20000), bins=200)
        f["dir/h_xy"] = np.histogram2d(rng.normal(size=5000), rng.normal(size=5000), bins=40)
        f["note"] = "made by mkroot.py"


if __name__ == "__main__":
    main(sys.argv[1])
