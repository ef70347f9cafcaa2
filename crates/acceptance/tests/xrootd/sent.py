"""Readers of a root:// server, twelve at once. Each record of the file is one byte over and over: its version.

  sent.py reads URL SIZE TIMES    read all of it so often; it is of one version
  sent.py follows URL SIZE LAST   read it while it is written over, until all of it has the last version
"""
import sys, threading

from XRootD import client
from XRootD.client.flags import OpenFlags

CHUNK, RECORD, CLIENTS = 1 << 20, 128 << 10, 12
wrong = []


def opened(url, number):
    file = client.File()
    status, _ = file.open(url.replace("root://", "root://u%d@" % number), OpenFlags.READ)
    assert status.ok, status.message
    return file


def versions(url, number, size):
    """Of each record; None if anything was wrong."""
    file, got = opened(url, number), bytearray()
    while len(got) < size:
        status, data = file.read(len(got), min(CHUNK, size - len(got)))
        if not status.ok or not data:
            wrong.append("%s at %d" % (status.message, len(got)))
            return None
        got += data
    file.close()
    records = [got[at : at + RECORD] for at in range(0, size, RECORD)]
    if any(record != record[:1] * len(record) for record in records):
        wrong.append("a record of several versions")
        return None
    return [record[0] for record in records]


def reads(url, number, size, times):
    for _ in range(times):
        seen = versions(url, number, size)
        if seen is None or len(set(seen)) > 1:
            wrong.append("not one version: %s" % seen)
            return


def follows(url, number, size, last):
    before = []
    while not before or set(before) != {last}:
        seen = versions(url, number, size)
        if seen is None or any(now < then for now, then in zip(seen, before)):
            wrong.append("older than what was seen before: %s, %s" % (seen, before))
            return
        before = seen


def main():
    what, url, *numbers = sys.argv[1:]
    numbers = [int(number) for number in numbers]
    work = {"reads": reads, "follows": follows}[what]
    threads = [threading.Thread(target=work, args=(url, number, *numbers)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.exit("; ".join(wrong[:3]) or None)


main()
