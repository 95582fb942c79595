"""The virtual machine: a Debian kernel with its cifs module, busybox, and one script."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

_METAPACKAGE = "linux-image-amd64"
_MODULES = (
    "virtio_pci",
    "virtio_net",
    "cmac",
    "ccm",
    "gcm",
    "ctr",
    "ghash_generic",
    "sha512_generic",
    "ecb",
    "nls_utf8",
    "cifs",
)
"""The modules that the kernel loads on demand, which the guest has no program for, and drivers."""


class CannotBuild(Exception):
    """The machine cannot be built; the message says why."""


def build(cache: Path, script: Path) -> tuple[Path, Path]:
    """Returns the kernel and an initial file system that runs the script."""
    root = _unpacked(cache)
    kernel = next((root / "boot").glob("vmlinuz-*"))
    image = cache / "initramfs"
    image.write_bytes(b"".join(_archive(root, script)))
    return kernel, image


def run(kernel: Path, image: Path, options: str, seconds_max: float) -> Iterator[str]:
    """Boots the machine and yields the lines of its console. The host is 10.0.2.2 there."""
    accelerator = "tcg"
    command = [
        *("timeout", str(seconds_max), "qemu-system-x86_64"),
        *("-accel", accelerator, "-m", "512", "-smp", "1", "-nographic", "-no-reboot"),
        *("-kernel", str(kernel), "-initrd", str(image)),
        *("-append", f"console=ttyS0 quiet panic=-1 {options}"),
        *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield line.rstrip()


def _unpacked(cache: Path) -> Path:
    """Downloads and unpacks the kernel and busybox, without installing them."""
    root = cache / "root"
    if (root / ".complete").exists():
        return root
    root.mkdir(parents=True, exist_ok=True)
    depends = _output("apt-cache", "depends", _METAPACKAGE)
    kernel = next(
        (line.split()[-1] for line in depends.splitlines() if "Depends: linux-image" in line), None
    )
    if kernel is None:
        raise CannotBuild(f"there is no package {_METAPACKAGE}: run apt-get update")
    subprocess.run(["apt-get", "download", "-q", kernel, "busybox-static"], cwd=root, check=True)
    for package in root.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, root], check=True)
        package.unlink()
    (root / ".complete").touch()
    return root


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# The archive, in the format newc of cpio


def _archive(root: Path, script: Path) -> Iterator[bytes]:
    files = {path.stem.replace("-", "_"): path for path in root.glob("lib/modules/**/*.ko")}
    modules = list(_in_order(files, _MODULES))
    for directory in ("bin", "dev", "proc", "sys", "mnt", "lib", "tmp"):
        yield from _member(directory, stat.S_IFDIR | 0o755)
    yield from _member("bin/busybox", stat.S_IFREG | 0o755, (root / "bin/busybox").read_bytes())
    yield from _member("bin/sh", stat.S_IFLNK | 0o777, b"busybox")
    yield from _member("init", stat.S_IFREG | 0o755, script.read_bytes())
    for name in modules:
        yield from _member(f"lib/{name}.ko", stat.S_IFREG | 0o644, files[name].read_bytes())
    order = "".join(f"{name}\n" for name in modules)
    yield from _member("lib/modules", stat.S_IFREG | 0o644, order.encode())
    yield from _member("TRAILER!!!", 0)


def _in_order(files: dict[str, Path], wanted: tuple[str, ...]) -> Iterator[str]:
    """Yields the modules after those that they depend on."""
    seen: set[str] = set()

    def visit(name: str) -> Iterator[str]:
        if name in seen or name not in files:  # not a file: built in
            return
        seen.add(name)
        for needed in _dependencies(files[name]):
            yield from visit(needed)
        yield name

    for name in wanted:
        yield from visit(name)


def _dependencies(module: Path) -> list[str]:
    _, _, rest = module.read_bytes().partition(b"\0depends=")
    names = rest.partition(b"\0")[0].decode()
    return [name.replace("-", "_") for name in names.split(",") if name]


def _member(name: str, mode: int, data: bytes = b"") -> Iterator[bytes]:
    encoded = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    yield header + bytes(-len(header) % 4)
    yield data + bytes(-len(data) % 4)
