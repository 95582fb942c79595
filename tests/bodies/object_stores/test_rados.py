"""The RADOS driver without a cluster: addresses, the binding, and the answers of librados."""

from __future__ import annotations

import asyncio
import errno
import importlib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from etagere.bodies.objects import rados, rados_binding
from etagere.bodies.objects.addresses import InvalidStore
from etagere.bodies.objects.interface import ObjectExists, ObjectMissing
from etagere.bodies.objects.opening import open_object_store
from etagere.bodies.objects.rados import RadosObjectStore
from etagere.bodies.objects.rados_connection import (
    TIMEOUTS,
    RadosAddress,
    Timeouts,
    parse_rados_url,
)
from etagere.engine.interface import Fault, FaultReason

SECRET = "do-not-show-this"


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("rados://pool", RadosAddress("pool")),
        ("rados://Pool.data/a/b", RadosAddress("Pool.data", "a/b")),
        (
            "rados://pool/p?conf=/srv/ceph.conf&user=client.etagere&namespace=one",
            RadosAddress("pool", "p", Path("/srv/ceph.conf"), "etagere", "one"),
        ),
        ("rados://pool?user=etagere", RadosAddress("pool", user="etagere")),
    ],
)
def test_addresses(url: str, address: RadosAddress) -> None:
    assert parse_rados_url(url) == address


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://pool", "must be rados://POOL"),
        ("rados://", "pool name"),
        ("rados://po ol", "pool name"),
        ("rados://" + "a" * 200, "pool name"),
        (f"rados://etagere:{SECRET}@pool", "keyring"),
        ("rados://pool/a//b", "prefix"),
        (f"rados://pool?key={SECRET}", "unknown option; the options are conf, namespace, user"),
        ("rados://pool?user=a&user=b", "twice"),
        ("rados://pool?user=", "user"),
        ("rados://pool?conf=ceph.conf", "absolute"),
        ("rados://pool?namespace=a%2Fb", "namespace"),
        ("rados://pool?conf", "must be rados://POOL"),
        ("rados://pool#part", "must be rados://POOL"),
    ],
)
def test_invalid_addresses(url: str, message: str) -> None:
    with pytest.raises(InvalidStore, match=re.escape(message)) as raised:
        parse_rados_url(url)
    assert SECRET not in str(raised.value)


# The binding


@pytest.fixture
def not_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `import rados` fail, as in an environment."""

    def refuse(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.delitem(sys.modules, "rados", raising=False)
    monkeypatch.setattr(importlib, "import_module", refuse)


@pytest.mark.usefixtures("not_importable")
def test_the_message_says_how_to_install_the_binding(tmp_path: Path) -> None:
    with pytest.raises(InvalidStore, match="install the package python3-rados"):
        rados_binding.load_binding([str(tmp_path), str(tmp_path / "none")])


@pytest.mark.usefixtures("not_importable")
def test_only_an_extension_module_for_this_interpreter_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "rados.py").write_text("raise AssertionError")
    (tmp_path / "rados.cpython-36m-x86_64-linux-gnu.so").write_bytes(b"not for this one")
    with pytest.raises(InvalidStore, match="install the package python3-rados"):
        rados_binding.load_binding([str(tmp_path)])
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    (tmp_path / f"rados{suffix}").write_bytes(b"no library")
    with pytest.raises(InvalidStore, match="cannot be loaded"):
        rados_binding.load_binding([str(tmp_path)])
    assert "rados" not in sys.modules


def test_a_binding_on_the_path_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "rados", module)
    assert rados_binding.load_binding([]) is module


# The answers of librados


class BindingError(Exception):
    """As `rados.Error`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.errno = number


class FakePool:
    """Answers operations from another thread, or not at all."""

    def __init__(self, codes: list[int | None]) -> None:
        self.codes = codes
        self.threads: list[threading.Thread] = []
        self.unanswered: list[Callable[[], None]] = []

    def _answer(self, completed: Callable[..., None], *found: object) -> None:
        code = self.codes.pop(0)
        answer = SimpleNamespace(get_return_value=lambda: code)
        if code is None:
            late = SimpleNamespace(get_return_value=lambda: 0)
            self.unanswered.append(lambda: completed(late, *found))
            return
        thread = threading.Thread(target=completed, args=(answer, *found))
        self.threads.append(thread)
        thread.start()

    def operate_aio_write_op(self, _: object, name: str, completed: Callable[..., None]) -> None:
        self._answer(completed)

    def aio_read(self, name: str, length: int, at: int, completed: Callable[..., None]) -> None:
        self._answer(completed, bytes(length))

    def aio_stat(self, name: str, completed: Callable[..., None]) -> None:
        self._answer(completed, 1, None)

    def set_namespace(self, name: str) -> None:
        pass

    def set_osdmap_full_try(self) -> None:
        pass

    def close(self) -> None:
        pass


class FakeBinding:
    """As the module `rados`, with a cluster that answers with these codes (None: not)."""

    Error = BindingError
    LIBRADOS_CREATE_EXCLUSIVE = 1

    def __init__(self, codes: Sequence[int | None], connects: Sequence[int] = ()) -> None:
        self.pool = FakePool(list(codes))
        self.connects = list(connects)
        self.connections = 0
        self.shutdowns = 0

    def WriteOpCtx(self) -> Any:
        class Operation:
            def __enter__(self) -> Any:
                return SimpleNamespace(new=int, write_full=len, remove=list)

            def __exit__(self, *_: object) -> None:
                pass

        return Operation()

    def Rados(self, **_: object) -> Any:
        return self

    def connect(self) -> None:
        self.connections += 1
        number = self.connects.pop(0) if self.connects else 0
        if number:
            raise BindingError(number)

    def open_ioctx(self, _: str) -> FakePool:
        return self.pool

    def shutdown(self) -> None:
        self.shutdowns += 1


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Calls a function with a driver on a fake binding; returns the binding."""
    configuration = tmp_path / "ceph.conf"
    configuration.touch()

    def run(
        binding: FakeBinding,
        call: Callable[[RadosObjectStore], Any],
        timeouts: Timeouts = TIMEOUTS,
    ) -> FakeBinding:
        monkeypatch.setattr(rados, "load_binding", lambda: binding)

        async def within() -> None:
            store = RadosObjectStore(RadosAddress("pool", "", configuration), timeouts)
            try:
                await call(store)
            finally:
                await store.close()

        asyncio.run(asyncio.wait_for(within(), 20))
        return binding

    yield run


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ETIMEDOUT, FaultReason.UNAVAILABLE),
        (errno.ENOTCONN, FaultReason.UNAVAILABLE),
        (errno.ENOSPC, FaultReason.DISK_FULL),
        (errno.EDQUOT, FaultReason.DISK_FULL),
        (errno.EPERM, FaultReason.FAILED),
        (errno.EIO, FaultReason.FAILED),
    ],
)
def test_errors(use: Any, code: int, reason: FaultReason) -> None:
    async def call(store: RadosObjectStore) -> None:
        for attempt in (store.put("a", [b"x"]), store.get("a", 0, 1), store.delete(["a"])):
            with pytest.raises(Fault) as raised:
                await attempt
            assert raised.value.reason is reason

    assert use(FakeBinding([-code] * 3), call).shutdowns == 1


def test_missing_and_existing_objects(use: Any) -> None:
    async def call(store: RadosObjectStore) -> None:
        with pytest.raises(ObjectExists):
            await store.put("a", [b"x"])
        with pytest.raises(ObjectMissing):
            await store.get("a", 0, 1)
        await store.delete(["a"])
        assert await store.get("a", 5, 3) == b""

    use(FakeBinding([-errno.EEXIST, -errno.ENOENT, -errno.ENOENT, 0]), call)


def test_calls_end_if_librados_never_answers(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rados, "_GRACE_SECONDS", 0.1)

    async def call(store: RadosObjectStore) -> None:
        with pytest.raises(Fault, match="no answer in time") as raised:
            await store.get("a", 0, 1)
        assert raised.value.reason is FaultReason.UNAVAILABLE

    binding = use(FakeBinding([None]), call, Timeouts(0, 0))
    for answer in binding.pool.unanswered:
        answer()  # the loop is closed


def test_an_operation_ends_before_the_connection_is_closed(use: Any) -> None:
    """Even if its caller was cancelled."""
    binding = FakeBinding([0, None])

    async def call(store: RadosObjectStore) -> None:
        await store.delete(["b"])
        task = asyncio.create_task(store.delete(["a"]))
        while not binding.pool.unanswered:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        threading.Thread(target=binding.pool.unanswered[0]).start()
        await closing
        assert binding.shutdowns == 1

    use(binding, call)


def test_a_failed_connection_is_tried_again(use: Any) -> None:
    async def call(store: RadosObjectStore) -> None:
        deletions = (store.delete([name]) for name in "abc")
        outcomes = await asyncio.gather(*deletions, return_exceptions=True)
        assert {str(each) for each in outcomes} == {
            "unavailable: RADOS, connect: Connection timed out"
        }
        await store.delete(["a"])

    binding = use(FakeBinding([0], [errno.ETIMEDOUT]), call)
    assert (binding.connections, binding.shutdowns) == (2, 2)


def test_a_blocklisted_client_connects_again(use: Any) -> None:
    async def call(store: RadosObjectStore) -> None:
        with pytest.raises(Fault) as raised:
            await store.put("a", [b"x"])
        assert raised.value.reason is FaultReason.UNAVAILABLE
        await store.put("a", [b"x"])

    binding = use(FakeBinding([-errno.ESHUTDOWN, 0]), call)
    assert (binding.connections, binding.shutdowns) == (2, 2)


def test_a_missing_configuration_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rados, "load_binding", lambda: FakeBinding([]))
    store = open_object_store("rados://pool?conf=/none/ceph.conf")

    async def call() -> None:
        with pytest.raises(Fault, match=r"/none/ceph\.conf cannot be read: No such file") as raised:
            await store.put("a", [b"x"])
        assert raised.value.reason is FaultReason.FAILED
        await store.close()

    asyncio.run(call())
