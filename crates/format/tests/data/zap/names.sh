# What ran in the VM of tools/zfsvm (`--disks 1:384M`, this directory as /d) for names.txt.zst.
# From the image, for each file system: name, normflags and salt of the directory `all` (fat ZAPs), a line
# each. Then for each name (bytes but printable ASCII, and %, as %xx) the top 28 bits of its hash in
# each of the seven directories, `-` where it is not.
set -e
zpool create -o cachefile=none -o ashift=9 -O atime=off -O compression=lz4 -O sync=disabled names /d/d00
zfs create -o casesensitivity=insensitive names/insens
zfs create -o casesensitivity=insensitive -o normalization=formKC names/inKC
zfs create -o casesensitivity=insensitive -o normalization=formD names/inD
for f in formC formD formKC formKD; do zfs create -o normalization=$f names/$f; done
for f in inD formC formD formKC formKD inKC; do python3 /d/names.py /names/$f; date +%s; done
python3 /d/names.py /names/insens x
cd /; zpool export names
