# Writes a tree with uproot, or reads it and compares every value: write FILE, read ADDRESS.
import sys

import awkward
import numpy
import uproot

ENTRIES = 100_000
BASKET = 10_000


def columns():
    rng = numpy.random.default_rng(5)
    counts = rng.integers(0, 6, ENTRIES)
    hits = rng.random(int(counts.sum())).astype(numpy.float32)
    return {
        "run": numpy.arange(ENTRIES, dtype=numpy.int32) // 1000,
        "energy": rng.normal(50, 20, ENTRIES),
        "flag": rng.integers(0, 2, ENTRIES).astype(bool),
        "hits": awkward.unflatten(hits, counts),
    }


def is_same(got, due):
    return len(got) == len(due) and bool(awkward.all(got == due, axis=None))


def write(place, due):
    kinds = {name: getattr(value, "dtype", None) or value.type.content for name, value in due.items()}
    with uproot.recreate(place) as file:
        file.mktree("events", kinds)
        for at in range(0, ENTRIES, BASKET):
            file["events"].extend({name: value[at : at + BASKET] for name, value in due.items()})


def read(place, due):
    # The way that uproot takes by itself, and the one that asks for many pieces at once.
    for handler in (None, uproot.XRootDSource):
        with uproot.open(place, handler=handler) as file:
            tree = file["events"]
            assert tree.num_entries == ENTRIES
            arrays = tree.arrays()
            for name, value in due.items():
                assert is_same(arrays[name], value), name
            some = tree["energy"].array(entry_start=34_567, entry_stop=56_789, library="np")
            assert numpy.array_equal(some, due["energy"][34_567:56_789])


{"write": write, "read": read}[sys.argv[1]](sys.argv[2], columns())
