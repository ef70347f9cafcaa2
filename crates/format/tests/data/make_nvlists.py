#!/usr/bin/env python3
"""Makes nvlist_all.xdr and nvlist_all.native with OpenZFS's own libnvpair (Debian: libnvpair3linux).

One pair of each data type, arrays of several lengths, nested lists: what the tests in
src/nvlist/tests.rs build and compare to the byte. Run here only to see where the files come from.
"""
import ctypes as c

lib = c.CDLL("libnvpair.so.3")
VP = c.c_void_p


def ok(err):
    assert err == 0, err


def new():
    nvl = VP()
    ok(lib.nvlist_alloc(c.byref(nvl), 1, 0))
    return nvl


def add(nvl, kind, name, *args):
    ok(getattr(lib, "nvlist_add_" + kind)(nvl, name, *args))


def array(nvl, kind, name, ctype, values):
    add(nvl, kind, name, (ctype * len(values))(*values), c.c_uint(len(values)))


def pack(nvl, encoding, path):
    buf, size = c.c_char_p(), c.c_size_t()
    buf = VP()
    ok(lib.nvlist_pack(nvl, c.byref(buf), c.byref(size), encoding, 0))
    with open(path, "wb") as f:
        f.write(c.string_at(buf, size.value))


inner = new()
add(inner, "uint64", b"deep", c.c_uint64(7))
leaf = new()
add(leaf, "string", b"s", b"leaf")
add(inner, "nvlist", b"leaf", leaf)
empty = new()

nvl = new()
add(nvl, "boolean", b"boolean")
add(nvl, "byte", b"byte", c.c_uint8(0xF1))
add(nvl, "int16", b"int16", c.c_int16(-2))
add(nvl, "uint16", b"uint16", c.c_uint16(0xFEDC))
add(nvl, "int32", b"int32", c.c_int32(-3))
add(nvl, "uint32", b"uint32", c.c_uint32(0xFEDCBA98))
add(nvl, "int64", b"int64", c.c_int64(-4))
add(nvl, "uint64", b"uint64", c.c_uint64(0xFEDCBA9876543210))
add(nvl, "string", b"string", b"caf\xe9")
array(nvl, "byte_array", b"byte_array", c.c_uint8, [1, 0, 255, 3, 128])
array(nvl, "int16_array", b"int16_array", c.c_int16, [1, -1, 300])
array(nvl, "uint16_array", b"uint16_array", c.c_uint16, [1, 65535])
array(nvl, "int32_array", b"int32_array", c.c_int32, [1, -1, 70000])
array(nvl, "uint32_array", b"uint32_array", c.c_uint32, [5])
array(nvl, "int64_array", b"int64_array", c.c_int64, [-1, 1])
array(nvl, "uint64_array", b"uint64_array", c.c_uint64, [1 << 63, 2])
array(nvl, "string_array", b"string_array", c.c_char_p, [b"a", b"", b"four"])
add(nvl, "hrtime", b"hrtime", c.c_int64(123456789012345))
add(nvl, "nvlist", b"nvlist", inner)
array(nvl, "nvlist_array", b"nvlist_array", VP, [leaf, empty, inner])
add(nvl, "boolean_value", b"boolean_value", c.c_int(1))
add(nvl, "int8", b"int8", c.c_int8(-5))
add(nvl, "uint8", b"uint8", c.c_uint8(0xC8))
array(nvl, "boolean_array", b"boolean_array", c.c_int, [1, 0, 1])
array(nvl, "int8_array", b"int8_array", c.c_int8, [-1, 2, 3])
array(nvl, "uint8_array", b"uint8_array", c.c_uint8, [255, 2, 3, 4])
add(nvl, "nvlist", b"empty", empty)
array(nvl, "uint64_array", b"no_words", c.c_uint64, [])
array(nvl, "string_array", b"no_strings", c.c_char_p, [])
lib.nvlist_add_double(nvl, b"double", c.c_double(1.5))
pack(nvl, 0, "nvlist_all.native")
pack(nvl, 1, "nvlist_all.xdr")
