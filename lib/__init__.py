"""Models, trainers and measurements of the workbook; `python -m lib --help` lists the commands."""


def load(name, profile="toy", keep=False, **wanted):
    """Open a finished run: `load("ghostbert_t03", m=3, model="Ghost", task="SST-2", seed=0)`, or
    by its name; see lib.opened.load."""
    from lib import opened

    return opened.load(name, profile, keep, **wanted)
