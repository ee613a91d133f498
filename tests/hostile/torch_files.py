"""torch_files.py - Hostile checkpoints: pickles that call, hold themselves or lie, and archives.

Made without torch: every pickle is written opcode by opcode.  make_files.py writes what files()
yields.  A pickle that was run would leave the file /tmp/owned.
"""
import io
import json
import struct
import tarfile
import warnings
import zipfile


def name(module, attribute):
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def text(s):
    s = s.encode("utf8", "surrogatepass")
    return b"X" + struct.pack("<I", len(s)) + s


def whole(n):
    b = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(b)]) + b


def group(*items):
    return b"(" + b"".join(items) + b"t"


def call(callee, *arguments):
    return callee + group(*arguments) + b"R"


def mapping(pairs):
    return b"}(" + b"".join(k + v for k, v in pairs) + b"u"


def tensor(sizes=(2, 3), strides=(3, 1), offset=0, key="0", kind="FloatStorage", count=6):
    storage = group(text("storage"), name("torch", kind), text(key), text("cpu"), whole(count))
    return call(name("torch._utils", "_rebuild_tensor_v2"), storage + b"Q", whole(offset),
                group(*map(whole, sizes)), group(*map(whole, strides)), b"\x89",
                call(name("collections", "OrderedDict")))


def archive(pickle, storages=(("0", b"\0" * 24),), extra=(), method=zipfile.ZIP_STORED,
            order=b"little"):
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as z:
        warnings.simplefilter("ignore")  # a name may stand there twice
        z.writestr("a/data.pkl", b"\x80\x02" + pickle + b".")
        z.writestr("a/byteorder", order)
        for key, data in storages:
            z.writestr("a/data/" + key, data)
        for key, data in extra:
            z.writestr(key, data)
    return out.getvalue()


def legacy(pickle, keys=(b"0",), sizes=(6,), version=1001, data=b"\0" * 24):
    head = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
    system = mapping([(text("little_endian"), b"\x88")])
    out = head + b"\x80\x02" + whole(version) + b".\x80\x02" + system + b".\x80\x02" + pickle + b"."
    out += b"\x80\x02](" + b"".join(text(k.decode()) for k in keys) + b"e."
    return out + b"".join(struct.pack("<q", n) + data for n in sizes)


def laughs(levels, wide=10):
    """A tuple of tuples of tuples, each the same object `wide` times."""
    out = b")q\0"
    for k in range(levels):
        out += b"(" + b"h" + bytes([k]) + (b"h" + bytes([k])) * (wide - 1) + b"tq" + bytes([k + 1])
    return out


def run_files():
    command = text("touch /tmp/owned")
    for k, (module, attribute) in enumerate([
            ("posix", "system"), ("os", "system"), ("builtins", "eval"), ("builtins", "getattr"),
            ("subprocess", "Popen"), ("torch", "load"), ("torch.storage", "_load_from_bytes"),
            ("torch.jit", "load"), ("builtins", "exec"), ("numpy.core.multiarray", "_from_pickle"),
            ("", ""), ("torch._utils", "_rebuild_tensor_v2\x1b[31m"), ("a" * 5000, "b")]):
        yield f"call{k}", archive(call(name(module, attribute), command))
        yield f"stack_call{k}", archive(text(module) + text(attribute) + b"\x93" + command +
                                        b"\x85R")
        yield f"legacy_call{k}", legacy(call(name(module, attribute), command))
    yield "inst", archive(b"(" + command + b"iposix\nsystem\n")
    yield "obj", archive(b"(" + name("posix", "system") + command + b"o")
    yield "reduce_reduce", archive(call(call(name("builtins", "getattr"), text("os")), command))
    yield "persistent", archive(group(text("module"), text("x")) + b"Q")


def shape_files():
    big = 2 ** 62
    for k, t in enumerate([
            tensor(sizes=(big, big)), tensor(strides=(big, big)), tensor(offset=big),
            tensor(sizes=(-1, 3)), tensor(strides=(-3, 1)), tensor(offset=-1),
            tensor(sizes=(2 ** 40,), strides=(0,)), tensor(sizes=(2 ** 30,), strides=(1,)),
            tensor(sizes=(1,) * 70, strides=(1,) * 70), tensor(sizes=(2,)), tensor(key="1"),
            tensor(key="../0"), tensor(kind="NoStorage"), tensor(sizes=(0, big, big)),
            tensor(offset=2 ** 80), tensor(offset=1)]):
        yield f"shape{k}", archive(mapping([(text("w"), t)]))
        yield f"legacy_shape{k}", legacy(mapping([(text("w"), t)]))
    yield "overlapping", archive(mapping((text(f"w{k}"), tensor((3,), (1,), k)) for k in range(4)))


def value_files():
    yield "memo", archive(b"Nr\xff\xff\xff\xff")
    yield "memo_text", archive(b"Np99999999999999999999\n")
    yield "unknown_memo", archive(b"h\5")
    yield "many_memos", archive(b"N" + b"".join(b"r" + struct.pack("<I", 256 * k)
                                                for k in range(20000)))
    for k, (inner, outer) in enumerate([(b"]", b"a"), (b"(", b"t"), (b")\x85", b"\x85")]):
        yield f"deep{k}", archive(inner * 300000 + outer * 299999)
    yield "deep_dict", archive((b"}" + text("k")) * 100000 + b"N" + b"s" * 100000)
    yield "self_dict", archive(b"}q\0" + text("k") + b"h\0s")
    yield "self_list", archive(b"]q\0h\0a")
    yield "self_optimizer", archive(
        b"}q\0(" + text("state") + b"h\0" + text("param_groups") + b"]h\0au")
    yield "self_states", archive(b"}q\0(" + text("state1") + b"h\0" + text("qmap1") + b"h\0" +
                                 text("absmax1") + b"h\0u")
    state = mapping([(text("codes"), b"h\1"), (text("scale"), b"h\1"), (text("qmap"), b"h\1")])
    yield "self_codes", archive(
        name("torch._tensor", "_rebuild_from_type_v2") + b"(" + b"N" +
        name("torchao.optim.subclass_8bit", "OptimState8bit") + b")" + b"Nq\1" + state + b"tR")
    yield "long", archive(b"\x8b\xff\xff\xff\x7f")
    yield "long_minus", archive(b"\x8b\xff\xff\xff\xff")
    yield "long_whole", archive(b"\x8b" + struct.pack("<I", 1 << 20) + b"\x80" * (1 << 20))
    yield "text", archive(b"\x8d" + b"\xff" * 8)
    yield "laughs", archive(laughs(60))
    yield "laughs_dict", archive(b"}q\0" + b"".join(
        b"}(" + text("a") + b"h" + bytes([k]) + text("b") + b"h" + bytes([k]) + b"uq" +
        bytes([k + 1]) for k in range(60)))
    yield "marks", archive(b"(" * 1000000)
    yield "pops", archive(b"N0" * 100000 + b"0")
    yield "empty", archive(b"")
    yield "number", archive(b"I99999999999999999999999999\n")
    yield "opcode", archive(b"\xfe")
    yield "items", archive(b"Nq\0" + text("a") + b"a")
    for k, word in enumerate(["", "\x1b[31m", "two\nlines", "a/../b", "\u202e", "x" * 5000, "/"]):
        yield f"name{k}", archive(mapping([(text(word), tensor())]))
    yield "twice", archive(mapping([(text("w"), tensor()), (text("w"), tensor())]))


def many_tensors(n):
    """n parameters with one state each, and a model beside them."""
    states = ((whole(k), mapping([(text("exp_avg"), tensor()), (text("step"), whole(1))]))
              for k in range(n))
    ids = b"](" + b"".join(whole(k) for k in range(n)) + b"e"
    options = mapping([(text("params"), ids), (text("lr"), whole(1))])
    return archive(mapping([
        (text("model"), mapping((text(f"w{k}"), tensor()) for k in range(n))),
        (text("opt"), mapping([(text("state"), mapping(states)),
                               (text("param_groups"), b"](" + options + b"e")]))]))


def archive_files():
    whole_file = mapping([(text("w"), tensor())])
    good = archive(whole_file)
    yield "good", good
    yield "packed", archive(whole_file, method=zipfile.ZIP_DEFLATED)
    yield "big_endian", archive(whole_file, order=b"big")
    yield "no_order", archive(whole_file, order=b"middle")
    yield "script", archive(whole_file, extra=[("a/constants.pkl", b"N.")])
    yield "two_folders", archive(whole_file, extra=[("b/data.pkl", b"N.")])
    yield "two_pickles", archive(whole_file, extra=[("a/data.pkl", b"N.")])
    yield "bzip2", archive(whole_file, method=zipfile.ZIP_BZIP2)
    yield "no_pickle", archive(b"").replace(b"data.pkl", b"data.pk_")
    yield "pickle_bomb", archive(b"N" * (64 << 20), method=zipfile.ZIP_DEFLATED)
    yield "bomb", archive(whole_file, [("0", b"\0" * (256 << 20))], method=zipfile.ZIP_DEFLATED)
    bomb = mapping([(text("w"), tensor((64 << 20,), (1,), count=64 << 20))])
    yield "bomb_read", archive(bomb, [("0", b"\0" * (256 << 20))], method=zipfile.ZIP_DEFLATED)
    yield "same_names", archive(whole_file, [("0", b"\0" * 24), ("0", b"\1" * 24)])
    yield "short_storage", archive(whole_file, [("0", b"\0" * 23)])
    yield "no_storage", archive(whole_file, [])
    yield "checksum", good.replace(b"\0" * 24, b"\1" + b"\0" * 23, 1)
    yield "zip64", good.replace(b"PK\5\6" + b"\0" * 4, b"PK\5\6" + b"\xff" * 4)
    yield "many", many_tensors(2000)
    for k, n in enumerate([7, -1, 2 ** 61]):
        yield f"legacy_size{k}", legacy(whole_file, sizes=(n,))
    yield "legacy_good", legacy(whole_file)
    yield "legacy_version", legacy(whole_file, version=1000)
    yield "legacy_keys", legacy(whole_file, keys=(b"0", b"1"))
    yield "legacy_short", legacy(whole_file, data=b"\0" * 20)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member in ("sys_info", "pickle", "tensors", "storages"):
            tar.addfile(tarfile.TarInfo(member))
    yield "tar", out.getvalue()


MODULE = "torch.distributed.checkpoint."


def instance(cls, fields):
    return name(*(MODULE + cls).rsplit(".", 1)) + b")\x81" + mapping(
        (text(k), v) for k, v in fields.items()) + b"b"


def metadata(file="x.distcp", offset=0, length=100, size=(2,), chunk=(2,)):
    """The .metadata of a tensor of one dimension in one chunk."""
    def shape(x):
        return call(name("torch", "Size"), group(*map(whole, x)))
    chunks = b"](" + instance("metadata.ChunkStorageMetadata", {
        "offsets": shape((0,)), "sizes": shape(chunk)}) + b"e"
    properties = name(MODULE + "metadata", "TensorProperties") + b")\x81(" + \
        name("torch", "float32") + b"tb"
    meta = instance("metadata.TensorStorageMetadata", {
        "properties": properties, "size": shape(size), "chunks": chunks})
    index = instance("metadata.MetadataIndex", {
        "fqn": text("w"), "offset": shape((0,)), "index": whole(0)})
    place = instance("filesystem._StorageInfo", {
        "relative_path": text(file), "offset": whole(offset), "length": whole(length)})
    return b"\x80\x02" + instance("metadata.Metadata", {
        "state_dict_metadata": mapping([(text("w"), meta)]),
        "planner_data": b"N", "storage_data": mapping([(index, place)])}) + b"."


def folder_files():
    """Files that name others, which are not there or must not be opened."""
    for k, file in enumerate(["x.distcp", "../x", "/etc/passwd", "..", "", "fifo", "a\nb",
                              "\x1b[31m"]):
        yield f"folder{k}.metadata", metadata(file)
        yield f"index{k}.json", json.dumps({"weight_map": {"w": file}}).encode()
    yield "shape.metadata", metadata(size=(2 ** 62, 2 ** 62), file="good.pt")
    yield "chunk.metadata", metadata(chunk=(3,), file="good.pt")
    yield "offset.metadata", metadata(offset=2 ** 62, file="good.pt")
    yield "inside.metadata", metadata(offset=0, length=300, file="good.pt")
    yield "index_itself.json", b'{"weight_map": {"w": "index_itself.json"}}'
    yield "index_absent.json", b'{"weight_map": {"v": "good.pt"}}'
    yield "index_deep.json", b'{"weight_map": ' + b"[" * 100000
    yield "index_none.json", b'{"weight_map": {}}'
    yield "index_text.json", b'{"weight_map": "good.pt"}'
    yield "index_many.json", json.dumps(
        {"weight_map": {f"w{k}": "good.pt" for k in range(20000)}}).encode()


def files():
    for made in (run_files(), shape_files(), value_files(), archive_files()):
        for stem, data in made:
            yield f"{stem}.pt", data
    yield from folder_files()
