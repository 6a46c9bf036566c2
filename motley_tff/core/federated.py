"""TensorFlow Federated, imported so that nothing runs until a runtime is opened.

On import TFF installs a local runtime that would start a worker of its own at the first
computation, one that nobody reaps. Here that default is an error; `backends.tff.worker.tff_runtime`
opens a runtime whose worker is ours.
"""

from typing import Any

import tensorflow_federated as tff


class _NoRuntime(tff.framework.SyncContext):
    """Refuses to run computations."""

    def invoke(self, comp: Any, arg: Any) -> Any:
        """Raises RuntimeError: there is no runtime here."""
        raise RuntimeError(
            "No TFF runtime is open; run TFF computations inside "
            "motley_tff.backends.tff.worker.tff_runtime()."
        )


tff.framework.set_default_context(_NoRuntime())
