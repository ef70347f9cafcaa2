"""Do a list of operations on a mounted file system. Runs in the VM.

usage: ops.py OPS.json DATA DIR POOL
OPS.json: a list of [verb, arguments ...]; texts stand for bytes, one character a byte. DATA: the bytes
of all writes, one after another.
"""
import json
import os
import subprocess
import sys

OPS, DATA, TOP, POOL = sys.argv[1:5]


def at(path):
    return os.fsencode(TOP) + b"/" + path.encode("latin-1")


def write(path, offset, start, size, data):
    fd = os.open(at(path), os.O_WRONLY)
    while size:
        data.seek(start)
        part = data.read(min(size, 1 << 20))
        n = os.pwrite(fd, part, offset)
        start, offset, size = start + n, offset + n, size - n
    os.close(fd)


def do(verb, *a, data):
    if verb == "mkdir":
        os.mkdir(at(a[0]))
        os.chmod(at(a[0]), a[1])
    elif verb == "create":
        os.close(os.open(at(a[0]), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.chmod(at(a[0]), a[1])
    elif verb == "fifo":
        os.mkfifo(at(a[0]))
        os.chmod(at(a[0]), a[1])
    elif verb == "symlink":
        os.symlink(a[1].encode("latin-1"), at(a[0]))
    elif verb == "write":
        write(*a, data)
    elif verb == "truncate":
        os.truncate(at(a[0]), a[1])
    elif verb == "link":
        os.link(at(a[0]), at(a[1]), follow_symlinks=False)
    elif verb == "rename":
        os.rename(at(a[0]), at(a[1]))
    elif verb == "remove":
        os.unlink(at(a[0]))
    elif verb == "rmdir":
        os.rmdir(at(a[0]))
    elif verb == "mode":
        if not os.path.islink(at(a[0])):
            os.chmod(at(a[0]), a[1])
    elif verb == "owner":
        os.chown(at(a[0]), a[1], a[2], follow_symlinks=False)
    elif verb == "mtime":
        ns = a[1] * 10**9 + a[2]
        os.utime(at(a[0]), ns=(ns, ns), follow_symlinks=False)
    elif verb == "setxattr":
        os.setxattr(at(a[0]), a[1].encode("latin-1"), a[2].encode("latin-1"), follow_symlinks=False)
    elif verb == "removexattr":
        os.removexattr(at(a[0]), a[1].encode("latin-1"), follow_symlinks=False)
    elif verb == "sync":
        subprocess.run(["zpool", "sync", POOL], check=True)
    else:
        raise ValueError(verb)


os.umask(0)
with open(OPS) as f, open(DATA, "rb") as data:
    for op in json.load(f):
        try:
            do(*op, data=data)
        except OSError as err:
            sys.exit(f"{op}: {err}")
