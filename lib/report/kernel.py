"""This module starts the Jupyter kernel of a page by forking, as worker processes are
forked (lib.cluster.executors).

A forked kernel has the slow imports, such as torch, loaded from the start, and ends
with the process that started it. On systems without a fork server, jupyter_client
starts the kernel in its usual way."""

import os
from collections.abc import Mapping
from typing import Any

from ipykernel.kernelapp import IPKernelApp
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

from lib.cluster import executors


class ForkedKernelProvisioner(LocalProvisioner):
    """This provisioner of jupyter_client starts a kernel by forking a prepared process.

    The forked process has slow imports such as torch loaded already, so a notebook
    starts fast."""

    # pyrefly: ignore[bad-override]  # A kernel manager always passes `env`.
    async def launch_kernel(
        self, cmd: list[str], *, env: Mapping[str, str], **further_options: Any
    ) -> KernelConnectionInfo:
        self.cwd = os.getcwd()
        args = cmd[cmd.index("-f") :], env, self.cwd
        context: Any = executors.make_multiprocessing_context()
        process = context.Process(target=run_ipython_kernel, args=args)
        self.process = process
        process.start()
        # jupyter_client needs these attributes of a subprocess.Popen.
        process.stdin = process.stdout = process.stderr = None
        process.poll = lambda: process.exitcode
        process.wait = process.join
        process.send_signal = lambda number: os.kill(process.pid, number)
        self.pid = process.pid
        return self.connection_info


class ForkingKernelManager(AsyncKernelManager):
    """This kernel manager of jupyter_client forks its kernels, so that they start fast.

    It forks them on Linux, where the project's worker processes are forked from a
    server too. On other systems jupyter_client starts a kernel in its usual way."""

    async def _async_pre_start_kernel(
        self, **start_options: Any
    ) -> tuple[list[str], dict[str, Any]]:
        if executors.make_multiprocessing_context().get_start_method() == "forkserver":
            about = {"kernel_id": self.kernel_id, "kernel_spec": self.kernel_spec}
            self.provisioner = self.provisioner or ForkedKernelProvisioner(
                parent=self, **about
            )
        return await super()._async_pre_start_kernel(**start_options)


def run_ipython_kernel(
    kernel_arguments: list[str], environment: Mapping[str, str], working_folder: str
) -> None:
    """Run an IPython kernel in this forked process until the kernel is shut down.

    The process ends with its parent, so that no kernel is left behind.

    kernel_arguments: the command-line arguments of ipykernel.
    environment: all environment variables of the kernel. They replace those of the
    process that was forked.
    working_folder: the folder in which the kernel runs."""
    import matplotlib

    os.setsid()
    os.chdir(working_folder)
    executors.follow_parent_process(environment)
    app = IPKernelApp.instance()
    app.initialize(kernel_arguments)
    # The fork server imported matplotlib before MPLBACKEND was set, so set the backend
    # again.
    matplotlib.use(os.environ["MPLBACKEND"])
    app.start()
