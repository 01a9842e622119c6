"""Unpacking real zip and tar files, honest ones and attacks."""

from __future__ import annotations

import gzip
import io
import os
import random
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from functions.archives import unpack
from functions.errors import BundleRefused, TooLarge
from functions.paths import Limits

Content = bytes | None
"""None = a folder."""
Entry = tuple[str, Content, int]
LIMITS = Limits(files=50, total_bytes=4 << 20, ratio=50, ratio_floor=1 << 20)
SMALL: list[Entry] = [("config.pbtxt", b"c", 0o644), ("1/model.py", b"m" * 1000, 0o644), ("run.sh", b"r", 0o755), ("empty", b"", 0o644)]


def make_zip(entries: Sequence[Entry], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    body = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # duplicate names are what some tests are about
        with zipfile.ZipFile(body, "w", method) as archive:
            for name, content, mode in entries:
                info = zipfile.ZipInfo(name if content is not None else f"{name}/")
                info.external_attr = (mode | (0o100000 if content is not None else 0o040000)) << 16
                info.compress_type = method
                archive.writestr(info, content or b"")
    return body.getvalue()


def make_tar(entries: Sequence[Entry], format: int = tarfile.PAX_FORMAT) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=format) as archive:
        for name, content, mode in entries:
            info = tarfile.TarInfo(name)
            info.mode = mode
            if content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return body.getvalue()


def make_targz(entries: Sequence[Entry]) -> bytes:
    return gzip.compress(make_tar(entries))


def member(name: str, kind: bytes, **fields: object) -> bytes:
    """A tar of one special member."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type = kind
        for field, value in fields.items():
            setattr(info, field, value)
        archive.addfile(info)
    return body.getvalue()


PACKERS: dict[str, Callable[[Sequence[Entry]], bytes]] = {
    "zip": make_zip,
    "stored zip": lambda entries: make_zip(entries, zipfile.ZIP_STORED),
    "tar": make_tar,
    "gnu tar": lambda entries: make_tar(entries, tarfile.GNU_FORMAT),
    "ustar": lambda entries: make_tar(entries, tarfile.USTAR_FORMAT),
    "tar.gz": make_targz,
}
EACH = pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS.keys())


@pytest.fixture
def open_archive(tmp_path: Path) -> Callable[..., Path]:
    def run(body: bytes, limits: Limits = LIMITS) -> Path:
        archive, destination = tmp_path / "archive", tmp_path / "out"
        archive.write_bytes(body)
        destination.mkdir(exist_ok=True)
        return unpack(archive, destination, limits)

    return run


Open = Callable[..., Path]


def found(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@EACH
def test_what_was_packed_comes_out(pack: Callable[[Sequence[Entry]], bytes], open_archive: Open) -> None:
    root = open_archive(pack(SMALL))

    assert {name: content for name, content, _ in SMALL} == found(root)
    assert os.access(root / "run.sh", os.X_OK)
    assert not os.access(root / "config.pbtxt", os.X_OK)


@EACH
def test_one_folder_around_everything_is_taken_off(pack: Callable[[Sequence[Entry]], bytes], open_archive: Open) -> None:
    root = open_archive(pack([("digits", None, 0o755), *((f"digits/{name}", content, mode) for name, content, mode in SMALL)]))

    assert root.name == "digits"
    assert {name: content for name, content, _ in SMALL} == found(root)


@EACH
def test_a_version_directory_on_its_own_is_not_taken_off(pack: Callable[[Sequence[Entry]], bytes], open_archive: Open) -> None:
    assert found(open_archive(pack([("1/model.py", b"m", 0o644)]))) == {"1/model.py": b"m"}


@EACH
def test_a_folder_packed_from_inside_is_the_same(pack: Callable[[Sequence[Entry]], bytes], open_archive: Open) -> None:
    root = open_archive(pack([("./", None, 0o755), ("./1", None, 0o755), *((f"./{name}", content, mode) for name, content, mode in SMALL)]))

    assert {name: content for name, content, _ in SMALL} == found(root)


@EACH
def test_pycache_stays_behind(pack: Callable[[Sequence[Entry]], bytes], open_archive: Open) -> None:
    entries: list[Entry] = [*SMALL, ("1/__pycache__", None, 0o755), ("1/__pycache__/model.pyc", b"x" * 5000, 0o644), ("z", b"z", 0o644)]

    assert {"z": b"z", **{name: content for name, content, _ in SMALL}} == found(open_archive(pack(entries)))


@EACH
@pytest.mark.parametrize(
    "name",
    ["/abs", "../up", "a/../../up", "a/..", "a//b", "a/./b", "a\\b", "a\nb", "x" * 300, "/".join("d" * 40), ".."],
)
def test_an_unsafe_name_is_refused_and_nothing_is_written_outside(
    pack: Callable[[Sequence[Entry]], bytes], name: str, open_archive: Open, tmp_path: Path
) -> None:
    if name == "x" * 300 and pack is PACKERS["ustar"]:
        pytest.skip("this format holds no such name")
    with pytest.raises(BundleRefused):
        open_archive(pack([("ok", b"", 0o644), (name, b"evil", 0o644)]))

    assert {"archive", "out"} == {path.name for path in tmp_path.iterdir()}


@EACH
@pytest.mark.parametrize(("first", "second"), [("a", "A"), ("a/x", "A/y"), ("e\u0301", "\u00e9"), ("a", "a"), ("a", "a/b"), ("a/b", "a")])
def test_colliding_names_are_refused(pack: Callable[[Sequence[Entry]], bytes], first: str, second: str, open_archive: Open) -> None:
    with pytest.raises(BundleRefused):
        open_archive(pack([(first, b"1", 0o644), (second, b"2", 0o644)]))


@EACH
def test_too_many_members_are_refused(pack: Callable[[Sequence[Entry]], bytes], open_archive: Open) -> None:
    with pytest.raises(TooLarge, match="50"):
        open_archive(pack([(f"f{index}", b"", 0o644) for index in range(51)]))


@EACH
def test_many_folders_are_no_matter_until_the_limit(pack: Callable[[Sequence[Entry]], bytes], open_archive: Open) -> None:
    limits = Limits(files=5000)
    entries: list[Entry] = [(f"d{index}", None, 0o755) for index in range(4000)]

    open_archive(pack([*entries, ("f", b"x", 0o644)]), limits)


@EACH
def test_too_many_bytes_are_refused_while_they_come_out(
    pack: Callable[[Sequence[Entry]], bytes], open_archive: Open, tmp_path: Path
) -> None:
    noise = random.Random(1).randbytes(3 << 20)
    with pytest.raises(TooLarge, match="4194304 bytes unpacked"):
        open_archive(pack([("a", noise, 0o644), ("b", noise, 0o644)]))

    assert sum(path.stat().st_size for path in (tmp_path / "out").iterdir()) <= 5 << 20


@pytest.mark.parametrize("pack", [make_zip, make_targz])
def test_a_bomb_is_refused_by_its_ratio(pack: Callable[[Sequence[Entry]], bytes], open_archive: Open, tmp_path: Path) -> None:
    body = pack([("bomb", bytes(64 << 20), 0o644)])
    with pytest.raises(TooLarge, match="more than 50 times its size"):
        open_archive(body, Limits(total_bytes=1 << 30, ratio=50, ratio_floor=1 << 20))

    assert (tmp_path / "out" / "bomb").stat().st_size < 20 << 20


def test_a_bomb_in_a_skipped_folder_is_counted_too(open_archive: Open) -> None:
    with pytest.raises(TooLarge):
        open_archive(make_targz([("__pycache__/bomb", bytes(16 << 20), 0o644)]))


def test_a_small_file_may_pack_as_well_as_it_likes(open_archive: Open) -> None:
    assert len(found(open_archive(make_zip([("zeros", bytes(1 << 20), 0o644)])))) == 1


# zip only


@pytest.mark.parametrize("kind", [0o120000, 0o020000, 0o060000, 0o010000, 0o140000])
def test_a_zip_member_that_is_a_link_or_device_is_refused(kind: int, open_archive: Open) -> None:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (kind | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(BundleRefused, match="a link or a device"):
        open_archive(body.getvalue())


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_method_that_cannot_be_bounded_is_refused(method: int, open_archive: Open) -> None:
    with pytest.raises(BundleRefused, match="packed by method"):
        open_archive(make_zip(SMALL, method))


def test_an_encrypted_zip_is_refused(open_archive: Open) -> None:
    body = bytearray(make_zip(SMALL[:1]))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        body[body.index(signature) + offset] |= 1
    with pytest.raises(BundleRefused, match="encrypted"):
        open_archive(bytes(body))


def test_a_nul_in_a_zip_name_does_not_cut_it(open_archive: Open) -> None:
    body = make_zip([("model.pyXexe", b"", 0o644)]).replace(b"model.pyXexe", b"model.py\0exe")
    with pytest.raises(BundleRefused):
        open_archive(body)


@pytest.mark.parametrize(("raw", "name"), [("é".encode(), "é"), ("日本".encode(), "日本")])
def test_a_zip_name_that_is_utf_8_without_saying_so_is_read_as_such(raw: bytes, name: str, open_archive: Open) -> None:
    body = make_zip([("x" * len(raw), b"1", 0o644)]).replace(b"x" * len(raw), raw)

    assert found(open_archive(body)) == {name: b"1"}


def test_a_zip_name_that_is_not_utf_8_is_refused(open_archive: Open) -> None:
    with pytest.raises(BundleRefused, match="not UTF-8"):
        open_archive(make_zip([("xxx", b"1", 0o644)]).replace(b"xxx", b"a\xffb"))


def test_a_zip_that_lies_about_a_size_is_refused(open_archive: Open) -> None:
    body = bytearray(make_zip([("a", b"x" * 5000, 0o644)]))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", body, body.index(signature) + offset, 10)
    with pytest.raises(BundleRefused, match="broken"):
        open_archive(bytes(body))


def test_a_zip_whose_content_was_changed_is_refused(open_archive: Open) -> None:
    body = make_zip([("a", b"hello", 0o644)], zipfile.ZIP_STORED).replace(b"hello", b"HELLO")
    with pytest.raises(BundleRefused, match="broken"):
        open_archive(body)


def test_a_zip_with_a_huge_directory_is_refused_before_it_is_read(open_archive: Open) -> None:
    body = make_zip([(f"f{index}", b"", 0o644) for index in range(6000)])
    with pytest.raises(TooLarge, match="a directory of"):
        open_archive(body)


def test_a_zip_of_windows_with_backslashes_is_refused_by_name(open_archive: Open) -> None:
    with pytest.raises(BundleRefused, match="backslash"):
        open_archive(make_zip([("1/model.py", b"", 0o644)]).replace(b"1/model.py", b"1\\model.py"))


# tar only


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (tarfile.SYMTYPE, {"linkname": "/etc/passwd"}),
        (tarfile.SYMTYPE, {"linkname": "config.pbtxt"}),
        (tarfile.LNKTYPE, {"linkname": "config.pbtxt"}),
        (tarfile.CHRTYPE, {"devmajor": 1, "devminor": 3}),
        (tarfile.BLKTYPE, {"devmajor": 8}),
        (tarfile.FIFOTYPE, {}),
        (b"Z", {}),
    ],
)
def test_a_tar_member_that_is_a_link_or_device_is_refused(
    kind: bytes, fields: dict[str, object], open_archive: Open, tmp_path: Path
) -> None:
    with pytest.raises(BundleRefused, match="a link, a device or a sparse file"):
        open_archive(member("evil", kind, **fields))

    assert list((tmp_path / "out").iterdir()) == []


def test_a_link_then_a_file_through_it_writes_nothing(open_archive: Open, tmp_path: Path) -> None:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        link = tarfile.TarInfo("d")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(link)
        file = tarfile.TarInfo("d/evil")
        file.size = 4
        archive.addfile(file, io.BytesIO(b"evil"))
    with pytest.raises(BundleRefused):
        open_archive(body.getvalue())

    assert not (tmp_path / "evil").exists()


def test_a_sparse_file_is_refused(open_archive: Open) -> None:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("sparse")
        info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40)}
        archive.addfile(info)
    with pytest.raises(BundleRefused, match="sparse"):
        open_archive(body.getvalue())


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_a_header_bomb_is_refused_before_it_fills_memory(kind: bytes, open_archive: Open) -> None:
    """tarfile reads an extended header as long as it says it is, in one piece; packed, a gigabyte of it is a megabyte."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, 1 << 30
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = packer.compress(info.tobuf(tarfile.GNU_FORMAT))
    for _ in range(16):
        body += packer.compress(bytes(1 << 20))
    with pytest.raises(TooLarge, match="belong to no file"):
        open_archive(body + packer.flush())


def test_gigabytes_of_zeros_behind_the_end_are_refused(open_archive: Open) -> None:
    with pytest.raises(TooLarge, match="belong to no file"):
        open_archive(gzip.compress(make_tar(SMALL) + bytes(8 << 20)))


@pytest.mark.parametrize("cut", range(1, 10))
def test_a_tar_cut_anywhere_is_refused(cut: int, open_archive: Open) -> None:
    """tarfile takes a missing header for the end of the archive; half a bundle must not pass for a whole."""
    whole = make_tar(SMALL, tarfile.USTAR_FORMAT)
    used = len(whole.rstrip(b"\0")) // 512 * 512
    with pytest.raises(BundleRefused):
        open_archive(whole[: used * cut // 10])


def test_a_tar_cut_between_two_members_is_refused(open_archive: Open) -> None:
    with pytest.raises(BundleRefused, match="broken"):
        open_archive(make_tar(SMALL, tarfile.USTAR_FORMAT)[:1024])


def test_a_broken_header_in_the_middle_is_refused(open_archive: Open) -> None:
    body = bytearray(make_tar(SMALL, tarfile.USTAR_FORMAT))
    body[1024 + 3] ^= 0xFF
    with pytest.raises(BundleRefused, match="broken"):
        open_archive(bytes(body))


def test_a_gzip_whose_sum_is_wrong_is_refused(open_archive: Open) -> None:
    body = bytearray(make_targz(SMALL))
    body[-6] ^= 0xFF
    with pytest.raises(BundleRefused, match="broken"):
        open_archive(bytes(body))


def test_a_gzip_cut_short_is_refused(open_archive: Open) -> None:
    body = make_targz(SMALL)
    for cut in range(20, len(body), 13):
        with pytest.raises(BundleRefused):
            open_archive(body[:cut])


def test_a_tar_name_that_is_not_utf_8_is_refused(open_archive: Open) -> None:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        archive.addfile(tarfile.TarInfo("caf\u00e9"))
    with pytest.raises(BundleRefused, match="not UTF-8"):
        open_archive(body.getvalue())


# neither


@pytest.mark.parametrize("body", [b"", b"hello", b"PK", b"PK\x07\x08", bytes(1024), b"7z\xbc\xaf\x27\x1c", b"BZh9", b"\xfd7zXZ\0", b"Rar!"])
def test_what_is_no_archive_is_refused(body: bytes, open_archive: Open) -> None:
    with pytest.raises(BundleRefused, match="neither a zip nor a tar"):
        open_archive(body)


@pytest.mark.parametrize(
    "body", [b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"\x1f\x8b\x08\0\0\0\0\0\0\0", gzip.compress(b""), gzip.compress(b"hello")]
)
def test_what_only_begins_like_an_archive_is_refused(body: bytes, open_archive: Open) -> None:
    with pytest.raises(BundleRefused):
        open_archive(body)


@pytest.mark.parametrize("body", [make_zip([]), make_targz([]), make_tar([("./", None, 0o755)]), make_zip([("__pycache__/x", b"", 0o644)])])
def test_an_empty_archive_is_refused(body: bytes, open_archive: Open) -> None:
    with pytest.raises(BundleRefused, match="empty"):
        open_archive(body)


@EACH
def test_no_broken_byte_ends_in_anything_but_a_refusal(pack: Callable[[Sequence[Entry]], bytes], tmp_path: Path) -> None:
    whole, dice = pack(SMALL), random.Random(7)
    for attempt in range(150):
        body = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            body[dice.randrange(len(body))] = dice.randrange(256)
        archive, destination = tmp_path / f"{attempt}", tmp_path / f"{attempt}.out"
        archive.write_bytes(body)
        destination.mkdir()
        try:
            unpack(archive, destination, LIMITS)
        except (BundleRefused, TooLarge):
            continue
