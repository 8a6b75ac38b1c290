"""The command line many times from one server: each command is a process of its own,
forked from it with the imports there, as workers are. `python -m lib` starts a server
anew each time.

    lib = Commands(env)
    lib("plan", DATA_ROOT="/data").stdout
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lib.cluster import executors
from lib.core import paths


class Commands:
    """A process with an environment that makes commands; it ends with the tests."""

    def __init__(self, env):
        self.env = env
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        words = [sys.executable, "-m", "tests.command"]  # with the lib of this folder
        self.process = subprocess.Popen(
            words, text=True, env=env, cwd=paths.ROOT, **pipes
        )

    def __call__(self, *words, **more):
        """Make a command to its end, with more in its environment. Returns a
        CompletedProcess with its texts."""
        with tempfile.TemporaryDirectory() as folder:
            places = [str(Path(folder, name)) for name in ("stdout", "stderr")]
            print(
                json.dumps([words, self.env | more, places]),
                file=self.process.stdin,
                flush=True,
            )
            code = int(self.process.stdout.readline())
            return subprocess.CompletedProcess(
                words, code, *(Path(p).read_text() for p in places)
            )

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def begin(words, env, places):
    """Be `python -m lib` with these words, its outputs in files."""
    for number, place in enumerate(places, 1):
        os.dup2(os.open(place, os.O_WRONLY | os.O_CREAT), number)
    executors.follow_parent_process(env)
    from lib.__main__ import main

    sys.exit(main(words))


if __name__ == "__main__":
    for line in sys.stdin:
        process = executors.make_multiprocessing_context().Process(
            target=begin, args=json.loads(line)
        )
        process.start()
        process.join()
        print(process.exitcode, flush=True)
