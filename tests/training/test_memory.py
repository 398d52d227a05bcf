"""The memory of a machine and of a container on it."""

import os

import pytest

from hf_linear_attn.training.memory import memory_bytes

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
GIB = 2**30
SECOND, FIRST = "sys/fs/cgroup", "sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/\n", {f"{SECOND}/memory.max": GIB}, GIB),
        ("0::/\n", {f"{SECOND}/memory.max": "max"}, MACHINE),
        # A limit of the group itself, and one of the group around it.
        ("0::/a/b\n", {f"{SECOND}/a/b/memory.max": GIB, f"{SECOND}/a/memory.max": "max"}, GIB),
        ("0::/a/b\n", {f"{SECOND}/a/b/memory.max": 2 * GIB, f"{SECOND}/a/memory.max": GIB}, GIB),
        # A container that is told the path outside of it.
        ("0::/../../x\n", {f"{SECOND}/memory.max": GIB}, GIB),
        ("0::/../x\n", {f"{SECOND}/memory.max": "max", "sys/fs/x/memory.max": GIB}, MACHINE),
        ("4:memory:/docker/1\n", {f"{FIRST}/memory.limit_in_bytes": GIB}, GIB),
        ("4:cpu,memory:/a\n0::/\n", {f"{FIRST}/a/memory.limit_in_bytes": GIB}, GIB),
        ("4:memory:/a\n", {f"{FIRST}/a/memory.limit_in_bytes": 9223372036854771712}, MACHINE),
        # Groups of other things, no groups at all, and a limit above what there is.
        ("3:cpuset:/a\n", {f"{FIRST}/a/memory.limit_in_bytes": GIB}, MACHINE),
        ("0::/\n", {}, MACHINE),
        (None, {f"{SECOND}/memory.max": GIB}, MACHINE),
        ("0::/\n", {f"{SECOND}/memory.max": 10 * MACHINE}, MACHINE),
        # Files of another form than the kernel writes now: nothing is known of a limit.
        ("nothing\n0::/\n", {f"{SECOND}/memory.max": GIB}, GIB),
        ("0::/\n", {f"{SECOND}/memory.max": "\udcff"}, MACHINE),
        ("0::/\udcff\n", {f"{SECOND}/memory.max": GIB}, MACHINE),
    ],
)
def test_the_least_limit_holds(tmp_path, groups, limits, expected):
    files = {**limits, **({} if groups is None else {"proc/self/cgroup": groups})}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(f"{content}\n".encode(errors="surrogateescape"))
    assert memory_bytes(tmp_path) == expected


def test_this_machine_has_some():
    assert 0 < memory_bytes() <= MACHINE
