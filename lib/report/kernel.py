"""This module starts the kernel of a page: it is forked as workers are
(lib.cluster.executors).

So it has the imports of workers from the start. It ends with the process that asked for
it. Where nothing is forked, jupyter_client starts the kernel."""

import os
from collections.abc import Mapping
from typing import Any

from ipykernel.kernelapp import IPKernelApp
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

from lib.cluster import executors


class Forked(LocalProvisioner):
    """A Forked provisioner starts a kernel in a forked process."""

    # pyrefly: ignore[bad-override]  A manager always gives `env`.
    async def launch_kernel(
        self, cmd: list[str], *, env: Mapping[str, str], **_: Any
    ) -> KernelConnectionInfo:
        self.cwd = os.getcwd()
        args = cmd[cmd.index("-f") :], env, self.cwd
        context: Any = executors.process_context()
        process = context.Process(target=begin_kernel, args=args)
        self.process = process
        process.start()
        # jupyter_client asks for these attributes, which a subprocess.Popen has.
        process.stdin = process.stdout = process.stderr = None
        process.poll = lambda: process.exitcode
        process.wait = process.join
        process.send_signal = lambda number: os.kill(process.pid, number)
        self.pid = process.pid
        return self.connection_info


class Manager(AsyncKernelManager):
    """A Manager has forked kernels wherever workers are forked."""

    async def _async_pre_start_kernel(
        self, **how: Any
    ) -> tuple[list[str], dict[str, Any]]:
        if executors.process_context().get_start_method() == "forkserver":
            about = {"kernel_id": self.kernel_id, "kernel_spec": self.kernel_spec}
            self.provisioner = self.provisioner or Forked(parent=self, **about)
        return await super()._async_pre_start_kernel(**how)


def begin_kernel(words: list[str], env: Mapping[str, str], cwd: str) -> None:
    """Be a kernel, in a process that was just forked; words: the arguments of
    ipykernel."""
    import matplotlib

    os.setsid()
    os.chdir(cwd)
    executors.attach_to_parent(env)
    app = IPKernelApp.instance()
    app.initialize(words)
    matplotlib.use(os.environ["MPLBACKEND"])  # It was set after matplotlib had read it.
    app.start()
