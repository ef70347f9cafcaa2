# Run by tools/zfsvm --disks 1:200M; extract.py takes objects from its image.
set -euo pipefail
zpool create -o cachefile=none -o ashift=12 -O compression=lz4 -O xattr=sa -O acltype=off sat /d/d00
zfs create sat/x
zfs create -o dnodesize=1k sat/k
zfs create sat/modes
python3 - <<'X'
import os
os.umask(0)
os.chdir('/sat/x')
for n in range(0, 300):
    p = 'f%d' % n
    open(p, 'w').close()
    os.setxattr(p, 'user.a', b'v' * n)
for n in range(1, 330, 1):
    os.symlink('t' * n, 'l%d' % n)
for n in range(1, 150, 2):
    p = 'm%d' % n
    os.symlink('t' * n, p)
    os.setxattr(p, 'trusted.x', b'y' * 60, follow_symlinks=False)
for n in range(1, 200, 4):
    p = 'd%d' % n
    os.mkdir(p)
    os.setxattr(p, 'user.d', b'y' * n)
for n in range(0, 40):
    p = 'p%d' % n
    os.mkfifo(p)
    os.setxattr(p, 'trusted.d', b'y' * (n * 4))
# grow, shrink, remove
for n in range(0, 60):
    p = 'g%d' % n
    open(p, 'w').close()
    os.setxattr(p, 'user.a', b'v' * 400)
    os.setxattr(p, 'user.b', b'v' * n)
    os.setxattr(p, 'user.a', b'w' * n)
    if n % 3 == 0: os.removexattr(p, 'user.b')
    if n % 6 == 0: os.removexattr(p, 'user.a')
os.chdir('/sat/k')
for n in range(0, 1200, 7):
    p = 'f%d' % n
    open(p, 'w').close()
    os.setxattr(p, 'user.a', b'v' * n)
os.chdir('/sat/modes')
for m in range(0, 512):
    os.close(os.open('c%03o' % m, os.O_CREAT | os.O_WRONLY, m))
    os.close(os.open('h%03o' % m, os.O_CREAT | os.O_WRONLY, 0o640))
    os.chmod('h%03o' % m, m)
for m in range(0, 512, 5):
    os.mkdir('x%03o' % m, m)
    os.mkdir('y%03o' % m, 0o750)
    os.chmod('y%03o' % m, m | 0o1000)
X
zpool export sat
