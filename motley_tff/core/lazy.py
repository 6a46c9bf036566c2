"""TensorFlow and TensorFlow Federated, imported when they are first used.

An algorithm's parameters are read for flags, --help and the errors of a command line, which should
not wait three seconds for imports. Files that import `tf` from here name no type of it while they
are imported themselves: `from __future__ import annotations`.

TFF installs a local runtime on import that would start a worker of its own at the first
computation, one that nobody reaps. Here that default is an error;
`backends.tff.runtime.tff_runtime` opens a runtime whose worker is ours.
"""

from __future__ import annotations

import functools
import importlib
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_federated as tff


class _Lazy(types.ModuleType):
    """A module that is imported when the first of its attributes is asked for."""

    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module(self.__name__)
        if self.__name__ == "tensorflow_federated":
            _refuse_computations(module)
        # What is found here is not asked for again.
        value = self.__dict__[name] = getattr(module, name)
        return value


@functools.cache
def _refuse_computations(module: Any) -> None:
    """Makes a computation outside `tff_runtime` an error; a runtime that is open stays."""

    class NoRuntime(module.framework.SyncContext):
        def invoke(self, comp: Any, arg: Any) -> Any:
            raise RuntimeError(
                "No TFF runtime is open; run TFF computations inside "
                "motley_tff.backends.tff.runtime.tff_runtime()."
            )

    module.framework.set_default_context(NoRuntime())


if not TYPE_CHECKING:
    tf = _Lazy("tensorflow")
    tff = _Lazy("tensorflow_federated")
