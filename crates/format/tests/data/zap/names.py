"""names.py DIR [bytes]: makes files with a name for each character that has another case or another form,
and for sequences of them. With a second word also names that are no UTF-8. Run by names.sh."""
import os, random, sys, unicodedata as u
r = random.Random(7)
inter = [c for c in range(0x80, 0x110000) if not 0xD800 <= c < 0xE000 and (
    u.decomposition(chr(c)) or chr(c).upper() != chr(c) or chr(c).lower() != chr(c) or u.combining(chr(c)))]
inter += list(range(0xAC00, 0xD7A4, 97)) + list(range(0x1100, 0x1200, 5)) + [0x378, 0xE000, 0x10FFFF, 0x4E00, 0x3042]
marks = [c for c in inter if u.combining(chr(c))]
names = [f"{c:x}-{chr(c)}-" for c in inter]
n = 0
def add(s):
    global n
    names.append(f"s{n:x}." + s); n += 1
for c in inter:
    d = u.normalize("NFD", chr(c))
    if d != chr(c) and len(d) > 1: add(d); 
for c in marks[::7]: add("a" + chr(c)); add("e\u0301" + chr(c)); add("o" + chr(c) + "\u0301\u0323")
for _ in range(3000):
    add("".join(r.choice((lambda: chr(r.choice(inter)), lambda: chr(r.choice(marks)), lambda: r.choice("aeiouAEKz"), lambda: chr(r.randrange(0x1100, 0x11FF)), lambda: chr(r.randrange(0xAC00, 0xD7A4)), lambda: chr(r.randrange(0x300, 0x345))))() for _ in range(r.randrange(1, 6))))
for k in (5, 30, 33, 40, 60): add("a" + "\u0301" * k); add("a" + "\u0301\u0323" * k)
raw = [x.encode() for x in names if len(x.encode()) <= 255 and "\0" not in x]
raw.append(b"L" * 120)
os.chdir(sys.argv[1])
os.mkdir("all"); os.chdir("all")
bad = 0
for x in raw:
    try: os.close(os.open(x, os.O_CREAT | os.O_WRONLY))
    except OSError as e: bad += 1; print("refused", e.errno, ascii(x)) if bad < 5 else None
if len(sys.argv) > 2:
    for i in range(300):
        x = b"i%d." % i + bytes(r.randrange(0x41, 256) for _ in range(r.randrange(1, 12))).replace(b"/", b"_")
        try: os.close(os.open(x, os.O_CREAT | os.O_WRONLY))
        except OSError as e: print("refused", e.errno, ascii(x))
print(sys.argv[1], len(raw), "names", bad, "refused", len(os.listdir(".")), "there", flush=True)
