"""The decorator that passes accounts to tests."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from conformance.lists import Name


class EnvironmentVariableOptions(NamedTuple):
    """Whether an argument is a secret."""

    hide_secrets: Sequence[str] = ()


class Secret(NamedTuple):
    """A string that tracebacks do not show."""

    secret: str

    def __repr__(self) -> str:
        return "Secret()"


Test = Callable[..., Any]


class EnvironmentVariableLoader:
    """Passes variables of the environment to a test as keyword arguments.

    A variable that begins with the name of the test counts first, then one that begins with the
    name of the runner, then the one without a prefix.
    """

    def __init__(
        self,
        _directory: str,
        *,
        options: EnvironmentVariableOptions | None = None,
        **fakes: str,
    ) -> None:
        self._fakes = fakes
        self._secrets = options.hide_secrets if options is not None else ()

    def __call__(self, test: Test) -> Test:
        parameters = inspect.signature(test).parameters
        takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        ours = [name for name in self._fakes if takes_all or name in parameters]

        # What tests return is for recordings.
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def loaded(*arguments: Any, **options: Any) -> None:
                await test(*arguments, **options, **self._load(ours))

        else:

            @functools.wraps(test)
            def loaded(*arguments: Any, **options: Any) -> None:
                test(*arguments, **options, **self._load(ours))

        # So that pytest sees the parameters that are left for it.
        rest = [
            one
            for one in parameters.values()
            if one.name not in ours and one.kind is not one.VAR_KEYWORD
        ]
        loaded.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]
        return loaded

    def _load(self, names: Sequence[str]) -> dict[str, str | Secret]:
        return {name: self._value(name) for name in names}

    def _value(self, name: str) -> str | Secret:
        runner = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
        # "NODE (call)"
        test = Name.of(os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0])
        # Of the two keys of an account, tests ask for the first.
        variable = name.upper().replace("PRIMARY_", "")
        places = (f"{test.variable_prefix}_{variable}", f"{runner.upper()}_{variable}", variable)
        found = next(os.environ[place] for place in places if place in os.environ)
        return Secret(found) if name in self._secrets else found


PowerShellPreparer = EnvironmentVariableLoader
"""The older name, which some tests still use."""
