"""Loading Ceph's Python binding, the module `rados`, which is not on PyPI.

Linux distributions install it for their own interpreter. An environment does not see their modules,
and should not: they would replace its own. So the one extension module is loaded from its file,
which requires that the environment has the same version of Python.
"""

from __future__ import annotations

import importlib
import sys
import sysconfig
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from importlib.util import module_from_spec
from typing import Any, Final

from etagere.bodies.objects.addresses import InvalidStore

_NAME: Final = "rados"
_VERSION: Final = sysconfig.get_python_version()
_DIRECTORIES: Final = (
    "/usr/lib/python3/dist-packages",
    f"/usr/lib64/python{_VERSION}/site-packages",
    f"/usr/lib/python{_VERSION}/site-packages",
)
"""Of Debian and Ubuntu, and of others."""


def load_binding(directories: Sequence[str] = _DIRECTORIES) -> Any:
    """Returns the module. Raises `InvalidStore` if it is not installed."""
    try:
        return importlib.import_module(_NAME)
    except ModuleNotFoundError:
        pass
    except ImportError as error:
        raise _unusable(error) from error
    for directory in directories:
        spec = FileFinder(directory, (ExtensionFileLoader, EXTENSION_SUFFIXES)).find_spec(_NAME)
        if spec is None or spec.loader is None:
            continue
        try:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
        except ImportError as error:
            raise _unusable(error) from error
        sys.modules[_NAME] = module
        return module
    raise InvalidStore(
        f"needs Ceph's Python binding for Python {_VERSION}: install the package python3-rados of "
        "your Linux distribution, and run the server with its Python"
    )


def _unusable(error: ImportError) -> InvalidStore:
    return InvalidStore(f"needs Ceph's Python binding, which cannot be loaded: {error}")
