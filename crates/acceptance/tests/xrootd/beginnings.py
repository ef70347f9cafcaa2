# Small new files, whose first bytes the plug-in holds or begins to write: what is asked of them, and by whom: ADDRESS FULL.
# FULL is in a file system that is filled between `/held` and `/filled`.
import os
import sys
import time

from XRootD import client
from XRootD.client.flags import OpenFlags

base, full = sys.argv[1:]
others = client.FileSystem(base)


def good(answer):
    status, value = answer
    assert status.ok, status.message
    return value


def opened(name, flags=OpenFlags.DELETE | OpenFlags.UPDATE):
    file = client.File()
    good(file.open(base + name, flags))
    return file


def there(name):
    """What who comes later reads: XRootD lets nobody read what somebody has open to write."""
    file = opened(name, OpenFlags.READ)
    data = good(file.read())
    good(file.close())
    return data


# Whoever has it open sees what was written.
file = opened("/own")
good(file.write(b"first", 0, 5))
assert good(file.stat(force=True)).size == 5
assert good(file.read()) == b"first"
good(file.write(b"F", 0, 1))
good(file.close())
assert there("/own") == b"First"

file = opened("/read")
good(file.write(b"first", 0, 5))
assert good(file.read(1, 3)) == b"irs"
assert good(file.vector_read([(0, 2), (3, 2)])).chunks[1].buffer == b"st"
good(file.close())

# A sync is for all.
file = opened("/synced")
good(file.write(b"first", 0, 5))
good(file.sync())
assert good(others.stat("/synced")).size == 5
good(file.close())
assert there("/synced") == b"first"

# In any order, and in any size.
file = opened("/more")
good(file.write(b"abc", 0, 3))
good(file.write(b"def", 3, 3))
good(file.write(b"x" * 100000, 6, 100000))
good(file.write(b"B", 1, 1))
good(file.close())
assert there("/more") == b"aBcdef" + b"x" * 100000

file = opened("/later")
good(file.write(b"def", 3, 3))
good(file.write(b"abc", 0, 3))
good(file.close())
assert there("/later") == b"abcdef"

file = opened("/shorter")
good(file.write(b"abcdef", 0, 6))
good(file.truncate(2))
good(file.close())
assert there("/shorter") == b"ab"

file = opened("/empty")
good(file.close())
assert there("/empty") == b""

# What is there already is not begun anew.
file = opened("/own", OpenFlags.UPDATE)
good(file.write(b"-" * 10, 0, 10))
assert good(others.stat("/own")).size == 10
good(file.close())
assert there("/own") == b"-" * 10

# Nothing is held for long: the client of an xrootd that has died believes that all of it is there, whatever he asks.
file = opened("/moment")
good(file.write(b"moment", 0, 6))
while good(others.stat("/moment")).size != 6:
    time.sleep(0.01)
good(file.close())
assert there("/moment") == b"moment"

# Where there is no room any more, the close says so, and nothing is left.
file, large, asked = opened(full), opened(full + "-large"), opened(full + "-asked")
whole = opened(full + "-whole")
good(opened("/held").close())
while not others.stat("/filled")[0].ok:
    time.sleep(0.02)
for one in file, large, asked:
    good(one.write(b"y" * 60000, 0, 60000))
status, _ = file.close()
assert not status.ok and "quota" in status.message, status.message
assert not others.stat(full)[0].ok, "something is left of it"
# The same where more comes, in writes that XRootD answers before they are done.
large.write(b"z" * (1 << 20), 60000, 1 << 20)
assert not large.close()[0].ok
assert not others.stat(full + "-large")[0].ok, "something is left of the large one"
# And in one that is too large to be begun, whether its client has heard of it before the close or not.
whole.write(b"z" * (2 << 20), 1, 2 << 20)
assert not whole.close()[0].ok
assert not others.stat(full + "-whole")[0].ok, "something is left of the whole one"
# Who asks before the close is told, as often as he asks; and nothing is left.
for _ in range(2):
    assert not asked.sync()[0].ok
assert not asked.close()[0].ok
assert not others.stat(full + "-asked")[0].ok, "something is left of what could not be synced"

# Who goes away without a word leaves what he has written.
file = opened("/left")
good(file.write(b"left", 0, 4))
os._exit(0)
