"""The kernel of a page: forked as workers are (lib.runs.executors), with its imports there.

It ends when the process that asked for it does. Where nothing is forked, jupyter_client starts it.
"""

import os

from ipykernel.kernelapp import IPKernelApp
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

from lib.runs import executors


class Forked(LocalProvisioner):
    """Starts a kernel in a forked process."""

    async def launch_kernel(self, cmd, *, env, **_):
        self.cwd = os.getcwd()
        args = cmd[cmd.index("-f") :], env, self.cwd
        process = self.process = executors.context().Process(target=begin, args=args)
        process.start()
        # what is asked of a subprocess.Popen
        process.stdin = process.stdout = process.stderr = None
        process.poll = lambda: process.exitcode
        process.wait = process.join
        process.send_signal = lambda number: os.kill(process.pid, number)
        self.pid = process.pid
        return self.connection_info


class Manager(AsyncKernelManager):
    """A manager whose kernels are forked, where workers are."""

    async def _async_pre_start_kernel(self, **how):
        if executors.context().get_start_method() == "forkserver":
            about = {"kernel_id": self.kernel_id, "kernel_spec": self.kernel_spec}
            self.provisioner = self.provisioner or Forked(parent=self, **about)
        return await super()._async_pre_start_kernel(**how)


def begin(words, env, cwd):
    """What a forked process does to be a kernel; words: ipykernel's arguments."""
    import matplotlib

    os.setsid()
    os.chdir(cwd)
    executors.attach(env)
    app = IPKernelApp.instance()
    app.initialize(words)
    matplotlib.use(os.environ["MPLBACKEND"])  # which matplotlib read before it was set
    app.start()
