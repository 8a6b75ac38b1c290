"""This module starts the kernel of a page: it is forked as workers are (lib.cluster.executors).

So it has the imports of workers from the start. It ends with the process that asked for it. Where
nothing is forked, jupyter_client starts the kernel.
"""

import os

from ipykernel.kernelapp import IPKernelApp
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

from lib.cluster import executors


class Forked(LocalProvisioner):
    """A Forked provisioner starts a kernel in a forked process."""

    async def launch_kernel(self, cmd, *, env, **_):
        self.cwd = os.getcwd()
        args = cmd[cmd.index("-f") :], env, self.cwd
        process = self.process = executors.context().Process(target=begin, args=args)
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

    async def _async_pre_start_kernel(self, **how):
        if executors.context().get_start_method() == "forkserver":
            about = {"kernel_id": self.kernel_id, "kernel_spec": self.kernel_spec}
            self.provisioner = self.provisioner or Forked(parent=self, **about)
        return await super()._async_pre_start_kernel(**how)


def begin(words, env, cwd):
    """Be a kernel, in a process that was just forked; words: the arguments of ipykernel."""
    import matplotlib

    os.setsid()
    os.chdir(cwd)
    executors.attach(env)
    app = IPKernelApp.instance()
    app.initialize(words)
    matplotlib.use(os.environ["MPLBACKEND"])  # It was set after matplotlib had read it.
    app.start()
