"""Both forms of the record kernel in one process: the compiled modules beside the plain ones."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from unittest import mock

from barnabas import native

PLAIN, COMPILED = "plain", "compiled"


class Kernel:
    """The modules of the kernel in one form, as attributes with their short names."""

    def __init__(self, form: str, modules: dict[str, ModuleType]) -> None:
        self.form = form
        self.compiled = form == COMPILED
        self._modules = modules

    def module(self, name: str) -> ModuleType:
        """By its full name; the figures of requests stand elsewhere than the rest."""
        return self._modules[name]

    def __getattr__(self, name: str) -> ModuleType:
        try:
            return self._modules[f"barnabas.records.kernel.{name}"]
        except KeyError:
            raise AttributeError(name) from None

    def __repr__(self) -> str:
        return f"<{self.form} kernel>"


def load(form: str) -> Kernel | None:
    """The kernel in a form; None when it is not built. What other tests have imported stays as it is."""
    package = importlib.import_module("barnabas.records.kernel")
    before = {name: sys.modules.pop(name, None) for name in native.KERNEL}
    attributes = dict(vars(package))
    try:
        with mock.patch.dict(os.environ, {native.SWITCH: "1" if form == COMPILED else "0"}):
            native.is_kernel_native.cache_clear()
            if native.is_kernel_native() != (form == COMPILED):
                return None
            return Kernel(form, {name: importlib.import_module(name) for name in native.KERNEL})
    finally:
        native.is_kernel_native.cache_clear()
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
        vars(package).update(attributes)
