#!/usr/bin/env python3
"""extract.py WORK: makes dsl.jsonl, sa.jsonl and sa_edges.jsonl anew from golden pools (needs zdb).

WORK/NAME/dNN are the unpacked images of tests/golden/NAME.tar.zst, WORK/NAME.json the truth.
WORK/sat/d00 is the image that sa_edges.sh made in the VM of tools/zfsvm: objects on both sides of
each edge where attributes move to the spill block, and modes that need entries that deny.

Each line holds bytes as OpenZFS wrote them (hex, zeros at the end cut off), and beside them what
OpenZFS says they mean: zdb 2.1.11 (`zdb`), or the kernel's stat, readlink, getxattr (`truth`).
The bytes are found by tools/poolaudit's reader, which shares nothing with the engine.
"""
import calendar, importlib.machinery, importlib.util, json, os, re, subprocess, sys, time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
TOOL = os.path.join(HERE, '../../../../tools/poolaudit')
loader = importlib.machinery.SourceFileLoader('poolaudit', TOOL)
poolaudit = importlib.util.module_from_spec(importlib.util.spec_from_loader('poolaudit', loader))
loader.exec_module(poolaudit)


def cut(b):
    return bytes(b).rstrip(b'\0').hex()


def put(out, row):
    print(json.dumps(row, separators=(',', ':')), file=out)


def number(text):
    """a number of zdb, or the seconds of a date (zdb prints local time: TZ is UTC here)"""
    if re.fullmatch(r'-?\d+', text):
        return int(text)
    try:
        return calendar.timegm(time.strptime(text, '%a %b %d %H:%M:%S %Y'))
    except ValueError:
        return text


def zdb(work, pool, *args):
    run = subprocess.run(['zdb', '-P', '-e', '-p', os.path.join(work, pool), *args], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, errors='surrogateescape',
                         env=dict(os.environ, TZ='UTC'))
    return run.stdout


def objects(text):
    """zdb -dddd's text by object: {number: {field: value}} and the lines"""
    found = {}
    for part in re.split(r'(?m)^    Object .*\n', text)[1:]:
        lines = part.split('\n')
        fields = {}
        for line in lines[1:]:
            m = re.match(r'^\t\t(\w+(?:\[\w+\])?) = (.*)$', line) or re.match(r'^\t(\w+)\t(.*)$', line) \
                or re.match(r'^\t(uid|gid) +(.*)$', line)
            if m:
                fields.setdefault(m[1], number(m[2]))
        found[int(lines[0].split()[0])] = fields, lines
    return found


MOS = {12: 'dir', 16: 'dataset', 51: 'deadlist', 6: 'bpobj', 7: 'space_map'}


def space_maps(text):
    """what zdb -m says of each space map: the debug words and the entries [A or F, start, end, vdev, words]"""
    found, start, now = {}, 0, None
    for line in text.split('\n'):
        if m := re.match(r'\tmetaslab .* offset +(\w+) ', line):
            start = int(m[1], 16)
        elif m := re.match(r'space map object (\d+):', line):
            now = found.setdefault(int(m[1]), dict(start=start, debugs=[], entries=[]))
        elif m := re.match(r'\t +\[ *\d+\] +([AF]) +range: (\w+)-(\w+) +size: \w+ vdev: (\d+) words: (\d)', line):
            now['entries'].append([m[1], int(m[2], 16), int(m[3], 16), int(m[4]), int(m[5])])
        elif m := re.match(r'\t +\[ *\d+\] (ALLOC|FREE): txg (\d+),? pass (\d+)', line):
            now['debugs'].append([m[1][0], int(m[2]), int(m[3])])
        elif not line.startswith(' '):
            start = 0 if re.match(r'Log|\tvdev|obsolete|Checkp', line) else start
    return found


def find_dtls(vdev, text, found):
    """the space maps of DTLs, and the ranges of missing txgs that zdb prints for that leaf"""
    if 'DTL' in vdev:
        lines = iter(text.split('\n'))
        for line in lines:
            if os.path.basename(vdev['path']) + ' [DTL' in line:
                break
        missing = []
        for line in lines:
            m = re.match(r' *\t +missing \[(\d+),(\d+)\)', line)
            if not m:
                break
            missing.append([int(m[1]), int(m[2])])
        found[vdev['DTL']] = missing
    for child in vdev.get('children', []):
        find_dtls(child, text, found)


MOST = dict(mir=4, rz2=3, features=2, resilvering=2)


def dsl(work, out):
    for name in 'mir', 'rz2', 'old', 'features', 'nofeat', 'resilvering':
        pool = poolaudit.Pool.__new__(poolaudit.Pool)
        pool.cache, pool.cached, pool.bad = {}, 0, poolaudit.Findings()
        pool.find(os.path.join(work, name), None)
        pool.mos = mos = poolaudit.Objset(pool, poolaudit.U('16Q', pool.ub, 40), 'MOS')
        pool.dir = mos.zap(1)
        conf = mos.dn(pool.dir['config'])
        config = poolaudit.nvlist(conf.data(conf.words()[0]), 4)[0]
        pool.tree([t for t in config['vdev_tree']['children'] if t['type'] != 'indirect'])
        said = objects(zdb(work, name, '-dddd', name).split('\nDataset ')[1])
        kinds, maps, dtls = {}, space_maps(zdb(work, name, '-mmmmm', name)), {}
        ashift = config['vdev_tree']['children'][0]['ashift']
        find_dtls(config['vdev_tree'], zdb(work, name, '-ddd', name), dtls)
        for num, (fields, lines) in sorted(said.items()):
            dn = mos.dn(num)
            kind = MOS.get(dn.btype)
            if num == pool.dir['config'] or not kind and dn.type != 0xC3:
                continue
            kind = kind or {24: 'mapping', 32: 'mapping', 8: 'births'}.get(dn.blen)
            if not kind:
                continue
            w = dn.words()
            empty = {'dataset': 22, 'deadlist': 0, 'bpobj': 0}.get(kind)
            sign = kind, empty is not None and w[empty] == 0
            fits = kind != 'space_map' or num in dtls or num in maps and 0 < w[1] <= 800
            kinds[sign] = kinds.get(sign, 0) + fits
            most = 1 if sign[1] else 4 if kind == 'bpobj' else 9 if name == 'features' and kind == 'space_map' else MOST.get(name, 1)
            if not fits or kinds[sign] > most and num not in dtls:
                continue
            row = dict(pool=name, object=num, kind=kind, size=dn.blen, bonus=cut(dn.bonus), zdb=fields)
            if kind == 'deadlist':
                row['zap'] = {k: v for k, v in mos.zap(num).items()}
            if kind == 'bpobj' and w[0]:
                row['data'] = cut(dn.data(w[0] * 128)[:128 * 3])
                if len(w) > 4 and w[4]:
                    row['subobjs'] = cut(mos.dn(w[4]).data(w[5] * 8))
            if kind == 'space_map':
                row.update({'dtl': dtls[num]} if num in dtls else maps[num], data=dn.data(w[1]).hex(), ashift=ashift)
            if kind == 'mapping':
                row['data'] = dn.data(w[2] * 24)[:24 * 40].hex()
            if kind == 'births':
                row['data'] = dn.data(w[0] * 16).hex()
            put(out, row)
        if name == 'mir':
            desc = mos.zap(pool.dir['feature_descriptions'])
            words = {k: bytes(v if isinstance(v, list) else [v]).rstrip(b'\0').decode() for k, v in desc.items()}
            where = {k: 'read' for k in mos.zap(pool.dir['features_for_read'])}
            where.update({k: 'write' for k in mos.zap(pool.dir['features_for_write'])})
            put(out, dict(pool=name, kind='features', descriptions=words, where=where))
        for num, (fields, lines) in said.items():
            dn = mos.dn(num)
            if dn.type == 0xC4 and dn.btype == 16:
                marks = mos.zap(num).get('com.delphix:bookmarks')
                if marks:
                    put(out, dict(pool=name, kind='bookmarks', zap=mos.zap(marks)))


SETS = [('single', 'single', 50), ('mir', 'mir/work', 16), ('mir', 'mir/dirattr', 7), ('mir', 'mir/large', 7),
        ('mir', 'mir/quota', 4), ('old', 'old', 6), ('old', 'old/a', 4), ('old', 'old/b', 6), ('nofeat', 'nofeat/a', 2)]


FIELDS = dict(uid=10, gid=10, atime=10, mtime=10, ctime=10, crtime=10, gen=10, mode=8, size=10, parent=10, links=10,
              pflags=16, projid=10, xattr=10, rdev=16)


def sa(work, out):
    for name, dataset, most in SETS:
        pool = poolaudit.Pool(os.path.join(work, name), None)
        said = zdb(work, name, '-dddd', dataset)
        said = next(part for part in said.split('Dataset ') if part.startswith(dataset + ' [ZPL]'))
        ds = int(re.search(r', ID (\d+),', said)[1])
        words = pool.mos.dn(ds).words()
        objset = poolaudit.Objset(pool, words[16:32], dataset)
        master = objset.zap(1)
        attrs = objset.zap(master['SA_ATTRS']) if 'SA_ATTRS' in master else {}
        registry = objset.zap(attrs['REGISTRY']) if attrs else {}
        layouts = {k: v if isinstance(v, list) else [v] for k, v in objset.zap(attrs['LAYOUTS']).items()} if attrs else {}
        put(out, dict(dataset=dataset, master=master, registry=registry, layouts=layouts))
        truth = {}
        for e in json.load(open(os.path.join(work, name + '.json')))['files'][dataset]['entries']:
            truth.setdefault(e['ino'], e)
        said, seen, count = objects(said), set(), 0
        for num, (fields, _) in sorted(said.items()):
            dn = objset.dn(num)
            if dn.btype not in (17, 44):
                continue
            e = truth.get(num)
            spill = pool.read(dn.spill) if dn.spill else None
            head = dn.bonus[4:6] if dn.btype == 44 else b''
            sign = (dn.type, len(dn.bonus) // 40, head, bool(spill), e and (e['type'], 'rdev' in e, 'acl' in e),
                    fields.get('mode') if name == 'single' else 0, fields.get('pflags') if name == 'single' else 0)
            if sign in seen and not (e and e['path'].startswith('attrs/')) or count >= most or len(spill or dn.bonus) > 1600:
                continue
            seen.add(sign)
            count += 1
            row = dict(object=num, type=dn.type, bonus_type=dn.btype, slots=dn.extra + 1, bonus=dn.bonus.hex(),
                       zdb={k: int(str(fields[k]), FIELDS[k]) for k in FIELDS if re.fullmatch(r'(0x)?[0-9a-f]+', str(fields.get(k)))})
            if spill:
                row['spill'] = spill.hex()
            if e:
                row['truth'] = {k: v for k, v in e.items() if k not in ('sha256', 'data', 'blocks', 'blksize')}
            put(out, row)


MODES = 0o007, 0o070, 0o123, 0o247, 0o604, 0o707


def edges(work, out):
    pool = poolaudit.Pool(os.path.join(work, 'sat'), None)
    for dataset in 'sat/x', 'sat/k', 'sat/modes':
        said = zdb(work, 'sat', '-dddd', dataset)
        said = next(part for part in said.split('Dataset ') if part.startswith(dataset + ' [ZPL]'))
        words = pool.mos.dn(int(re.search(r', ID (\d+),', said)[1])).words()
        objset, said = poolaudit.Objset(pool, words[16:32], dataset), objects(said)
        master = objset.zap(1)
        attrs = objset.zap(master['SA_ATTRS'])
        layouts = {k: v if isinstance(v, list) else [v] for k, v in objset.zap(attrs['LAYOUTS']).items()}
        put(out, dict(dataset=dataset, master=master, registry=objset.zap(attrs['REGISTRY']), layouts=layouts))
        groups = {}
        for name, value in objset.zap(master['ROOT']).items():
            groups.setdefault(name[0], []).append((int(name[1:], 8 if dataset == 'sat/modes' else 10), name,
                                                   value & (1 << 48) - 1))
        for group, members in sorted(groups.items()):
            if group in 'gdp':          # g grew and shrank: spill blocks keep their size
                continue
            rows, signs = [], []
            for n, name, num in sorted(members):
                dn = objset.dn(num)
                spill = pool.read(dn.spill) if dn.spill else b''
                fields = said[num][0]
                row = dict(object=num, type=dn.type, bonus_type=dn.btype, slots=dn.extra + 1, bonus=dn.bonus.hex(),
                           zdb={k: int(str(fields[k]), FIELDS[k]) for k in FIELDS
                                if re.fullmatch(r'(0x)?[0-9a-f]+', str(fields.get(k)))}, name=name)
                rows.append(dict(row, spill=spill.hex()) if spill else row)
                signs.append((dn.bonus[4:6], spill[4:6], len(spill)))
                if dataset == 'sat/modes' and n in MODES:
                    put(out, row)
            for i in range(1, len(rows)):
                if signs[i] != signs[i - 1] and dataset != 'sat/modes':
                    put(out, rows[i - 1])
                    put(out, rows[i])


def main():
    work = sys.argv[1]
    with open(os.path.join(HERE, 'dsl.jsonl'), 'w') as f:
        dsl(work, f)
    with open(os.path.join(HERE, 'sa.jsonl'), 'w') as f:
        sa(work, f)
    with open(os.path.join(HERE, 'sa_edges.jsonl'), 'w') as f:
        edges(work, f)


main()
