"""The name of a mounted file system, from what the kernel shows of it."""

import os
from pathlib import Path

import pytest

from tandemlog_server.storage.disk.mounts import mounted_as


@pytest.fixture
def kernel(tmp_path: Path) -> tuple[Path, Path]:
    """/sys/dev/block and /sys/fs of a machine that has tmp_path on sdb."""
    number = tmp_path.stat().st_dev
    devices, file_systems = tmp_path / "block", tmp_path / "fs"
    for each in (devices, file_systems, tmp_path / "devices" / "sdb"):
        each.mkdir(parents=True)
    link = devices / f"{os.major(number)}:{os.minor(number)}"
    link.symlink_to(Path("..") / "devices" / "sdb")
    (file_systems / "btrfs").mkdir()
    (file_systems / "xfs" / "stats").mkdir(parents=True)
    return devices, file_systems


def named(kernel: tuple[Path, Path], path: Path) -> str:
    return mounted_as(path, devices=kernel[0], file_systems=kernel[1])


def test_a_mount_has_a_name_that_the_next_one_has_not(
    kernel: tuple[Path, Path], tmp_path: Path
) -> None:
    shown = kernel[1] / "ext4" / "sdb"
    shown.mkdir(parents=True)
    first = named(kernel, tmp_path)
    assert first == f"ext4 sdb {shown.stat().st_ino}"
    assert named(kernel, tmp_path / "not" / "yet") == first
    # the folder of the next mount, while the old one's inode is still taken
    shown.rename(tmp_path / "old")
    shown.mkdir()
    assert named(kernel, tmp_path) != first


def test_what_the_kernel_does_not_show_has_no_name(
    kernel: tuple[Path, Path], tmp_path: Path
) -> None:
    assert named(kernel, tmp_path) == "", "a file system without a folder there"
    (kernel[0] / os.listdir(kernel[0])[0]).unlink()
    assert named(kernel, tmp_path) == "", "no block device"
    assert mounted_as(tmp_path, devices=tmp_path / "none", file_systems=kernel[1]) == ""
